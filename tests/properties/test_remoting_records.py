"""Any message comes back from its record, its batch, its properties and its ids."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rocket_remoting.wire.batch import decode_batch, encode_batch
from rocket_remoting.wire.compression import CompressionType, compress, decompress
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.java_hash import java_hash
from rocket_remoting.wire.message import Message
from rocket_remoting.wire.message_id import create_offset_id, parse_offset_id, unpack_ip
from rocket_remoting.wire.properties import decode_properties, encode_properties
from rocket_remoting.wire.record import decode_records, encode_record, peek_record, record_check, record_size
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
    """Everything a record says beside topic, body and properties."""
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
    """The record's bytes."""
    topic, body, props, fields = record
    return encode_record(topic, body, encode_properties(props), **fields)


@given(st.lists(records, max_size=4))
def test_records_come_back(made: list[tuple[str, bytes, dict[str, str], dict[str, Any]]]) -> None:
    """Every field of every record in a row survives, and each record has the size that was foretold."""
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


@given(records, st.integers(0, 10_000), st.integers(0, 255))
def test_a_spoilt_record_is_a_message_or_an_error(
    record: tuple[str, bytes, dict[str, str], dict[str, Any]], position: int, value: int
) -> None:
    """One byte changed anywhere ends in nothing worse than a protocol error."""
    data = bytearray(encode(record))
    data[position % len(data)] = value
    try:
        decode_records(data)
    except RemoteProtocolError:
        pass


@given(records, st.none() | st.tuples(st.integers(0, 10_000), st.integers(0, 255)))
def test_a_check_says_what_reading_says(
    record: tuple[str, bytes, dict[str, str], dict[str, Any]], spoilt: tuple[int, int] | None
) -> None:
    """A record passes if it is one of its topic and place; whole ones do, of both versions and with any hosts."""
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
    """Any bytes read as records, batch or properties end in nothing worse than a protocol error."""
    for read in (decode_records, decode_batch, decode_properties):
        try:
            read(data)
        except RemoteProtocolError:
            pass


@given(st.lists(st.tuples(st.binary(max_size=100), properties, int32), max_size=5))
def test_batches_come_back(made: list[tuple[bytes, dict[str, str], int]]) -> None:
    """A batch holds its messages' bodies, properties and flags, in order."""
    batch = encode_batch(Message("t", body, properties=props, flag=flag) for body, props, flag in made)
    assert [(entry.body, decode_properties(entry.properties), entry.flag) for entry in decode_batch(batch)] == made


@given(properties)
def test_properties_come_back(props: dict[str, str]) -> None:
    """Properties without separators in them survive, with and without the last separator."""
    data = encode_properties(props)
    assert decode_properties(data) == props
    assert decode_properties(data.removesuffix(b"\x02")) == props


@given(addresses, int32, int64)
def test_offset_ids_come_back(ip: str, port: int, offset: int) -> None:
    """An offset id holds any address, port and offset."""
    assert parse_offset_id(create_offset_id(ip, port, offset)) == (ip, port, offset)


@given(st.text(max_size=60))
def test_any_text_is_an_id_or_an_error(text: str) -> None:
    """What is no id is told so."""
    try:
        parse_offset_id(text)
    except RemoteProtocolError:
        pass


@given(st.binary(max_size=2000), st.sampled_from(CompressionType), st.integers(1, 9))
def test_bodies_come_back(body: bytes, type_: CompressionType, level: int) -> None:
    """Packing with any algorithm and level loses nothing."""
    assert decompress(compress(body, type_, level), COMPRESSED | type_.sys_flag, limit=len(body)) == body


@given(st.binary(max_size=200), st.sampled_from(CompressionType))
def test_garbage_is_not_unpacked(data: bytes, type_: CompressionType) -> None:
    """Bytes that were never packed end in nothing worse than a protocol error."""
    try:
        decompress(data, COMPRESSED | type_.sys_flag, limit=10_000)
    except RemoteProtocolError:
        pass


@given(st.text(max_size=300))
def test_java_hash_follows_the_formula(text: str) -> None:
    """The hash of any text is what the formula says of its UTF-16 units."""
    value, units = 0, text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = 31 * value + (high << 8 | low) & 0xFFFFFFFF
    assert java_hash(text) & 0xFFFFFFFF == value
    assert -(2**31) <= java_hash(text) < 2**31
