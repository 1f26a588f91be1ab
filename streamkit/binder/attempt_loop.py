"""The attempts of a delivery in this process: the same loop for pushed, batched and polled messages.

::

    Delivered.begin(number) ─▶ call ─┬─ returns                 Accept, or the settlement by hand
         ▲                           ├─ Requeue, Reject         this settlement
         │                           └─ another exception ──┬─ calls are left, exception is retryable: a pause ─┐
         │                                                  └─ else the error handler, then `after_failure`     │
         └──────────────────────────────────────────────────────────────────────────────────────────────────────┘
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias, TypeVar

from streamkit.binder.acknowledgment import Acknowledgment
from streamkit.binder.attempts import RetryPolicy, after_failure, after_requeue, unwrapped
from streamkit.binder.delivered import Delivered, DeliveredBatch, DeliveredMessage, Unreadable
from streamkit.binder.delivery import Delivery
from streamkit.binder.failure_log import FailureLog
from streamkit.errors import MessageHandlingError, MessagingError, RetriesExhausted
from streamkit.events import message_failed, message_settled, notify
from streamkit.messaging.cancellation import must_be_raised_again
from streamkit.messaging.cause import kind_and_text
from streamkit.messaging.headers import SOURCE_DATA
from streamkit.messaging.message import ErrorMessage, Message
from streamkit.settlement import ACCEPT, Reject, Requeue, Settlement

__all__ = ["AttemptLoop", "Call", "ErrorHandler"]

D = TypeVar("D", DeliveredMessage, DeliveredBatch)
R = TypeVar("R")

Call: TypeAlias = Callable[[Message[object], Acknowledgment | None], Awaitable[Settlement | None]]
"""Calls the listener with a message; returns the settlement, or None if the listener settles the message later."""
ErrorHandler: TypeAlias = Callable[[ErrorMessage], Awaitable[bool]]
"""Called with a message whose attempts have failed; returns whether it handled the message, which is accepted then."""


class AttemptLoop:
    """Makes the calls of a binding's deliveries, and settles the messages whose calls failed."""

    def __init__(
        self,
        owner: object,
        binding: str,
        delivery: Delivery,
        policy: RetryPolicy,
        *,
        on_error: ErrorHandler,
        log: FailureLog,
    ) -> None:
        """Make a loop.

        Args:
            owner: The application, for events.
            binding: The binding's name, for events and errors.
            delivery: The meaning of the binding's extended properties.
            policy: The attempts in process and the pauses between them.
            on_error: The binding's error handler or error channel.
            log: Logs the failures.
        """
        self._owner = owner
        self._binding = binding
        self._delivery = delivery
        self._policy = policy
        self._first_calls = policy.calls(0)  # of most deliveries
        self._on_error = on_error
        self._log = log

    async def run(
        self,
        delivered: D,
        call: Call,
        sleep: Callable[[float], Awaitable[object]],
        conclude: Callable[[D], R],
        *,
        requeues: bool = True,
    ) -> R:
        """Make calls until each message of the delivery is settled, or a call returns for settling by hand.

        Args:
            delivered: The message or batch of the delivery; its settlements are set.
            call: Makes one call.
            sleep: Waits a number of seconds before the next call.
            conclude: Called at the end; its result is returned.
            requeues: Whether a message whose calls all failed may be delivered again; otherwise it is rejected.

        Raises:
            CancelledError: The task is cancelled; messages without a settlement stay unsettled.
        """
        redeliveries = delivered.redeliveries
        numbers = self._first_calls if redeliveries == 0 else self._policy.calls(redeliveries)
        for number in numbers:
            message = delivered.begin(number)
            try:
                settlement = await call(message, delivered.acknowledgment)
            except Exception as error:
                pause = await self._failed(delivered, number, error, last=numbers[-1], requeues=requeues)
                if pause is None:
                    return conclude(delivered)
            else:
                delivered.end(settlement)
                if unreadable := delivered.unreadable:
                    await self._give_up_unreadable(unreadable)
                return conclude(delivered)
            await sleep(pause)
        raise AssertionError("a delivery makes at least one call")

    async def _failed(
        self, delivered: Delivered, number: int, error: Exception, *, last: int, requeues: bool
    ) -> float | None:
        """Return the seconds before the next call, or None if there is none: all messages are settled."""
        received = delivered.received()
        delivered.settle_left_out()
        if message_failed.receivers:
            for each in received:
                notify(message_failed, self._owner, binding=self._binding, message=each.attempt, error=error)
        await self._give_up_unreadable(delivered.unreadable)
        # A settlement by hand is final: another call would get a message that the listener has already settled.
        acknowledgment = delivered.acknowledgment
        if acknowledgment is not None and acknowledgment.settlement is not None:
            self._log.failed_after_settling(received, error)
            delivered.end(acknowledgment.settlement)
            return None
        is_retryable = self._policy.is_retryable(error)
        if number == last or not is_retryable:
            for each in received:
                each.settlement = await self._give_up(each, error, requeues and is_retryable)
            return None
        # No message of the batch could be converted, and all are settled above: another call would have no message.
        if not received:
            return None
        pause = self._policy.back_off.pause(number)
        self._log.tried_again(received, number, last, pause, unwrapped(error))
        return pause

    async def _give_up_unreadable(self, unreadable: Sequence[Unreadable]) -> None:
        """Settle the messages that could not be converted."""
        for each, error in unreadable:
            each.settlement = await self._give_up(each, error, self._policy.is_retryable(error))

    async def _give_up(self, delivered: DeliveredMessage, error: Exception, requeues: bool) -> Settlement:
        """Pass a message whose last call has failed to the error handler; return the message's settlement."""
        cause = unwrapped(error)
        try:
            if await self._on_error(self._error_message(delivered, cause)):
                self._log.handled(delivered, cause)
                return ACCEPT
        except (Requeue, Reject) as decision:
            return decision.with_traceback(None)
        # The handler may have awaited something that was cancelled: that raises CancelledError although this task is
        # not cancelled. The message still needs a settlement.
        except BaseException as failure:
            if must_be_raised_again(failure):
                raise
            self._log.handler_failed(delivered, failure)
        delivered.failure = cause
        if self._delivery.broadcast:
            self._log.dropped(delivered, kind_and_text(cause))
            return ACCEPT
        return after_failure(self._delivery, delivered.redeliveries, cause, requeues)

    def _error_message(self, delivered: DeliveredMessage, cause: BaseException) -> ErrorMessage:
        message, attempts = delivered.attempt, delivered.attempts
        payload: MessagingError
        reason = kind_and_text(cause)
        if isinstance(cause, MessagingError) and cause.failed_message is not None:
            payload = cause
        elif attempts > 1:
            payload = RetriesExhausted(
                f"binding {self._binding!r} gave up after {attempts} attempts: {reason}",
                message,
                attempts=attempts,
            )
            payload.__cause__ = cause
        else:
            payload = MessageHandlingError(f"binding {self._binding!r} failed: {reason}", message)
            payload.__cause__ = cause
        headers = {**message.headers.user_values(), SOURCE_DATA: message}
        return ErrorMessage(payload, headers, original_message=message)

    def conclude(self, delivered: DeliveredMessage) -> Settlement:
        """Return the settlement for the binder, log a failure, and send the event `message_settled`.

        A `Requeue` beyond the limit of redeliveries becomes a `Reject`; under broadcast everything becomes `Accept`.
        """
        settlement = delivered.settlement
        assert settlement is not None, "a message is concluded when it is settled"
        # Listeners, acknowledgments, error handlers and timeouts choose settlements. This step sees all of them, so
        # the limit of redeliveries holds for a listener that always raises Requeue, too.
        if settlement is not ACCEPT:
            settlement = self._bounded(settlement, delivered)
            if isinstance(settlement, Reject):
                self._log.rejected(delivered, settlement)
            elif delivered.failure is not None and isinstance(settlement, Requeue):
                self._log.delivered_again(delivered, self._delivery.redelivery_limit)
        if message_settled.receivers:
            notify(
                message_settled,
                self._owner,
                binding=self._binding,
                message=delivered.attempt,
                settlement=settlement,
            )
        return settlement

    def _bounded(self, settlement: Settlement, delivered: DeliveredMessage) -> Settlement:
        if isinstance(settlement, Requeue | Reject) and self._delivery.broadcast:
            self._log.dropped(delivered, settlement.reason)
            return ACCEPT
        if isinstance(settlement, Requeue):
            bounded = after_requeue(self._delivery, delivered.redeliveries, settlement)
            delivered.is_exhausted = bounded is not settlement
            return bounded
        return settlement
