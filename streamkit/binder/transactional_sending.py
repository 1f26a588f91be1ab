"""The last subscriber of a transactional binding's channel: every message is part of a local transaction.

::

    channel.transaction(message)     the local transaction is the `async with` block of the application
    channel.asend(message)           the local transaction is `execute_local_transaction` of the binding's listener;
                                     without such a method an error

A message of `channel.transaction` has a `TransactionRequest` in its headers.
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
"""Executes the local transaction of a message; the second argument is the one that the sender put into a header."""

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
            producer: The producer of the binding.
            plain: Converts the messages for the producer.
            execute: The local transaction of messages that are sent without a block, or None.
            open_: The ids of the open transactions; this handler adds and removes its own.
        """
        self._binding = binding
        self._producer = producer
        self._plain = plain
        self._execute = execute
        self._open = open_

    async def handle_message(self, message: Message[object]) -> None:
        """Begin the transaction of a block, or send the message and execute its local transaction.

        Raises:
            UnsupportedCapability: A header requires a capability that the binder lacks.
            MessageConversionError: The payload cannot be converted to its content type.
            MessageDeliveryError: The message has no partition key, a wrong partition, or no local transaction.
            BinderError: The half message could not be stored.
            Exception: The listener's `execute_local_transaction` raised; the transaction's state is unknown, so the
                checker will be called.
        """
        request, argument, sent = _without_request(message)
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
        # Before the message is stored: the broker may ask the checker before the answer to `begin` is here. The
        # checker would look for the row of a local transaction that has not begun.
        self._open.add(id_)
        try:
            transaction = await self._producer.begin(wire)
        except BaseException as error:
            self._open.discard(id_)
            if isinstance(error, BinderError):
                self._plain.report_failure(wire, error)
            raise
        self._plain.report_success(wire)
        return _OpenTransaction(transaction, id_, self._open)


class _OpenTransaction:
    """A transaction that counts as open until the system has been told its end."""

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
            # Also if the broker could not be told: then it asks the checker, and the local transaction has ended by
            # now.
            self._open.discard(self._id)


async def end(transaction: BrokerTransaction, state: TransactionState) -> None:
    """Commit the transaction, roll it back or leave it open, as its local transaction ended."""
    if state is TransactionState.COMMIT:
        await transaction.commit()
    elif state is TransactionState.ROLLBACK:
        await transaction.rollback()
    else:
        await transaction.unknown()


def _without_request(message: Message[object]) -> tuple[TransactionRequest | None, object, Message[object]]:
    """Return the request and the argument of the headers, and the message to send, with its `TRANSACTION_ID`."""
    headers = message.headers
    request = headers.typed(TRANSACTION, TransactionRequest)
    argument = headers.get(TRANSACTIONAL_ARGS, headers.get(TRANSACTIONAL_ARG))
    kept = headers.without(*_LOCAL)
    if kept.get(TRANSACTION_ID) is None:
        kept = kept.annotated(TRANSACTION_ID, new_id())
    return request, argument, Message(message.payload, kept)
