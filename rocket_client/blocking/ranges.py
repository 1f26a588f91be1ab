"""The reading of queues' ranges up to their ends, with many pulls under way at once.

::

    range     start ──────────────────────────────────────────► end
    windows   [ asked, answered ][ asked, half answered ][ asked ][ not asked yet …
    parts     yielded in the order of the queue, as soon as all earlier parts have been

The first answer shows how many messages a broker returns at once: Apache's brokers return at most 32 from memory and 8
from the disk, whatever is requested; the bundled broker returns thousands. With a filter the offset of the next answer
is not known, so each range has one pull under way. Progress is measured by the offsets in the answers, not by counting
messages: filters and deleted messages leave gaps.

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
"""Maximum number of bytes of answers that may wait in memory: with large answers, fewer pulls are under way."""


class QueueRange(NamedTuple):
    """The messages of a queue from offset `start` up to, not including, `end`."""

    queue: MessageQueue
    start: int
    end: int


class RangePart(NamedTuple):
    """The messages between two offsets of a queue.

    Attributes:
        queue: The queue.
        start: The first offset of the part.
        end: The offset behind the part, at which the range's next part begins.
        records: The messages as the broker stores them. With a filter, some may have offsets from `end` on.
        status: The status of the pull.
        min_offset: The offset of the queue's oldest message.
        max_offset: The offset that the queue's next message will get.
        is_lost: Whether the messages are missing for another reason than a filter: deleted, or never stored.
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
    """A piece of a range, which is pulled by one request after the other."""

    __slots__ = ("end", "is_asked_again", "next", "parts", "queue")

    def __init__(self, queue: MessageQueue, start: int, end: int) -> None:
        self.queue = queue
        self.next = start
        self.end = end
        self.parts: deque[RangePart] = deque()
        self.is_asked_again = False


class RangePulls:
    """The pulls that read ranges, and their answers in order.

    Iterating yields the pulls that may be sent now; after `answered` there may be more.

    Args:
        ranges: The ranges, in the order in which their parts are yielded.
        max_messages: Maximum number of messages of a pull.
        depth: Maximum number of pulls under way at once.
        is_filtered: Whether brokers filter messages.
    """

    # Invariants: _windows has, in order, the windows that are pulled or whose parts are not all yielded; each pull
    # under way belongs to one of them. _ready has the windows to pull next; _under_way counts pulls without an answer.

    def __init__(self, ranges: Sequence[QueueRange], *, max_messages: int, depth: int, is_filtered: bool) -> None:
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
        self._is_stopped = False

    def __iter__(self) -> Iterator[PullRequest]:
        return self

    def __next__(self) -> PullRequest:
        if self._is_stopped:
            raise StopIteration
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
        """Note the answer to the pull that was yielded as the `number`-th, from 0; yield the parts that are due."""
        window = self._asked.pop(number)
        self._under_way -= 1
        # Brokers report a reset once. A second such answer to the same pull is taken as it is: the pull must not be
        # repeated for ever.
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

    def stop(self) -> None:
        """Yield no more pulls; those under way are still answered."""
        self._is_stopped = True

    def unread(self) -> list[QueueRange]:
        """Return the ranges that have not been yielded, to continue with after a failure or `stop`."""
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
        """Learn the size of answers: split windows by it, and limit the pulls under way."""
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
                f"{window.queue}: a pull at offset {start} was answered with {result.status.name} and the next offset "
                f"{result.next_offset}"
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


def lacks_messages(result: PullResult) -> bool:
    """Return whether a broker answers that its queue ends before the offset of the pull, or begins behind it."""
    illegal = result.status is PullStatus.OFFSET_ILLEGAL or result.status is PullStatus.NO_NEW_MSG
    return illegal and not result.min_offset <= result.request.offset < result.max_offset


def _is_reset(window: _Window, result: PullResult) -> bool:
    """Return whether the answer only reports a reset of the group's offsets, as brokers do once: the offset exists."""
    return result.status is PullStatus.OFFSET_ILLEGAL and result.min_offset <= window.next < result.max_offset


def _before(records: bytes | memoryview, end: int) -> bytes | memoryview:
    """Return the records before a queue offset."""
    position = 0
    while position < len(records) and (record := peek_record(records, position)).queue_offset < end:
        position += record.total_size
    return records[:position]
