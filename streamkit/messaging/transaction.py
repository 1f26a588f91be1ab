"""Sending within a local transaction: the message counts only if the transaction does.

::

    async with channel.transaction(message) as tx:     the message is stored, and nobody sees it
        await database.execute(...)                    the local transaction
                                                       block ends         consumers get the message
                                                       exception          nobody ever will
                                                       cancelled, crash   unknown: the group's checker is asked
        tx.unknown()                                   block ends, or an exception: unknown as well

In `def` code `with channel.transaction(message) as tx:` does the same, in a thread that may block.
"""

import asyncio
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
    """How a local transaction ended."""

    COMMIT = "commit"
    """It counts, and so does its message."""
    ROLLBACK = "rollback"
    """It never happened, and its message never will."""
    UNKNOWN = "unknown"
    """Nobody can tell yet: the group's checker is asked later."""


class BrokerTransaction(Protocol):
    """A message that is stored and that nobody sees yet; it ends once."""

    async def commit(self) -> None:
        """Let consumers get it. Whatever gets lost on the way, the checker is asked later."""

    async def rollback(self) -> None:
        """Let nobody ever get it."""

    async def unknown(self) -> None:
        """Let the checker be asked."""


class TransactionRequest:
    """Travels with a message through its channel, and comes back with the transaction that began.

    Attributes:
        begun: The transaction, once a binding began it.
    """

    __slots__ = ("begun",)

    def __init__(self) -> None:
        self.begun: BrokerTransaction | None = None

    def __repr__(self) -> str:
        return f"<TransactionRequest {'begun' if self.begun is not None else 'not begun'}>"


class TransactionalChannel(Protocol):
    """What a transaction needs of its channel."""

    name: str

    async def asend(self, message: Message[object], timeout: float | None = None) -> bool:
        """Send from a coroutine."""
        ...

    def portal_for(self, message: Message[object]) -> Portal:
        """The way onto the application's loop, for a thread that may block."""
        ...


class ChannelTransaction:
    """One message, sent when the block begins and decided about when it ends.

    Attributes:
        message: What is sent; it has a header `TRANSACTION_ID`, by which a checker knows the transaction again.
    """

    def __init__(
        self, channel: TransactionalChannel, message: Message[object], timeout: float | None
    ) -> None:
        if message.headers.get(TRANSACTION_ID) is None:
            message = message.with_header(TRANSACTION_ID, new_id())
        self.message = message
        self._channel = channel
        self._timeout = timeout
        self._request = TransactionRequest()
        self._decided: TransactionState | None = None

    @property
    def transaction_id(self) -> str:
        """The header `TRANSACTION_ID` of the message: the sender's, or one that was made."""
        return str(self.message.headers[TRANSACTION_ID])

    # What the block may say; told to the system when it ends.

    def unknown(self) -> None:
        """After the block the checker decides: the local transaction may, or may not, have been committed."""
        self._decided = TransactionState.UNKNOWN

    def rollback(self) -> None:
        """After the block nobody ever gets the message, although nothing was raised."""
        self._decided = TransactionState.ROLLBACK

    # The block

    async def __aenter__(self) -> Self:
        accepted = await self._channel.asend(
            self.message.with_header(TRANSACTION, self._request), self._timeout
        )
        if not accepted or self._request.begun is None:
            why = (
                "no output binding of a binder is subscribed to it"
                if accepted
                else "an interceptor stopped the message, or it was not accepted in time"
            )
            raise MessageDeliveryError(
                f"no transaction began on channel {self._channel.name!r}: {why}", self.message
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
        # What ends a task or the process may have come in the middle of a commit.
        is_failure = isinstance(error, Exception) and not isinstance(error, asyncio.CancelledError)
        return TransactionState.ROLLBACK if is_failure else TransactionState.UNKNOWN

    def __enter__(self) -> Self:
        return self._channel.portal_for(self.message).run(self.__aenter__())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.portal_for(self.message).run(self.__aexit__(kind, error, trace))

    def __repr__(self) -> str:
        return f"<ChannelTransaction {self.transaction_id} on {self._channel.name!r}>"
