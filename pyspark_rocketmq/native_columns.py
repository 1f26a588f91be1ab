"""The columns of many records, read by the native core."""

from collections.abc import Sequence

import pyarrow as pa
from rocket_native import read_columns

from pyspark_rocketmq.columns import FIELDS, MILLISECONDS, TIMES, Columns, Wanted

_OFFSET_SIZE = 4


def native_columns(records: bytes | memoryview, wanted: Wanted) -> Columns | None:
    """Return the columns of records that follow each other; None if one of them is unusual."""
    found = read_columns(bytes(records), wanted.fields, wanted.properties, wanted.with_map)
    if found is None:
        return None
    rows, columns = found
    buffers = iter(columns)
    try:
        fields = {name: _field(name, rows, next(buffers)) for name in wanted.fields}
    except pa.ArrowInvalid:  # a time that is too far away for a column
        return None
    properties = {name: _array(pa.string(), rows, next(buffers)) for name in wanted.properties}
    return Columns(rows, fields, properties, _map(rows, next(buffers)) if wanted.with_map else None)


def _field(name: str, rows: int, buffers: Sequence[bytes | None]) -> pa.Array:
    kind = FIELDS[name]
    return _array(MILLISECONDS, rows, buffers).cast(kind) if name in TIMES else _array(kind, rows, buffers)


def _map(rows: int, buffers: Sequence[bytes | None]) -> pa.MapArray:
    offsets, name_offsets, names, value_offsets, values = buffers
    assert name_offsets is not None
    count = len(name_offsets) // _OFFSET_SIZE - 1
    return pa.MapArray.from_arrays(
        _array(pa.int32(), rows + 1, [None, offsets]),
        _array(pa.string(), count, [None, name_offsets, names]),
        _array(pa.string(), count, [None, value_offsets, values]),
    )


def _array(kind: pa.DataType, length: int, buffers: Sequence[bytes | None]) -> pa.Array:
    return pa.Array.from_buffers(kind, length, [None if each is None else pa.py_buffer(each) for each in buffers])
