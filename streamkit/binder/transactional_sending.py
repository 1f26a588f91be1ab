"""The last subscriber of a transactional binding's channel: every message is part of a local transaction.

::

    channel.transaction(message)     the block that the application opened is the local transaction
    channel.asend(message)           `execute_local_transaction` of the binding's listener is; without it an error

Which of the two it is, the message says: the first one carries a `TransactionRequest`.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from streamkit.binder.binder import TransactionalProducerBinding
from streamkit.binder.sending import SendingHandler
from streamkit.errors import BinderError, MessageDeliveryError
from streamkit.messaging.headers import (
    TRANSACTION,
    TRANSACTION_ID,
    TRANSACTIONAL_ARG,
    TRANSACTIONAL_ARGS,
    new_id,
)
from streamkit.messaging.message import Message
from streamkit.messaging.transaction import BrokerTransaction, TransactionRequest, TransactionState

__all__ = ["LocalTransaction", "TransactionalSendingHandler"]

LocalTransaction: TypeAlias = Callable[[Message[object], object], Awaitable[TransactionState]]
"""Executes the local transaction of a message, given with the argument that its sender put into a header."""

_LOCAL: Final = (TRANSACTION, TRANSACTIONAL_ARG, TRANSACTIONAL_ARGS)


class TransactionalSendingHandler:
    """Begins transactions through the producer of one output binding."""

    def __init__(
        self,
        binding: str,
        producer: TransactionalProducerBinding,
        plain: SendingHandler,
        execute: LocalTransaction | None,
        open_: set[str],
    ) -> None:
        """Make a handler.

        Args:
            binding: The binding's name, for errors.
            producer: What the binder made of it.
            plain: What makes wire messages for it.
            execute: The local transaction of messages that are sent without one.
            open_: Where the ids of transactions stand while they are under way.
        """
        self._binding = binding
        self._producer = producer
        self._plain = plain
        self._execute = execute
        self._open = open_

    async def handle_message(self, message: Message[object]) -> None:
        """Begin the transaction that the message asks for, or go through a whole one.

        Raises:
            UnsupportedCapability: The message asks for what the binder cannot do.
            MessageConversionError: Its payload cannot be written under its content type.
            MessageDeliveryError: It has no partition key, or no local transaction.
            BinderError: The half message could not be stored.
            Exception: What the listener raised; its checker will be asked.
        """
        request, argument, sent = _apart(message)
        if request is not None:
            request.begun = await self._begin(sent)
            return
        if self._execute is None:
            raise MessageDeliveryError(
                f"binding {self._binding!r} is transactional: send to it with `async with "
                "channel.transaction(message)`, or give its transaction listener an execute_local_transaction",
                message,
            )
        transaction = await self._begin(sent)
        try:
            state = await self._execute(sent, argument)
        except BaseException:
            await transaction.unknown()
            raise
        await end(transaction, state)

    async def _begin(self, message: Message[object]) -> BrokerTransaction:
        wire = self._plain.to_wire(message)
        id_ = str(wire.headers[TRANSACTION_ID])
        self._open.add(id_)
        try:
            transaction = await self._producer.begin(wire)
        except BaseException as error:
            self._open.discard(id_)
            if isinstance(error, BinderError):
                self._plain.tell_failure(wire, error)
            raise
        self._plain.tell_success(wire)
        return _UnderWay(transaction, id_, self._open)


class _UnderWay:
    """A transaction that is known as open until its end was told."""

    def __init__(self, transaction: BrokerTransaction, id_: str, open_: set[str]) -> None:
        self._transaction = transaction
        self._id = id_
        self._open = open_

    async def commit(self) -> None:
        await self._ended(self._transaction.commit())

    async def rollback(self) -> None:
        await self._ended(self._transaction.rollback())

    async def unknown(self) -> None:
        await self._ended(self._transaction.unknown())

    async def _ended(self, telling: Awaitable[None]) -> None:
        try:
            await telling
        finally:
            self._open.discard(self._id)


async def end(transaction: BrokerTransaction, state: TransactionState) -> None:
    """Tell the system how a local transaction ended."""
    if state is TransactionState.COMMIT:
        await transaction.commit()
    elif state is TransactionState.ROLLBACK:
        await transaction.rollback()
    else:
        await transaction.unknown()


def _apart(message: Message[object]) -> tuple[TransactionRequest | None, object, Message[object]]:
    """The request and the argument in the headers, and the message that travels, with its `TRANSACTION_ID`."""
    headers = message.headers
    request = headers.typed(TRANSACTION, TransactionRequest)
    argument = headers.get(TRANSACTIONAL_ARGS, headers.get(TRANSACTIONAL_ARG))
    kept = headers.without(*_LOCAL)
    if kept.get(TRANSACTION_ID) is None:
        kept = kept.annotated(TRANSACTION_ID, new_id())
    return request, argument, Message(message.payload, kept)
