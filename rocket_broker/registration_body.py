"""The body of a broker's registration, plain or compressed.

Plain it is JSON (`RegisterBrokerBody`). Compressed it is one zlib stream of::

    length 4 | data version as JSON
    count  4 | count times:  length 4 | "name readQueues writeQueues perm filterType[ attributes]"
    length 4 | filter servers as a JSON list
    count  4 | count times:  length 4 | queue mapping as JSON          (since 5.0; nobody here maps queues)
"""

import struct
import zlib

import msgspec
from rocket_remoting.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    decode_body,
    encode_body,
)

from rocket_remoting.errors import RemoteProtocolError

__all__ = ["body_crc32", "decode_registration", "encode_registration"]

_INT = struct.Struct(">i")
MAX_DECOMPRESSED = 64 * 1024 * 1024
"""More than any real table of topics, less than what a hostile stream can blow up to."""


def body_crc32(body: bytes) -> int:
    """Return the checksum as Apache sends it: CRC-32 without its highest bit."""
    return zlib.crc32(body) & 0x7FFFFFFF


def encode_registration(body: RegisterBrokerBody, *, compressed: bool) -> bytes:
    """Return the body as it goes on the wire."""
    if not compressed:
        return encode_body(body)
    wrapper = body.topic_config_serialize_wrapper
    topics = wrapper.topic_config_table.values()
    parts = [_sized(encode_body(wrapper.data_version)), _INT.pack(len(topics))]
    parts += [_sized(_topic_text(topic).encode()) for topic in topics]
    parts += [_sized(msgspec.json.encode(body.filter_server_list)), _INT.pack(0)]
    return zlib.compress(b"".join(parts), zlib.Z_BEST_COMPRESSION)


def decode_registration(data: bytes, *, compressed: bool) -> RegisterBrokerBody:
    """Return the body; what 5.x appends for queue mapping is left unread.

    Raises:
        RemoteProtocolError: It is neither the JSON nor the stream it should be, or too large.
    """
    if not compressed:
        return decode_body(data, RegisterBrokerBody)
    reader = _Reader(_decompress(data))
    version = decode_body(reader.sized(), DataVersion)
    table = {}
    for _ in range(reader.integer()):
        topic = _topic(reader.sized())
        table[topic.topic_name] = topic
    return RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
            topic_config_table=table, data_version=version
        ),
        filter_server_list=decode_body(reader.sized(), list[str]),
    )


def _sized(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


def _topic_text(topic: TopicConfig) -> str:
    return (
        f"{topic.topic_name} {topic.read_queue_nums} {topic.write_queue_nums} {topic.perm} "
        f"{topic.topic_filter_type}"
    )


def _topic(data: bytes) -> TopicConfig:
    fields = data.decode("utf-8", "replace").split(" ")
    try:
        name, read, write, perm, filter_type = fields[:5]
        return TopicConfig(
            topic_name=name,
            read_queue_nums=int(read),
            write_queue_nums=int(write),
            perm=int(perm),
            topic_filter_type=filter_type,
        )
    except ValueError as e:
        raise RemoteProtocolError(f"a registration has the topic {fields[:5]}, which is none") from e


def _decompress(data: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        content = stream.decompress(data, MAX_DECOMPRESSED)
    except zlib.error as e:
        raise RemoteProtocolError(f"a compressed registration is no zlib stream: {e}") from e
    if stream.unconsumed_tail:
        raise RemoteProtocolError(f"a compressed registration has more than {MAX_DECOMPRESSED} bytes inside")
    return content


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def integer(self) -> int:
        value: int
        (value,) = _INT.unpack(self._take(4))
        return value

    def sized(self) -> bytes:
        return self._take(self.integer())

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise RemoteProtocolError(
                f"a compressed registration ends at byte {len(self._data)}, {end} expected"
            )
        part = self._data[self._position : end]
        self._position = end
        return part
