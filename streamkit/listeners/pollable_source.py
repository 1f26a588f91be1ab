"""Pollable sources, with which an application polls a binding itself: Spring's `PollableMessageSource`.

::

    # binding orders-in-0 of spring.cloud.stream.pollable-source=orders
    orders = app.pollable_source("orders")

    async def work() -> None:
        while await orders.poll(handle, Order):
            ...

    async def handle(message: Message[Order]) -> None: ...

A message is accepted when its handler returns. A handler that calls `no_auto_ack(message)` gets the `Acknowledgment`
to settle the message later, from any place.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from streamkit.binder.acknowledgment import ACKNOWLEDGMENT, Acknowledgment
from streamkit.messaging.message import Message

if TYPE_CHECKING:  # importing this is slow, and only a running application needs it
    from streamkit.listeners.polled_binding import PolledBinding

__all__ = ["PollableMessageSource", "no_auto_ack"]

T = TypeVar("T")

Handler = Callable[[Message[T]], object]


class PollableMessageSource:
    """Hands the messages of a binding to handlers, one for each poll.

    Attributes:
        name: The binding's name, or the name that `pollable-source` gives it.
    """

    def __init__(self, name: str, find: "Callable[[str], PolledBinding]") -> None:
        self.name = name
        self._find = find
        self._turn = 0

    @overload
    async def poll(self, handler: Handler[bytes], type_: None = None) -> bool: ...
    @overload
    async def poll(self, handler: Handler[T], type_: type[T]) -> bool: ...
    async def poll(self, handler: Handler[Any], type_: object = None) -> bool:
        """Receive one message and call ``handler`` with it.

        A failing handler is called again as the binding's retry settings say. After the last attempt the failure is
        sent to the error channel, and the message is rejected unless a subscriber of that channel handles it. A
        handler that returns or raises ``Requeue`` has the message redelivered.

        Args:
            handler: Called with the message; `async def`, or `def`, which runs on a thread.
            type_: The type to convert the payload to; if None, the payload is passed as bytes.

        Returns:
            True if a message was received; False if none is available now, or the binding is not bound.

        Raises:
            ApplicationError: The application is not running.
            BinderError: The message could not be fetched or settled.
            MessageConversionError: No converter supports ``type_``.
        """
        found = self._find(self.name)
        read = None if type_ is None else found.reader(type_)

        async def handle(message: Message[object]) -> None:
            item = message if read is None else Message(read(message), message.headers)
            await found.call(handler, item)

        # Round robin: begin behind the receiver that gave the last message, so that a full one does not starve others.
        receivers = found.receivers
        for step in range(len(receivers)):
            turn = (self._turn + step) % len(receivers)
            if await receivers[turn].poll(handle):
                self._turn = turn + 1
                return True
        return False

    def __repr__(self) -> str:
        return f"<PollableMessageSource {self.name!r}>"


def no_auto_ack(message: Message[Any]) -> Acknowledgment:
    """Switch off the automatic acceptance of a polled message, and return its acknowledgment.

    Raises:
        KeyError: The message was not polled.
    """
    acknowledgment = cast("Acknowledgment", message.headers[ACKNOWLEDGMENT])
    acknowledgment.engage()
    return acknowledgment
