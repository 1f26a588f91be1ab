"""The stages of composed functions: the results of each stage are the messages of the next one.

A stage returns when all results of its message have passed through the following stages and have been sent. So a
failure at any stage fails the original message.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Executor
from typing import Final, Protocol

from streamkit.functions.streams import StreamFunction
from streamkit.listeners.arguments import Reader
from streamkit.listeners.invocation import ListenerHandler, Outputs, SendElsewhere, call_on_thread
from streamkit.messaging.converter import CompositeMessageConverter
from streamkit.messaging.handler import awaited
from streamkit.messaging.headers import SEND_TO_DESTINATION
from streamkit.messaging.message import Message
from streamkit.messaging.message_converter import type_name, without_none

__all__ = ["ItemsHandler", "NextStage", "Stage", "StageReader", "StreamStage", "items_of", "send_to_outputs"]

_END: Final = object()


class Stage(Protocol):
    """One function of a composition, or a single function."""

    @property
    def settles_by_hand(self) -> bool:
        """Whether the function takes an acknowledgment."""
        ...

    async def handle_message(self, message: Message[object]) -> None:
        """Call the function with ``message`` and pass its results to the next stage or to the outputs."""
        ...


class NextStage:
    """The output of a stage that is the input of the next one."""

    def __init__(self, following: Stage) -> None:
        self._following = following

    async def asend(self, message: Message[object]) -> bool:
        """Hand a result to the next stage."""
        await self._following.handle_message(message)
        return True

    async def asend_all(self, messages: Sequence[Message[object]]) -> None:
        """Hand several results to the next stage, one by one."""
        for message in messages:
            await self._following.handle_message(message)

    async def elsewhere(self, destination: str, message: Message[object]) -> bool:
        """Hand a result to the next stage; only the last stage can send to other destinations."""
        return await self.asend(message)


class StageReader:
    """Converts the results of one stage to the type that the next stage takes.

    A value of that type is passed unchanged. Any other value is converted as between two bindings: it is written by
    its content type and read again.
    """

    def __init__(self, converter: CompositeMessageConverter, given: object, asked: object) -> None:
        """Create a reader.

        Args:
            converter: Converts values.
            given: The type of the preceding stage's results, by its annotation.
            asked: The type that the following stage takes.

        Raises:
            MessageConversionError: No converter can read `asked`.
        """
        self._is_same = _is_same(given, asked)
        self._type = asked if isinstance(asked, type) else None
        self._write = converter.payload_writer(None)
        self._read: Reader = (lambda message: message.payload) if self._is_same else converter.payload_reader(asked)

    def __call__(self, message: Message[object]) -> object:
        """Return the payload as the type that the next stage takes."""
        payload = message.payload
        if self._is_same or (self._type is not None and type(payload) is self._type):
            return payload
        return self._read(self._write(message))


def _is_same(given: object, asked: object) -> bool:
    """Return whether every value annotated as `given` can be passed unchanged as `asked`."""
    given, asked = without_none(given), without_none(asked)
    if given == asked or asked is object or type_name(asked) == "Any":
        return True
    return isinstance(given, type) and isinstance(asked, type) and issubclass(given, asked)


class ItemsHandler(ListenerHandler):
    """Calls a function that returns an iterator for each message, and sends the items one by one."""

    async def handle_message(self, message: Message[object]) -> None:
        """Call the function with ``message`` and send the items that it yields."""
        positional, keywords = self._plan.arguments(message)
        result = self.function(*positional, **keywords)
        async for item in items_of(result, self._pool):
            if (sending := self._answer(item, message.headers)) is not None:
                await sending


class StreamStage:
    """One input of a function over streams, as a stage."""

    settles_by_hand = False

    def __init__(self, function: StreamFunction, index: int = 0) -> None:
        self.function = function
        self._index = index

    async def handle_message(self, message: Message[object]) -> None:
        """Hand ``message`` to the stream, and return when the function has finished with it."""
        await self.function.handle(self._index, message)

    def __repr__(self) -> str:
        return f"<StreamStage {self._index} of {self.function!r}>"


async def items_of(result: object, pool: Callable[[], Executor]) -> AsyncIterator[object]:
    """Yield the items of an iterator or an async iterator; those of an iterator are computed on threads.

    Raises:
        TypeError: The result is neither.
    """
    result = await awaited(result)
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
    """Send a value or a message that does not answer an incoming message; its header may name another destination."""
    message = value if isinstance(value, Message) else Message(value)
    destination = message.headers.get(SEND_TO_DESTINATION)
    if isinstance(destination, str):
        await elsewhere(destination, message.without_header(SEND_TO_DESTINATION))
        return
    for output in outputs:
        await output.asend(message)
