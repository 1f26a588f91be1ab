"""Polled consumers as applications see them: Spring's `PollableMessageSource`.

::

    orders = app.pollable_source("orders")           # binding orders-in-0 of spring.cloud.stream.pollable-source=orders

    async def work() -> None:
        while await orders.poll(handle, Order):
            ...

    async def handle(message: Message[Order]) -> None: ...

A handler that returns has accepted its message. `no_auto_ack(message)` gives the `Acknowledgment` to settle it
later, from anywhere.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from streamkit.binder.acknowledgment import ACKNOWLEDGMENT, Acknowledgment
from streamkit.messaging.message import Message

if TYPE_CHECKING:  # slow to import, and needed only by an application that runs
    from streamkit.listeners.polled_binding import PolledBinding

__all__ = ["PollableMessageSource", "no_auto_ack"]

T = TypeVar("T")

Handler = Callable[[Message[T]], object]


class PollableMessageSource:
    """Hands messages of a binding over when it is asked to.

    Attributes:
        name: The binding's name, or what `pollable-source` calls it.
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
        """Have ``handler`` take one message.

        A failing handler is tried again as the binding's settings say; then its error channel is told, and the
        message rejected, unless a subscriber there handles it. ``Requeue`` gives it back.

        Args:
            handler: Called with the message; `async def` or not.
            type_: What its payload is read as; bytes if not given.

        Returns:
            True when there was a message; False when there is none now, or the binding is not bound.

        Raises:
            ApplicationError: The application does not run.
        """
        found = self._find(self.name)
        read = None if type_ is None else found.reader(type_)

        async def handle(message: Message[object]) -> None:
            item = message if read is None else Message(read(message), message.headers)
            await found.call(handler, item)

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
    """Take the decision about a polled message upon oneself: the return of its handler accepts nothing.

    Raises:
        KeyError: The message was not polled.
    """
    acknowledgment = cast("Acknowledgment", message.headers[ACKNOWLEDGMENT])
    acknowledgment.engage()
    return acknowledgment
