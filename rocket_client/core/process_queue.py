"""The messages of one assigned queue that were pulled and are not settled yet.

::

    offsets   1001  1002  1003  1004  1005 | 1006 …
              done        done  done  done | not pulled yet
                    └ smallest unsettled: the offset to commit is 1002, even though all later ones are done;
                      with nothing left unsettled the offset to commit is 1006

After a crash every message from 1002 on is delivered again: delivery is at least once.

A worker appends consumed messages to `ProcessQueue.done`. They are removed together, at the latest when the queue is
asked for anything, because removing many costs little more than removing one.

A process queue exists from the assignment of its queue until the queue is revoked. Then the process queue is `dropped`:
calls under way finish, but do not commit. The rebalancer commits the settled offset itself.

This module does no I/O; times are seconds of the event loop.
"""

import asyncio
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from operator import is_

from rocket_remoting.wire.message import MessageExt, MessageQueue
from rocket_remoting.wire.sys_flag import COMPRESSED

NOTHING_TO_COMMIT = -1


class ListenerCalls:
    """The calls of a listener that one worker makes one after the other.

    Attributes:
        messages: The messages of the current call.
        began: When that call began, in loop time.
    """

    __slots__ = ("began", "messages")

    def __init__(self) -> None:
        self.messages: Collection[MessageExt] = ()
        self.began = 0.0

    def __repr__(self) -> str:
        return f"<ListenerCalls: {len(self.messages)} messages since {self.began:g}>"


class ProcessQueue:
    """The unsettled messages of one queue by offset, and the queue's state in this member."""

    __slots__ = (
        "_capacity_free",
        "_capacity_limit",
        "_idle",
        "_messages",
        "_next_offset",
        "_order",
        "_stored_size",
        "_under_way",
        "_waiting",
        "begun_at",
        "calls",
        "done",
        "dropped",
        "growth",
        "lag",
        "last_consume_at",
        "last_pull_at",
        "locked_at",
        "message_queue",
        "unpacking",
    )

    def __init__(self, message_queue: MessageQueue) -> None:
        self.message_queue = message_queue
        self.dropped = False
        self.begun_at = 0
        """The offset at which pulling began."""
        self.done: list[MessageExt] = []
        """Consumed messages that are not removed from the queue yet."""
        self.growth = 0
        """Bytes that decompression has added to the bodies of calls and polls under way."""
        self.unpacking = 0
        """Bytes that the decompressions under way may add at most."""
        self.lag: int | None = None
        """Messages that the queue had and that were not pulled yet at the last pull; None before the first one."""
        self.calls = 0
        """Listener calls under way, and outcomes that are being sent to a broker."""
        self.locked_at: float | None = None
        """When this member last asked for the broker's lock and got it, in loop time; None if it is not locked."""
        self.last_pull_at = 0.0
        self.last_consume_at = 0.0
        self._messages: dict[int, MessageExt] = {}
        self._stored_size = 0
        # Invariant: _order is ascending and has every key of _messages; it may also have offsets settled already.
        self._order: deque[int] = deque()
        self._next_offset = NOTHING_TO_COMMIT
        # Invariant: the messages of _messages that no listener call or poll has taken, ascending by offset. Empty in
        # concurrent mode, where batches wait in ConcurrentConsumption.
        self._waiting: deque[MessageExt] = deque()
        self._under_way: set[ListenerCalls] = set()
        self._capacity_free: asyncio.Future[None] | None = None
        self._capacity_limit = 0
        self._idle: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        state = "dropped " if self.dropped else "locked " if self.locked_at is not None else ""
        return f"<ProcessQueue {self.message_queue} {state}{self.cached()[0]} unsettled, {self.calls} calls>"

    def __len__(self) -> int:
        if self.done:
            self._remove_done()
        return len(self._messages)

    def __contains__(self, message: MessageExt) -> bool:
        if self.done:
            self._remove_done()
        # By identity: after a reset or an expiry the same offset may have been pulled again, as another object.
        return self._messages.get(message.queue_offset) is message

    def put(self, messages: list[MessageExt]) -> list[MessageExt]:
        """Add pulled messages, in the order of their offsets; return those that were not here already."""
        if self.done:
            self._remove_done()
        known, order = self._messages, self._order
        offsets = [message.queue_offset for message in messages]
        if order and offsets and offsets[0] <= order[-1]:
            # The offsets went back, for instance because the pull loop failed and began again at an earlier offset.
            messages = [message for message in messages if message.queue_offset not in known]
            offsets = [message.queue_offset for message in messages]
            known.update(zip(offsets, messages, strict=True))
            self._order = deque(sorted(known))
        else:
            known.update(zip(offsets, messages, strict=True))
            order.extend(offsets)
        if offsets:
            self._stored_size += sum([len(message.body) for message in messages])
            self._next_offset = offsets[-1] + 1
        return messages

    def take_back(self, messages: Sequence[MessageExt]) -> None:
        """Remove the messages that the last `put` added, as if they had not been pulled yet."""
        if not messages:
            return
        self.settle(messages)
        self._order = deque(sorted(self._messages))
        self._next_offset = messages[0].queue_offset

    def settle(self, messages: Iterable[MessageExt]) -> int:
        """Remove messages that are done; return the offset to commit, or `NOTHING_TO_COMMIT`."""
        if not len(self):
            return NOTHING_TO_COMMIT
        self.done += messages
        return self.smallest_unsettled()

    def _remove_done(self) -> None:
        done, known = self.done, self._messages
        if len(done) == len(known) and all(map(is_, done, known.values())):
            # The usual case, in a tenth of the time: all messages were done in the order in which they came.
            known.clear()
            self._order.clear()
            self._stored_size = 0
        else:
            for message in done:
                # An expired message was removed before its call ended. Its offset may have been pulled again since.
                offset = message.queue_offset
                if known.get(offset) is message:
                    del known[offset]
                    self._stored_size -= len(message.body)
        done.clear()
        freed = self._capacity_free
        if freed is not None and len(known) <= self._capacity_limit and not freed.done():
            freed.set_result(None)

    def smallest_unsettled(self) -> int:
        """Return the offset to commit: all messages before that offset are settled.

        `NOTHING_TO_COMMIT` if nothing has been pulled or skipped yet.
        """
        if self.done:
            self._remove_done()
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
        if len(self):
            return False
        self._next_offset = offset
        return True

    @property
    def stored_size(self) -> int:
        """Bytes of the unsettled messages' bodies, as brokers store them."""
        if self.done:
            self._remove_done()
        return self._stored_size

    @property
    def size(self) -> int:
        """Bytes of the bodies in memory: as stored while they wait, decompressed while they are consumed.

        Bodies that are being decompressed count with the most bytes that they may have.
        """
        return self.stored_size + self.growth + self.unpacking

    def is_within(self, messages: int, size: int, span: int) -> bool:
        """Return whether no more than these messages, bytes and offsets are unsettled; see `size` and `max_span`."""
        if self.done:
            self._remove_done()
        count = len(self._messages)
        return (
            count <= messages
            and self._stored_size + self.growth + self.unpacking <= size
            and (count < 2 or self.max_span <= span)
        )

    def cached(self) -> tuple[int, int]:
        """Return the number of unsettled messages and the bytes of their bodies in memory; any thread may call this."""
        # Nothing is removed here: the loop's thread may be adding to `done`. A message that expired, and whose call has
        # just ended, is subtracted a second time until `done` is cleared.
        done = list(self.done)
        size = self._stored_size + self.growth - sum([len(message.body) for message in done])
        return max(0, len(self._messages) - len(done)), max(0, size)

    @property
    def max_span(self) -> int:
        """The distance between the first and the last unsettled offset."""
        if not len(self):
            return 0
        known, order = self._messages, self._order
        while order[-1] not in known:
            order.pop()
        return order[-1] - self.smallest_unsettled()

    def clear(self) -> None:
        """Remove all messages and the offset to commit."""
        self._messages.clear()
        self._order.clear()
        self._waiting.clear()
        self.done.clear()
        # Not kept: the offset behind the pulled messages may be the one that the broker has called illegal.
        self._next_offset = NOTHING_TO_COMMIT
        self._stored_size = 0

    async def wait_for_capacity(self, limit: int, timeout: float) -> None:
        """Wait until at most `limit` messages are unsettled, but no longer than `timeout` seconds."""
        self._capacity_free, self._capacity_limit = asyncio.get_running_loop().create_future(), limit
        try:
            await asyncio.wait((self._capacity_free,), timeout=timeout)
        finally:
            self._capacity_free = None

    # Calls under way. Concurrent calls also note when they began, so that `expired` finds calls that take too long.

    def begin(self, now: float) -> None:
        """Note the beginning of a listener call that cannot expire, or of sending an outcome to a broker.

        Args:
            now: The loop's time in seconds.
        """
        self.calls += 1
        self.last_consume_at = now

    def end(self) -> None:
        """Note the end of the call or of the sending; `wait_idle` waits until all have ended."""
        self.calls -= 1
        if self._idle is not None and not self.calls and not self._idle.done():
            self._idle.set_result(None)

    def begin_calls(self) -> ListenerCalls:
        """Note the beginning of listener calls, one after the other; return the object that has the current one.

        They count as one call. The caller notes each call's messages and start in the object.
        """
        calls = ListenerCalls()
        self._under_way.add(calls)
        self.calls += 1
        return calls

    def end_calls(self, calls: ListenerCalls) -> None:
        """Note the end of the last of the calls."""
        self._under_way.discard(calls)
        self.end()

    def expired(self, before: float) -> MessageExt | None:
        """Return the first unsettled message if it is in a listener call that began before a time, otherwise None.

        Only the first matters: it alone holds back the offset to commit.
        """
        first = self._messages.get(self.smallest_unsettled())
        if first is None:
            return None
        for calls in self._under_way:
            if calls.began < before and any(message is first for message in calls.messages):
                return first
        return None

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
        if not len(self):
            return 0, 0
        first = self.smallest_unsettled()
        return first, first + self.max_span
