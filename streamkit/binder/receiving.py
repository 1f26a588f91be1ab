"""The receiver a binder calls: attempts, error handling, settlement.

::

    binder ─▶ MessageReceiver ─▶ input channel ─▶ listener
                    │ calls of this delivery are over
                    ├─▶ error handler, or error channel with a subscriber ─▶ Accept
                    └─▶ nobody handled it ─▶ Retry, or RejectMessage over the limit
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from streamkit.binder.acknowledgment import ACKNOWLEDGMENT, Acknowledgment
from streamkit.binder.attempts import RetryPolicy, after_failure, after_requeue, unwrapped
from streamkit.binder.binder import Binder, ConsumerBinding, ConsumerDestination
from streamkit.binder.deadlines import Call, Deadlines
from streamkit.binder.delivery import Delivery
from streamkit.binder.permits import Permits
from streamkit.binder.settlement import ACCEPT, RejectMessage, Retry, Settlement
from streamkit.errors import (
    MessageHandlingError,
    MessagingError,
    Reject,
    Requeue,
    RetriesExhausted,
    SettlementRequest,
)
from streamkit.events import message_failed, message_handled, message_received, message_settled, notify
from streamkit.messaging.cancellation import ends_more_than_the_call, failure_of
from streamkit.messaging.cause import kind_and_text, text_of
from streamkit.messaging.headers import DELIVERY_ATTEMPT, SOURCE_DATA
from streamkit.messaging.message import ErrorMessage, Message

__all__ = ["ErrorHandler", "MessageReceiver"]

logger = logging.getLogger(__name__)

Target = Callable[[Message[object]], Awaitable[object]]
ErrorHandler = Callable[[ErrorMessage], Awaitable[bool]]
"""Told of a message given up in process; returns whether that settles it."""


class MessageReceiver:
    """Runs one binding's messages through its listener and says what becomes of each.

    Permits limit the calls at work; a message waiting for its next attempt, or for its settlement by hand,
    holds none.
    """

    def __init__(
        self,
        owner: object,
        binding: str,
        target: Target,
        delivery: Delivery,
        policy: RetryPolicy,
        *,
        permits: Permits,
        on_error: ErrorHandler,
        manual: bool = False,
    ) -> None:
        """Make a receiver.

        Args:
            owner: The application, for events.
            binding: The binding's name, for logs.
            target: What takes the message: its input channel.
            delivery: The meaning of the binding's extended properties.
            policy: How failures are retried in process.
            permits: How many calls may be at work at once.
            on_error: The binding's error handler or error channel.
            manual: Whether a listener of the binding asks for an :class:`Acknowledgment`.
        """
        self._owner = owner
        self._binding = binding
        self._target = target
        self._delivery = delivery
        self._policy = policy
        self._permits = permits
        self._on_error = on_error
        self._manual = manual
        timeout = delivery.consume_timeout
        self._deadlines = None if timeout is None else Deadlines(timeout.total_seconds())

    async def __call__(self, message: Message[bytes], redeliveries: int) -> Settlement:
        """Handle one delivery of ``message`` and return its settlement; raises only for cancellation."""
        if message_received.receivers:
            notify(message_received, self._owner, binding=self._binding, message=message)
        if self._manual:
            settlement = await self._settle_by_hand(message, redeliveries)
        else:
            settlement = await self._settle(message, redeliveries)
        if settlement is not ACCEPT or message_settled.receivers:
            self._tell(message, settlement)
        return settlement

    async def bind(self, binder: Binder, destination: ConsumerDestination) -> ConsumerBinding:
        """Have ``binder`` deliver to this receiver."""
        return await binder.bind_consumer(destination, self)

    def _tell(self, message: Message[bytes], settlement: Settlement) -> None:
        """Tell people and observers what becomes of a message."""
        if isinstance(settlement, RejectMessage):
            logger.warning(
                "Binding %r rejects message %s: %s", self._binding, message.headers.id, settlement.reason
            )
        if message_settled.receivers:
            notify(
                message_settled, self._owner, binding=self._binding, message=message, settlement=settlement
            )

    async def _settle_by_hand(self, message: Message[bytes], redeliveries: int) -> Settlement:
        acknowledgment = Acknowledgment()
        headers = message.headers.annotated(ACKNOWLEDGMENT, acknowledgment)
        try:
            return await self._settle(Message(message.payload, headers), redeliveries, acknowledgment)
        finally:
            acknowledgment.close()

    async def _settle(
        self, message: Message[bytes], redeliveries: int, acknowledgment: Acknowledgment | None = None
    ) -> Settlement:
        headers = message.headers
        calls = self._policy.calls(redeliveries)
        for number in calls:
            attempt: Message[bytes] = Message(message.payload, headers.annotated(DELIVERY_ATTEMPT, number))
            try:
                settlement = await self._call(attempt, acknowledgment)
                return settlement if settlement is ACCEPT else self._bounded(settlement, redeliveries)
            except SettlementRequest as request:
                return self._requested(request, redeliveries)
            except Exception as error:
                if message_failed.receivers:
                    notify(message_failed, self._owner, binding=self._binding, message=attempt, error=error)
                if acknowledgment is not None and acknowledgment.settlement is not None:
                    logger.exception(
                        "A listener of %r failed after it had settled its message", self._binding
                    )
                    return self._bounded(acknowledgment.settlement, redeliveries)
                retryable = self._policy.is_retryable(error)
                if number == calls[-1] or not retryable:
                    return await self._given_up(attempt, error, number, redeliveries, retryable)
                pause = self._pause_after(number, error)
            await self._permits.sleep(pause)
        raise AssertionError("a delivery makes at least one call")

    def _pause_after(self, number: int, error: Exception) -> float:
        """Tell of a failed attempt; return the seconds before the next one."""
        pause = self._policy.back_off.pause(number)
        logger.warning(
            "Binding %r: attempt %d failed, next in %g s: %r", self._binding, number, pause, unwrapped(error)
        )
        return pause

    async def _call(self, message: Message[object], acknowledgment: Acknowledgment | None) -> Settlement:
        """Make one call, and wait for the settlement if the listener took it upon itself."""
        permits = self._permits
        await permits.acquire()
        held = True
        call: Call | None = None
        try:
            if self._deadlines is not None:
                call = self._deadlines.begin()
            if message_handled.receivers:
                await self._timed(message)
            else:
                await self._target(message)
            if acknowledgment is None or not acknowledgment.is_engaged:
                return ACCEPT
            permits.release()
            held = False
            return await acknowledgment.settled()
        except Exception:
            raise
        except BaseException as error:
            is_cancelled = isinstance(error, asyncio.CancelledError)
            if is_cancelled and call is not None and Deadlines.is_timeout(call):
                if acknowledgment is not None and acknowledgment.settlement is not None:
                    return acknowledgment.settlement
                return self._timed_out(message)
            if ends_more_than_the_call(error):
                raise
            raise failure_of(error, "the listener", message) from error
        finally:
            if held:
                permits.release()
            if call is not None and self._deadlines is not None:
                self._deadlines.end(call)

    async def _timed(self, message: Message[object]) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self._target(message)
        seconds = loop.time() - began
        notify(message_handled, self._owner, binding=self._binding, message=message, seconds=seconds)

    def _timed_out(self, message: Message[object]) -> Settlement:
        error = TimeoutError(f"not settled within consume-timeout {self._delivery.consume_timeout}")
        logger.warning("Binding %r: message %s was %s", self._binding, message.headers.id, error)
        if self._delivery.broadcast:
            return ACCEPT
        return Retry(None, error)

    def _requested(self, request: SettlementRequest, redeliveries: int) -> Settlement:
        """Return what the listener chose by raising."""
        if isinstance(request, Requeue):
            return self._bounded(Retry(request.after, request.__cause__), redeliveries, str(request))
        reason = request.reason if isinstance(request, Reject) else str(request)
        return self._bounded(RejectMessage(reason, request.__cause__), redeliveries)

    def _bounded(self, settlement: Settlement, redeliveries: int, reason: str | None = None) -> Settlement:
        """Return ``settlement`` within what the binding's delivery allows."""
        if self._delivery.broadcast and settlement is not ACCEPT:
            logger.error(
                "Binding %r drops a message: %r; broadcast messages are not kept", self._binding, settlement
            )
            return ACCEPT
        if isinstance(settlement, Retry):
            reason = reason or ("retried by hand" if settlement.cause is None else text_of(settlement.cause))
            return after_requeue(self._delivery, redeliveries, settlement, reason)
        return settlement

    async def _given_up(
        self, message: Message[bytes], error: Exception, attempts: int, redeliveries: int, retryable: bool
    ) -> Settlement:
        """Return what becomes of a message whose calls in process are over."""
        cause = unwrapped(error)
        try:
            if await self._on_error(self._error_message(message, cause, attempts)):
                return ACCEPT
        except SettlementRequest as request:
            return self._requested(request, redeliveries)
        except BaseException as failure:
            if ends_more_than_the_call(failure):
                raise
            logger.exception("The error handling of binding %r failed itself", self._binding)
        if self._delivery.broadcast:
            logger.error("Binding %r drops message %s: %r", self._binding, message.headers.id, cause)
            return ACCEPT
        return after_failure(self._delivery, redeliveries, cause, retryable)

    def _error_message(self, message: Message[bytes], cause: BaseException, attempts: int) -> ErrorMessage:
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

    def runs_in(self, task: "asyncio.Task[object] | None") -> bool:
        """Return whether a call under way is made in ``task``."""
        return self._deadlines is not None and self._deadlines.has(task)

    def close(self) -> None:
        """Drop the timer of deadlines; no call is under way any more."""
        if self._deadlines is not None:
            self._deadlines.close()
