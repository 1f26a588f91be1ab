"""The last subscriber of an output channel: it converts messages and sends them through the binding's producer.

::

    output channel ─▶ SendingHandler: check the headers against the binder's capabilities
                                      choose the partition
                                      convert the payload by its content type
                      ─▶ ProducerBinding.send
                             fails ─▶ exception to the sender, or `<destination>.errors`

An error in the message itself is raised to the sender before the message is sent.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from streamkit.binder.binder import ProducerBinding
from streamkit.binder.capabilities import Capability, describe
from streamkit.binder.keeping import MessageKeeper, MessageKept, note_kept
from streamkit.binder.partitioning import Partitioner, explicit_partition
from streamkit.errors import BinderError, MessageConversionError, MessageDeliveryError, UnsupportedCapability
from streamkit.events import message_kept, message_sent, notify, send_answered, send_failed
from streamkit.messaging.handler import Failed
from streamkit.messaging.headers import (
    DELAY,
    DELAY_LEVEL,
    DELIVER_AT,
    KEY,
    PARTITION,
    PARTITION_OVERRIDE,
    TRANSACTION,
)
from streamkit.messaging.message import Message

__all__ = ["SendFailure", "SendingHandler", "Writer", "keeping_unsent", "reporting_loss", "write_native"]

R = TypeVar("R")

# Headers that change how a message is sent. Only a message with one of them, or with a header that needs a capability
# which the binder lacks, is checked.
_CHECKED_HEADERS: Final = frozenset({TRANSACTION, PARTITION, PARTITION_OVERRIDE})

Writer = Callable[[Message[object]], Message[bytes]]
SendFailure = Callable[[Message[bytes], BinderError], Awaitable[None]]

# A message with the header needs at least one of the capabilities. The binder checks which delays its table has.
_ASKED: Final = (
    (DELAY, frozenset({Capability.DELAY_ANY, Capability.DELAY_LEVEL})),
    (DELIVER_AT, frozenset({Capability.DELAY_ANY, Capability.DELAY_LEVEL})),
    (DELAY_LEVEL, frozenset({Capability.DELAY_LEVEL})),
    (PARTITION, frozenset({Capability.PARTITION})),
    (PARTITION_OVERRIDE, frozenset({Capability.PARTITION})),
)


class SendingHandler:
    """Sends the messages of one output binding through its producer."""

    def __init__(
        self,
        owner: object,
        binding: str,
        producer: ProducerBinding,
        capabilities: frozenset[Capability],
        write: Writer,
        *,
        key: Callable[[Message[object]], object] | None = None,
        partitioner: Partitioner | None = None,
        partition_count: int = 1,
        on_failure: SendFailure | None = None,
    ) -> None:
        """Make a handler.

        Args:
            owner: The application, for events.
            binding: The binding's name, for errors.
            producer: The producer of the binding.
            capabilities: The binder's capabilities.
            write: Converts the payload; :func:`write_native` for bindings without conversion.
            key: Returns the key of a message, or None if the settings name no such function.
            partitioner: Chooses the partition, or None if the binding is not partitioned.
            partition_count: The setting ``partition-count``, for binders that do not know the number of partitions.
            on_failure: Called with a message that could not be sent; None raises the error to the sender.
        """
        self._owner = owner
        self._binding = binding
        self._producer = producer
        self._write = write
        self._key = key
        self._partitioner = partitioner
        self._partition_count = partition_count
        self._on_failure = on_failure
        self._capabilities = capabilities
        self._refused = tuple((name, any_of) for name, any_of in _ASKED if any_of.isdisjoint(capabilities))
        self._checked_headers = _CHECKED_HEADERS.union(name for name, _ in self._refused)

    async def handle_message(self, message: Message[object]) -> None:
        """Send ``message``; return when the binder has accepted it.

        Raises:
            UnsupportedCapability: A header requires a capability that the binder lacks.
            MessageConversionError: The payload cannot be converted to its content type.
            MessageDeliveryError: The message has no partition key or a wrong partition, or asks for a transaction.
            BinderError: The send failed, and there is no ``on_failure``.
        """
        wire = self.to_wire(message)
        sending = self._producer.send(wire)
        try:
            await (self._timed(sending) if send_answered.receivers else sending)
        except MessageKept:
            self.report_kept(wire)
        except BinderError as error:
            self.report_failure(wire, error)
            if self._on_failure is None:
                raise
            await self._on_failure(wire, error)
        else:
            if message_sent.receivers:  # as `report_success` does, which would be another call for each message
                self.report_success(wire)

    async def handle_messages(self, messages: Sequence[Message[object]]) -> Failed | None:
        """Send ``messages`` in their order; return when the binder has accepted them, or the first one has failed.

        Returns:
            The first message that was not sent and its error, which is one of :meth:`handle_message`, or None.
        """
        if self._on_failure is not None:
            return await self._handle_each(messages)
        wires: list[Message[bytes]] = []
        malformed: Failed | None = None
        for message in messages:
            try:
                wires.append(self.to_wire(message))
            except Exception as error:  # returned; the messages before this one are sent
                malformed = (message, error)
                break
        sending = self._producer.send_all(wires)
        outcomes = await (self._timed(sending) if wires and send_answered.receivers else sending)
        failed: dict[Exception, Message[object]] = {}
        for message, wire, outcome in zip(messages, wires, outcomes, strict=False):
            if outcome is None:
                self.report_success(wire)
            elif isinstance(outcome, MessageKept):
                self.report_kept(wire)
            elif outcome not in failed:  # messages that were not sent because of it have the same error
                failed[outcome] = message
                if isinstance(outcome, BinderError):
                    self.report_failure(wire, outcome)
        for first, message in failed.items():
            return message, first
        return malformed

    async def _timed(self, sending: Awaitable[R]) -> R:
        """Await a send, and send the event `send_answered`."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            return await sending
        finally:
            notify(send_answered, self._owner, binding=self._binding, seconds=loop.time() - began)

    async def _handle_each(self, messages: Sequence[Message[object]]) -> Failed | None:
        for message in messages:
            try:
                await self.handle_message(message)
            except Exception as error:  # returned
                return message, error
        return None

    def to_wire(self, message: Message[object]) -> Message[bytes]:
        """Return the message for the producer: payload as bytes, key and partition in its headers.

        Raises:
            UnsupportedCapability: A header requires a capability that the binder lacks.
            MessageConversionError: The payload cannot be converted to its content type.
            MessageDeliveryError: The message has no partition key or a wrong partition, or asks for a transaction.
        """
        needs_check = not self._checked_headers.isdisjoint(message.headers._present)
        if needs_check:
            self._refuse(message)
        if self._key is not None and (key := self._key(message)) is not None:
            message = Message(message.payload, message.headers.annotated(KEY, key))
        partition: int | None = None
        if self._partitioner is not None:
            count = self._producer.partition_count or self._partition_count
            partition = self._partitioner.partition(message, count)
        elif needs_check:
            partition = explicit_partition(message)
        wire = self._write(message)
        if partition is not None:
            wire = Message(wire.payload, wire.headers.annotated(PARTITION, partition))
        return wire

    def report_failure(self, wire: Message[bytes], error: BinderError) -> None:
        """Send the event `send_failed`."""
        if send_failed.receivers:
            notify(send_failed, self._owner, binding=self._binding, message=wire, error=error)

    def report_success(self, wire: Message[bytes]) -> None:
        """Send the event `message_sent`."""
        if message_sent.receivers:
            notify(message_sent, self._owner, binding=self._binding, message=wire)

    def report_kept(self, wire: Message[bytes]) -> None:
        """Send the event `message_kept`, and note it in the message's receipt."""
        note_kept(wire)
        if message_kept.receivers:
            notify(message_kept, self._owner, binding=self._binding, message=wire)

    def _refuse(self, message: Message[object]) -> None:
        """Refuse a message whose headers ask for what this binding cannot do."""
        if message.headers.get(TRANSACTION) is not None:
            raise MessageDeliveryError(
                f"binding {self._binding!r} cannot begin a transaction: make the binding transactional "
                "in its settings (on RocketMQ: producer.transactional=true), or send with asend",
                message,
            )
        for name, any_of in self._refused:
            if message.headers.get(name) is not None:
                raise UnsupportedCapability(
                    f"header {name!r} of a message for binding {self._binding!r} asks for "
                    f"{describe(any_of)}, which its binder cannot do; it can: {describe(self._capabilities)}",
                    key=name,
                    value=message.headers.get(name),
                )


def keeping_unsent(owner: object, binding: str, keeper: MessageKeeper, lost: SendFailure) -> SendFailure:
    """Return a failure listener that keeps messages which could not be sent after ``send`` has returned.

    Args:
        owner: The application, for events.
        binding: The binding's name.
        keeper: Keeps them.
        lost: The failure listener for those that are not kept.
    """

    async def unsent(message: Message[bytes], error: BinderError) -> None:
        if not await keeper.keep(message, error):
            await lost(message, error)
        elif message_kept.receivers:
            notify(message_kept, owner, binding=binding, message=message)

    return unsent


def reporting_loss(owner: object, binding: str, report: SendFailure) -> SendFailure:
    """Return a failure listener for messages that are lost after ``send`` has returned.

    It sends the event `send_failed` and calls ``report``.

    Args:
        owner: The application, for events.
        binding: The binding's name.
        report: The failure listener of the binding's error channel.
    """

    async def lost(message: Message[bytes], error: BinderError) -> None:
        if send_failed.receivers:
            notify(send_failed, owner, binding=binding, message=message, error=error)
        await report(message, error)

    return lost


def write_native(message: Message[object]) -> Message[bytes]:
    """Return ``message`` unchanged, for a binding with native encoding.

    Raises:
        MessageConversionError: The payload is not bytes; the clients have no serializers.
    """
    payload = message.payload
    if isinstance(payload, bytes):
        return Message(payload, message.headers)
    raise MessageConversionError(
        f"a binding with use-native-encoding sends bytes, not {type(payload).__name__}", message
    )
