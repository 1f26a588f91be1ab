"""Rows are encoded as messages."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa

from pyspark_rocketmq.encode import blocks, encode, own_properties, sequence_keys, with_keys
from pyspark_rocketmq.errors import UnsendableError
from rocket_remoting.wire.batch import decode_batch
from rocket_remoting.wire.deduplication import sequence_key, writer_id
from rocket_remoting.wire.properties import RESERVED_PROPERTIES, decode_properties

Row = tuple[bytes, str | None, str | None, dict[str, str] | None, int]

_text = st.text(st.characters(exclude_characters="\x00\x01\x02", exclude_categories=["Cs"]), max_size=8)
_row = st.tuples(
    st.binary(min_size=1, max_size=50),
    st.none() | _text,
    st.none() | _text,
    st.none() | st.dictionaries(_text | st.sampled_from(["TAGS", "UNIQ_KEY"]), st.none() | _text, max_size=3),
    st.integers(-5, 5),
)


@settings(deadline=None)
@given(st.lists(_row, min_size=1, max_size=20), st.integers(0, 5))
def test_encoded_batch_round_trip(
    rows: list[tuple[bytes, str | None, str | None, dict[str, str] | None, int]], cut: int
) -> None:
    """Bodies, tags, keys, properties and flags, also of a slice of rows; empty values are null."""
    bodies, tags, keys, maps, flags = zip(*rows, strict=True)
    properties = own_properties(
        pa.array(tags, pa.string()),
        pa.array(keys, pa.string()),
        pa.array([None if each is None else list(each.items()) for each in maps], pa.map_(pa.string(), pa.string())),
        len(rows),
    )
    chosen = pa.array(np.arange(min(cut, len(rows) - 1), len(rows)))
    unique = sequence_keys("F" * 24, 7, len(chosen))
    entries = encode(
        pa.array(bodies, pa.binary()).take(chosen),
        with_keys(properties.take(chosen), unique),
        pa.array(flags, pa.int32()).take(chosen),
    )
    decoded = decode_batch(bytes(entries.data))
    assert len(decoded) == len(chosen)
    for number, (entry, row) in enumerate(zip(decoded, chosen.to_pylist(), strict=True)):
        body, tag, key, own, flag = rows[row]
        expected = {
            name: value
            for name, value in (own or {}).items()
            if name and value and name not in RESERVED_PROPERTIES | {"CLUSTER"}
        }
        expected |= {name: value for name, value in (("TAGS", tag), ("KEYS", key)) if value}
        expected["UNIQ_KEY"] = f"{'F' * 24}{7 + number:08X}"
        assert (entry.body, decode_properties(entry.properties), entry.flag) == (body, expected, flag)


def test_keys_equal_the_brokers_hashes() -> None:
    """Computed by numpy here, one by one there."""
    writer = writer_id("query", 1)
    assert sequence_keys(f"{writer}{9:08X}", 65534, 4).to_pylist() == [
        sequence_key(writer, 9, number) for number in range(65534, 65538)
    ]


def test_blocks_stay_within_limits() -> None:
    """Of rows and bytes; an oversized row is alone in its block."""
    sizes = [10, 10, 10, 500, 10, 10, 10, 10]
    entries = encode(pa.array([b"x" * size for size in sizes], pa.binary()), pa.array([""] * 8, pa.string()), None)
    assert list(blocks(entries, 3, 100)) == [(0, 3), (3, 4), (4, 7), (7, 8)]
    assert list(blocks(entries, 8, 70)) == [(0, 2), (2, 3), (3, 4), (4, 6), (6, 8)]


@pytest.mark.parametrize("character", ["\x00", "\x01", "\x02"])
def test_separators_in_values_are_refused(character: str) -> None:
    """They would inject properties."""
    with pytest.raises(UnsendableError, match="column 'TAGS'"):
        own_properties(pa.array([f"a{character}b"]), None, None, 1)


def test_too_long_properties_are_refused() -> None:
    """The record stores their length in 15 bits."""
    with pytest.raises(UnsendableError, match="40009 bytes, at most 32767"):
        encode(pa.array([b"x"]), own_properties(pa.array(["x" * 40_003]), None, None, 1), None)
