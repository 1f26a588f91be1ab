"""Which half messages wait for their end: those that no op message names.

::

    half queue    ended ended ended pending ended pending pending
                                    ▲ first                       ▲ the queue's end

One bit for each half message from the first pending one on: a million of them are 125 kB. Nothing here does
I/O; `half_messages` tells what the op queue says.
"""

from array import array
from collections.abc import Iterable

__all__ = ["PendingHalves"]

MOST_MOVES = 100_000
"""Half messages stored anew whose earlier offsets are known. Of those beyond, only the latest offset counts."""

_TRIM_BYTES = 4096


class PendingHalves:
    """The half queue's state.

    Attributes:
        first: Offset of the first half message that may be pending; everything before it has ended.
    """

    def __init__(self, first: int, op_offset: int) -> None:
        """Nothing from ``first`` on has ended as far as is known; the op queue has been read to ``op_offset``."""
        self.first = first
        self._origin = first
        self._ended = bytearray()
        self._moved_to: dict[int, int] = {}
        self._moved_from: dict[int, int] = {}
        self._op_first = op_offset
        self._op_highest = array("q")
        self._op_done = 0

    def is_pending(self, offset: int) -> bool:
        """Whether the half message there has not ended, as far as is known."""
        if offset < self.first:
            return False
        index = offset - self._origin
        byte = index >> 3
        return byte >= len(self._ended) or not self._ended[byte] >> (index & 7) & 1

    def end(self, offsets: Iterable[int]) -> None:
        """Note the next op message: these half messages have ended."""
        highest = -1
        for offset in offsets:
            highest = max(highest, offset)
            self.end_without_op(offset)
        self._op_highest.append(highest)

    def end_without_op(self, offset: int) -> None:
        """Note that a half message has ended although no op message says so."""
        if offset >= self.first:
            self._mark(offset)
        self._forget_moves(offset)

    def move(self, offset: int, to: int) -> None:
        """Note that a half message has been stored anew; its `end` at the old offset comes next."""
        if len(self._moved_to) < MOST_MOVES:
            self._moved_to[offset] = to
            self._moved_from[to] = offset

    def live(self, offset: int) -> int | None:
        """Return where the half message is pending now, None if it is not (any more)."""
        while offset in self._moved_to:
            offset = self._moved_to[offset]
        return offset if self.is_pending(offset) else None

    def advance(self, end: int) -> int:
        """Move `first` to the next pending half message, at most to the queue's end, and return it."""
        while self.first < end and not self.is_pending(self.first):
            self._step()
        return self.first

    def skip(self, to: int) -> None:
        """Move `first` there: what was before does not exist any more."""
        while self.first < to:
            self._mark(self.first)
            self._step()

    @property
    def op_offset(self) -> int:
        """Offset in the op queue that everything before is done with: it names only ended messages below `first`."""
        highest = self._op_highest
        done = self._op_done
        while done < len(highest) and highest[done] < self.first:
            done += 1
        if done > _TRIM_BYTES:
            del highest[:done]
            self._op_first += done
            done = 0
        self._op_done = done
        return self._op_first + done

    def _mark(self, offset: int) -> None:
        index = offset - self._origin
        byte = index >> 3
        if byte >= len(self._ended):
            self._ended.extend(bytes(byte + 1 - len(self._ended)))
        self._ended[byte] |= 1 << (index & 7)

    def _step(self) -> None:
        self.first += 1
        if self.first - self._origin >= _TRIM_BYTES * 8:
            del self._ended[:_TRIM_BYTES]
            self._origin += _TRIM_BYTES * 8

    def _forget_moves(self, offset: int) -> None:
        """Forget where an ended message came from; not while it lives on under another offset."""
        if offset in self._moved_to:
            return
        former = self._moved_from.pop(offset, None)
        while former is not None:
            del self._moved_to[former]
            former = self._moved_from.pop(former, None)

    def __repr__(self) -> str:
        return f"PendingHalves(first={self.first}, op_offset={self.op_offset}, {len(self._moved_to)} moved)"
