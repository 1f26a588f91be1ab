"""Suppliers: functions without inputs, called at the times of a trigger, or once.

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
from streamkit.messaging.cancellation import failure_of, must_be_raised_again
from streamkit.messaging.message import Message

__all__ = ["Call", "Feed", "PolledSupplier", "Send", "StreamSupplier", "Supplier"]

logger = logging.getLogger(__name__)

_LOOK_AGAIN: Final = 0.5
"""The seconds between two tests whether the output of a stream is bound again."""

Call = Callable[[], AsyncIterator[object]]
"""Calls the function and yields its items, or its value."""
Send = Callable[[object], Awaitable[object]]
Report = Callable[[Exception], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Feed:
    """The source and the target of a supplier's messages.

    Attributes:
        name: The supplier's name in logs.
        call: Calls the function.
        send: Sends a value or an item of the function.
        is_ready: Returns whether the output is bound; the function is not called until it is.
        report: Reports a failure.
    """

    name: str
    call: Call
    send: Send
    is_ready: Callable[[], bool]
    report: Report


class Supplier(ABC):
    """Runs a function without inputs, from the start of the application to its stop."""

    def __init__(self, feed: Feed, trigger: Trigger) -> None:
        """Create the supplier; :meth:`start` begins to call the function.

        Args:
            feed: The source and the target of messages.
            trigger: The times of the calls.
        """
        self._feed = feed
        self._trigger = trigger
        self._task: asyncio.Task[None] | None = None
        self._is_busy = False
        self._is_stopping = False

    def start(self) -> None:
        """Start the task that calls the function."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"supplier {self._feed.name}")

    async def stop(self, timeout: float) -> None:
        """Stop calling the function.

        Args:
            timeout: Seconds for a call in progress, and for sending its result, before they are cancelled.
        """
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
            if self._feed.is_ready() and await self._run_once():
                logger.info("Supplier %s finished", self._feed.name)
                return

    @abstractmethod
    async def _run_once(self) -> bool:
        """Call the function; return True if the supplier has finished, and False if it is to be called again."""

    async def _attempt(self, work: Awaitable[object]) -> bool:
        """Await ``work`` and report its failure; return True if it succeeded."""
        self._is_busy = True
        try:
            await work
        except BaseException as error:  # the failure concerns no message, so only an error channel can get it
            await self._report(error)
            return False
        finally:
            self._is_busy = False
        return True

    async def _report(self, error: BaseException) -> None:
        """Report a failure; re-raise an exception that must end the task, such as a cancellation."""
        if must_be_raised_again(error):
            raise error
        await self._feed.report(failure_of(error, "the function"))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._feed.name!r}>"


class PolledSupplier(Supplier):
    """A supplier that is called at every poll."""

    def __init__(self, feed: Feed, trigger: Trigger, max_messages: int) -> None:
        """Create the supplier; :meth:`start` begins to poll.

        Args:
            feed: The source and the target of messages.
            trigger: The times of the polls.
            max_messages: The most calls in a poll; a negative number means until a call yields nothing.
        """
        super().__init__(feed, trigger)
        self._max_messages = max_messages

    async def _run_once(self) -> bool:
        await self._attempt(self._poll())
        return False

    async def _poll(self) -> None:
        calls = 0
        while calls != self._max_messages and not self._is_stopping:
            calls += 1
            if not await self._send_once():
                return

    async def _send_once(self) -> bool:
        """Call the function once and send what it yields; return False if it yielded nothing."""
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
    """A supplier that is called once, for a possibly endless stream; a failed call is repeated after a pause."""

    async def _run_once(self) -> bool:
        """Send the items of one call; return False if the call failed."""
        stream = self._feed.call()
        try:
            async for value in stream:
                while not self._feed.is_ready():  # noqa: ASYNC110  # there is no event for a binding that becomes bound
                    await asyncio.sleep(_LOOK_AGAIN)
                await self._attempt(self._feed.send(value))
                if self._is_stopping:
                    return True
        except BaseException as error:  # an exception of the function
            await self._report(error)
            return False
        return True
