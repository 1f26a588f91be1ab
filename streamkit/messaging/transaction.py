"""Sending within a local transaction: the message is delivered only if the transaction commits.

::

    async with channel.transaction(message) as tx:     the message is stored, and not delivered
        await database.execute(...)                    the local transaction
                                                       block ends         consumers get the message
                                                       exception          consumers never get it
                                                       cancelled, crash   unknown: the group's checker is asked
        tx.unknown()                                   block ends, or an exception: unknown as well

In `def` code `with channel.transaction(message) as tx:` does the same, in a thread that may block.
"""

import logging
from enum import Enum
from types import TracebackType
from typing import Protocol, Self

from streamkit.errors import MessageDeliveryError
from streamkit.messaging.headers import TRANSACTION, TRANSACTION_ID, new_id
from streamkit.messaging.message import Message
from streamkit.messaging.portal import Portal

__all__ = ["BrokerTransaction", "ChannelTransaction", "TransactionRequest", "TransactionState"]

logger = logging.getLogger(__name__)


class TransactionState(Enum):
    """The state of a local transaction."""

    COMMIT = "commit"
    """It has committed: consumers get the message."""
    ROLLBACK = "rollback"
    """It was rolled back: consumers never get the message."""
    UNKNOWN = "unknown"
    """The state is not known yet: the broker asks the group's checker later."""


class BrokerTransaction(Protocol):
    """A message that is stored and not delivered yet; its transaction ends once."""

    async def commit(self) -> None:
        """Commit the transaction: consumers get the message. If the request is lost, the checker is asked later."""

    async def rollback(self) -> None:
        """Discard the message."""

    async def unknown(self) -> None:
        """Leave the decision to the checker."""


class TransactionRequest:
    """Passes through a channel with a message, so that the binding can return the transaction that it began.

    Attributes:
        begun: The transaction, once a binding began it.
    """

    __slots__ = ("begun",)

    def __init__(self) -> None:
        self.begun: BrokerTransaction | None = None

    def __repr__(self) -> str:
        return f"<TransactionRequest {'begun' if self.begun is not None else 'not begun'}>"


class TransactionalChannel(Protocol):
    """The part of a channel that a transaction uses."""

    name: str

    async def asend(self, message: Message[object], timeout: float | None = None) -> bool:
        """Send from a coroutine."""
        ...

    def portal_for(self, message: Message[object]) -> Portal:
        """Return the portal to the application's loop, for a thread that may block."""
        ...


class ChannelTransaction:
    """One message, which is stored when the block begins and committed or rolled back when it ends.

    Attributes:
        message: The message; its header `TRANSACTION_ID` identifies the transaction for a checker.
    """

    def __init__(self, channel: TransactionalChannel, message: Message[object], timeout: float | None) -> None:
        if message.headers.get(TRANSACTION_ID) is None:
            message = message.with_header(TRANSACTION_ID, new_id())
        self.message = message
        self._channel = channel
        self._timeout = timeout
        self._request = TransactionRequest()
        self._decided: TransactionState | None = None

    @property
    def transaction_id(self) -> str:
        """The header `TRANSACTION_ID` of the message: the sender's, or a generated one."""
        return str(self.message.headers[TRANSACTION_ID])

    # Decisions of the block, which take effect when it ends.

    def unknown(self) -> None:
        """Leave the decision to the checker: the local transaction may or may not have been committed."""
        self._decided = TransactionState.UNKNOWN

    def rollback(self) -> None:
        """Roll the transaction back at the end of the block, although the block does not raise."""
        self._decided = TransactionState.ROLLBACK

    # The block

    async def __aenter__(self) -> Self:
        accepted = await self._channel.asend(self.message.with_header(TRANSACTION, self._request), self._timeout)
        if not accepted or self._request.begun is None:
            why = (
                "no output binding of a binder is subscribed to it"
                if accepted
                else "an interceptor stopped the message, or it was not accepted in time"
            )
            raise MessageDeliveryError(
                f"could not begin a transaction on channel {self._channel.name!r}: {why}", self.message
            )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        transaction = self._request.begun
        if transaction is None:
            return
        state = self._state_after(error)
        if state is TransactionState.COMMIT:
            await transaction.commit()
        elif state is TransactionState.ROLLBACK:
            await transaction.rollback()
        else:
            logger.info(
                "Transaction %s on channel %r is unknown: its checker will be asked",
                self.transaction_id,
                self._channel.name,
            )
            await transaction.unknown()

    def _state_after(self, error: BaseException | None) -> TransactionState:
        if self._decided is TransactionState.UNKNOWN:
            return TransactionState.UNKNOWN
        if error is None:
            return self._decided or TransactionState.COMMIT
        # An exception that ends the task or the process may have been raised in the middle of a commit.
        return TransactionState.ROLLBACK if isinstance(error, Exception) else TransactionState.UNKNOWN

    def __enter__(self) -> Self:
        return self._channel.portal_for(self.message).run(self.__aenter__())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.portal_for(self.message).run(self.__aexit__(kind, error, trace))

    def __repr__(self) -> str:
        return f"<ChannelTransaction {self.transaction_id} on {self._channel.name!r}>"
