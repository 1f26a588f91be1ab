"""The way of a message through composed functions: each is a stage whose results are the next one's messages.

A stage returns when everything that came of its message has gone through all stages behind it, and has been
sent. So what fails anywhere fails the message it began with.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Executor
from typing import Final, Protocol

from streamkit.functions.streams import StreamFunction
from streamkit.listeners.arguments import Reader
from streamkit.listeners.invocation import ListenerHandler, Outputs, SendElsewhere, call_on_thread
from streamkit.messaging.converter import CompositeMessageConverter
from streamkit.messaging.headers import SEND_TO_DESTINATION
from streamkit.messaging.message import Message
from streamkit.messaging.message_converter import type_name, without_none

__all__ = ["ItemsHandler", "Joint", "JointReader", "Stage", "StreamStage", "items_of", "send_to_outputs"]

_END: Final = object()


class Stage(Protocol):
    """One function of a composition, or the only one."""

    @property
    def settles_by_hand(self) -> bool:
        """Whether the function asks for an acknowledgment."""
        ...

    async def handle_message(self, message: Message[object]) -> None:
        """Run the function for ``message``; what it gives goes on."""
        ...


class Joint:
    """Where one stage ends and the next begins."""

    def __init__(self, following: Stage) -> None:
        self._following = following

    async def asend(self, message: Message[object]) -> bool:
        """Hand a result on."""
        await self._following.handle_message(message)
        return True

    async def elsewhere(self, destination: str, message: Message[object]) -> bool:
        """Hand a result on: only what leaves the last stage can be sent elsewhere."""
        return await self.asend(message)


class JointReader:
    """Reads the results of one stage as what the next one takes.

    A value that is of that type goes on as it is; another is converted as between two bindings: written by its
    content type and read again.
    """

    def __init__(self, converter: CompositeMessageConverter, given: object, asked: object) -> None:
        """Prepare.

        Args:
            converter: Converts what has to be.
            given: What the stage before gives, by its annotation.
            asked: What this one takes.

        Raises:
            MessageConversionError: Nobody can make it.
        """
        self._is_same = _is_same(given, asked)
        self._type = asked if isinstance(asked, type) else None
        self._write = converter.payload_writer(None)
        self._read: Reader = (
            (lambda message: message.payload) if self._is_same else converter.payload_reader(asked)
        )

    def __call__(self, message: Message[object]) -> object:
        """Return the payload as what the next stage takes."""
        payload = message.payload
        if self._is_same or (self._type is not None and type(payload) is self._type):
            return payload
        return self._read(self._write(message))


def _is_same(given: object, asked: object) -> bool:
    """Whether whatever is annotated so can be handed on as it is."""
    given, asked = without_none(given), without_none(asked)
    if given == asked or asked is object or type_name(asked) == "Any":
        return True
    return isinstance(given, type) and isinstance(asked, type) and issubclass(given, asked)


class ItemsHandler(ListenerHandler):
    """Calls a function that gives an iterator for each message; its items are sent one by one."""

    async def handle_message(self, message: Message[object]) -> None:
        """Call the function with ``message``; send what it yields."""
        positional, keywords = self._plan.arguments(message)
        result = self.function(*positional, **keywords)
        async for item in items_of(result, self._pool):
            for output in self._messages(item, message.headers):
                await self._send(output)


class StreamStage:
    """One input of a function over streams, as a stage."""

    settles_by_hand = False

    def __init__(self, function: StreamFunction, index: int = 0) -> None:
        self.function = function
        self._index = index

    async def handle_message(self, message: Message[object]) -> None:
        """Hand ``message`` to the stream; returns when the function is done with it."""
        await self.function.handle(self._index, message)

    def __repr__(self) -> str:
        return f"<StreamStage {self._index} of {self.function!r}>"


async def items_of(result: object, pool: Callable[[], Executor]) -> AsyncIterator[object]:
    """Yield the items of an iterator of either kind; those of a `def` are made on threads."""
    if isinstance(result, Awaitable):
        result = await result
    if isinstance(result, AsyncIterator):
        try:
            async for item in result:
                yield item
        finally:
            close = getattr(result, "aclose", None)
            if close is not None:
                await close()
        return
    if not isinstance(result, Iterator):
        raise TypeError(f"expected an iterator, as the function is annotated, not {result!r}")
    while (item := await call_on_thread(pool(), next, result, _END)) is not _END:
        yield item


async def send_to_outputs(value: object, outputs: Sequence[Outputs], elsewhere: SendElsewhere) -> None:
    """Send a value, or a message, that came of no message; a header may name another destination."""
    message = value if isinstance(value, Message) else Message(value)
    destination = message.headers.get(SEND_TO_DESTINATION)
    if isinstance(destination, str):
        await elsewhere(destination, message.without_header(SEND_TO_DESTINATION))
        return
    for output in outputs:
        await output.asend(message)
