"""Records, batches, properties and ids round-trip."""

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rocket_remoting.wire.batch import decode_batch, encode_batch
from rocket_remoting.wire.compression import CompressionType, compress, decompress
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.java_hash import java_hash
from rocket_remoting.wire.message import Message, MessageExt
from rocket_remoting.wire.message_id import create_offset_id, parse_offset_id, unpack_ip
from rocket_remoting.wire.properties import decode_properties, encode_properties
from rocket_remoting.wire.record import (
    decode_record,
    decode_records,
    encode_record,
    peek_record,
    record_check,
    record_size,
)
from rocket_remoting.wire.sys_flag import COMPRESSED

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=20)
properties = st.dictionaries(words, words, max_size=6)
addresses = st.ip_addresses().map(lambda ip: unpack_ip(ip.packed))  # one address, one spelling
hosts = st.tuples(addresses, int32)
topics = st.text("abc-_%中", min_size=1, max_size=60)


@st.composite
def record_fields(draw: st.DrawFn) -> dict[str, Any]:
    """Generate the fields of a record except topic, body and properties."""
    return {
        "queue_id": draw(int32),
        "queue_offset": draw(int64),
        "commit_log_offset": draw(int64),
        "sys_flag": draw(int32) & ~0x31,
        "flag": draw(int32),
        "born_timestamp": draw(int64),
        "born_host": draw(hosts),
        "store_timestamp": draw(int64),
        "store_host": draw(hosts),
        "reconsume_times": draw(int32),
        "prepared_transaction_offset": draw(int64),
    }


records = st.tuples(topics, st.binary(max_size=200), properties, record_fields())


def encode(record: tuple[str, bytes, dict[str, str], dict[str, Any]]) -> bytes:
    """Return the record's bytes."""
    topic, body, props, fields = record
    return encode_record(topic, body, encode_properties(props), **fields)


@given(st.lists(records, max_size=4))
def test_records_round_trip(made: list[tuple[str, bytes, dict[str, str], dict[str, Any]]]) -> None:
    """Several in a row, each of the predicted size."""
    data = b"".join(map(encode, made))
    position = 0
    for message, (topic, body, props, fields) in zip(decode_records(memoryview(data)), made, strict=True):
        assert (message.topic, message.body, message.properties) == (topic, body, props)
        for name, value in fields.items():
            if name != "sys_flag":
                assert getattr(message, name) == value
        assert message.sys_flag & ~0x30 == fields["sys_flag"]
        head = peek_record(data, position)
        size = record_size(len(body), len(topic.encode()), len(encode_properties(props)), head.sys_flag)
        assert head.total_size == message.store_size == size
        position += size


def one_by_one(data: bytes) -> list[MessageExt]:
    """Decode the records of a pull each by itself."""
    found: list[MessageExt] = []
    position = 0
    while position < len(data):
        found.append(decode_record(data, position))
        position += found[-1].store_size
    return found


def outcome_of(decode: Callable[[bytes], list[MessageExt]], data: bytes) -> list[MessageExt] | str:
    """Return the messages, or the text of the error: any other error than one of the protocol fails the test."""
    try:
        return decode(data)
    except RemoteProtocolError as error:
        return str(error)


@given(records, st.integers(0, 10_000), st.integers(0, 255))
def test_records_with_a_changed_byte_are_messages_or_an_error(
    record: tuple[str, bytes, dict[str, str], dict[str, Any]], position: int, value: int
) -> None:
    """Records that are decoded together give the same messages, or error, as one by one."""
    data = bytearray(encode(record) * 2)
    data[position % len(data)] = value
    assert outcome_of(decode_records, bytes(data)) == outcome_of(one_by_one, bytes(data))


@given(records, st.none() | st.tuples(st.integers(0, 10_000), st.integers(0, 255)))
def test_check_agrees_with_decoding(
    record: tuple[str, bytes, dict[str, str], dict[str, Any]], spoilt: tuple[int, int] | None
) -> None:
    """A record passes if it has this topic and position; intact ones do, of both versions and with any hosts."""
    topic, _, _, fields = record
    place = fields["queue_offset"], fields["commit_log_offset"]
    data = bytearray(encode(record))
    is_record = record_check(topic)
    if spoilt is not None:
        position, value = spoilt
        data[position % len(data)] = value
    try:
        head = peek_record(data)
    except RemoteProtocolError:
        expected = False
    else:
        read = head.topic, head.queue_offset, head.commit_log_offset, head.total_size
        expected = read == (topic, *place, len(data))
    assert spoilt is not None or expected
    assert is_record(memoryview(data), *place) == expected
    assert not is_record(memoryview(data)[:-1], *place)
    assert not is_record(memoryview(data + b"x"), *place)


@given(st.binary(max_size=400))
def test_garbage_is_a_protocol_error(data: bytes) -> None:
    """Bytes read as records, batch or properties."""
    for read in (decode_records, decode_batch, decode_properties):
        try:
            read(data)
        except RemoteProtocolError:
            pass


@given(st.lists(st.tuples(st.binary(max_size=100), properties, int32), max_size=5))
def test_batches_round_trip(made: list[tuple[bytes, dict[str, str], int]]) -> None:
    """With bodies, properties and flags, in order."""
    batch = encode_batch(Message("t", body, properties=props, flag=flag) for body, props, flag in made)
    assert [(entry.body, decode_properties(entry.properties), entry.flag) for entry in decode_batch(batch)] == made


@given(properties)
def test_properties_round_trip(props: dict[str, str]) -> None:
    """Without separators in them, with and without the last separator."""
    data = encode_properties(props)
    assert decode_properties(data) == props
    assert decode_properties(data.removesuffix(b"\x02")) == props


@given(addresses, int32, int64)
def test_offset_ids_round_trip(ip: str, port: int, offset: int) -> None:
    """Any address, port and offset."""
    assert parse_offset_id(create_offset_id(ip, port, offset)) == (ip, port, offset)


@given(st.text(max_size=60))
def test_any_text_is_an_id_or_an_error(text: str) -> None:
    """What is no id is told so."""
    try:
        parse_offset_id(text)
    except RemoteProtocolError:
        pass


@given(st.binary(max_size=2000), st.sampled_from(CompressionType), st.integers(1, 9))
def test_bodies_round_trip(body: bytes, type_: CompressionType, level: int) -> None:
    """Through compression with any algorithm and level."""
    assert decompress(compress(body, type_, level), COMPRESSED | type_.sys_flag, limit=len(body)) == body


@given(st.binary(max_size=200), st.sampled_from(CompressionType))
def test_garbage_is_not_decompressed(data: bytes, type_: CompressionType) -> None:
    """It is a protocol error."""
    try:
        decompress(data, COMPRESSED | type_.sys_flag, limit=10_000)
    except RemoteProtocolError:
        pass


@given(st.text(max_size=300))
def test_java_hash_follows_the_formula(text: str) -> None:
    """Over UTF-16 units."""
    value, units = 0, text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = 31 * value + (high << 8 | low) & 0xFFFFFFFF
    assert java_hash(text) & 0xFFFFFFFF == value
    assert -(2**31) <= java_hash(text) < 2**31
