"""The poller, which calls a source at intervals and sends its payloads."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from types import TracebackType
from typing import Self

from streamkit.messaging.cancellation import must_be_raised_again
from streamkit.messaging.handler import awaited
from streamkit.messaging.message import Message
from streamkit.messaging.message_channel import MessageChannel

__all__ = ["Poller"]

logger = logging.getLogger(__name__)


class Poller:
    """A context manager that polls a source; the source returns None if it has nothing now.

    ::

        async with Poller(next_line, app.channel("lines"), timedelta(seconds=1)):
            ...

    For a source that is bound by name, and polled as settings say, use a supplier.
    """

    def __init__(
        self,
        source: Callable[[], object | Awaitable[object]],
        output: MessageChannel,
        pause: timedelta,
        *,
        at_most: int = 1,
    ) -> None:
        """Make a poller; polling begins with the context.

        Args:
            source: Returns a payload, a message or None; `def` or `async def`, and must not block.
            output: The channel of the payloads.
            pause: The time between two polls.
            at_most: The largest number of calls in one poll, which ends with the first None.
        """
        self._source = source
        self._output = output
        self._pause = pause.total_seconds()
        self._at_most = at_most
        self._polling: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._polling = asyncio.get_running_loop().create_task(self._poll_for_ever())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.wait([self._polling])

    async def _poll_for_ever(self) -> None:
        while True:
            try:
                await self._poll()
            except BaseException as error:  # the next poll may succeed
                if must_be_raised_again(error):
                    raise
                logger.exception("Polling %r failed", self._source)
            await asyncio.sleep(self._pause)

    async def _poll(self) -> None:
        for _ in range(self._at_most):
            value = await awaited(self._source())
            if value is None:
                return
            await self._output.asend(value if isinstance(value, Message) else Message(value))
