"""Reads ranges of queues to their very end, many pulls under way at once.

::

    range     start ──────────────────────────────────────────► end
    windows   [ asked, answered ][ asked, half answered ][ asked ][ not asked yet …
    parts     handed out in the queue's order, as soon as everything before has been

How much a broker gives at once is learned from its first answer: Apache's give 32 messages from memory and 8
from the disk whatever is asked for, the bundled one thousands. With a filter nobody knows where the next answer
begins, so each range has one pull under way. Progress is told by the offsets in the answers alone, never by
counting messages: filters and deleted messages leave gaps.

This module does no I/O.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rocket_client.blocking.pulls import PullRequest, PullResult
from rocket_client.core.pull_answer import PullStatus
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.message import MessageQueue
from rocket_remoting.wire.record import peek_record

BYTES_UNDER_WAY = 16 * 1024 * 1024
"""Bounds what waits in memory: fewer pulls are under way while answers are large."""


class QueueRange(NamedTuple):
    """The messages of a queue from offset `start` up to, not including, `end`."""

    queue: MessageQueue
    start: int
    end: int


class RangePart(NamedTuple):
    """What there is between two offsets of a queue.

    Attributes:
        queue: The queue.
        start: Where the part begins.
        end: Where it ends, exclusively; the next part of the range begins here.
        records: The messages as the broker stores them. With a filter some may lie at or behind `end`.
        status: What the pull came back with.
        min_offset: Where the queue's oldest message is.
        max_offset: Where its next message will be.
        is_lost: Nothing is there, though no filter can be the reason: it was deleted, or never was.
    """

    queue: MessageQueue
    start: int
    end: int
    records: bytes | memoryview
    status: PullStatus
    min_offset: int
    max_offset: int
    is_lost: bool


class _Window:
    """A piece of a range whose pulls follow one another."""

    __slots__ = ("end", "is_asked_again", "next", "parts", "queue")

    def __init__(self, queue: MessageQueue, start: int, end: int) -> None:
        self.queue = queue
        self.next = start
        self.end = end
        self.parts: deque[RangePart] = deque()
        self.is_asked_again = False


class RangePulls:
    """The pulls that read ranges, one after the other, and their answers in order.

    Iterating gives the pulls that may be sent now; after `answered` there may be more.

    Args:
        ranges: What to read, in the order in which it is handed out.
        max_messages: Most messages asked for in a pull.
        depth: Most pulls under way at once.
        is_filtered: Whether brokers leave messages out.
    """

    # Invariants: _windows holds all that is asked or partly handed out, in order, and nothing else is under way.
    # _ready holds pulls to be sent; _under_way counts those sent and not answered.

    def __init__(
        self, ranges: Sequence[QueueRange], *, max_messages: int, depth: int, is_filtered: bool
    ) -> None:
        self._ranges = deque(asked for asked in ranges if asked.start < asked.end)
        self._max_messages = max_messages
        self._depth = depth
        self._limit = 1
        self._step = 0  # messages an answer has; 0: not known yet
        self._is_filtered = is_filtered
        self._windows: deque[_Window] = deque()
        self._ready: deque[_Window] = deque()
        self._asked: dict[int, _Window] = {}
        self._under_way = 0
        self._number = 0

    def __iter__(self) -> Iterator[PullRequest]:
        return self

    def __next__(self) -> PullRequest:
        if self._ready:
            window = self._ready.popleft()
        elif self._ranges and self._under_way < self._limit:
            window = self._next_window()
            self._windows.append(window)
        else:
            raise StopIteration
        self._asked[self._number] = window
        self._number += 1
        self._under_way += 1
        return PullRequest(window.queue, window.next, self._wanted(window))

    def answered(self, number: int, result: PullResult) -> Iterator[RangePart]:
        """Note the answer to the pull given out as the `number`-th, from 0; yield the parts that are due."""
        window = self._asked.pop(number)
        self._under_way -= 1
        if _is_reset(window, result) and not window.is_asked_again:
            window.is_asked_again = True
            self._ready.append(window)
            return
        window.is_asked_again = False
        part = self._part(window, result)
        self._learn(window, part)
        window.parts.append(part)
        window.next = part.end
        if window.next < window.end:
            self._ready.append(window)
        yield from self._due()

    def unread(self) -> list[QueueRange]:
        """What has not been handed out: the ranges to go on with after a failure."""
        begun = [
            QueueRange(window.queue, window.parts[0].start if window.parts else window.next, window.end)
            for window in self._windows
        ]
        return [*begun, *self._ranges]

    def _next_window(self) -> _Window:
        asked = self._ranges.popleft()
        size = asked.end - asked.start
        if not self._is_filtered:
            size = min(size, self._step or self._max_messages)
        end = asked.start + size
        if end < asked.end:
            self._ranges.appendleft(asked._replace(start=end))
        return _Window(asked.queue, asked.start, end)

    def _wanted(self, window: _Window) -> int:
        if self._is_filtered:
            return self._max_messages
        return min(self._max_messages, window.end - window.next)

    def _learn(self, window: _Window, part: RangePart) -> None:
        """Take the first answers for a measure of those to come."""
        given = part.end - part.start
        if not self._is_filtered and not self._step and part.status is PullStatus.FOUND:
            self._step = given
            if part.end < window.end:
                rest = QueueRange(window.queue, part.end, window.end)
                window.end = part.end
                self._put_back(rest)
        if self._is_filtered or self._step:
            size = max(len(part.records), 1)
            self._limit = max(2, min(self._depth, BYTES_UNDER_WAY // size))

    def _put_back(self, rest: QueueRange) -> None:
        following = self._ranges[0] if self._ranges else None
        if following is not None and following.queue == rest.queue and following.start == rest.end:
            self._ranges[0] = following._replace(start=rest.start)
        else:
            self._ranges.appendleft(rest)

    def _part(self, window: _Window, result: PullResult) -> RangePart:
        start, end = window.next, min(result.next_offset, window.end)
        is_lost = False
        if result.status is PullStatus.OFFSET_ILLEGAL or result.status is PullStatus.NO_NEW_MSG:
            is_lost = True
            if end <= start:  # the queue ends before the range does
                end = window.end
        elif end <= start:
            raise RemoteProtocolError(
                f"{window.queue}: a pull at {start} came back with {result.status.name} and sends to"
                f" {result.next_offset}"
            )
        elif result.status is PullStatus.NO_MATCHED_MSG:
            is_lost = not self._is_filtered
        records = result.records if result.status is PullStatus.FOUND else b""
        if not self._is_filtered and result.next_offset > window.end:  # it passed over what is gone
            records = _before(records, window.end)
        return RangePart(
            window.queue, start, end, records, result.status, result.min_offset, result.max_offset, is_lost
        )

    def _due(self) -> Iterator[RangePart]:
        while self._windows:
            first = self._windows[0]
            while first.parts:
                yield first.parts.popleft()
            if first.next < first.end:
                return
            self._windows.popleft()


def _is_reset(window: _Window, result: PullResult) -> bool:
    """Whether it tells, as brokers do once, that somebody has set where the group goes on: there are messages here."""
    return result.status is PullStatus.OFFSET_ILLEGAL and result.min_offset <= window.next < result.max_offset


def _before(records: bytes | memoryview, end: int) -> bytes | memoryview:
    """The records in front of a queue offset."""
    position = 0
    while position < len(records) and (record := peek_record(records, position)).queue_offset < end:
        position += record.total_size
    return records[:position]
