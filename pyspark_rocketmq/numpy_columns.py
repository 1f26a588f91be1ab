"""The columns of many records, read by numpy, where the native core is not installed."""

import numpy as np
import pyarrow as pa

from pyspark_rocketmq.columns import FIELDS, MILLISECONDS, TIMES, Columns, Wanted
from pyspark_rocketmq.properties import cut, pairs
from pyspark_rocketmq.records import Bytes, Ints, Layout, UnusualRecordsError, layout, matches

FEW_BYTES = 48 * 1024
"""The bytes of records below which decoding one by one is faster: about 200 small messages."""


def numpy_columns(records: bytes | memoryview, wanted: Wanted, few_bytes: int = FEW_BYTES) -> Columns | None:
    """Return the columns of records that follow each other.

    Returns:
        None if one of them is unusual, or if they have fewer bytes than `few_bytes`.
    """
    if len(records) < few_bytes:
        return None
    try:
        return _columns(records, wanted)
    except (UnusualRecordsError, pa.ArrowInvalid):  # the latter: a text that is not UTF-8, or a time too far away
        return None


def _columns(records: bytes | memoryview, wanted: Wanted) -> Columns:
    found, raw = layout(records), np.frombuffer(records, np.uint8)
    fields = {name: _field(name, found, raw) for name in wanted.fields}
    if not (wanted.properties or wanted.with_map):
        return Columns(len(found.position), fields, {}, None)
    parsed = pairs(cut(raw, *found.properties))
    properties = {name: parsed.column(name) for name in wanted.properties}
    return Columns(len(found.position), fields, properties, parsed.map_column() if wanted.with_map else None)


def _field(name: str, found: Layout, raw: Bytes) -> pa.Array:
    if name == "body":
        return cut(raw, *found.body)
    if name == "topic":
        return _topics(raw, *found.topic)
    numbers = pa.array(getattr(found, name))
    return numbers.cast(MILLISECONDS).cast(FIELDS[name]) if name in TIMES else numbers.cast(FIELDS[name])


def _topics(raw: Bytes, start: Ints, length: Ints) -> pa.Array:
    """Return the topics; nearly always there is only one, which is decoded once."""
    first = raw[start[0] : start[0] + length[0]].tobytes()
    if np.all(length == length[0]) and np.all(matches(raw, start, first)):
        (topic,) = pa.array([first]).cast(pa.string())
        return pa.repeat(topic, len(start))
    return cut(raw, start, length).cast(pa.string())
