"""Functions over streams: called once, with async iterators of what arrives.

::

    handler ── offer(message) ─▶ MessageStream ── async for ─▶ function ── yield ─▶ outputs
       ▲                                                          │
       └── the message is done when the function asks for the next one, or ends; it failed when that raises

So a message is settled after what was made of it is sent, one message of a stream is in work at a time, and
attempts, error channels and dead letters are the same as for other functions. A function that has ended or
failed is called anew, with new streams, for the next message; what it had gathered until then is gone.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol, cast

from streamkit.errors import MessageConversionError, Requeue
from streamkit.listeners.arguments import Reader
from streamkit.loop.loops import cancel
from streamkit.messaging.cancellation import ends_more_than_the_call, failure_of
from streamkit.messaging.message import Message

__all__ = ["Emit", "MessageStream", "StreamFunction"]

logger = logging.getLogger(__name__)

Emit = Callable[[int, object], Awaitable[object]]
"""Sends one item to the output of that index."""


class _Offer:
    """A message on its way through the function; ``done`` is resolved when that is over."""

    __slots__ = ("done", "message")

    def __init__(self, message: Message[object]) -> None:
        self.message = message
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class StreamOwner(Protocol):
    """What a stream tells when its function asks for a message and there is none."""

    def waits(self) -> None:
        """The function waits for a message."""
        ...


class MessageStream:
    """The messages of one input, as an async iterator.

    Messages offered while the function is at work wait in line. They outlive the function's call: the next
    call goes on with them.
    """

    def __init__(self, read: Reader, owner: StreamOwner) -> None:
        self._read = read
        self._owner = owner
        self._line: deque[_Offer] = deque()
        self._held: _Offer | None = None
        self._arrival = asyncio.Event()

    async def offer(self, message: Message[object]) -> None:
        """Have the function handle ``message``; returns when it is done with it.

        Raises:
            Exception: The function failed with it.
        """
        offered = _Offer(message)
        self._line.append(offered)
        self._arrival.set()
        try:
            await offered.done
        finally:
            if offered in self._line:
                self._line.remove(offered)

    async def arrival(self) -> None:
        """Wait until a message is in line."""
        while not self._line:
            self._arrival.clear()
            await self._arrival.wait()

    def __aiter__(self) -> AsyncIterator[object]:
        return self

    async def __anext__(self) -> object:
        self.finish()
        while True:
            if not self._line:
                self._owner.waits()
                await self.arrival()
            offered = self._line.popleft()
            if offered.done.done():  # who offered it has given up
                continue
            try:
                item = self._read(offered.message)
            except MessageConversionError as error:
                offered.done.set_exception(error)
                continue
            self._held = offered
            return item

    def finish(self, error: Exception | None = None) -> bool:
        """Say that the function is done with the message it has; returns whether it had one.

        Args:
            error: What it failed with.
        """
        held, self._held = self._held, None
        if held is None or held.done.done():
            return False
        if error is None:
            held.done.set_result(None)
        else:
            held.done.set_exception(error)
        return True


class StreamFunction:
    """Runs a function over streams, from the start of the application to its end.

    Attributes:
        inputs: Its streams, by the index of their input.
    """

    def __init__(
        self,
        name: str,
        call: Callable[[Sequence[MessageStream]], object],
        readers: Sequence[Reader],
        emit: Emit,
        report: Callable[[Exception], Awaitable[None]],
    ) -> None:
        """Call nothing yet.

        Args:
            name: What logs call it.
            call: Calls the function with its streams.
            readers: What make the items of each input's messages.
            emit: Sends what it yields.
            report: Tells a failure that is no message's.
        """
        self._name = name
        self._call = call
        self.inputs = tuple(MessageStream(read, self) for read in readers)
        self._emit = emit
        self._report = report
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False

    def start(self) -> None:
        """Call the function, if it is not called yet."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name=f"function {self._name}")

    async def handle(self, index: int, message: Message[object]) -> None:
        """Have the function handle a message of one input; returns when it is done with it."""
        self.start()
        await self.inputs[index].offer(message)

    def waits(self) -> None:
        """The function waits for a message; when the application stops, none of another input will come."""
        if self._is_closing:
            self._give_back()

    def close(self) -> None:
        """Expect no more messages: those that wait for a message of another input are given back."""
        self._is_closing = True
        self._give_back()

    def _give_back(self) -> None:
        for stream in self.inputs if len(self.inputs) > 1 else ():
            stream.finish(Requeue("the application stops"))

    async def stop(self) -> None:
        """End the function, wherever it is."""
        task, self._task = self._task, None
        if task is not None:
            await cancel([task])

    async def _run(self) -> None:
        while True:
            try:
                await self._drain(self._call(self.inputs))
            except BaseException as error:
                if ends_more_than_the_call(error):
                    raise
                # It belongs to the message the function was at work with.
                await self._failed(failure_of(error, "the function"))
            else:
                for stream in self.inputs:
                    stream.finish()
            await self._next_arrival()

    async def _failed(self, error: Exception) -> None:
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        at_work = [stream.finish(error) for stream in self.inputs]
        if not any(at_work):
            await self._report(error)

    async def _next_arrival(self) -> None:
        """Wait for a message to call the function anew for."""
        waiting = [asyncio.ensure_future(stream.arrival()) for stream in self.inputs]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()

    async def _drain(self, result: object) -> None:
        if isinstance(result, Awaitable):
            result = await result
        if isinstance(result, tuple):
            async with asyncio.TaskGroup() as group:
                for index, stream in enumerate(result):
                    group.create_task(self._send_all(index, stream), name=f"{self._name} output {index}")
        elif result is not None:
            await self._send_all(0, cast("AsyncIterator[object]", result))

    async def _send_all(self, index: int, items: AsyncIterator[object]) -> None:
        try:
            async for item in items:
                await self._emit(index, item)
        finally:
            close = getattr(items, "aclose", None)
            if close is not None:
                await close()

    def __repr__(self) -> str:
        return f"<StreamFunction {self._name!r}>"
