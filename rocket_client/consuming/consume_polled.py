"""The consumption of lite pull consumers: pulled messages wait here until the application polls.

::

    poll         returns the next messages of one queue; queues take turns, paused queues are skipped
    consumed     the messages of a poll count as consumed when the next poll or commit comes; until then a crash causes
                 their redelivery
    too many     with more than `pull_threshold_for_all` messages waiting, no queue is pulled
    too large    a poll returns as many messages as may be decompressed at once, at least one
    unreadable   no poll returns a message whose body cannot be decompressed; the message becomes a dead letter

This module does no I/O.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from rocket_client.consuming.offsets import OffsetStore
from rocket_client.core.process_queue import NOTHING_TO_COMMIT, ProcessQueue
from rocket_client.core.pull_gate import PullGate
from rocket_client.core.unpacked_bodies import Unpacked, UnpackedBodies, is_compressed
from rocket_client.errors import UnreadableBodyError
from rocket_client.settings import LitePullConsumerSettings
from rocket_remoting.wire.message import MessageExt


class PolledConsumption:
    """The pulled messages of all assigned queues that no poll has returned yet."""

    def __init__(
        self,
        settings: LitePullConsumerSettings,
        offsets: OffsetStore,
        gate: PullGate,
        bodies: UnpackedBodies,
        reject: Callable[[MessageExt, UnreadableBodyError], Awaitable[None]],
    ) -> None:
        """Make a consumption without queues.

        Args:
            settings: Limits of waiting messages and of a poll's messages.
            offsets: Gets the consumed offsets.
            gate: Decides which queues may be pulled and polled.
            bodies: Decompresses bodies within the consumer's limit of memory.
            reject: Handles a message whose body cannot be decompressed.
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
        self._queues_with_messages: dict[ProcessQueue, None] = {}
        # The messages that the last poll returned, as they were stored and as it returned them.
        self._polled: tuple[ProcessQueue, list[MessageExt], Unpacked] | None = None
        self._arrival = asyncio.Event()
        self._closed = False

    def __repr__(self) -> str:
        return f"<PolledConsumption: {self._waiting} messages wait in {len(self._queues_with_messages)} queues>"

    # For the rebalancer and the pull loops

    def start(self) -> None:
        """Do nothing: polls start the work."""

    def attach(self, process_queue: ProcessQueue) -> None:
        """Do nothing: a queue matters once it has messages."""

    def detach(self, process_queue: ProcessQueue) -> None:
        """Drop the waiting messages of a revoked queue; with `auto_commit`, note its consumed offset."""
        self._queues_with_messages.pop(process_queue, None)
        # Counted over all queues again: a reset of offsets may have cleared the queue before.
        self._add_waiting(sum(queue.waiting for queue in self._queues_with_messages) - self._waiting)
        if self._auto_commit:
            self.update_offsets([process_queue])

    def submit(self, process_queue: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        """Queue pulled messages for polls, and wake a poll that waits."""
        if not messages:  # the queue had all of them already
            return
        process_queue.enqueue(messages)
        self._queues_with_messages.setdefault(process_queue)
        self._add_waiting(len(messages))
        self.wake()

    def _add_waiting(self, change: int) -> None:
        self._waiting += change
        if self._waiting > self._threshold:
            self._gate.close()
        elif not self._gate.is_open:
            self._gate.open()

    def close(self) -> None:
        """End the consumption; waiting polls return an empty list at once."""
        self._closed = True
        self.wake()

    async def stop(self, timeout: float) -> None:
        """Do nothing: no calls are under way."""

    # For polls

    def wake(self) -> None:
        """Wake waiting polls, which check the queues again."""
        self._arrival.set()

    async def poll(self, seconds: float) -> list[MessageExt]:
        """Return the next messages of a queue; an empty list if none came within `seconds`, or after `close`."""
        deadline = asyncio.get_running_loop().time() + seconds
        while not self._closed:
            taken = self._take()
            if taken is not None:
                given = await self._unpacked(*taken)
                if given:
                    return given
            elif not await self._wait_for_arrival(deadline):
                break
        return []

    async def _wait_for_arrival(self, deadline: float) -> bool:
        """Wait for messages; return False if none came until the deadline."""
        # No task runs between `_take` in `poll` and this line, so no arrival is missed.
        self._arrival.clear()
        try:
            async with asyncio.timeout_at(deadline):
                await self._arrival.wait()
        except TimeoutError:
            return False
        return True

    def _take(self) -> tuple[ProcessQueue, list[MessageExt]] | None:
        """Take the next messages of the queue whose turn it is; None if no queue that may be polled has any."""
        for process_queue in list(self._queues_with_messages):
            if self._gate.is_paused(process_queue.message_queue):
                continue
            # Removed and, if messages are left, added at the end: the other queues have their turns first.
            del self._queues_with_messages[process_queue]
            messages = process_queue.take(self._batch_size)
            if process_queue.has_waiting:
                self._queues_with_messages[process_queue] = None
            self._add_waiting(-len(messages))
            return process_queue, messages
        return None

    async def _unpacked(self, process_queue: ProcessQueue, messages: list[MessageExt]) -> list[MessageExt]:
        """Return as many of the messages as fit decompressed into memory; put the others back to the front.

        If the first message's body cannot be decompressed, reject the message and return an empty list.
        """
        if not is_compressed(messages):
            self._polled = process_queue, messages, Unpacked(messages)
            return messages
        unpacked = Unpacked([])
        given: list[MessageExt] = []
        done = 0
        try:
            unpacked = await self._bodies.unpack(messages, process_queue)
            if not unpacked.messages and unpacked.error is not None:
                # If no broker stores the dead letter, the poll raises, and `finally` puts the message back for the
                # next poll.
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
                self._bodies.release(unpacked.reserved)
            # Also if the poll was cancelled: the messages that were taken for the poll must come with the next one.
            self._put_back(process_queue, messages[done:])
        return given

    def _put_back(self, process_queue: ProcessQueue, messages: list[MessageExt]) -> None:
        if messages and not process_queue.dropped:
            process_queue.put_back(messages)
            self._queues_with_messages.setdefault(process_queue)
            self._add_waiting(len(messages))

    def settle(self) -> None:
        """Settle the messages of the last poll, and release the memory of their decompressed bodies."""
        if self._polled is not None:
            process_queue, messages, unpacked = self._polled
            process_queue.settle(messages)
            process_queue.growth -= unpacked.growth
            self._bodies.release(unpacked.reserved)
            self._polled = None

    def update_offsets(self, process_queues: Iterable[ProcessQueue]) -> None:
        """Note the consumed offsets of the queues for the next commit."""
        for process_queue in process_queues:
            offset = process_queue.smallest_unsettled()
            if offset != NOTHING_TO_COMMIT:
                self._offsets.update(process_queue.message_queue, offset)
