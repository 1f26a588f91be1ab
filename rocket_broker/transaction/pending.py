"""The pending half messages: those that no op message names.

::

    half queue    ended ended ended pending ended pending pending
                                    ▲ first                       ▲ the queue's end

There is one bit for each half message from the first pending one on, 125 kB for a million, and the owners of each
pending half message that clients have sent since the start. This module does no I/O; `half_messages` reads the op
queue.
"""

import re
from array import array
from collections.abc import Iterable

from rocket_broker.limits.owner_quota import OwnerQuota
from rocket_broker.limits.refusal import Refusal
from rocket_remoting.wire.codes import ResponseCode

__all__ = ["MAX_PENDING", "PendingHalves"]

MAX_PENDING = 200_000
"""Maximum number of pending half messages. A check of one takes some 0.1 ms, so a round of checks, one a minute, takes
a third of a processor at most. One producer group, and one address, has a quarter of them: so an application may begin
800 transactions a second that all need a check, and delays the checks of others by six seconds."""
MOST_MOVES = 100_000
"""Half messages stored again whose earlier offsets are kept. Beyond that number only the latest offset is valid."""

_MEND = (
    "commit them or roll them back, or start a producer of their group, which answers the broker's checks; without one "
    "they end after transactionProducerWaitHours"
)
_TRIM_BYTES = 4096
_OPS_A_STEP = 20_000
_ALL_ENDED = 0xFF
_NOT_ALL_ENDED = re.compile(rb"[^\xff]")


class PendingHalves:
    """The state of the half queue.

    Attributes:
        first: Offset of the first half message that may be pending; everything before it has ended.
    """

    def __init__(self, first: int, op_offset: int) -> None:
        """Begin with all half messages from ``first`` on pending, and the op queue read up to ``op_offset``."""
        self.first = first
        self._origin = first
        self._ended = bytearray()
        self._owners: dict[int, tuple[str, ...]] = {}
        self._unowned = 0
        self._quota = OwnerQuota("open transactions", lambda: MAX_PENDING, _MEND)
        self._moved_to: dict[int, int] = {}
        self._moved_from: dict[int, int] = {}
        self._op_first = op_offset
        self._op_highest = array("q")
        self._op_done = 0

    def is_pending(self, offset: int) -> bool:
        """Return whether the half message at the offset has not ended."""
        if offset < self.first:
            return False
        index = offset - self._origin
        byte = index >> 3
        # Bits beyond the array are 0: the array grows with ended half messages, not with new ones.
        return byte >= len(self._ended) or not self._ended[byte] >> (index & 7) & 1

    def count_loaded(self, end: int) -> None:
        """Count the pending half messages up to ``end``, once the op queue is read at the start."""
        self._unowned = self._pending_in(self.first, end) - len(self._owners)

    @property
    def count(self) -> int:
        """Number of pending half messages."""
        return len(self._owners) + self._unowned

    @property
    def quota(self) -> int:
        """Maximum number of pending half messages of one group, and of one address."""
        return self._quota.quota

    @property
    def full_owners(self) -> list[str]:
        """The groups and addresses whose half messages are refused, because they have `quota` pending ones."""
        return self._quota.full

    def check_capacity(self, *owners: str) -> None:
        """Check that one more half message may become pending.

        Raises:
            Refusal: Too many are pending, of all producers or of one of the owners.
        """
        if self.count >= MAX_PENDING:
            raise Refusal(
                ResponseCode.SYSTEM_BUSY,
                f"broker busy: {MAX_PENDING} transactions are open, which is the limit: {_MEND}",
            )
        self._quota.check(1, *owners)

    def begin(self, offset: int, *owners: str) -> None:
        """Note a new half message and its owners."""
        self._owners[offset] = owners
        self._quota.count(1, *owners)

    def end(self, offsets: Iterable[int]) -> None:
        """Note the next op message: it says that these half messages have ended."""
        highest = -1
        for offset in offsets:
            highest = max(highest, offset)
            self.end_without_op(offset)
        # An op message is passed by `op_offset` once `first` is behind the highest half message that it
        # names; until then a restart must read it again.
        self._op_highest.append(highest)

    def end_without_op(self, offset: int) -> None:
        """Note that a half message has ended without an op message."""
        if offset >= self.first:
            self._mark(offset)
        self._forget_moves(offset)

    def move(self, offset: int, to: int) -> None:
        """Note that a half message has been stored again at offset ``to``; its `end` at the old offset follows."""
        if offset in self._owners:
            self._unowned += 1  # the old one stays pending until its end
        self._owners[to] = self._owners.pop(offset, ())
        if len(self._moved_to) < MOST_MOVES:
            self._moved_to[offset] = to
            self._moved_from[to] = offset

    def live(self, offset: int) -> int | None:
        """Return the offset at which the half message is pending now; None if it has ended."""
        # A producer's answer may name any former place: it may have been asked several checks ago.
        while offset in self._moved_to:
            offset = self._moved_to[offset]
        return offset if self.is_pending(offset) else None

    def advance(self, end: int) -> int:
        """Move `first` to the next pending half message, at most to the queue's end, and return `first`."""
        if self.first < end:
            self._begin_at(min(self.next_pending(self.first), end))
        return self.first

    def skip(self, to: int) -> None:
        """Move `first` to an offset before which the half messages do not exist any more."""
        if self.first < to:
            gone = self._pending_in(self.first, to)
            for offset in [offset for offset in self._owners if offset < to]:
                self._forget_owners(offset)
                gone -= 1
            self._unowned -= gone
            self._begin_at(to)

    @property
    def op_offset(self) -> int:
        """Offset in the op queue before which op messages name only half messages below `first`."""
        while self.pass_ops():
            pass
        return self._op_first + self._op_done

    def pass_ops(self) -> bool:
        """Skip some op messages that `op_offset` is done with; return whether there may be more."""
        highest = self._op_highest
        done, most = self._op_done, min(len(self._op_highest), self._op_done + _OPS_A_STEP)
        while done < most and highest[done] < self.first:
            done += 1
        is_more = done == most < len(highest)
        if done > _TRIM_BYTES:
            del highest[:done]
            self._op_first += done
            done = 0
        self._op_done = done
        return is_more

    def _mark(self, offset: int) -> None:
        index = offset - self._origin
        byte = index >> 3
        if byte >= len(self._ended):
            self._ended.extend(bytes(byte + 1 - len(self._ended)))
        bit = 1 << (index & 7)
        if not self._ended[byte] & bit:
            self._ended[byte] |= bit
            if offset in self._owners:
                self._forget_owners(offset)
            elif self._unowned:
                self._unowned -= 1

    def _forget_owners(self, offset: int) -> None:
        self._quota.count(-1, *self._owners.pop(offset))

    def _pending_in(self, first: int, end: int) -> int:
        """Return the number of pending half messages from offset ``first`` to before offset ``end``."""
        bits = int.from_bytes(self._ended, "little") >> (first - self._origin)
        ended = bits & ((1 << max(0, end - first)) - 1)
        return max(0, end - first) - ended.bit_count()

    def next_pending(self, offset: int) -> int:
        """Return the offset of the next half message from `offset` on that may be pending; skips millions at once."""
        offset = max(offset, self.first)
        byte, bit = divmod(offset - self._origin, 8)
        if byte >= len(self._ended):
            return offset
        # Count the bits below `offset` as ended, then find the lowest 0:
        #
        #     ended       0010 0111    offset at bit 4
        #     | below     0010 1111
        #     lowest 0    0001 0000    bit 4
        bits = self._ended[byte] | (1 << bit) - 1
        if bits == _ALL_ENDED:
            found = _NOT_ALL_ENDED.search(self._ended, byte + 1)
            byte = found.start() if found is not None else len(self._ended)
            bits = self._ended[byte] if found is not None else 0
        lowest_zero = ~bits & bits + 1
        return self._origin + byte * 8 + lowest_zero.bit_length() - 1

    def _begin_at(self, first: int) -> None:
        """Move `first`, and free the bits before it, in whole blocks."""
        self.first = first
        blocks = (first - self._origin) // (_TRIM_BYTES * 8)
        if blocks:
            del self._ended[: blocks * _TRIM_BYTES]
            self._origin += blocks * _TRIM_BYTES * 8

    def _forget_moves(self, offset: int) -> None:
        """Forget the earlier offsets of an ended half message, unless it has been stored again and is still pending."""
        if offset in self._moved_to:
            return
        former = self._moved_from.pop(offset, None)
        while former is not None:
            del self._moved_to[former]
            former = self._moved_from.pop(former, None)

    def __repr__(self) -> str:
        return f"PendingHalves(first={self.first}, op_offset={self.op_offset}, {len(self._moved_to)} moved)"
