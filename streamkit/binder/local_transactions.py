"""Who executes and answers for the local transactions of an application, by producer group."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches

from streamkit.binder.binder import TransactionChecker
from streamkit.binder.named_objects import NamedObjects
from streamkit.binder.transactional_sending import LocalTransaction
from streamkit.errors import ConfigurationError
from streamkit.messaging.headers import TRANSACTION_ID
from streamkit.messaging.message import Message
from streamkit.messaging.transaction import TransactionState

__all__ = ["LocalTransactions", "TransactionHandlers"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TransactionHandlers:
    """What a transaction listener does.

    Attributes:
        check: Tells how a local transaction ended.
        execute: Executes the local transaction of a message; None where the application does that itself.
    """

    check: TransactionChecker
    execute: LocalTransaction | None = None


Prepare = Callable[[object, str], TransactionHandlers]
"""Makes handlers of what the application registered, with a name for its threads."""


class LocalTransactions:
    """The transaction listeners of one application.

    Attributes:
        open: The `TRANSACTION_ID` of each transaction that this application began and has not ended.
    """

    def __init__(self, named: NamedObjects) -> None:
        """Know none yet; settings may name those in ``named``."""
        self._named = named
        self._by_group: dict[str, TransactionHandlers] = {}
        self._prepare: Prepare | None = None
        self.open: set[str] = set()

    def prepare_with(self, prepare: Prepare) -> None:
        """Have ``prepare`` make handlers of listeners that settings name."""
        self._prepare = prepare

    def add(self, group: str, handlers: TransactionHandlers) -> None:
        """Have these answer for a producer group.

        Raises:
            ConfigurationError: Others do already.
        """
        if self._by_group.setdefault(group, handlers) is not handlers:
            raise ConfigurationError(
                f"two transaction listeners are registered for producer group {group!r}: one has to answer for it"
            )

    def find(self, group: str, name: str | None) -> TransactionHandlers:
        """Return who answers for a producer group.

        Args:
            group: The group.
            name: The name of a registered object that a setting names; it wins.

        Raises:
            LookupError: Nobody does.
            ConfigurationError: What has that name is no transaction listener.
        """
        if name is not None and self._prepare is not None:
            listener = self._named.find(name, "a transaction listener", lambda found: found)
            return self._prepare(listener, group)
        found = self._by_group.get(group)
        if found is None:
            near = get_close_matches(group, self._by_group, n=1)
            known = ", ".join(sorted(self._by_group)) or "none"
            raise LookupError(
                f"nobody answers for the transactions of producer group {group!r}: decorate a function or a class with "
                f"@app.transaction_listener({group!r}). "
                + (f"Did you mean {near[0]!r}?" if near else f"Groups that have one: {known}.")
            )
        return found

    def checker(self, handlers: TransactionHandlers) -> TransactionChecker:
        """Return who is asked: not the listener while the transaction is under way here; it would find nothing yet."""

        async def check(message: Message[bytes]) -> TransactionState:
            if message.headers.get(TRANSACTION_ID) in self.open:
                return TransactionState.UNKNOWN
            return await handlers.check(message)

        return check

    def __repr__(self) -> str:
        return f"<LocalTransactions of {sorted(self._by_group)}>"
