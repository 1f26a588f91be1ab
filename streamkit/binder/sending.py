"""The last subscriber of an output channel: makes wire messages of what the application sends.

::

    output channel ─▶ SendingHandler: ask of the message what the binder can do
                                      choose the partition
                                      write the payload by its content type
                      ─▶ ProducerBinding.send
                             fails ─▶ exception to the sender, or `<destination>.errors`

Whatever is wrong with the message itself is raised to the sender before anything is written.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from streamkit.binder.binder import ProducerBinding
from streamkit.binder.capabilities import Capability, describe
from streamkit.binder.partitioning import Partitioner, explicit_partition
from streamkit.errors import BinderError, MessageConversionError, MessageDeliveryError, UnsupportedCapability
from streamkit.events import message_sent, notify, send_failed
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

__all__ = ["SendFailure", "SendingHandler", "Writer", "reporting_loss", "write_native"]

Writer = Callable[[Message[object]], Message[bytes]]
SendFailure = Callable[[Message[bytes], BinderError], Awaitable[None]]

# Any of the capabilities will do; which delays exactly a table has, the binder checks.
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
            producer: What the binder made of it.
            capabilities: What the binder can do.
            write: Makes the wire message; see :func:`write_native` for bindings without conversion.
            key: Makes the key of a message, where settings say how.
            partitioner: Chooses partitions, on a partitioned binding.
            partition_count: The setting, for binders that do not know their partitions.
            on_failure: Takes failed sends in place of the sender.
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

    async def handle_message(self, message: Message[object]) -> None:
        """Send ``message``; returns when the binder has accepted it.

        Raises:
            UnsupportedCapability: The message asks for what the binder cannot do.
            MessageConversionError: Its payload cannot be written under its content type.
            MessageDeliveryError: It has no partition key, or a wrong partition, or is to begin a transaction.
            BinderError: Sending failed.
        """
        if message.headers.get(TRANSACTION) is not None:
            raise MessageDeliveryError(
                f"binding {self._binding!r} is not transactional, so no transaction can begin there: make it so in its "
                "settings (on RocketMQ: producer.transactional=true), or send with asend",
                message,
            )
        wire = self.to_wire(message)
        try:
            await self._producer.send(wire)
        except BinderError as error:
            self.tell_failure(wire, error)
            if self._on_failure is None:
                raise
            await self._on_failure(wire, error)
        else:
            self.tell_success(wire)

    def to_wire(self, message: Message[object]) -> Message[bytes]:
        """Return what the binder is given.

        Raises:
            UnsupportedCapability: The message asks for what the binder cannot do.
            MessageConversionError: Its payload cannot be written under its content type.
            MessageDeliveryError: It has no partition key, or a wrong partition.
        """
        if self._refused:
            self._refuse(message)
        if self._key is not None and (key := self._key(message)) is not None:
            message = Message(message.payload, message.headers.annotated(KEY, key))
        partition = self._partition(message)
        wire = self._write(message)
        if partition is not None:
            wire = Message(wire.payload, wire.headers.annotated(PARTITION, partition))
        return wire

    def tell_failure(self, wire: Message[bytes], error: BinderError) -> None:
        """Notify whoever listens to the event."""
        if send_failed.receivers:
            notify(send_failed, self._owner, binding=self._binding, message=wire, error=error)

    def tell_success(self, wire: Message[bytes]) -> None:
        """Notify whoever listens to the event."""
        if message_sent.receivers:
            notify(message_sent, self._owner, binding=self._binding, message=wire)

    def _refuse(self, message: Message[object]) -> None:
        for name, any_of in self._refused:
            if message.headers.get(name) is not None:
                raise UnsupportedCapability(
                    f"header {name!r} of a message for binding {self._binding!r} asks for "
                    f"{describe(any_of)}, which its binder cannot do; it can: {describe(self._capabilities)}",
                    key=name,
                    value=message.headers.get(name),
                )

    def _partition(self, message: Message[object]) -> int | None:
        if self._partitioner is None:
            return explicit_partition(message)
        count = self._producer.partition_count or self._partition_count
        return self._partitioner.partition(message, count)


def reporting_loss(owner: object, binding: str, report: SendFailure) -> SendFailure:
    """Return what is told of messages that the binder took and lost after all: `report`, and whoever listens."""

    async def lost(message: Message[bytes], error: BinderError) -> None:
        if send_failed.receivers:
            notify(send_failed, owner, binding=binding, message=message, error=error)
        await report(message, error)

    return lost


def write_native(message: Message[object]) -> Message[bytes]:
    """Return ``message`` as it is, for a binding with native encoding.

    Raises:
        MessageConversionError: Its payload is not bytes, which is all that clients here encode.
    """
    payload = message.payload
    if isinstance(payload, bytes):
        return Message(payload, message.headers)
    raise MessageConversionError(
        f"a binding with use-native-encoding sends bytes, not {type(payload).__name__}", message
    )
