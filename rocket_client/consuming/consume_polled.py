"""Pulled messages wait here until the application polls for them.

::

    poll         the next messages of one queue, the queues in turn; a paused queue is passed over
    consumed     what a poll returned, as soon as the next poll or commit comes: until then a crash delivers it again
    too many     with more than `pull_threshold_for_all` messages waiting, no queue is pulled
    too large    a poll returns as many messages as may be decompressed at once, at least one
    unreadable   a body that cannot be decompressed is returned by no poll: its message is a dead letter

This module does no I/O.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from rocket_client.consuming.offsets import OffsetStore
from rocket_client.core.process_queue import NOTHING_TO_COMMIT, ProcessQueue
from rocket_client.core.pull_gate import PullGate
from rocket_client.core.unpacked_bodies import Unpacked, UnpackedBodies, is_compressed
from rocket_client.errors import UnreadableBodyError
from rocket_client.settings import LitePullConsumerSettings
from rocket_remoting.wire.message import MessageExt

logger = logging.getLogger(__name__)


class PolledConsumption:
    """The messages of all assigned queues that no poll has returned yet."""

    def __init__(
        self,
        settings: LitePullConsumerSettings,
        offsets: OffsetStore,
        gate: PullGate,
        bodies: UnpackedBodies,
        reject: Callable[[MessageExt, UnreadableBodyError], Awaitable[None]],
    ) -> None:
        """Ready for queues.

        Args:
            settings: How many messages may wait, and how many a poll returns.
            offsets: Where it is noted how far queues are consumed.
            gate: Says which queues may be pulled and polled.
            bodies: The bodies that are decompressed now.
            reject: What becomes of a message whose body is unreadable.
        """
        self._offsets = offsets
        self._gate = gate
        self._bodies = bodies
        self._reject = reject
        self._auto_commit = settings.auto_commit
        self._batch_size = settings.pull_batch_size
        self._threshold = settings.pull_threshold_for_all
        self._waiting = 0
        # Invariant: queues with messages waiting, the one that was polled last at the end.
        self._filled: dict[ProcessQueue, None] = {}
        # The messages that the last poll returned, as they were stored and as it returned them.
        self._polled: tuple[ProcessQueue, list[MessageExt], Unpacked] | None = None
        self._arrival = asyncio.Event()
        self._closed = False

    def __repr__(self) -> str:
        return f"<PolledConsumption: {self._waiting} messages wait in {len(self._filled)} queues>"

    # What the pulls see of it

    def start(self) -> None:
        """Nothing: it waits for polls."""

    def attach(self, process_queue: ProcessQueue) -> None:
        """Nothing: a queue counts when it has messages."""

    def detach(self, process_queue: ProcessQueue) -> None:
        """A queue was revoked: what is waiting is passed over, what is consumed is noted if `auto_commit`."""
        self._filled.pop(process_queue, None)
        # Counted anew: after a reset the queue is empty already.
        self._count(sum(queue.waiting for queue in self._filled) - self._waiting)
        if self._auto_commit:
            self.note([process_queue])

    def submit(self, process_queue: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        """Let the messages wait for a poll, if there are any."""
        if not messages:  # all were here already
            return
        process_queue.enqueue(messages)
        self._filled.setdefault(process_queue)
        self._count(len(messages))
        self.wake()

    def _count(self, change: int) -> None:
        self._waiting += change
        if self._waiting > self._threshold:
            self._gate.close()
        elif not self._gate.is_open:
            self._gate.open()

    def close(self) -> None:
        """Polls that wait return at once, with nothing."""
        self._closed = True
        self.wake()

    async def stop(self, timeout: float) -> None:
        """Nothing is under way."""

    # What polls see of it

    def wake(self) -> None:
        """Let polls that wait look again."""
        self._arrival.set()

    async def next(self, seconds: float) -> list[MessageExt]:
        """The next messages of some queue; none when none came in time, or after `close`."""
        deadline = asyncio.get_running_loop().time() + seconds
        while not self._closed:
            taken = self._take()
            if taken is not None:
                given = await self._unpacked(*taken)
                if given:
                    return given
            elif not await self._arrived(deadline):
                break
        return []

    async def _arrived(self, deadline: float) -> bool:
        """Wait for messages; False if none came until then."""
        self._arrival.clear()
        try:
            async with asyncio.timeout_at(deadline):
                await self._arrival.wait()
        except TimeoutError:
            return False
        return True

    def _take(self) -> tuple[ProcessQueue, list[MessageExt]] | None:
        """Take the next messages of some queue; None if none wait."""
        for process_queue in list(self._filled):
            if self._gate.is_paused(process_queue.message_queue):
                continue
            del self._filled[process_queue]
            messages = process_queue.take(self._batch_size)
            if process_queue.has_waiting:
                self._filled[process_queue] = None
            self._count(-len(messages))
            return process_queue, messages
        return None

    async def _unpacked(self, process_queue: ProcessQueue, messages: list[MessageExt]) -> list[MessageExt]:
        """Return the messages with their bodies decompressed, as many as there is room for; the others are next.

        A message whose body is unreadable is given back, and passed over.
        """
        if not is_compressed(messages):
            self._polled = process_queue, messages, Unpacked(messages)
            return messages
        unpacked = Unpacked([])
        given: list[MessageExt] = []
        done = 0
        try:
            unpacked = await self._bodies.unpack(messages)
            if not unpacked.messages and unpacked.error is not None:
                logger.error("no poll returns a message: %s", unpacked.error)
                await self._reject(messages[0], unpacked.error)
                process_queue.settle(messages[:1])
                done = 1
            elif not process_queue.dropped:
                given = unpacked.messages
                done = len(given)
                process_queue.growth += unpacked.growth
                self._polled = process_queue, messages[:done], unpacked
        finally:
            if not given:
                self._bodies.release(unpacked.room)
            self._put_back(process_queue, messages[done:])
        return given

    def _put_back(self, process_queue: ProcessQueue, messages: list[MessageExt]) -> None:
        if messages and not process_queue.dropped:
            process_queue.put_back(messages)
            self._filled.setdefault(process_queue)
            self._count(len(messages))

    def settle(self) -> None:
        """What the last poll returned is consumed."""
        if self._polled is not None:
            process_queue, messages, unpacked = self._polled
            process_queue.settle(messages)
            process_queue.growth -= unpacked.growth
            self._bodies.release(unpacked.room)
            self._polled = None

    def note(self, process_queues: Iterable[ProcessQueue]) -> None:
        """Let the next commit say how far these queues are consumed."""
        for process_queue in process_queues:
            offset = process_queue.smallest_unsettled()
            if offset != NOTHING_TO_COMMIT:
                self._offsets.update(process_queue.message_queue, offset)
