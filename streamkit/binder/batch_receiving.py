"""The receiver of a binding in batch mode: several messages are one call.

::

    binder ─▶ BatchMessageReceiver ─▶ input channel ─▶ listener(list)
                  │ a message cannot be converted      it alone goes the way of a failed message
                  │ the listener returns settlements   one for each message
                  │ the listener raises                the attempts are the batch's; then each message goes
                  │                                    the way of a failed message, as if it had been alone
                  ▼
              a settlement for each message
"""

import logging
from collections.abc import Iterator, Sequence

from streamkit.binder.acknowledgment import ACKNOWLEDGMENT, Acknowledgment
from streamkit.binder.attempts import unwrapped
from streamkit.binder.batch import Batch
from streamkit.binder.binder import Binder, ConsumerBinding, ConsumerDestination
from streamkit.binder.receiving import MessageReceiver
from streamkit.binder.settlement import ACCEPT, Settlement
from streamkit.errors import SettlementRequest
from streamkit.events import message_failed, message_received, notify
from streamkit.messaging.headers import DELIVERY_ATTEMPT, MessageHeaders
from streamkit.messaging.message import Message

__all__ = ["BatchMessageReceiver"]

logger = logging.getLogger(__name__)


class BatchMessageReceiver(MessageReceiver):
    """Runs one binding's batches through its listener and says what becomes of each message."""

    async def bind(self, binder: Binder, destination: ConsumerDestination) -> ConsumerBinding:
        """Have ``binder`` deliver batches to this receiver."""
        return await binder.bind_batch_consumer(destination, self)

    async def receive_batch(
        self, messages: Sequence[Message[bytes]], redeliveries: Sequence[int]
    ) -> list[Settlement]:
        """Handle one delivery of several messages; returns a settlement for each, raises only for cancellation."""
        if message_received.receivers:
            for message in messages:
                notify(message_received, self._owner, binding=self._binding, message=message)
        acknowledgment = Acknowledgment() if self._manual else None
        delivery = _BatchDelivery(messages, redeliveries)
        try:
            await self._settle_batch(delivery, acknowledgment)
        finally:
            if acknowledgment is not None:
                acknowledgment.close()
        settled = [delivery.settled[place] for place in range(len(messages))]
        for message, settlement in zip(messages, settled, strict=True):
            self._tell(message, settlement)
        return settled

    async def _settle_batch(self, delivery: "_BatchDelivery", acknowledgment: Acknowledgment | None) -> None:
        calls = len(self._policy.calls(max(delivery.redeliveries)))
        for number in range(1, calls + 1):
            attempt = _Attempt(delivery, number, self._policy.max_attempts)
            error = await self._try(attempt, acknowledgment)
            await self._give_up_unreadable(attempt)
            if error is None or not attempt.batch.places:
                return
            retryable = self._policy.is_retryable(error)
            if number == calls or not retryable:
                for place, message, redeliveries in attempt.handed():
                    settlement = await self._given_up(message, error, number, redeliveries, retryable)
                    delivery.settled[place] = settlement
                return
            pause = self._policy.back_off.pause(number)
            logger.warning(
                "Binding %r: attempt %d of %d messages failed, next in %g s: %r",
                self._binding,
                number,
                len(attempt.batch.places),
                pause,
                unwrapped(error),
            )
            await self._permits.sleep(pause)

    async def _try(self, attempt: "_Attempt", acknowledgment: Acknowledgment | None) -> Exception | None:
        """Make one call; settles the messages that were handed over, or returns why that failed."""
        settled = attempt.delivery.settled
        try:
            of_all = await self._call(attempt.message(acknowledgment), acknowledgment)
        except SettlementRequest as request:
            for place, _, redeliveries in attempt.handed():
                settled[place] = self._requested(request, redeliveries)
            return None
        except Exception as error:
            self._notify_failed(attempt, error)
            if acknowledgment is None or acknowledgment.settlement is None:
                return error
            logger.exception("A listener of %r failed after it had settled its messages", self._binding)
            of_all = acknowledgment.settlement
        chosen = attempt.batch.settlements
        for at, (place, _, redeliveries) in zip(attempt.batch.places, attempt.handed(), strict=True):
            settlement = chosen.get(at, of_all)
            settled[place] = settlement if settlement is ACCEPT else self._bounded(settlement, redeliveries)
        return None

    def _notify_failed(self, attempt: "_Attempt", error: Exception) -> None:
        if message_failed.receivers:
            for _, message, _ in attempt.handed():
                notify(message_failed, self._owner, binding=self._binding, message=message, error=error)

    async def _give_up_unreadable(self, attempt: "_Attempt") -> None:
        """Settle the messages that could not be converted."""
        for at, error in attempt.batch.errors.items():
            place = attempt.places[at]
            attempt.delivery.settled[place] = await self._given_up(
                attempt.batch[at],
                error,
                1,
                attempt.delivery.redeliveries[place],
                self._policy.is_retryable(error),
            )


class _BatchDelivery:
    """The messages of one delivery, and what became of those that are settled, by their place."""

    def __init__(self, messages: Sequence[Message[bytes]], redeliveries: Sequence[int]) -> None:
        self.messages = messages
        self.redeliveries = redeliveries
        self.settled: dict[int, Settlement] = {}


class _Attempt:
    """One call with the messages that are not settled yet."""

    def __init__(self, delivery: _BatchDelivery, number: int, max_attempts: int) -> None:
        self.delivery = delivery
        self.places = [place for place in range(len(delivery.messages)) if place not in delivery.settled]
        self.batch = Batch([self._numbered(place, number, max_attempts) for place in self.places])

    def _numbered(self, place: int, number: int, max_attempts: int) -> Message[bytes]:
        """The message with the header `deliveryAttempt`, as if it were delivered alone."""
        redeliveries = self.delivery.redeliveries[place]
        message = self.delivery.messages[place]
        attempt = max_attempts + redeliveries if redeliveries else number
        return Message(message.payload, message.headers.annotated(DELIVERY_ATTEMPT, attempt))

    def message(self, acknowledgment: Acknowledgment | None) -> Message[object]:
        """The one message that stands for all of them."""
        headers: dict[str, object] = {DELIVERY_ATTEMPT: self.batch[0].headers[DELIVERY_ATTEMPT]}
        if acknowledgment is not None:
            headers[ACKNOWLEDGMENT] = acknowledgment
        return Message(self.batch, MessageHeaders.adopt(headers))

    def handed(self) -> Iterator[tuple[int, Message[bytes], int]]:
        """The messages that could be converted: place in the delivery, message, redeliveries."""
        for at in self.batch.places:
            place = self.places[at]
            yield place, self.batch[at], self.delivery.redeliveries[place]
