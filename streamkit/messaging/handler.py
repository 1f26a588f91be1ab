"""What takes messages from a channel: a function, or an object with `handle_message`."""

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Protocol, TypeAlias, runtime_checkable

from streamkit.errors import BlockingSendError
from streamkit.messaging.message import Message

HandlerResult: TypeAlias = Awaitable[object] | object
HandlerFunction: TypeAlias = Callable[[Message[object]], HandlerResult]


@runtime_checkable
class MessageHandler(Protocol):
    """Takes messages. What `handle_message` returns is ignored, but awaited when it is `async def`.

    An attribute `order` (int), where there is one, puts the handler before those without, the
    smallest first.
    """

    def handle_message(self, message: Message[object], /) -> HandlerResult:
        """Takes `message`; raising says that it could not."""
        ...


Handler: TypeAlias = MessageHandler | HandlerFunction


class Subscription:
    """A handler as its dispatcher calls it: resolved to one function, known to be `async def` or not."""

    __slots__ = ("call", "handler", "is_async", "order")

    def __init__(self, handler: Handler) -> None:
        call = handler.handle_message if isinstance(handler, MessageHandler) else handler
        if not callable(call):
            raise TypeError(
                f"{handler!r} handles no messages: give a function or an object with handle_message"
            )
        self.handler = handler
        self.call: HandlerFunction = call
        self.is_async = is_async(call)
        order = getattr(handler, "order", None)
        self.order = order if isinstance(order, int) else None

    def __repr__(self) -> str:
        return f"Subscription({name_of(self.handler)})"


def is_async(call: Callable[..., object]) -> bool:
    """True when calling it makes a coroutine: an `async def`, bound, partial, or as `__call__`."""
    while isinstance(call, partial):
        call = call.func
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(getattr(call, "__call__", None))  # noqa: B004


def name_of(handler: object) -> str:
    """How errors call the handler: its qualified name, or that of its class."""
    name: str = getattr(handler, "__qualname__", type(handler).__qualname__)
    return name


def drive(coroutine: Coroutine[object, None, bool]) -> bool:
    """Runs a coroutine that has nothing to wait for, in this thread and without a loop.

    Raises:
        BlockingSendError: It waited after all: what some `def` handler returned did.
    """
    try:
        coroutine.send(None)
    except StopIteration as finished:
        return bool(finished.value)
    coroutine.close()
    raise BlockingSendError("a handler or interceptor that is `def` waited for a loop; make it `async def`")
