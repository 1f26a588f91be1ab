"""Suppliers: functions that take no message, called when a trigger says so, or once.

::

    () -> T                     at every poll, up to max-messages-per-poll times; None ends the poll
    () -> list[Message[T]]      likewise; each message is sent on its own
    () -> Iterator[T]           at every poll; the items are sent one by one
    () -> AsyncIterator[T]      once; with polled=True at every poll
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from streamkit.functions.trigger import Trigger
from streamkit.loop.loops import cancel
from streamkit.messaging.cancellation import ends_more_than_the_call, failure_of
from streamkit.messaging.message import Message

__all__ = ["Call", "Feed", "PolledSupplier", "Send", "StreamSupplier", "Supplier"]

logger = logging.getLogger(__name__)

_LOOK_AGAIN: Final = 0.5
"""Seconds after which a stream looks whether its output is bound again."""

Call = Callable[[], AsyncIterator[object]]
"""Calls the function and yields what it gives; of a value, that value."""
Send = Callable[[object], Awaitable[object]]
Report = Callable[[Exception], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Feed:
    """From where and to where a supplier's messages go.

    Attributes:
        name: What logs call it.
        call: Calls the function.
        send: Sends what it gives.
        is_ready: Whether its output is bound: else nothing is asked of it.
        report: Tells a failure.
    """

    name: str
    call: Call
    send: Send
    is_ready: Callable[[], bool]
    report: Report


class Supplier(ABC):
    """A supplier at work, from the start of the application to its end."""

    def __init__(self, feed: Feed, trigger: Trigger) -> None:
        """Call nothing yet.

        Args:
            feed: From where and to where.
            trigger: When.
        """
        self._feed = feed
        self._trigger = trigger
        self._task: asyncio.Task[None] | None = None
        self._is_busy = False
        self._is_stopping = False

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"supplier {self._feed.name}")

    async def stop(self, timeout: float) -> None:
        """Begin no call any more; one under way, and sending what it gave, gets ``timeout`` seconds."""
        self._is_stopping = True
        task, self._task = self._task, None
        if task is None:
            return
        if self._is_busy:
            await asyncio.wait([task], timeout=timeout)
        await cancel([task])

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        began: float | None = None
        while not self._is_stopping:
            await asyncio.sleep(self._trigger.pause(began, loop.time()))
            began = loop.time()
            if self._feed.is_ready() and await self._turn():
                logger.info("Supplier %s finished", self._feed.name)
                return

    @abstractmethod
    async def _turn(self) -> bool:
        """Call the function; return True when it has finished and is not to be called again."""

    async def _attempt(self, work: Awaitable[object]) -> bool:
        """Await ``work`` and report its failure; return True when it succeeded."""
        self._is_busy = True
        try:
            await work
        except BaseException as error:  # no message fails: the error channel is all there is
            await self._tell(error)
            return False
        finally:
            self._is_busy = False
        return True

    async def _tell(self, error: BaseException) -> None:
        """Report a failure; re-raise what ends more than the call."""
        if ends_more_than_the_call(error):
            raise error
        await self._feed.report(failure_of(error, "the function"))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._feed.name!r}>"


class PolledSupplier(Supplier):
    """Called again and again."""

    def __init__(self, feed: Feed, trigger: Trigger, max_messages: int) -> None:
        """Call nothing yet.

        Args:
            feed: From where and to where.
            trigger: When.
            max_messages: How often in a poll; a negative number is as long as it gives something.
        """
        super().__init__(feed, trigger)
        self._max_messages = max_messages

    async def _turn(self) -> bool:
        await self._attempt(self._poll())
        return False

    async def _poll(self) -> None:
        calls = 0
        while calls != self._max_messages and not self._is_stopping:
            calls += 1
            if not await self._give():
                return

    async def _give(self) -> bool:
        """Make one call; False when it gave nothing."""
        has_given = False
        async for value in self._feed.call():
            if value is not None:
                has_given = True
                await self._send_each(value)
        return has_given

    async def _send_each(self, value: object) -> None:
        if isinstance(value, list) and value and all(isinstance(item, Message) for item in value):
            for message in value:
                await self._feed.send(message)
        else:
            await self._feed.send(value)


class StreamSupplier(Supplier):
    """Called once, for a stream that may never end; called anew, after a pause, when it fails."""

    async def _turn(self) -> bool:
        """Send what one call yields; False when it failed."""
        stream = self._feed.call()
        try:
            async for value in stream:
                while not self._feed.is_ready():  # noqa: ASYNC110  # nobody tells when an output is bound
                    await asyncio.sleep(_LOOK_AGAIN)
                await self._attempt(self._feed.send(value))
                if self._is_stopping:
                    return True
        except BaseException as error:  # the function's own
            await self._tell(error)
            return False
        return True
