"""The messages of one assigned queue that were pulled and are not settled yet.

::

    offsets   1001  1002  1003  1004  1005 | 1006 …
              done        done  done  done | not pulled yet
                    └ smallest unsettled: the offset to commit is 1002, even though all later ones are done;
                      with nothing left unsettled it would be 1006

So after a crash every message from 1002 on is delivered again: at least once, never not at all.

A process queue lives from the moment a queue is assigned to the moment it is revoked. Revoked, it is
`dropped`: calls under way finish, but nothing of it is committed any more.

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
    """Unsettled messages of one queue by offset, and the queue's state here."""

    __slots__ = (
        "_idle",
        "_messages",
        "_next_offset",
        "_order",
        "_room",
        "_room_below",
        "_started",
        "_waiting",
        "calls",
        "dropped",
        "growth",
        "last_consume_at",
        "last_pull_at",
        "locked_at",
        "message_queue",
        "stored_size",
    )

    def __init__(self, message_queue: MessageQueue) -> None:
        self.message_queue = message_queue
        self.dropped = False
        self.stored_size = 0
        """Bytes of the bodies in it, as brokers store them."""
        self.growth = 0
        """Bytes by which those of its bodies have grown that are decompressed for calls or polls under way."""
        self.calls = 0
        """Listener calls with messages of it that are under way, or whose outcome is on its way to a broker."""
        self.locked_at: float | None = None
        """When the broker's lock was last confirmed; None: not locked."""
        self.last_pull_at = 0.0
        self.last_consume_at = 0.0
        self._messages: dict[int, MessageExt] = {}
        # Invariant: all keys of _messages are in _order, ascending, beside offsets settled already.
        self._order: deque[int] = deque()
        self._next_offset = NOTHING_TO_COMMIT
        # Invariant: those of _messages that no listener call or poll has, ascending; empty in concurrent mode.
        self._waiting: deque[MessageExt] = deque()
        self._started: dict[int, float] = {}
        self._room: asyncio.Future[None] | None = None
        self._room_below = 0
        self._idle: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        state = "dropped " if self.dropped else "locked " if self.locked_at is not None else ""
        return f"<ProcessQueue {self.message_queue} {state}{len(self)} unsettled, {self.calls} calls>"

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, message: MessageExt) -> bool:
        return self._messages.get(message.queue_offset) is message

    def put(self, messages: Sequence[MessageExt]) -> Sequence[MessageExt]:
        """Add what was pulled; returns those that were not here already."""
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
            self._order = deque(sorted(known))
        else:
            self._order.extend(offsets)
        self._next_offset = offsets[-1] + 1
        return fresh

    def settle(self, messages: Iterable[MessageExt]) -> int:
        """Remove messages that are done; returns the offset to commit, or `NOTHING_TO_COMMIT`."""
        known = self._messages
        if not known:
            return NOTHING_TO_COMMIT
        started = self._started
        for message in messages:
            offset = message.queue_offset
            if known.pop(offset, None) is not None:
                self.stored_size -= len(message.body)
                started.pop(offset, None)
        room = self._room
        if room is not None and len(known) <= self._room_below and not room.done():
            room.set_result(None)
        return self.smallest_unsettled()

    def smallest_unsettled(self) -> int:
        """The offset to commit: everything before it is settled."""
        known, order = self._messages, self._order
        while order:
            if order[0] in known:
                return order[0]
            order.popleft()
        return self._next_offset

    def skip_to(self, offset: int) -> bool:
        """With nothing unsettled, go on at that offset: what lies before it is not wanted. Whether that was so."""
        if self._messages:
            return False
        self._next_offset = offset
        return True

    @property
    def size(self) -> int:
        """Bytes of the bodies in it: compressed while they wait, decompressed while they are consumed."""
        return self.stored_size + self.growth

    @property
    def max_span(self) -> int:
        """Distance between the first and the last unsettled offset."""
        known, order = self._messages, self._order
        if not known:
            return 0
        while order[-1] not in known:
            order.pop()
        return order[-1] - self.smallest_unsettled()

    def clear(self) -> None:
        """Forget all messages, and where the queue stands."""
        self._messages.clear()
        self._order.clear()
        self._waiting.clear()
        self._started.clear()
        self._next_offset = NOTHING_TO_COMMIT
        self.stored_size = 0

    async def room(self, below: int, seconds: float) -> None:
        """Return when at most `below` messages are unsettled, or after that many seconds."""
        self._room, self._room_below = asyncio.get_running_loop().create_future(), below
        try:
            await asyncio.wait((self._room,), timeout=seconds)
        finally:
            self._room = None

    # Calls under way. Concurrent calls also note when they began, for messages that take too long.

    def begin(self, messages: Iterable[MessageExt], now: float) -> None:
        """Note that a listener call with these messages begins, or that something else does which is waited for."""
        self.calls += 1
        self.last_consume_at = now
        started = self._started
        for message in messages:
            started[message.queue_offset] = now

    def end(self) -> None:
        """Note that what began is over."""
        self.calls -= 1
        if self._idle is not None and not self.calls and not self._idle.done():
            self._idle.set_result(None)

    def expired(self, before: float) -> MessageExt | None:
        """The first unsettled message, if its listener call began before that time."""
        message = self._messages.get(self.smallest_unsettled())
        if message is None or self._started.get(message.queue_offset, before) >= before:
            return None
        return message

    async def idle(self, seconds: float) -> bool:
        """Wait until nothing is under way; False if that did not happen in time."""
        if self.calls:
            if self._idle is None or self._idle.done():
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._idle,), timeout=seconds)
        return not self.calls

    # Orderly consumption and polls take from the front; what failed is put back to the front.

    def enqueue(self, messages: Iterable[MessageExt]) -> None:
        """Let messages just put wait for the orderly listener, or for a poll."""
        self._waiting.extend(messages)

    @property
    def has_waiting(self) -> bool:
        """Whether a message waits for the orderly listener, or for a poll."""
        return bool(self._waiting)

    @property
    def waiting(self) -> int:
        """How many messages wait for the orderly listener, or for a poll."""
        return len(self._waiting)

    def is_compressed_next(self, count: int) -> bool:
        """Return whether a body of the next messages is compressed."""
        for message in islice(self._waiting, count):  # noqa: SIM110  # as in `unpacked_bodies`
            if message.sys_flag & COMPRESSED:
                return True
        return False

    def take(self, count: int) -> list[MessageExt]:
        """The next messages in order, all of them new or all put back before; they stay unsettled."""
        waiting = self._waiting
        taken: list[MessageExt] = []
        while waiting and len(taken) < count:
            if taken and (waiting[0].reconsume_times > 0) is not (taken[0].reconsume_times > 0):
                break
            taken.append(waiting.popleft())
        return taken

    def put_back(self, messages: Sequence[MessageExt]) -> None:
        """Let messages taken be the next ones again."""
        self._waiting.extendleft(reversed(messages))

    def lock_expired(self, now: float, max_live: float) -> bool:
        """Whether the lock is missing or was not renewed for too long."""
        return self.locked_at is None or now - self.locked_at > max_live

    def cached_offsets(self) -> tuple[int, int]:
        """First and last unsettled offset; (0, 0) when there is none."""
        if not self._messages:
            return 0, 0
        first = self.smallest_unsettled()
        return first, first + self.max_span
