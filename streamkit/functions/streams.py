"""Functions over streams: called once, with async iterators of the incoming messages.

::

    handler ── offer(message) ─▶ MessageStream ── async for ─▶ function ── yield ─▶ outputs
       ▲                                                          │
       └── the message succeeds when the function asks for the next one or returns, and fails when it raises

So a message is settled after the results of it are sent, the function works on one message of a stream at a time, and
attempts, error channels and dead letters work as for other functions. After the function has returned or failed, it is
called again, with the same inputs, for the next message; the state of the former call is lost.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol, cast

from streamkit.errors import MessageConversionError
from streamkit.listeners.arguments import Reader
from streamkit.loop.loops import cancel
from streamkit.messaging.cancellation import failure_of, must_be_raised_again
from streamkit.messaging.handler import awaited
from streamkit.messaging.message import Message
from streamkit.settlement import Requeue

__all__ = ["Emit", "MessageStream", "StreamFunction"]

logger = logging.getLogger(__name__)

Emit = Callable[[int, object], Awaitable[object]]
"""Sends one item to the output with that index."""


class _Offer:
    """A message that the function has not finished; ``done`` is resolved when it has."""

    __slots__ = ("done", "message")

    def __init__(self, message: Message[object]) -> None:
        self.message = message
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class StreamOwner(Protocol):
    """The owner of a stream, told when the function asks for a message and none is queued."""

    def waits(self) -> None:
        """React to the function waiting for a message."""
        ...


class MessageStream:
    """The messages of one input, as an async iterator.

    Messages offered while the function is busy are queued. The queue outlives the function's call: the next call
    continues with it.
    """

    def __init__(self, read: Reader, owner: StreamOwner) -> None:
        self._read = read
        self._owner = owner
        self._line: deque[_Offer] = deque()
        self._held: _Offer | None = None
        self._arrival = asyncio.Event()

    async def offer(self, message: Message[object]) -> None:
        """Queue ``message`` for the function, and return when the function has finished with it.

        Raises:
            Exception: The exception with which the function failed for the message.
        """
        offered = _Offer(message)
        self._line.append(offered)
        self._arrival.set()
        try:
            await offered.done
        finally:
            # Only if the caller is cancelled while the message is queued. A message that the function holds already
            # is cancelled through `done`, and `finish` passes over it.
            if offered in self._line:
                self._line.remove(offered)

    async def arrival(self) -> None:
        """Wait until a message is queued."""
        while not self._line:
            self._arrival.clear()
            await self._arrival.wait()

    def __aiter__(self) -> AsyncIterator[object]:
        return self

    async def __anext__(self) -> object:
        # The function asks for the next item, so it has finished with the item before: this accepts that message.
        self.finish()
        while True:
            if not self._line:
                self._owner.waits()
                await self.arrival()
            offered = self._line.popleft()
            if offered.done.done():  # the caller of offer() was cancelled
                continue
            try:
                item = self._read(offered.message)
            except MessageConversionError as error:
                offered.done.set_exception(error)
                continue
            self._held = offered
            return item

    def finish(self, error: Exception | None = None) -> bool:
        """Resolve the message that the function works on; return whether there was one.

        Args:
            error: The exception with which the function failed, or None if it succeeded.
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
    """Runs a function over streams, from the start of the application to its stop.

    Attributes:
        inputs: The streams, by the index of the input.
    """

    def __init__(
        self,
        name: str,
        call: Callable[[Sequence[MessageStream]], object],
        readers: Sequence[Reader],
        emit: Emit,
        report: Callable[[Exception], Awaitable[None]],
    ) -> None:
        """Create the runner; :meth:`start` calls the function.

        Args:
            name: The function's name in logs.
            call: Calls the function with its streams.
            readers: The reader for each input, which makes an item of a message.
            emit: Sends the items that the function yields.
            report: Reports a failure that concerns no message.
        """
        self._name = name
        self._call = call
        self.inputs = tuple(MessageStream(read, self) for read in readers)
        self._emit = emit
        self._report = report
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False

    def start(self) -> None:
        """Call the function, unless it is running already."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name=f"function {self._name}")

    async def handle(self, index: int, message: Message[object]) -> None:
        """Give the function a message of one input, and return when the function has finished with it.

        Raises:
            Exception: The exception with which the function failed for the message.
        """
        self.start()
        await self.inputs[index].offer(message)

    def waits(self) -> None:
        """Give back the held messages if the application is stopping, as no other input will receive one."""
        if self._is_closing:
            self._give_back()

    def close(self) -> None:
        """Expect no more messages; give back those held while the function waits for another input.

        A function with several inputs may hold a message of one of them until another input receives one, which does
        not happen any more.
        """
        self._is_closing = True
        self._give_back()

    def _give_back(self) -> None:
        # A function with one input works on the message that it holds, and has its time to finish with it.
        for stream in self.inputs if len(self.inputs) > 1 else ():
            stream.finish(Requeue("the application stops"))

    async def stop(self) -> None:
        """Cancel the function, wherever it is."""
        task, self._task = self._task, None
        if task is not None:
            await cancel([task])

    async def _run(self) -> None:
        while True:
            try:
                await self._drain(self._call(self.inputs))
            except BaseException as error:
                if must_be_raised_again(error):
                    raise
                # The message that the function was working on fails with this error.
                await self._failed(failure_of(error, "the function"))
            else:
                for stream in self.inputs:
                    # The function has returned without asking for another item: the items that it had are handled.
                    stream.finish()
            await self._next_arrival()

    async def _failed(self, error: Exception) -> None:
        # Several outputs are sent by a task group, which wraps their exceptions; the first one is reported.
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        at_work = [stream.finish(error) for stream in self.inputs]
        if not any(at_work):
            await self._report(error)

    async def _next_arrival(self) -> None:
        """Wait until an input has a message: then the function is called again."""
        waiting = [asyncio.ensure_future(stream.arrival()) for stream in self.inputs]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()

    async def _drain(self, result: object) -> None:
        result = await awaited(result)
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
            # A failed send leaves the generator suspended at its `yield`. Its `finally` blocks run now, before the
            # function is called again, and not when the generator is collected.
            close = getattr(items, "aclose", None)
            if close is not None:
                await close()

    def __repr__(self) -> str:
        return f"<StreamFunction {self._name!r}>"
