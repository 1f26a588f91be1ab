"""A delivery during its attempts: one message, or several messages in batch mode.

Each attempt gets a new message, with its number in the header `deliveryAttempt`. All attempts of a delivery share the
converted payload (:attr:`streamkit.messaging.message.Message.conversions`), so the payload is converted once. An object
that a listener changed before it failed is changed in the next attempt, too. A redelivery converts the payload anew.
"""

from collections.abc import Sequence
from typing import ClassVar, TypeAlias

from msgspec import UNSET, Struct, field

from streamkit.binder.acknowledgment import ACKNOWLEDGMENT, Acknowledgment
from streamkit.binder.batch import Batch
from streamkit.messaging.headers import DELIVERY_ATTEMPT, MessageHeaders
from streamkit.messaging.message import Message, message_of
from streamkit.settlement import Settlement

__all__ = ["Delivered", "DeliveredBatch", "DeliveredMessage", "Unreadable"]

Unreadable: TypeAlias = "tuple[DeliveredMessage, Exception]"
"""A message that could not be converted, and the error."""


class DeliveredMessage(Struct, eq=False):
    """A delivered message and its settlement.

    Attributes:
        message: The message as the binder delivered it.
        redeliveries: The number of earlier redeliveries.
        acknowledgment: Settles the message by hand, or None if no listener of the binding does.
        attempts: The number of the last call, counted over all deliveries.
        attempt: The message of the last call.
        conversions: The converted payloads, which all attempts share.
        settlement: The settlement, or None while the message is not settled.
        failure: The exception of the last call, if that was the last call of the delivery and settled the message.
        is_exhausted: Whether the limit of redeliveries has made the settlement a rejection.
        unreadable: Always empty: without a batch, a failed conversion fails the call.
    """

    message: Message[bytes]
    redeliveries: int
    acknowledgment: Acknowledgment | None = None
    attempts: int = 0
    attempt: Message[bytes] = UNSET  # type: ignore[assignment]  # set by the first `begin`
    conversions: dict[object, object] = field(default_factory=dict)
    settlement: Settlement | None = None
    failure: BaseException | None = None
    is_exhausted: bool = False
    unreadable: ClassVar[Sequence[Unreadable]] = ()

    def begin(self, number: int) -> Message[bytes]:
        """Return the message for the call with that `deliveryAttempt`."""
        delivered = self.message
        headers = delivered.headers
        values = {**headers._present, DELIVERY_ATTEMPT: number}
        if self.acknowledgment is not None:
            values[ACKNOWLEDGMENT] = self.acknowledgment
        self.attempt = attempt = message_of(delivered.payload, headers.sharing(values), self.conversions)
        self.attempts = number
        return attempt

    def end(self, settlement: Settlement | None) -> None:
        """Set the result of the last call; None if the listener settles the message later."""
        self.settlement = settlement

    def settle_left_out(self) -> None:
        """Do nothing: without a batch, no message is left out."""

    def received(self) -> "Sequence[DeliveredMessage]":
        """Return the messages that the listener received in the last call: this one."""
        return (self,)


class DeliveredBatch:
    """The messages of a delivery in batch mode; each call gets those that are not settled yet.

    Attributes:
        messages: The messages, in their order.
        redeliveries: The largest number of earlier redeliveries of a message.
        acknowledgment: Settles all messages by hand, or None if no listener of the binding does.
    """

    def __init__(
        self,
        messages: Sequence[Message[bytes]],
        redeliveries: Sequence[int],
        acknowledgment: Acknowledgment | None,
    ) -> None:
        self.messages = [DeliveredMessage(*each) for each in zip(messages, redeliveries, strict=True)]
        self.redeliveries = max(redeliveries)
        self.acknowledgment = acknowledgment
        self._open = self.messages
        self._batch = Batch(())

    def begin(self, number: int) -> Message[object]:
        """Return a message whose payload is the batch of all messages that are not settled.

        Each message in the batch has the `deliveryAttempt` that it would have if it were delivered alone.

        Args:
            number: The `deliveryAttempt` of the message with the most redeliveries.
        """
        self._open = [each for each in self.messages if each.settlement is None]
        self._batch = Batch([each.begin(number - self.redeliveries + each.redeliveries) for each in self._open])
        headers: dict[str, object] = {DELIVERY_ATTEMPT: self._open[0].attempts}
        if self.acknowledgment is not None:
            headers[ACKNOWLEDGMENT] = self.acknowledgment
        return Message(self._batch, MessageHeaders.adopt(headers))

    def end(self, settlement: Settlement | None) -> None:
        """Set the result of the last call: the listener's settlement of each message, or else ``settlement``."""
        chosen = self._batch.settlements
        for place in self._batch.places:
            self._open[place].settlement = chosen.get(place, settlement)
        self.settle_left_out()

    def settle_left_out(self) -> None:
        """Settle the messages that the listener was not called with in the last call."""
        for place, settlement in self._batch.left_out.items():
            self._open[place].settlement = settlement

    def received(self) -> Sequence[DeliveredMessage]:
        """Return the messages that the listener received in the last call: neither unreadable nor left out."""
        return [self._open[place] for place in self._batch.places]

    @property
    def unreadable(self) -> Sequence[Unreadable]:
        """The messages that could not be converted."""
        return [(self._open[place], error) for place, error in self._batch.errors.items()]


Delivered: TypeAlias = DeliveredMessage | DeliveredBatch
"""A delivery in the attempt loop; see :mod:`streamkit.binder.attempt_loop`."""
