"""The calls of the framework's receiver, one by one or in batches, for binders whose driver makes them.

A call turns deliveries of the binder into messages, calls the receiver, and returns a settlement for each delivery. A
delivery that cannot be read is rejected without the receiver. If the receiver raises, its messages are requeued.
"""

import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import TypeAlias, TypeVar

from streamkit.binder.binder import BatchReceiver, Receiver
from streamkit.binder.calls import Redelivered
from streamkit.messaging.message import Message
from streamkit.settlement import Reject, Requeue, Settlement

__all__ = ["ReceiverCall", "ToMessage", "in_batches", "one_by_one"]

logger = logging.getLogger(__name__)

D = TypeVar("D", bound=Redelivered)

ReceiverCall: TypeAlias = Callable[[Sequence[D]], Coroutine[object, None, Sequence[Settlement]]]
"""Calls the receiver once for these deliveries, and returns the settlement of each, in their order."""
ToMessage: TypeAlias = Callable[[D], Message[bytes] | Reject]
"""Returns the framework's message of a delivery, or `Reject` if the delivery cannot be read."""


def one_by_one(receiver: Receiver, binding: str, to_message: ToMessage[D]) -> ReceiverCall[D]:
    """Return a function that calls ``receiver`` with a single delivery.

    Args:
        receiver: The receiver of the binding.
        binding: The binding's name, for logs.
        to_message: Turns a delivery into a message.
    """

    async def call_receiver(deliveries: Sequence[D]) -> Sequence[Settlement]:
        (delivery,) = deliveries
        message = to_message(delivery)
        if isinstance(message, Reject):
            return [message]
        try:
            return [await receiver(message, delivery.redeliveries)]
        except Exception as error:
            logger.exception("The receiver of binding %r raised; its message is retried", binding)
            return [Requeue("the receiver raised", cause=error)]

    return call_receiver


def in_batches(receiver: BatchReceiver, binding: str, to_message: ToMessage[D]) -> ReceiverCall[D]:
    """Return a function that calls ``receiver`` with those of its deliveries that can be read.

    Args:
        receiver: The receiver of the binding.
        binding: The binding's name, for logs.
        to_message: Turns a delivery into a message.
    """

    async def call_receiver(deliveries: Sequence[D]) -> Sequence[Settlement]:
        read = [(delivery, to_message(delivery)) for delivery in deliveries]
        messages = [message for _, message in read if not isinstance(message, Reject)]
        redeliveries = [each.redeliveries for each, message in read if not isinstance(message, Reject)]
        settlements = iter(await receive(messages, redeliveries) if messages else ())
        return [message if isinstance(message, Reject) else next(settlements) for _, message in read]

    async def receive(messages: Sequence[Message[bytes]], redeliveries: Sequence[int]) -> Sequence[Settlement]:
        try:
            return await receiver.receive_batch(messages, redeliveries)
        except Exception as error:
            logger.exception("The receiver of binding %r raised; its messages are retried", binding)
            return [Requeue("the receiver raised", cause=error)] * len(messages)

    return call_receiver
