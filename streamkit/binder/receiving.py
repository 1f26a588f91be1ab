"""The receiver that a binder calls for each message: it makes the attempts and returns the settlement.

::

    binder ─▶ MessageReceiver ─▶ AttemptLoop ─▶ ListenerCalls ─▶ input channel ─▶ listener
                                     │ the last call of this delivery has failed
                                     ├─▶ error handler, or error channel with a subscriber ─▶ Accept
                                     └─▶ no handler, or the handler raised ─▶ Requeue, or Reject at the limit
"""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from streamkit.binder.acknowledgment import Acknowledgment
from streamkit.binder.attempt_loop import AttemptLoop, ErrorHandler
from streamkit.binder.attempts import RetryPolicy
from streamkit.binder.binder import Binder, ConsumerBinding, ConsumerDestination
from streamkit.binder.delivered import DeliveredMessage
from streamkit.binder.delivery import Delivery
from streamkit.binder.failure_log import FailureLog
from streamkit.binder.listener_calls import ListenerCalls, Target
from streamkit.binder.permits import Permits
from streamkit.events import message_received, notify
from streamkit.messaging.message import Message
from streamkit.settlement import Settlement

__all__ = ["MessageReceiver", "closing"]

R = TypeVar("R")


class MessageReceiver:
    """Calls a binding's listener with one message at a time and returns the settlement."""

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
        log: FailureLog,
        manual: bool = False,
    ) -> None:
        """Make a receiver.

        Args:
            owner: The application, for events.
            binding: The binding's name, for logs.
            target: Sends a message to the input channel.
            delivery: The meaning of the binding's extended properties.
            policy: The attempts in process and the pauses between them.
            permits: Limit the calls of the listener that run at once.
            on_error: The binding's error handler or error channel.
            log: Logs the failures.
            manual: Whether a listener of the binding asks for an :class:`Acknowledgment`.
        """
        self._owner = owner
        self._binding = binding
        self._delivery = delivery
        self._permits = permits
        self._manual = manual
        self._calls = ListenerCalls(owner, binding, target, delivery, permits)
        self._attempts = AttemptLoop(owner, binding, delivery, policy, on_error=on_error, log=log)
        # The bound methods are kept, because each access would make a new one for each message.
        self._run, self._make, self._sleep = self._attempts.run, self._calls.make, permits.sleep
        self._conclude_message = self._attempts.conclude

    def __call__(self, message: Message[bytes], redeliveries: int) -> Awaitable[Settlement]:
        """Handle one delivery of a message.

        This is not a coroutine function itself, which saves a coroutine for each message.

        Args:
            message: The message as the binder received it.
            redeliveries: The number of earlier redeliveries.

        Returns:
            An awaitable with the message's settlement, which the caller must await at once.

        Raises:
            CancelledError: The call is cancelled; the message stays unsettled.
        """
        if message_received.receivers:
            notify(message_received, self._owner, binding=self._binding, message=message)
        acknowledgment = Acknowledgment() if self._manual else None
        delivered = DeliveredMessage(message, redeliveries, acknowledgment)
        running = self._run(delivered, self._make, self._sleep, self._conclude_message)
        return running if acknowledgment is None else closing(acknowledgment, running)

    async def bind(self, binder: Binder, destination: ConsumerDestination) -> ConsumerBinding:
        """Bind this receiver to a destination.

        Raises:
            BinderUnavailable: The binder's system cannot be reached.
            BinderError: The binder's system refused.
        """
        # The bound method, because a call of an object with `__call__` costs more.
        return await binder.bind_consumer(destination, self.__call__)

    def runs_in(self, task: "asyncio.Task[object] | None") -> bool:
        """Return whether a call of the listener runs in ``task``."""
        return self._calls.runs_in(task)

    def close(self) -> None:
        """Cancel the timer of deadlines; called when no call is in flight."""
        self._calls.close()


async def closing(acknowledgment: Acknowledgment, running: Awaitable[R]) -> R:
    """Await the attempts of a delivery; afterwards its messages cannot be settled by hand any more."""
    try:
        return await running
    finally:
        acknowledgment.close()
