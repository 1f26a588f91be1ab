"""Advice: a plugin's code around the calls of a listener.

::

    input channel ─▶ AdvisedHandler ─▶ ListenerAdvice.around(message, call)
                                           │ await call(message)     the listener, then its results to the outputs
                                           └ or not at all           the message is accepted without a call

A plugin makes an advice for each listener that it concerns (the hook `streamkit_listener_advice`). A listener without
advice is called directly.
"""

from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor, Future
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from inspect import isawaitable
from typing import Final, ParamSpec, Protocol, TypeVar

from streamkit.listeners.arguments import ProviderLookup
from streamkit.listeners.invocation import ListenerHandler, Outputs, SendElsewhere
from streamkit.listeners.listener import Listener
from streamkit.messaging.message import Message

__all__ = [
    "AdvisedHandler",
    "AdvisedListener",
    "AdvisedProviders",
    "ListenerAdvice",
    "ListenerCall",
    "WatchedThreads",
    "advised_outputs",
]

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class AdvisedListener:
    """A listener, as a plugin sees it when the application starts.

    Attributes:
        function: The listener.
        description: Its name with file and line, for errors.
        declaration: The arguments of its decorator.
        binding: The name of its input binding.
        group: The binding's group, or None if it is anonymous.
        shares_binding: Whether the binding has other listeners.
        is_async: Whether the listener is an `async def`.
        threads: Returns the threads on which `def` listeners of the binding run.
    """

    function: Callable[..., object]
    description: str
    declaration: Listener
    binding: str
    group: str | None
    shares_binding: bool
    is_async: bool
    threads: Callable[[], Executor]


class ListenerCall:
    """One call of a listener: ``await call(message)`` calls it and sends its results.

    Attributes:
        executor: Runs a `def` listener, in place of the binding's threads; None for these. An awaitable that the
            listener returns is refused then, because it would run on the loop.
        thread: The future of a `def` listener on its thread; it may still run after this call was cancelled.
    """

    def __init__(self, handler: ListenerHandler) -> None:
        self._handler = handler
        self.executor: Executor | None = None
        self.thread: Future[object] | None = None

    async def __call__(self, message: Message[object]) -> None:
        """Call the listener; errors are those of `ListenerHandler.handle_message`."""
        token = _current.set(self)
        try:
            await self._handler.handle_message(message)
        finally:
            _current.reset(token)


_current: Final[ContextVar[ListenerCall]] = ContextVar("streamkit_listener_call")


class ListenerAdvice(Protocol):
    """Code around the calls of one listener."""

    def find(self, marker: object) -> Callable[[], object] | None:
        """Return the provider of a parameter that `marker` marks, or None if the marker is not this advice's.

        The provider is called during :meth:`around`, in its context.
        """
        ...

    async def around(self, message: Message[object], call: ListenerCall) -> None:
        """Handle ``message``: call the listener by ``await call(message)``, or accept the message without a call.

        An exception fails the call. In batch mode the payload is a :class:`~streamkit.binder.batch.Batch`.
        """
        ...

    def results(self, messages: Sequence[Message[object]]) -> Sequence[Message[object]]:
        """Return the listener's results as they are sent; called during :meth:`around`, in its context."""
        ...


class AdvisedHandler:
    """Calls a listener within an advice.

    Attributes:
        inner: The handler of the listener.
    """

    def __init__(self, inner: ListenerHandler, advice: ListenerAdvice) -> None:
        self.inner = inner
        self._advice = advice

    async def handle_message(self, message: Message[object]) -> None:
        """Handle a message as the advice decides; errors are those of the advice and of the listener."""
        await self._advice.around(message, ListenerCall(self.inner))

    def __repr__(self) -> str:
        return f"<AdvisedHandler {self.inner!r}>"


class AdvisedProviders:
    """Looks markers up in an advice first, then in the containers."""

    def __init__(self, advice: ListenerAdvice, others: ProviderLookup) -> None:
        self._advice = advice
        self._others = others

    def find(self, marker: object) -> Callable[[], object] | None:
        """Return the provider of the marker's value, or None if `marker` is not a marker.

        Raises:
            LookupError: No container has the provider that the marker names.
        """
        return self._advice.find(marker) or self._others.find(marker)


class _AdvisedOutput:
    """Sends a listener's results as its advice returns them."""

    def __init__(self, output: Outputs, advice: ListenerAdvice) -> None:
        self._output = output
        self._advice = advice

    async def asend(self, message: Message[object]) -> bool:
        """Send one message; return whether it was accepted."""
        return await self._output.asend(self._advice.results([message])[0])

    async def asend_all(self, messages: Sequence[Message[object]]) -> None:
        """Send several messages in their order, up to the first that fails."""
        await self._output.asend_all(self._advice.results(messages))


def advised_outputs(
    advice: ListenerAdvice, outputs: Sequence[Outputs], elsewhere: SendElsewhere
) -> tuple[Sequence[Outputs], SendElsewhere]:
    """Return a listener's outputs and its function for other destinations, with the advice applied to each result."""

    async def send_elsewhere(name: str, message: Message[object]) -> object:
        return await elsewhere(name, advice.results([message])[0])

    return [_AdvisedOutput(each, advice) for each in outputs], send_elsewhere


class WatchedThreads(Executor):
    """Threads for the calls that have no executor of their own; each call's future is noted in its `ListenerCall`."""

    def __init__(self, threads: Executor) -> None:
        self._threads = threads

    def submit(self, call: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> "Future[R]":
        """Queue the call for a thread; return the future of its result."""
        current = _current.get()
        if current.executor is None:
            future = self._threads.submit(call, *args, **kwargs)
        else:
            future = current.executor.submit(_called_to_its_end, partial(call, *args, **kwargs))
        current.thread = future  # type: ignore[assignment]  # Future is invariant
        return future


def _called_to_its_end(call: Callable[[], R]) -> R:
    """Call a listener that has to run on this thread, and return its result.

    Raises:
        TypeError: The result is awaitable, so the listener has not run on this thread.
    """
    result = call()
    if not isawaitable(result):
        return result
    if isinstance(result, Coroutine):
        result.close()  # otherwise Python warns of a coroutine that was never awaited
    name = getattr(result, "__qualname__", type(result).__qualname__)
    raise TypeError(
        f"the listener is a def that returned the awaitable {name}, which would run on the loop, outside of the "
        "transaction that its thread has: write what the listener decorates as a def"
    )
