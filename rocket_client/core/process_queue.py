"""The messages of one assigned queue that were pulled and are not settled yet.

::

    offsets   1001  1002  1003  1004  1005 | 1006 …
              done        done  done  done | not pulled yet
                    └ smallest unsettled: the offset to commit is 1002, even though all later ones are done;
                      with nothing left unsettled the offset to commit is 1006

After a crash every message from 1002 on is delivered again: delivery is at least once.

A process queue exists from the assignment of its queue until the queue is revoked. Then the process queue is `dropped`:
calls under way finish, but do not commit. The rebalancer commits the settled offset itself.

This module does no I/O; times are seconds of the event loop.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice

from rocket_remoting.wire.message import MessageExt, MessageQueue
from rocket_remoting.wire.sys_flag import COMPRESSED

NOTHING_TO_COMMIT = -1


class ProcessQueue:
    """The unsettled messages of one queue by offset, and the queue's state in this member."""

    __slots__ = (
        "_capacity_free",
        "_capacity_limit",
        "_idle",
        "_messages",
        "_next_offset",
        "_order",
        "_started",
        "_waiting",
        "begun_at",
        "calls",
        "dropped",
        "growth",
        "lag",
        "last_consume_at",
        "last_pull_at",
        "locked_at",
        "message_queue",
        "stored_size",
    )

    def __init__(self, message_queue: MessageQueue) -> None:
        self.message_queue = message_queue
        self.dropped = False
        self.begun_at = 0
        """The offset at which pulling began."""
        self.stored_size = 0
        """Bytes of the unsettled messages' bodies, as brokers store them."""
        self.growth = 0
        """Bytes that decompression has added to the bodies of calls and polls under way."""
        self.lag: int | None = None
        """Messages that the queue had and that were not pulled yet at the last pull; None before the first one."""
        self.calls = 0
        """Listener calls under way, and outcomes that are being sent to a broker."""
        self.locked_at: float | None = None
        """When this member last asked for the broker's lock and got it, in loop time; None if it is not locked."""
        self.last_pull_at = 0.0
        self.last_consume_at = 0.0
        self._messages: dict[int, MessageExt] = {}
        # Invariant: _order is ascending and has every key of _messages; it may also have offsets settled already.
        self._order: deque[int] = deque()
        self._next_offset = NOTHING_TO_COMMIT
        # Invariant: the messages of _messages that no listener call or poll has taken, ascending by offset. Empty in
        # concurrent mode, where batches wait in ConcurrentConsumption.
        self._waiting: deque[MessageExt] = deque()
        self._started: dict[int, float] = {}
        self._capacity_free: asyncio.Future[None] | None = None
        self._capacity_limit = 0
        self._idle: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        state = "dropped " if self.dropped else "locked " if self.locked_at is not None else ""
        return f"<ProcessQueue {self.message_queue} {state}{len(self)} unsettled, {self.calls} calls>"

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, message: MessageExt) -> bool:
        # By identity: after a reset or an expiry the same offset may have been pulled again, as another object.
        return self._messages.get(message.queue_offset) is message

    def put(self, messages: Sequence[MessageExt]) -> Sequence[MessageExt]:
        """Add pulled messages; return those that were not here already."""
        known = self._messages
        fresh = [message for message in messages if message.queue_offset not in known]
        if not fresh:
            return fresh
        size = 0
        for message in fresh:
            known[message.queue_offset] = message
            size += len(message.body)
        self.stored_size += size
        offsets = [message.queue_offset for message in fresh]
        if self._order and offsets[0] <= self._order[-1]:
            # The offsets went back, for instance because the pull loop failed and began again at an earlier offset.
            self._order = deque(sorted(known))
        else:
            self._order.extend(offsets)
        self._next_offset = offsets[-1] + 1
        return fresh

    def take_back(self, messages: Sequence[MessageExt]) -> None:
        """Remove the messages that the last `put` added, as if they had not been pulled yet."""
        if not messages:
            return
        self.settle(messages)
        self._order = deque(sorted(self._messages))
        self._next_offset = messages[0].queue_offset

    def settle(self, messages: Iterable[MessageExt]) -> int:
        """Remove messages that are done; return the offset to commit, or `NOTHING_TO_COMMIT`."""
        known = self._messages
        if not known:
            return NOTHING_TO_COMMIT
        started = self._started
        for message in messages:
            offset = message.queue_offset
            if known.pop(offset, None) is not None:
                self.stored_size -= len(message.body)
                started.pop(offset, None)
        freed = self._capacity_free
        if freed is not None and len(known) <= self._capacity_limit and not freed.done():
            freed.set_result(None)
        return self.smallest_unsettled()

    def smallest_unsettled(self) -> int:
        """Return the offset to commit: all messages before that offset are settled.

        `NOTHING_TO_COMMIT` if nothing has been pulled or skipped yet.
        """
        known, order = self._messages, self._order
        # Settled offsets leave `_order` only when they come to one of its ends, here or in `max_span`. So each is
        # removed once, and a settled message in the middle costs nothing.
        while order:
            if order[0] in known:
                return order[0]
            order.popleft()
        return self._next_offset

    @property
    def position(self) -> int:
        """The offset before which all messages are settled: where pulling began, if nothing was pulled yet."""
        unsettled = self.smallest_unsettled()
        return self.begun_at if unsettled == NOTHING_TO_COMMIT else unsettled

    def skip_to(self, offset: int) -> bool:
        """If nothing is unsettled, make `offset` the offset to commit, because no message before it matches.

        Returns:
            Whether nothing was unsettled.
        """
        if self._messages:
            return False
        self._next_offset = offset
        return True

    @property
    def size(self) -> int:
        """Bytes of the bodies in memory: as stored while they wait, decompressed while they are consumed."""
        return self.stored_size + self.growth

    @property
    def max_span(self) -> int:
        """The distance between the first and the last unsettled offset."""
        known, order = self._messages, self._order
        if not known:
            return 0
        while order[-1] not in known:
            order.pop()
        return order[-1] - self.smallest_unsettled()

    def clear(self) -> None:
        """Remove all messages and the offset to commit."""
        self._messages.clear()
        self._order.clear()
        self._waiting.clear()
        self._started.clear()
        # Not kept: the offset behind the pulled messages may be the one that the broker has called illegal.
        self._next_offset = NOTHING_TO_COMMIT
        self.stored_size = 0

    async def wait_for_capacity(self, limit: int, timeout: float) -> None:
        """Wait until at most `limit` messages are unsettled, but no longer than `timeout` seconds."""
        self._capacity_free, self._capacity_limit = asyncio.get_running_loop().create_future(), limit
        try:
            await asyncio.wait((self._capacity_free,), timeout=timeout)
        finally:
            self._capacity_free = None

    # Calls under way. Concurrent calls also note when they began, so that `expired` finds calls that take too long.

    def begin(self, messages: Iterable[MessageExt], now: float) -> None:
        """Note the begin of a listener call, or of sending an outcome to a broker; `wait_idle` waits for the end.

        Args:
            messages: The messages of a call that may expire; empty for all other work.
            now: The loop's time in seconds.
        """
        self.calls += 1
        self.last_consume_at = now
        started = self._started
        for message in messages:
            started[message.queue_offset] = now

    def end(self) -> None:
        """Note the end of the call or of the sending."""
        self.calls -= 1
        if self._idle is not None and not self.calls and not self._idle.done():
            self._idle.set_result(None)

    def expired(self, before: float) -> MessageExt | None:
        """Return the first unsettled message if its listener call began before a time, otherwise None.

        Only the first matters: it alone holds back the offset to commit.
        """
        message = self._messages.get(self.smallest_unsettled())
        # A message whose call has not begun is not in `_started`, and the default `before` lets it count as not
        # expired.
        if message is None or self._started.get(message.queue_offset, before) >= before:
            return None
        return message

    async def wait_idle(self, timeout: float) -> bool:
        """Wait until nothing is under way; return False if that did not happen within `timeout` seconds."""
        if self.calls:
            if self._idle is None or self._idle.done():
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._idle,), timeout=timeout)
        return not self.calls

    # Orderly consumption and polls take from the front; failed messages are put back to the front.

    def enqueue(self, messages: Iterable[MessageExt]) -> None:
        """Append messages that were just `put` to those that wait for the orderly listener, or for a poll."""
        self._waiting.extend(messages)

    @property
    def has_waiting(self) -> bool:
        """Whether a message waits for the orderly listener, or for a poll."""
        return bool(self._waiting)

    @property
    def waiting(self) -> int:
        """The number of messages that wait for the orderly listener, or for a poll."""
        return len(self._waiting)

    def is_compressed_next(self, count: int) -> bool:
        """Return whether the body of any of the next `count` messages is compressed."""
        for message in islice(self._waiting, count):  # noqa: SIM110  # as in `unpacked_bodies`
            if message.sys_flag & COMPRESSED:
                return True
        return False

    def take(self, count: int) -> list[MessageExt]:
        """Take up to `count` waiting messages in order; they stay unsettled.

        Messages that failed before and new messages never come in one batch.
        """
        waiting = self._waiting
        taken: list[MessageExt] = []
        while waiting and len(taken) < count:
            # A listener that counts attempts can do that for a whole batch. Apache's ProcessQueue.takeMessages (5.3)
            # mixes them.
            if taken and (waiting[0].reconsume_times > 0) is not (taken[0].reconsume_times > 0):
                break
            taken.append(waiting.popleft())
        return taken

    def put_back(self, messages: Sequence[MessageExt]) -> None:
        """Put taken messages back to the front, in their order."""
        self._waiting.extendleft(reversed(messages))

    def lock_expired(self, now: float, max_live: float) -> bool:
        """Return whether the lock is missing, or was last renewed more than `max_live` seconds ago."""
        return self.locked_at is None or now - self.locked_at > max_live

    def cached_offsets(self) -> tuple[int, int]:
        """Return the first and the last unsettled offset; (0, 0) if nothing is unsettled."""
        if not self._messages:
            return 0, 0
        first = self.smallest_unsettled()
        return first, first + self.max_span
