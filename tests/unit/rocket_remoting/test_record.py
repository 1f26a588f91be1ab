"""The record codec."""

import struct
from typing import Any, NamedTuple

import pytest

from rocket_remoting.wire.compression import CompressionType, compress
from rocket_remoting.wire.errors import LocalProtocolError, RemoteProtocolError
from rocket_remoting.wire.message import Host
from rocket_remoting.wire.properties import encode_properties
from rocket_remoting.wire.record import (
    BLANK_MAGIC,
    MAGIC_V1,
    MAGIC_V2,
    body_crc32,
    decode_record,
    decode_records,
    encode_record,
    host_flags,
    pack_record_into,
    peek_record,
    read_size_and_magic,
    record_properties,
    record_size,
)
from rocket_remoting.wire.sys_flag import BORN_HOST_V6, COMPRESSED, STORE_HOST_V6, TRANSACTION_COMMIT

FIELDS: dict[str, Any] = {
    "queue_id": 3,
    "queue_offset": 2**33,
    "commit_log_offset": 2**40,
    "sys_flag": TRANSACTION_COMMIT,
    "flag": -7,
    "born_timestamp": 1_700_000_000_000,
    "born_host": ("10.0.0.2", 51234),
    "store_timestamp": 1_700_000_000_005,
    "store_host": ("10.0.0.1", 10911),
    "reconsume_times": 2,
    "prepared_transaction_offset": 5,
}
PROPERTIES = encode_properties({"TAGS": "new", "KEYS": "1"})
RECORD = encode_record("orders", b"a body", PROPERTIES, **FIELDS)


def test_record_has_apaches_layout() -> None:
    """Size, magic, checksum, queue id and flag are where Apache's decoder reads them."""
    assert struct.unpack_from(">iIIii", RECORD) == (len(RECORD), 0xDAA320A7, body_crc32(b"a body"), 3, -7)
    assert RECORD.endswith(b"\x00\x06a body\x06orders" + struct.pack(">h", len(PROPERTIES)) + PROPERTIES)


def test_record_round_trip() -> None:
    """An encoded message is decoded to the same message."""
    message = decode_record(RECORD)
    assert (message.topic, message.body, message.properties) == (
        "orders",
        b"a body",
        {"TAGS": "new", "KEYS": "1"},
    )
    assert {name: getattr(message, name) for name in FIELDS} == FIELDS
    assert (message.store_size, message.body_crc) == (len(RECORD), body_crc32(b"a body"))


def test_peek_does_not_read_the_body() -> None:
    """It reads fixed fields, topic and raw properties in place, and returns the body's position."""
    head = peek_record(memoryview(b"...." + RECORD), 4)
    assert {name: getattr(head, name) for name in FIELDS} == FIELDS
    assert (head.topic, head.properties, head.total_size) == ("orders", PROPERTIES, len(RECORD))
    assert (b"...." + RECORD)[head.body_position : head.body_position + head.body_length] == b"a body"


@pytest.mark.parametrize(
    ("born", "store", "flags"),
    [
        ("10.0.0.1", "10.0.0.2", 0),
        ("2001:db8::1", "10.0.0.2", BORN_HOST_V6),
        ("10.0.0.1", "2001:db8::2", STORE_HOST_V6),
        ("2001:db8::1", "2001:db8::2", BORN_HOST_V6 | STORE_HOST_V6),
    ],
)
def test_host_family_bits_follow_the_hosts(born: str, store: str, flags: int) -> None:
    """Whatever flag was given; they determine the length of the addresses."""
    fields = FIELDS | {
        "born_host": (born, 1),
        "store_host": (store, 2),
        "sys_flag": BORN_HOST_V6 | STORE_HOST_V6,
    }
    record = encode_record("orders", b"x", b"", **fields)
    message = decode_record(record)
    assert (message.born_host, message.store_host, message.sys_flag) == ((born, 1), (store, 2), flags)
    assert len(record) == record_size(1, 6, 0, flags)
    assert host_flags((born, 1), (store, 2)) == flags


def test_long_topics_make_version_2_records() -> None:
    """Above 127 bytes, the topic's length takes two bytes, as 5.x reads it."""
    topic = "%RETRY%" + "g" * 200
    record = encode_record(topic, b"x", b"", **FIELDS)
    assert read_size_and_magic(record) == (record_size(1, 207, 0), MAGIC_V2)
    assert decode_record(record).topic == topic
    assert read_size_and_magic(RECORD)[1] == MAGIC_V1


def test_compressed_bodies_are_decompressed() -> None:
    """With the flag cleared; on request the body is left compressed."""
    packed = compress(b"long " * 100, CompressionType.LZ4)
    flag = COMPRESSED | CompressionType.LZ4.sys_flag
    record = encode_record("orders", packed, b"", **FIELDS | {"sys_flag": flag})
    message = decode_record(record)
    assert (message.body, message.sys_flag & COMPRESSED) == (b"long " * 100, 0)
    raw = decode_record(record, decompress=False)
    assert (raw.body, raw.sys_flag) == (packed, flag)


def test_consecutive_records_are_decoded() -> None:
    """As in the body of a pull answer."""
    assert [m.topic for m in decode_records(RECORD + encode_record("b", b"", b"", **FIELDS) + RECORD)] == [
        "orders",
        "b",
        "orders",
    ]
    assert decode_records(b"") == []


def test_records_of_other_kinds_are_decoded_between_plain_ones() -> None:
    """Version 2, IPv6 hosts and properties in an unusual form come one by one, those around them together."""
    others = [
        encode_record("t" * 128, b"v2", PROPERTIES, **FIELDS),
        encode_record("orders", b"v6", PROPERTIES, **(FIELDS | {"born_host": ("2001:db8::1", 1)})),
        encode_record("orders", b"odd", b"KEYS\x011\x02\x02TAGS\x01new", **FIELDS),
    ]
    found = decode_records(b"".join([RECORD, others[0], RECORD, RECORD, *others[1:], RECORD]))
    assert [message.body for message in found] == [b"a body", b"v2", b"a body", b"a body", b"v6", b"odd", b"a body"]
    assert {tuple(sorted(message.properties.items())) for message in found} == {(("KEYS", "1"), ("TAGS", "new"))}
    assert found[4].born_host == ("2001:db8::1", 1)


def test_blank_record_is_no_message() -> None:
    """The filler at the end of a file is recognised by its magic."""
    blank = struct.pack(">ii", 100, BLANK_MAGIC) + bytes(92)
    assert read_size_and_magic(blank) == (100, BLANK_MAGIC)
    with pytest.raises(RemoteProtocolError, match="0xcbd43194"):
        decode_record(blank)
    with pytest.raises(RemoteProtocolError, match="only 3 bytes"):
        read_size_and_magic(blank, 97)


@pytest.mark.parametrize("cut", [0, 7, 50, 87, 90, 95, 110, len(RECORD) - 1])
def test_truncated_records_are_refused(cut: int) -> None:
    """The error has the position at which the record begins."""
    with pytest.raises(RemoteProtocolError, match="record at 0"):
        decode_record(RECORD[:cut])


@pytest.mark.parametrize(
    ("position", "value"),
    [(0, 10), (0, -1), (0, 2**31 - 1), (4, 0), (84, -1), (84, -90), (84, 2**31 - 1), (84, 5)],
)
def test_inconsistent_lengths_are_refused(position: int, value: int) -> None:
    """A wrong size neither leads out of the buffer nor to a message."""
    record = bytearray(RECORD)
    struct.pack_into(">i", record, position, value)
    with pytest.raises(RemoteProtocolError, match="record at 0"):
        decode_records(record)


def test_a_body_that_leads_backwards_is_refused() -> None:
    """Zeros of the prepared transaction offset would be the lengths of topic and properties: all sums agree."""
    record = bytearray(RECORD)
    struct.pack_into(">i", record, 0, 83)
    struct.pack_into(">qi", record, 76, 0, -8)
    for read in (peek_record, decode_record, record_properties):
        with pytest.raises(RemoteProtocolError, match="record at 0"):
            read(record)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"queue_id": 2**31}, "does not fit"),
        ({"queue_offset": 2**63}, "does not fit"),
        ({"born_host": ("broker.example", 1)}, "IP address"),
        ({"store_host": ("10.0.0.1", 2**32)}, "port"),
    ],
)
def test_values_out_of_range_are_a_local_error(changes: dict[str, Any], reason: str) -> None:
    """A value that the format cannot hold is refused before anything is stored."""
    with pytest.raises(LocalProtocolError, match=reason):
        encode_record("orders", b"x", b"", **FIELDS | changes)


def test_oversized_properties_and_topics_are_refused() -> None:
    """Their lengths are stored in 16 bits."""
    with pytest.raises(LocalProtocolError, match="properties of 32768"):
        encode_record("orders", b"x", bytes(32768), **FIELDS)
    with pytest.raises(LocalProtocolError, match="topic of 40000"):
        encode_record("t" * 40_000, b"x", b"", **FIELDS)


def test_invalid_utf8_in_properties_is_replaced_as_in_java() -> None:
    """One damaged byte on a disk must not block a consumer."""
    record = encode_record("orders", b"x", b"KEYS\x01\xff7\x02TAGS\x01A\x02", **FIELDS)
    first, second = decode_records(record + record)
    assert first.properties == second.properties == {"KEYS": "\ufffd7", "TAGS": "A"}


def test_invalid_utf8_in_the_topic_is_refused() -> None:
    """Text in a record is UTF-8."""
    with pytest.raises(RemoteProtocolError, match="topic is not UTF-8"):
        decode_record(RECORD.replace(b"orders", b"\xff" * 6))


class _Source(NamedTuple):
    """A message as a store has it."""

    topic: str = "orders"
    queue_id: int = 0
    body: bytes = b""
    properties: bytes = b""
    sys_flag: int = 0
    flag: int = 0
    born_timestamp: int = 0
    born_host: Host = ("10.0.0.2", 51234)
    store_host: Host = ("10.0.0.1", 10911)
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


def packed_into(buffer: bytearray, source: _Source) -> None:
    """Pack a message's record at the beginning of a buffer."""
    pack_record_into(memoryview(buffer), 0, 1000, source, queue_offset=0, commit_log_offset=0, store_timestamp=0)


def test_failed_packing_leaves_no_record_head() -> None:
    """The value out of range comes after size and magic, which mark a record's beginning."""
    buffer = bytearray(200)
    with pytest.raises(LocalProtocolError, match="does not fit"):
        packed_into(buffer, _Source(reconsume_times=2**31))
    assert read_size_and_magic(buffer) == (0, 0)


def test_record_head_is_written_last() -> None:
    """A writer that stops before, here for lack of buffer space, leaves no record."""
    buffer = bytearray(100)
    with pytest.raises(ValueError, match="different structures"):
        packed_into(buffer, _Source(body=bytes(200)))
    assert read_size_and_magic(buffer) == (0, 0)
