"""Handlers of a channel's messages: functions, and objects with `handle_message`."""

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Protocol, TypeAlias, TypeVar, runtime_checkable

from streamkit.errors import BlockingSendError
from streamkit.messaging.message import Message

T = TypeVar("T")

HandlerResult: TypeAlias = Awaitable[object] | object
HandlerFunction: TypeAlias = Callable[[Message[object]], HandlerResult]


@runtime_checkable
class MessageHandler(Protocol):
    """Handles messages. `handle_message` is awaited if it is `async def`.

    Its result is ignored, except `Requeue` and `Reject`, which are raised (:mod:`streamkit.settlement`).

    A handler that can handle several messages at less cost has `async def handle_messages(messages)`, too, which
    returns the first message that failed with its error (`Failed`), or None.

    Handlers with an attribute `order` (int) come before those without, the smallest first.
    """

    def handle_message(self, message: Message[object], /) -> HandlerResult:
        """Handle `message`; raise if that fails."""
        ...


Failed: TypeAlias = tuple[Message[object], Exception]
"""A message of a list that a handler could not handle, and the error."""


Handler: TypeAlias = MessageHandler | HandlerFunction


class Subscription:
    """A handler as its dispatcher calls it: one function, and whether it is `async def`."""

    __slots__ = ("call", "call_with_all", "handler", "is_async", "order")

    def __init__(self, handler: Handler) -> None:
        call = handler.handle_message if isinstance(handler, MessageHandler) else handler
        if not callable(call):
            raise TypeError(f"{handler!r} cannot handle messages: pass a function or an object with handle_message")
        self.handler = handler
        self.call: HandlerFunction = call
        self.call_with_all: Callable[[Sequence[Message[object]]], Awaitable[Failed | None]] | None
        self.call_with_all = getattr(handler, "handle_messages", None)
        self.is_async = is_async(call)
        order = getattr(handler, "order", None)
        self.order = order if isinstance(order, int) else None

    def __repr__(self) -> str:
        return f"Subscription({name_of(self.handler)})"


def is_async(call: Callable[..., object]) -> bool:
    """Return whether `call` is `async def`, or a bound method, a partial or an object with a `__call__` that is."""
    while isinstance(call, partial):
        call = call.func
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(getattr(call, "__call__", None))  # noqa: B004


async def awaited(result: T | Awaitable[T]) -> T:
    """Return a function's result, once it is not awaitable: await it, and what it returns, as often as needed.

    An awaitable that nobody awaits is work that is lost: the function may be a `def` decorator around an `async def`,
    or lack an `await`, and decorators may be stacked. Callers need not pass None, the most frequent result.
    """
    while inspect.isawaitable(result):
        result = await result
    return result


def not_awaited(awaitable: Awaitable[object]) -> str:
    """Return the end of an error about an awaitable where its result belongs."""
    name = getattr(awaitable, "__qualname__", None)
    of_function = "" if name is None else f" of {name}"
    return f"the {type(awaitable).__name__}{of_function}, which was not awaited: await it, and send its result"


def name_of(handler: object) -> str:
    """Return the handler's name for errors: its qualified name, or that of its class."""
    name: str = getattr(handler, "__qualname__", type(handler).__qualname__)
    return name


def drive(coroutine: Coroutine[object, None, bool]) -> bool:
    """Run a coroutine that does not wait, in this thread and without a loop; return its result.

    Raises:
        BlockingSendError: The coroutine waited: a `def` handler returned something that waits.
    """
    try:
        coroutine.send(None)
    except StopIteration as error:
        return bool(error.value)
    coroutine.close()
    raise BlockingSendError("a handler or interceptor that is `def` waited for a loop; make it `async def`")
