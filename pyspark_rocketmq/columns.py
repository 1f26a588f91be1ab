"""The columns of many records at once: fields of records, and properties by their names, as Arrow's arrays.

`native_columns` and `numpy_columns` read them. Both leave unusual records to the decoder that reads one by one: those
with a compressed body, with a property twice, or with a text that is not UTF-8.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

FIELDS: Mapping[str, pa.DataType] = {
    "position": pa.int64(),
    "queue_id": pa.int32(),
    "flag": pa.int32(),
    "queue_offset": pa.int64(),
    "sys_flag": pa.int32(),
    "born_timestamp": pa.timestamp("us", "UTC"),
    "store_timestamp": pa.timestamp("us", "UTC"),
    "reconsume_times": pa.int32(),
    "body": pa.binary(),
    "topic": pa.string(),
}
"""The fields that each record has, and the types of their columns; ``position`` is where the record begins."""

TIMES = frozenset({"born_timestamp", "store_timestamp"})
"""Fields that a record has in `MILLISECONDS`."""

MILLISECONDS = pa.timestamp("ms", "UTC")


@dataclass(frozen=True)
class Wanted:
    """What is to be read.

    Attributes:
        fields: Names of `FIELDS`.
        properties: Names of properties.
        with_map: Whether to read all properties as a map, too.
    """

    fields: tuple[str, ...]
    properties: tuple[str, ...]
    with_map: bool


@dataclass(frozen=True)
class Columns:
    """The columns of records.

    Attributes:
        rows: The number of records.
        fields: The columns of fields by their names.
        properties: The columns of properties by their names; null: the message does not have the property.
        all_properties: All properties of each message; None unless they are wanted.
    """

    rows: int
    fields: Mapping[str, pa.Array]
    properties: Mapping[str, pa.Array]
    all_properties: pa.MapArray | None


ReadColumns = Callable[[bytes | memoryview, Wanted], Columns | None]
"""Returns the columns of records that follow each other; None if they must be decoded one by one."""
