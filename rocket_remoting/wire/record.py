"""The record: a message in the form in which brokers store it, and send it unchanged in the response to a pull.

::

    pos  size  field
      0     4  total size, this field included
      4     4  magic: 0xDAA320A7 (version 1), 0xDAA320AB (version 2), 0xCBD43194 (blank end of a file)
      8     4  CRC-32 of the stored body, without its top bit
     12     4  queue id
     16     4  flag (the application's)
     20     8  queue offset
     28     8  commit log offset
     36     4  system flag: compression, transaction state, address families (see sys_flag)
     40     8  born timestamp
     48     8  born host: IPv4 4 + port 4              (20 bytes when the system flag says IPv6)
     56     8  store timestamp
     64     8  store host: IPv4 4 + port 4             (20 bytes likewise)
     72     4  reconsume times
     76     8  prepared transaction offset
     84     4  body length, then the body
      …  1, 2  topic length (2 bytes in version 2), then the topic
      …     2  properties length, then the properties (see properties)

All numbers are signed and big-endian. Version 2, which Apache's brokers read from 5.0 on, differs only in the size of
the topic's length: it allows topics above 127 bytes. A blank fills the end of a commit log file in which the next
record did not fit. This module does no I/O.
"""

import struct
import zlib
from collections.abc import Callable
from functools import cache, lru_cache
from typing import NamedTuple, Protocol

from rocket_remoting.native import has_native_core
from rocket_remoting.wire.compression import DEFAULT_LIMIT
from rocket_remoting.wire.compression import decompress as decompress_body
from rocket_remoting.wire.errors import LocalProtocolError, RemoteProtocolError
from rocket_remoting.wire.message import Host, MessageExt
from rocket_remoting.wire.message_id import pack_ip, unpack_ip
from rocket_remoting.wire.properties import MAX_PROPERTIES_LENGTH, decode_stored_properties
from rocket_remoting.wire.sys_flag import BORN_HOST_V6, COMPRESSED, STORE_HOST_V6

MAGIC_V1 = 0xDAA320A7 - (1 << 32)
MAGIC_V2 = 0xDAA320AB - (1 << 32)
BLANK_MAGIC = 0xCBD43194 - (1 << 32)

_SYS_FLAG_POSITION = 36

HOST_FLAGS = BORN_HOST_V6 | STORE_HOST_V6
# The fixed fields, indexed by the system flag's two host bits: no IPv6 host, born host, store host, both.
_FIXED = tuple(struct.Struct(f">iiiiiqqiq{born}sq{store}siqi") for born, store in ((8, 8), (20, 8), (8, 20), (20, 20)))
# The fields of a record with two IPv4 hosts that `record_check` compares: size, magic, queue offset, commit log offset,
# system flag, body length.
#     0     4      8                    20            28                  36           40           84
#     size  magic  (crc, queue, flag)   queue offset  commit log offset   system flag  (up to body) body length
_PLACE_AND_LENGTHS = struct.Struct(">ii12xqqi44xi")
_SIZE_AND_MAGIC = struct.Struct(">ii")
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_MIN_FIXED = _FIXED[0].size

Buffer = bytes | bytearray | memoryview


class RecordHeader(NamedTuple):
    """The fields of a record without its body."""

    total_size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    commit_log_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: Host
    store_timestamp: int
    store_host: Host
    reconsume_times: int
    prepared_transaction_offset: int
    body_position: int
    body_length: int
    topic: str
    properties: bytes


class RecordSource(Protocol):
    """A message that can be packed into a record."""

    topic: str
    queue_id: int
    body: Buffer
    properties: bytes
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: Host
    store_host: Host
    reconsume_times: int
    prepared_transaction_offset: int


def body_crc32(body: Buffer) -> int:
    """Return the checksum that a record has for its body: CRC-32 without the top bit, as Java's int is signed."""
    return zlib.crc32(body) & 0x7FFFFFFF


def record_size(body_length: int, topic_length: int, properties_length: int, sys_flag: int = 0) -> int:
    """Return the bytes of a record.

    Args:
        body_length: Bytes of the stored body.
        topic_length: Bytes of the topic in UTF-8.
        properties_length: Bytes of the encoded properties.
        sys_flag: The system flag, whose host bits say which hosts are IPv6.
    """
    # The host flags are bits 4 (born host) and 5 (store host), so the shift makes them an index of `_FIXED`.
    fixed = _FIXED[(sys_flag & HOST_FLAGS) >> 4].size
    return fixed + body_length + (1 if topic_length <= 127 else 2) + topic_length + 2 + properties_length


def host_flags(born_host: Host, store_host: Host) -> int:
    """Return the system flag's bits for the hosts that are IPv6 addresses."""
    return (BORN_HOST_V6 if ":" in born_host[0] else 0) | (STORE_HOST_V6 if ":" in store_host[0] else 0)


def encode_record(
    topic: str,
    body: Buffer,
    properties: bytes,
    *,
    queue_id: int,
    queue_offset: int,
    commit_log_offset: int,
    sys_flag: int,
    flag: int,
    born_timestamp: int,
    born_host: Host,
    store_timestamp: int,
    store_host: Host,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
    body_crc: int | None = None,
) -> bytes:
    """Return a record, ready to be appended.

    The system flag's host bits are set according to the hosts. A topic above 127 bytes makes a version 2 record, which
    Apache's brokers read from 5.0 on. Timestamps are milliseconds since the epoch.

    Raises:
        LocalProtocolError: A number, the topic or the properties do not fit their fields.
    """
    born, store = pack_host(born_host), pack_host(store_host)
    hosts = (len(born) == 20) | (len(store) == 20) << 1
    fixed = _FIXED[hosts]
    topic_field = pack_topic(topic)
    magic = MAGIC_V1 if len(topic_field) <= 128 else MAGIC_V2
    if len(properties) > MAX_PROPERTIES_LENGTH:
        raise LocalProtocolError(
            f"properties of {len(properties)} bytes, at most {MAX_PROPERTIES_LENGTH} can be stored"
        )
    try:
        head = fixed.pack(
            fixed.size + len(body) + len(topic_field) + 2 + len(properties),
            magic,
            zlib.crc32(body) & 0x7FFFFFFF if body_crc is None else body_crc,
            queue_id,
            flag,
            queue_offset,
            commit_log_offset,
            (sys_flag & ~HOST_FLAGS) | hosts << 4,
            born_timestamp,
            born,
            store_timestamp,
            store,
            reconsume_times,
            prepared_transaction_offset,
            len(body),
        )
    except struct.error as error:
        raise LocalProtocolError(f"a number does not fit the record of a message to {topic}: {error}") from None
    return b"".join((head, body, topic_field, _SHORT.pack(len(properties)), properties))


def pack_record_into(
    buffer: memoryview,
    position: int,
    space: int,
    message: RecordSource,
    *,
    queue_offset: int,
    commit_log_offset: int,
    store_timestamp: int,
) -> int:
    """Write a message's version 1 record into a buffer, unless it is larger than `space`; return its size.

    The bytes are those of `encode_record`, without a copy. The fixed fields, with size and magic, are written last.
    Until then there is no record at `position`, even if this process is killed in between.

    Args:
        buffer: The buffer, such as a mapped file.
        position: Where the record begins.
        space: Maximum number of bytes that the record may have; nothing is written if it has more.
        message: The message.
        queue_offset: The message's offset in its queue.
        commit_log_offset: The record's offset in the commit log.
        store_timestamp: Milliseconds since the epoch.

    Raises:
        LocalProtocolError: A number, the topic or the properties do not fit their fields; no record was written.
    """
    born, store = pack_host(message.born_host), pack_host(message.store_host)
    hosts = (len(born) == 20) | (len(store) == 20) << 1
    fixed = _FIXED[hosts]
    body, properties = message.body, message.properties
    topic_field = pack_topic(message.topic)
    if len(properties) > MAX_PROPERTIES_LENGTH or len(topic_field) > 128:
        raise LocalProtocolError(
            f"a topic of {len(topic_field) - 1} and properties of {len(properties)} bytes: at most 127 and"
            f" {MAX_PROPERTIES_LENGTH} can be stored"
        )
    tail = topic_field + _SHORT.pack(len(properties)) + properties
    body_length = len(body)
    body_position = position + fixed.size
    tail_position = body_position + body_length
    end = tail_position + len(tail)
    if end - position > space:
        return end - position
    buffer[body_position:tail_position] = body
    buffer[tail_position:end] = tail
    try:
        fixed.pack_into(
            buffer,
            position,
            end - position,
            MAGIC_V1,
            zlib.crc32(body) & 0x7FFFFFFF,
            message.queue_id,
            message.flag,
            queue_offset,
            commit_log_offset,
            (message.sys_flag & ~HOST_FLAGS) | hosts << 4,
            message.born_timestamp,
            born,
            store_timestamp,
            store,
            message.reconsume_times,
            message.prepared_transaction_offset,
            body_length,
        )
    except struct.error as error:
        # `pack_into` has written the fields before the wrong one, with size and magic. A recovery would
        # take these for a record.
        _SIZE_AND_MAGIC.pack_into(buffer, position, 0, 0)
        raise LocalProtocolError(f"a number does not fit the record of a message to {message.topic}: {error}") from None
    return end - position


def read_size_and_magic(buffer: Buffer, offset: int = 0) -> tuple[int, int]:
    """Return total size and magic at `offset`, where a record, a blank, or nothing yet (zeros) begins.

    Raises:
        RemoteProtocolError: Fewer than eight bytes are left.
    """
    try:
        size, magic = _SIZE_AND_MAGIC.unpack_from(buffer, offset)
    except struct.error:
        raise RemoteProtocolError(f"only {len(buffer) - offset} bytes where a record should begin") from None
    return size, magic


def peek_record(buffer: Buffer, offset: int = 0) -> RecordHeader:
    """Return the fields of the record at `offset` without its body.

    Raises:
        RemoteProtocolError: The bytes are not a complete, well-formed record.
    """
    values, body_start, topic_start, topic_end, end = _layout(buffer, offset)
    size, magic, crc, queue_id, flag, queue_offset, log_offset, sys_flag, born_at, born, stored_at, store = values[:12]
    return RecordHeader(
        size,
        magic,
        crc,
        queue_id,
        flag,
        queue_offset,
        log_offset,
        sys_flag,
        born_at,
        _unpack_host(born),
        stored_at,
        _unpack_host(store),
        values[12],
        values[13],
        body_start,
        values[14],
        _text(buffer[topic_start:topic_end], offset),
        bytes(buffer[topic_end + 2 : end]),
    )


def record_properties(buffer: Buffer, offset: int = 0) -> bytes:
    """Return the encoded properties of the record at `offset`.

    Raises:
        RemoteProtocolError: The bytes are not a complete, well-formed record.
    """
    _, _, _, topic_end, end = _layout(buffer, offset)
    return bytes(buffer[topic_end + 2 : end])


@lru_cache(maxsize=4096)
def record_check(topic: str) -> Callable[[Buffer, int, int], bool]:
    """Return a function that checks whether a buffer is exactly one well-formed record of the topic.

    The function's arguments are the buffer, the expected queue offset and the expected commit log offset. It does not
    read the body. Brokers call it for each message that they read. So the common case, version 1 with two IPv4 hosts,
    is checked with two unpacks; all other records are checked by `_layout`.
    """
    encoded, packed = topic.encode(), pack_topic(topic)
    behind_body = struct.Struct(f">{len(packed)}sh")
    head_of, tail_of, tail_size = _PLACE_AND_LENGTHS.unpack_from, behind_body.unpack_from, behind_body.size

    def is_record(buffer: Buffer, queue_offset: int, commit_log_offset: int) -> bool:
        try:
            size, magic, number, place, sys_flag, body_length = head_of(buffer)
            if magic == MAGIC_V1 and not sys_flag & HOST_FLAGS and body_length >= 0:
                found, properties_length = tail_of(buffer, _MIN_FIXED + body_length)
                if (
                    found == packed
                    and number == queue_offset
                    and place == commit_log_offset
                    and properties_length >= 0
                    and size == len(buffer) == _MIN_FIXED + body_length + tail_size + properties_length
                ):
                    return True
            # The short way says only yes. What it does not know, such as version 2, IPv6 or a negative
            # length of the properties, is decided here.
            values, _, topic_start, topic_end, end = _layout(buffer, 0)
        except (struct.error, RemoteProtocolError):
            return False
        return (
            end == len(buffer)
            and (values[5], values[6]) == (queue_offset, commit_log_offset)
            and buffer[topic_start:topic_end] == encoded
        )

    return is_record


def decode_record(
    buffer: Buffer, offset: int = 0, *, decompress: bool = True, limit: int = DEFAULT_LIMIT
) -> MessageExt:
    """Return the message of the record at `offset`.

    Args:
        buffer: The buffer that has the record.
        offset: Where the record begins.
        decompress: Whether to decompress a compressed body and clear its bits of the system flag.
        limit: Maximum number of bytes that a body may have after decompression.

    Raises:
        RemoteProtocolError: The bytes are not a complete, well-formed record, or the body cannot be decompressed.
    """
    values, body_start, topic_start, topic_end, end = _layout(buffer, offset)
    body = bytes(buffer[body_start : body_start + values[14]])
    sys_flag = values[7]
    if decompress and sys_flag & COMPRESSED:
        body = decompress_body(body, sys_flag, limit)
        sys_flag &= ~COMPRESSED
    return MessageExt(
        _text(buffer[topic_start:topic_end], offset),
        body,
        properties=decode_stored_properties(buffer[topic_end + 2 : end]),
        flag=values[4],
        queue_id=values[3],
        queue_offset=values[5],
        commit_log_offset=values[6],
        sys_flag=sys_flag,
        born_timestamp=values[8],
        born_host=_unpack_host(values[9]),
        store_timestamp=values[10],
        store_host=_unpack_host(values[11]),
        reconsume_times=values[12],
        prepared_transaction_offset=values[13],
        body_crc=values[2],
        store_size=values[0],
    )


def decode_records(buffer: Buffer, *, decompress: bool = True, limit: int = DEFAULT_LIMIT) -> list[MessageExt]:
    """Return the messages of a pull's response: records one after the other up to the end of the buffer.

    Args:
        buffer: The body of the response.
        decompress: Whether to decompress compressed bodies.
        limit: Maximum number of bytes that a body may have after decompression.

    Raises:
        RemoteProtocolError: The bytes are not complete, well-formed records, or a body cannot be decompressed.
    """
    data = bytes(buffer)
    decode_plain = _plain_decoder()
    messages, offset = decode_plain(data, 0)
    while offset < len(data):
        other = decode_record(data, offset, decompress=False)
        messages.append(other)
        behind, offset = decode_plain(data, offset + other.store_size)
        messages += behind
    if decompress:
        for message in messages:
            if message.sys_flag & COMPRESSED:
                message.body = decompress_body(message.body, message.sys_flag, limit)
                message.sys_flag &= ~COMPRESSED
    return messages


_PlainDecoder = Callable[[bytes, int], tuple[list[MessageExt], int]]
"""Returns the messages of plain records from an offset on, bodies as stored, and the offset behind them. Plain are
records of version 1 with two IPv4 hosts; `decode_record` decodes others, and finds the errors in malformed ones."""


@cache
def _plain_decoder() -> _PlainDecoder:
    """Return the decoder that uses the native core, if that is installed."""
    if not has_native_core():
        return _decode_plain_records
    from rocket_native import read_messages

    new = MessageExt.__new__

    def decode(data: bytes, offset: int) -> tuple[list[MessageExt], int]:
        found, end = read_messages(data, offset)
        messages: list[MessageExt] = []
        for fields in found:
            # Without its constructor, as in `_decode_plain_record`.
            message = new(MessageExt)
            (
                message.store_size,
                message.body_crc,
                message.queue_id,
                message.flag,
                message.queue_offset,
                message.commit_log_offset,
                message.sys_flag,
                message.born_timestamp,
                message.born_host,
                message.store_timestamp,
                message.store_host,
                message.reconsume_times,
                message.prepared_transaction_offset,
                message.body,
                message.topic,
                message.properties,
            ) = fields
            message.broker_name = ""
            messages.append(message)
        return messages, end

    return decode


def _decode_plain_records(data: bytes, offset: int) -> tuple[list[MessageExt], int]:
    """Decode plain records in Python."""
    messages: list[MessageExt] = []
    # The records of a pull are of one topic and, mostly, of few hosts.
    topics: dict[bytes, str] = {}
    hosts: dict[bytes, Host] = {}
    while offset < len(data):
        message = _decode_plain_record(data, offset, topics, hosts)
        if message is None:
            break
        messages.append(message)
        offset += message.store_size
    return messages, offset


def _decode_plain_record(
    data: bytes, offset: int, topics: dict[bytes, str], hosts: dict[bytes, Host]
) -> MessageExt | None:
    """Return the message of the record at `offset`, its body as stored.

    Consumers call this for each message, so the common case, version 1 with two IPv4 hosts, has a way of its own.

    Args:
        data: The bytes that have the record.
        offset: Where the record begins.
        topics: Names of topics that were decoded already; gets those of this record.
        hosts: The same for hosts.

    Returns:
        The message; None if the record is another one or malformed, which `decode_record` finds out.
    """
    # A message is filled without its constructor: to call a class with many names takes as long as all the rest.
    message = MessageExt.__new__(MessageExt)
    try:
        (
            message.store_size,
            magic,
            message.body_crc,
            message.queue_id,
            message.flag,
            message.queue_offset,
            message.commit_log_offset,
            message.sys_flag,
            message.born_timestamp,
            born_host,
            message.store_timestamp,
            store_host,
            message.reconsume_times,
            message.prepared_transaction_offset,
            body_length,
        ) = _FIXED[0].unpack_from(data, offset)
        body_end = offset + _MIN_FIXED + body_length
        if magic != MAGIC_V1 or message.sys_flag & HOST_FLAGS or body_length < 0:
            return None
        topic_start = body_end + 1
        topic_end = topic_start + data[body_end]
        properties_start = topic_end + 2
        end = properties_start + (data[topic_end] << 8 | data[topic_end + 1])
    except (struct.error, IndexError):
        return None
    # A negative length of the properties is read as a large one here, which does not agree with the size.
    if end - offset != message.store_size or end > len(data):
        return None
    packed_topic = data[topic_start:topic_end]
    topic = topics.get(packed_topic)
    if topic is None:
        topic = topics[packed_topic] = _text(packed_topic, offset)
    message.topic = topic
    message.body = data[offset + _MIN_FIXED : body_end]
    message.properties = decode_stored_properties(data[properties_start:end])
    message.born_host = hosts.get(born_host) or _remember_host(hosts, born_host)
    message.store_host = hosts.get(store_host) or _remember_host(hosts, store_host)
    message.broker_name = ""
    return message


def _remember_host(hosts: dict[bytes, Host], packed: bytes) -> Host:
    host = hosts[packed] = _unpack_host(packed)
    return host


_Fixed = tuple[int, int, int, int, int, int, int, int, int, bytes, int, bytes, int, int, int]


def _layout(buffer: Buffer, offset: int) -> tuple[_Fixed, int, int, int, int]:
    """Return the fixed fields, the positions of body, topic and properties length, and the record's end.

    Checks every length against the buffer and the total size; checks neither the body's checksum nor the texts.

    Raises:
        RemoteProtocolError: The bytes are not a complete, well-formed record.
    """
    available = len(buffer) - offset
    if available < _MIN_FIXED:
        raise RemoteProtocolError(f"record at {offset}: {available} bytes, the shortest has {_MIN_FIXED + 3}")
    (sys_flag,) = _INT.unpack_from(buffer, offset + _SYS_FLAG_POSITION)
    fixed = _FIXED[(sys_flag & HOST_FLAGS) >> 4]
    try:
        values: _Fixed = fixed.unpack_from(buffer, offset)
        body_start = offset + fixed.size
        topic_start = body_start + values[14]
        if values[1] == MAGIC_V1:
            topic_length = buffer[topic_start]
            topic_start += 1
        elif values[1] == MAGIC_V2:
            (topic_length,) = _SHORT.unpack_from(buffer, topic_start)
            topic_start += 2
        else:
            raise RemoteProtocolError(
                f"record at {offset}: magic {values[1] & 0xFFFFFFFF:#010x} is not that of a record"
            )
        topic_end = topic_start + topic_length
        (properties_length,) = _SHORT.unpack_from(buffer, topic_end)
    except (struct.error, IndexError):
        raise RemoteProtocolError(f"record at {offset}: its lengths lead beyond {available} bytes") from None
    # Apache's MessageDecoder reads properties only if their length is above 0, so a negative length means none.
    end = topic_end + 2 + max(properties_length, 0)
    # A negative body length would lead back into the fixed fields and could still make all sums agree.
    if values[14] < 0 or topic_length < 0 or end - offset != values[0] or end > len(buffer):
        raise RemoteProtocolError(
            f"record at {offset}: total size {values[0]} of {available} bytes does not agree with"
            f" body {values[14]}, topic {topic_length}, properties {properties_length}"
        )
    return values, body_start, topic_start, topic_end, end


def _text(data: Buffer, offset: int) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        raise RemoteProtocolError(f"record at {offset}: its topic is not UTF-8") from None


@lru_cache(maxsize=4096)
def pack_topic(topic: str) -> bytes:
    """Return the topic in UTF-8 behind its length: one byte, or two bytes if it is above 127.

    Raises:
        LocalProtocolError: The topic has more than 32,767 bytes.
    """
    encoded = topic.encode()
    length = len(encoded)
    if length > 32767:
        raise LocalProtocolError(f"a topic of {length} bytes cannot be stored")
    return (length.to_bytes(1, "big") if length <= 127 else _SHORT.pack(length)) + encoded


@lru_cache(maxsize=4096)
def pack_host(host: Host) -> bytes:
    """Return the host's IP address, 4 or 16 bytes, and its port, 4 bytes.

    Raises:
        LocalProtocolError: The port does not fit its field.
    """
    try:
        return pack_ip(host[0]) + _INT.pack(host[1])
    except struct.error:
        raise LocalProtocolError(f"port {host[1]} does not fit its field") from None


@lru_cache(maxsize=4096)
def _unpack_host(packed: bytes) -> Host:
    port: int = _INT.unpack_from(packed, len(packed) - 4)[0]
    return unpack_ip(packed[:-4]), port
