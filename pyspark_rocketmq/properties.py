"""The properties of many messages at once; `rocket_remoting.wire.properties` draws their form.

::

    data     KEYS 1 a 2 TAGS 1 b 2 | KEYS 1 c 2 …       all rows' properties, one after the other
    names    ^^^^     ^^^^           ^^^^
    values        ^        ^              ^

This module does no I/O.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyspark_rocketmq.records import Bytes, Ints, UnusualRecordsError, matches

_NAME_ENDS, _VALUE_ENDS = 1, 2
_COUNTED = 16


@dataclass(frozen=True)
class Pairs:
    """All pairs of name and value of all rows, in order.

    Attributes:
        data: The bytes they lie in.
        rows: How many rows there are.
        row: Which row each pair is of.
        name: Where each name begins, and its length.
        value: Where each value begins, and its length.
    """

    data: Bytes
    rows: int
    row: Ints
    name: tuple[Ints, Ints]
    value: tuple[Ints, Ints]

    def column(self, name: str) -> pa.Array:
        """Return the value of one property in each row; null if the row does not have the property."""
        wanted = name.encode()
        start, length = self.name
        candidates = np.flatnonzero(length == len(wanted))
        at = start[candidates]
        found = candidates[matches(self.data, at, wanted)]
        values = cut(self.data, self.value[0][found], self.value[1][found]).cast(pa.string())
        if len(found) == self.rows and np.array_equal(self.row[found], np.arange(self.rows)):
            return values  # every row has it, once
        take = np.full(self.rows, -1, dtype=np.int64)
        take[self.row[found]] = np.arange(len(found))
        return values.take(pa.array(take, mask=take < 0))

    def map_column(self) -> pa.Array:
        """Return all properties of each row as a map.

        Raises:
            UnusualRecordsError: A name is there twice in a row, which a map cannot hold.
        """
        names = cut(self.data, *self.name).cast(pa.string())
        if self._has_duplicates(names):
            raise UnusualRecordsError
        values = cut(self.data, *self.value).cast(pa.string())
        counts = np.bincount(self.row, minlength=self.rows)
        offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
        return pa.MapArray.from_arrays(pa.array(offsets), names, values)

    def _has_duplicates(self, names: pa.Array) -> bool:
        encoded = names.dictionary_encode()
        kinds = max(1, len(encoded.dictionary))
        identity = self.row * kinds + np.asarray(encoded.indices)
        if self.rows * kinds > _COUNTED * (len(identity) + 1):  # a name of its own in nearly every row
            return len(np.unique(identity)) != len(identity)
        return bool(np.any(np.bincount(identity) > 1))


def pairs(data: pa.Array) -> Pairs:
    """Return the pairs in the rows' properties.

    Raises:
        UnusualRecordsError: A name or value is missing, or has a separator in it.
    """
    offsets = np.frombuffer(data.buffers()[1], np.int32)[: len(data) + 1].astype(np.int64)
    buffer = data.buffers()[2]
    raw = np.frombuffer(buffer, np.uint8)[: offsets[-1]] if buffer is not None else np.empty(0, np.uint8)
    name_ends = np.flatnonzero(raw == _NAME_ENDS)
    value_ends = _value_ends(raw, offsets)
    if len(name_ends) != len(value_ends):
        raise UnusualRecordsError
    counts = np.diff(np.searchsorted(name_ends, offsets))
    row = np.repeat(np.arange(len(data), dtype=np.int64), counts)
    starts = np.empty(len(name_ends), dtype=np.int64)
    if len(starts):
        starts[0] = 0
        starts[1:] = np.maximum(value_ends[:-1] + 1, offsets[row[1:]])
        # The last value of a row may end where the next row begins, without a separator.
        at_row_end = value_ends[:-1] == offsets[row[:-1] + 1]
        starts[1:][at_row_end] = value_ends[:-1][at_row_end]
        in_row = (starts >= offsets[row]) & (value_ends <= offsets[row + 1])
        if not np.all(in_row & (name_ends > starts) & (value_ends > name_ends + 1)):
            raise UnusualRecordsError
    return Pairs(raw, len(data), row, (starts, name_ends - starts), (name_ends + 1, value_ends - name_ends - 1))


def _value_ends(raw: Bytes, offsets: Ints) -> Ints:
    """Return where values end: at their separators, and at the end of rows without a last separator."""
    ends = np.flatnonzero(raw == _VALUE_ENDS)
    last = offsets[1:]
    filled = last > offsets[:-1]
    open_ended = last[filled & (raw[np.maximum(last - 1, 0)] != _VALUE_ENDS)] if len(raw) else last[:0]
    return np.sort(np.concatenate((ends, open_ended))) if len(open_ended) else ends


def cut(data: npt.NDArray[np.uint8], start: Ints, length: Ints) -> pa.Array:
    """Return pieces of the data, which is copied once: as an array of piece, gap, piece, … without the gaps.

    The pieces must be in order and apart; the data shorter than 2 GiB.
    """
    count = len(start)
    if not count:
        return pa.array([], pa.binary())
    offsets = np.empty(2 * count + 1, dtype=np.int32)
    offsets[0 : 2 * count : 2] = start
    offsets[1 : 2 * count : 2] = start + length
    offsets[2 * count] = start[-1] + length[-1]
    over = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return over.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int64)))
