"""The bytes of one direction of a connection, put in order from its TCP segments. This module does no I/O.

Segments come late, twice, or never: a capture may lack some, or the ends of all. What is missing becomes a `Gap` when
it cannot be expected any more: after ten seconds, or when too much waits behind it.
"""

import heapq
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from rocket_admin.wire.segments import Segment

__all__ = ["Chunk", "Gap", "Reassembly"]

MOST_HELD: Final = 4 * 1024 * 1024
"""Bytes that wait for a missing segment."""
MOST_SEGMENTS: Final = 2_000
LATE: Final = timedelta(seconds=10)
"""After that, a missing segment is not expected any more."""

_HALF: Final = 1 << 31


class Chunk(NamedTuple):
    """The next bytes, with the time at which they were captured."""

    at: datetime
    data: bytes


class Gap(NamedTuple):
    """Bytes that were not captured.

    Attributes:
        at: When the bytes behind it were captured.
        size: Their number; None for those before the capture began.
    """

    at: datetime
    size: int | None


class Reassembly:
    """One direction of a connection.

    Attributes:
        held: Bytes that wait for a missing segment.
    """

    def __init__(self) -> None:
        self.held = 0
        # Places of bytes in the stream: sequence numbers, but without their return to 0 after 2 ** 32.
        self._next: int | None = None
        self._near: int | None = None
        self._heap: list[tuple[int, int, Segment]] = []
        self._count = 0
        self._since: datetime | None = None

    @property
    def is_started(self) -> bool:
        """Whether the place of its first byte is known."""
        return self._next is not None

    def distance(self, sequence: int) -> int:
        """Return how far a sequence number is from the first bytes that were seen; 0 without any."""
        return 0 if self._near is None else abs(self._place(sequence) - self._near)

    def add(self, segment: Segment) -> None:
        """Take in a segment; `ready` then yields what follows from it."""
        place = self._place(segment.sequence + segment.is_syn)
        if segment.is_syn and self._next is None:
            self._next = place
        if segment.data or segment.missing:
            self._count += 1
            heapq.heappush(self._heap, (place, self._count, segment))
            self.held += len(segment.data)
            self._since = self._since or segment.at

    def ready(self, now: datetime | None) -> Iterator[Chunk | Gap]:
        """Yield the bytes whose turn has come, and what is missing for good.

        Args:
            now: The time by the capture; None if no more segments will come.
        """
        while self._heap:
            place, _, segment = self._heap[0]
            if self._next is None:  # the capture begins amid the connection
                yield Gap(segment.at, None)
                self._next = place
            elif place > self._next:
                if not self._is_overdue(now):
                    return
                yield Gap(segment.at, place - self._next)
                self._next = place
            heapq.heappop(self._heap)
            self.held -= len(segment.data)
            yield from self._new(self._next, place, segment)
            # What waits now waits for another segment, from here on.
            self._since = now if self._heap else None

    def _new(self, begin: int, place: int, segment: Segment) -> Iterator[Chunk | Gap]:
        """Yield the bytes of a segment that did not come before."""
        captured = place + len(segment.data)
        end = captured + segment.missing
        if captured > begin:
            yield Chunk(segment.at, segment.data[begin - place :])
        if end > max(captured, begin):
            yield Gap(segment.at, end - max(captured, begin))
        self._next = max(begin, end)

    def _is_overdue(self, now: datetime | None) -> bool:
        if now is None or self.held > MOST_HELD or len(self._heap) > MOST_SEGMENTS:
            return True
        return self._since is not None and now - self._since > LATE

    def _place(self, sequence: int) -> int:
        """Return the place that a sequence number stands for: the one next to where the stream is."""
        near = self._next if self._next is not None else self._near
        if near is None:
            near = self._near = _HALF + sequence  # so that places before the first seen one are not negative
        return near + (sequence - near + _HALF) % (1 << 32) - _HALF
