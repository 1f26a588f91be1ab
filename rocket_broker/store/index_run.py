"""The entries of many messages in an index file, by columns; `index_file` draws them. Needs numpy."""

import numpy as np
import numpy.typing as npt

from rocket_remoting.wire.record_columns import Numbers

__all__ = ["IndexRun"]

_ENTRY = np.dtype([("hash", ">i4"), ("offset", ">i8"), ("seconds", ">i4"), ("older", ">i4")])
_SLOT = np.dtype(">i4")


class IndexRun:
    """The entries of a run.

    Args:
        hashes: `java_hash` of each key with its topic.
        offsets: Commit log offset of each one's message.
        slot_count: How many slots a file has.

    Attributes:
        slots: The slot of each.
        first_offset: Commit log offset of the first.
        last_offset: And of the last.
        entries: The entries as the file has them, once `prepare` was called.
        slots_begun: How many slots they begin; likewise.
    """

    entries: bytes
    slots_begun: int

    def __init__(self, hashes: Numbers, offsets: Numbers, slot_count: int) -> None:
        self._hashes = np.abs(hashes)
        self._hashes[self._hashes > 0x7FFF_FFFF] = 0  # as Apache's broker: Java has no such positive number
        self._offsets = offsets
        self.slots = self._hashes % slot_count
        self.first_offset, self.last_offset = int(offsets[0]), int(offsets[-1])

    def __len__(self) -> int:
        return len(self._hashes)

    def prepare(self, table: memoryview, first: int, seconds: int) -> None:
        """Make the entries, each with the number of the older one in its slot, and what `lead_to` writes.

        Args:
            table: The file's slots.
            first: Number of the first entry.
            seconds: Since the first message of the file.
        """
        older = np.frombuffer(table, _SLOT)[self.slots].astype(np.int64)
        older[(older <= 0) | (older >= first)] = 0
        by_slot, is_next = self._by_slot()
        begun = by_slot[np.concatenate(([True], ~is_next))]
        newest = by_slot[np.concatenate((~is_next, [True]))]
        self.slots_begun = int((older[begun] == 0).sum())
        older[by_slot[1:][is_next]] = first + by_slot[:-1][is_next]
        entries = np.empty(len(self), _ENTRY)
        entries["hash"] = self._hashes
        entries["offset"] = self._offsets
        entries["seconds"] = seconds
        entries["older"] = older
        self.entries = entries.tobytes()
        self._led = self.slots[newest], (first + newest).astype(_SLOT)

    def lead_to(self, table: memoryview) -> None:
        """Let each slot lead to the newest of these entries in it."""
        slots, newest = self._led
        np.frombuffer(table, _SLOT)[slots] = newest

    def _by_slot(self) -> tuple[Numbers, npt.NDArray[np.bool_]]:
        """The entries ordered by slot, and whether each but the first is in the slot of the one before it."""
        by_slot = np.argsort(self.slots, kind="stable")
        slots = self.slots[by_slot]
        return by_slot, slots[1:] == slots[:-1]
