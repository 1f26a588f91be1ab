"""The transaction listeners of an application, by producer group: they execute and check local transactions."""

import logging
from collections.abc import Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING

import msgspec

from streamkit.binder.binder import TransactionChecker
from streamkit.binder.named_objects import NamedObjects
from streamkit.errors import ConfigurationError
from streamkit.messaging.headers import TRANSACTION_ID
from streamkit.messaging.message import Message
from streamkit.messaging.transaction import TransactionState

if TYPE_CHECKING:  # few applications have transactions
    from streamkit.binder.transactional_sending import LocalTransaction

__all__ = ["LocalTransactions", "TransactionHandlers"]

logger = logging.getLogger(__name__)


class TransactionHandlers(msgspec.Struct, frozen=True):
    """The functions of a transaction listener.

    Attributes:
        check: Returns how a local transaction ended.
        execute: Executes the local transaction of a message; None if the application does that in a block.
    """

    check: TransactionChecker
    execute: "LocalTransaction | None" = None


Prepare = Callable[[object, str], TransactionHandlers]
"""Makes handlers of a registered object; the second argument names their threads."""


class LocalTransactions:
    """The transaction listeners of one application.

    Attributes:
        open: The `TRANSACTION_ID` of each transaction that this process has begun and not ended.
    """

    def __init__(self, named: NamedObjects) -> None:
        """Make an empty table.

        Args:
            named: The registered objects, which settings name.
        """
        self._named = named
        self._by_group: dict[str, TransactionHandlers] = {}
        self._prepare: Prepare | None = None
        self.open: set[str] = set()

    def prepare_with(self, prepare: Prepare) -> None:
        """Set the function that makes handlers of the listeners that settings name."""
        self._prepare = prepare

    def add(self, group: str, handlers: TransactionHandlers) -> None:
        """Register the handlers of a producer group.

        Raises:
            ConfigurationError: The group has other handlers.
        """
        if self._by_group.setdefault(group, handlers) is not handlers:
            raise ConfigurationError(
                f"two transaction listeners are registered for producer group {group!r}: remove one of them"
            )

    def find(self, group: str, name: str | None) -> TransactionHandlers:
        """Return the handlers of a producer group.

        Args:
            group: The group.
            name: The registered name of a listener from the settings, which overrides the group's handlers, or None.

        Raises:
            LookupError: The group has no handlers, or no object is registered under ``name``.
            ConfigurationError: The object of that name is not a transaction listener.
        """
        if name is not None and self._prepare is not None:
            listener = self._named.find(name, "a transaction listener", lambda found: found)
            return self._prepare(listener, group)
        found = self._by_group.get(group)
        if found is None:
            near = get_close_matches(group, self._by_group, n=1)
            known = ", ".join(sorted(self._by_group)) or "none"
            raise LookupError(
                f"there is no transaction listener for producer group {group!r}: decorate a function or a class with "
                f"@app.transaction_listener({group!r}). "
                + (f"Did you mean {near[0]!r}?" if near else f"Groups that have one: {known}.")
            )
        return found

    def checker(self, handlers: TransactionHandlers) -> TransactionChecker:
        """Return a checker that answers UNKNOWN while the transaction is open in this process, else asks ``handlers``.

        The check of an open transaction would look for a row that is not committed yet, and answer with a rollback.
        """

        async def check(message: Message[bytes]) -> TransactionState:
            if message.headers.get(TRANSACTION_ID) in self.open:
                return TransactionState.UNKNOWN
            return await handlers.check(message)

        return check

    def __repr__(self) -> str:
        return f"<LocalTransactions of {sorted(self._by_group)}>"
