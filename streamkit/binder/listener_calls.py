"""The calls of one binding's listener: limited in number and time, settled by their return or by hand."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from streamkit.binder.acknowledgment import Acknowledgment
from streamkit.binder.deadlines import Call, Deadlines
from streamkit.binder.delivery import Delivery
from streamkit.binder.permits import Permits
from streamkit.config.durations import format_duration
from streamkit.events import message_handled, notify
from streamkit.messaging.cancellation import failure_of, must_be_raised_again
from streamkit.messaging.message import Message
from streamkit.settlement import ACCEPT, Reject, Requeue, Settlement

__all__ = ["ListenerCalls", "Target", "timed_out"]

logger = logging.getLogger(__name__)

Target: TypeAlias = Callable[[Message[object]], Awaitable[object]]
"""Handles a message: sends it to an input channel, or is the handler of a poll."""


class ListenerCalls:
    """Calls a binding's listener through its input channel.

    Each call holds a permit while the listener runs. A message that waits for its next attempt, or for its settlement
    by hand, holds no permit.
    """

    def __init__(self, owner: object, binding: str, target: Target, delivery: Delivery, permits: Permits) -> None:
        """Make the caller of one listener.

        Args:
            owner: The application, for events.
            binding: The binding's name, for logs.
            target: Sends a message to the input channel.
            delivery: The meaning of the binding's extended properties.
            permits: Limit the calls that run at once.
        """
        self._owner = owner
        self._binding = binding
        self._target = target
        self._delivery = delivery
        self._permits = permits
        timeout = delivery.consume_timeout
        self._deadlines = None if timeout is None else Deadlines(timeout.total_seconds())

    async def make(self, message: Message[object], acknowledgment: Acknowledgment | None) -> Settlement:
        """Make one call, and wait for the settlement if the listener settles by hand.

        Args:
            message: The message of this attempt.
            acknowledgment: Settles the message by hand, or None if no listener of the binding does.

        Returns:
            The listener's settlement. If the call exceeded `consume-timeout`: the settlement by hand if there is one,
            else `Requeue`, or `Accept` under broadcast.

        Raises:
            Exception: The listener failed.
            CancelledError: The call is cancelled, or the permits are closed.
        """
        permits = self._permits
        held = permits.take() or await permits.acquire()
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
        except (Requeue, Reject) as decision:
            # The traceback is not used, and would keep the frames and their variables in memory.
            return decision.with_traceback(None)
        except Exception:
            raise
        except BaseException as error:
            is_cancelled = isinstance(error, asyncio.CancelledError)
            if is_cancelled and call is not None and Deadlines.is_timeout(call):
                return self._late(message, acknowledgment)
            if must_be_raised_again(error):
                raise
            raise failure_of(error, "the listener", message) from error
        finally:
            if held:
                permits.release()
            if call is not None and self._deadlines is not None:
                self._deadlines.end(call)

    def _late(self, message: Message[object], acknowledgment: Acknowledgment | None) -> Settlement:
        """Return the settlement of a call that exceeded `consume-timeout`: the settlement by hand if there is one."""
        if acknowledgment is not None and acknowledgment.settlement is not None:
            return acknowledgment.settlement
        return timed_out(self._binding, self._delivery, message)

    async def _timed(self, message: Message[object]) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await self._target(message)
        seconds = loop.time() - began
        notify(message_handled, self._owner, binding=self._binding, message=message, seconds=seconds)

    def runs_in(self, task: "asyncio.Task[object] | None") -> bool:
        """Return whether a call runs in ``task``; always False without `consume-timeout`."""
        return self._deadlines is not None and self._deadlines.has(task)

    def close(self) -> None:
        """Cancel the timer of deadlines; called when no call is in flight."""
        if self._deadlines is not None:
            self._deadlines.close()


def timed_out(binding: str, delivery: Delivery, message: Message[object]) -> Settlement:
    """Log that a message was not settled within `consume-timeout`; return its settlement.

    Args:
        binding: The binding's name, for the log.
        delivery: The meaning of the binding's extended properties.
        message: The message.
    """
    assert delivery.consume_timeout is not None, "without a timeout nothing times out"
    reason = f"not settled within consume-timeout, {format_duration(delivery.consume_timeout)}"
    fields = {
        "binding": binding,
        "message_id": message.headers.id,
        "next_step": "accepted" if delivery.broadcast else "redelivery",
    }
    logger.warning("Binding %r: message %s was %s", binding, message.headers.id, reason, extra=fields)
    return ACCEPT if delivery.broadcast else Requeue(reason, cause=TimeoutError(reason))
