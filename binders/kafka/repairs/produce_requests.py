"""Writes requests that send batches, and reads the answers to them.

No defect, but dear: kafka-python makes an object of each part of a request, and looks its fields up in a schema
(3.0.10 to 3.0.12). The bytes are the same. Answers with an error are left to kafka-python, and so are brokers before
Kafka 2.8, which do not know this version of the request.

::

    request    header · transactional id · acks i16 · timeout i32 · topics [name · partitions [index i32 · batch]]
    answer     header · topics [name · partitions [index i32 · error i16 · offset i64 · time i64 · start i64 · …]] · …
    all that has a length: a varint, one more than the length
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from kafka.protocol.producer import ProduceRequest, ProduceResponse

__all__ = ["VERSION", "SentBatches", "write_requests"]

VERSION: Final = 9
"""The version of the request, the newest that kafka-python's producer sends."""

_FRAME: Final = struct.Struct(">ihhih")
_ACKS: Final = struct.Struct(">hi")
_INDEX: Final = struct.Struct(">i")
_ANSWER: Final = struct.Struct(">ihqqq")
_THROTTLE: Final = struct.Struct(">i")
_RESPONSE: Final = ProduceResponse[VERSION]
_NUMBER: Final = struct.Struct(">ib")
_MORE: Final = 128
"""The bit of a varint's byte behind which another one follows."""
_SHORT: Final = [bytes((number,)) for number in range(_MORE)]
_END: Final = b"\0"
_NULL: Final = b"\0"
_WITHOUT_ERROR: Final = b"\x01\0\0"
"""The end of a partition's answer: no wrong records, no text, no further fields."""


def write_requests(sender: Any) -> None:
    """Make a producer's thread write its requests with this module, in the place of `Sender._produce_request`.

    Args:
        sender: A `kafka.producer.sender.Sender`.
    """
    # What the brokers that know the version have said of themselves, by their numbers.
    known: dict[object, object] = {}

    def request(node: object, acks: int, timeout: int, batches: Sequence[Any]) -> Any:
        connection = sender._client._manager._conns.get(node)
        versions = None if connection is None else connection.broker_version_data
        if versions is None or known.get(node) is not versions:
            if versions is None or versions.api_version(ProduceRequest, max_version=VERSION) != VERSION:
                return type(sender)._produce_request(sender, node, acks, timeout, batches)
            known[node] = versions
        state = sender._transaction_manager
        return SentBatches(None if state is None else state.transactional_id, acks, timeout, batches)

    sender._produce_request = request


class SentBatches:
    """A request that sends batches, as kafka-python's connections use requests.

    Attributes:
        header: What the connection needs of the request when the answer comes.
    """

    API_KEY = ProduceRequest[VERSION].API_KEY
    API_VERSION = VERSION

    __slots__ = ("_acks", "_batches", "_client", "_timeout", "_transactional", "header")

    def __init__(self, transactional: str | None, acks: int, timeout: int, batches: Sequence[Any]) -> None:
        """Make a request.

        Args:
            transactional: The producer's `transactional.id`, if it has one.
            acks: How many brokers must have stored the batches, -1: all in sync; 0: no answer.
            timeout: How long brokers may take, in milliseconds.
            batches: kafka-python's `ProducerBatch`es, closed.
        """
        self._transactional = transactional
        self._acks = acks
        self._timeout = timeout
        self._batches = batches
        self._client: bytes = b""
        self.header = _Header(0)

    def expect_response(self) -> bool:
        """Return whether brokers answer."""
        return self._acks != 0

    def with_header(self, correlation_id: int, client_id: str) -> None:
        """Give the request its number and the client's name."""
        self.header = _Header(correlation_id)
        self._client = client_id.encode()

    def encode(self, *, framed: bool = True, header: bool = True) -> bytes:
        """Return the bytes of the request, with its length in front and its header."""
        assert framed
        assert header
        topics: dict[str, list[Any]] = {}
        for batch in self._batches:
            topics.setdefault(batch.topic_partition[0], []).append(batch)
        transactional = self._transactional
        parts: list[Any] = [
            b"",
            self._client,
            _END,
            _NULL if transactional is None else _text(transactional),
            _ACKS.pack(self._acks, self._timeout),
            _varint(len(topics) + 1),
        ]
        for topic, batches in topics.items():
            parts += (_text(topic), _varint(len(batches) + 1))
            for batch in batches:
                records = batch.records.buffer()
                parts += (_INDEX.pack(batch.topic_partition[1]), _varint(len(records) + 1), records, _END)
            parts.append(_END)
        parts.append(_END)
        size = _FRAME.size - _INDEX.size + sum(map(len, parts))
        parts[0] = _FRAME.pack(size, self.API_KEY, VERSION, self.header.correlation_id, len(self._client))
        return b"".join(parts)

    def __repr__(self) -> str:
        return f"<SentBatches {', '.join(map(str, self._batches))}>"


class _Header:
    """The header of a request, and the reader of its answer."""

    __slots__ = ("correlation_id",)
    api_key = SentBatches.API_KEY
    api_version = VERSION

    def __init__(self, correlation_id: int) -> None:
        self.correlation_id = correlation_id

    def get_response_class(self) -> "type[Answer]":
        """Return the class that reads the answer."""
        return Answer


@dataclass(slots=True)
class _Stored:
    """A partition's answer: its batch is stored."""

    index: int
    error_code: int
    base_offset: int
    log_append_time_ms: int


@dataclass(slots=True)
class _StoredTopic:
    """A topic's answer."""

    name: str
    partition_responses: list[_Stored]


@dataclass(slots=True)
class Answer:
    """The answer to a request: all batches are stored."""

    responses: list[_StoredTopic]
    throttle_time_ms: int

    @staticmethod
    def parse_header(data: Any) -> Any:
        """Return the header of an answer in kafka-python's buffer, and move behind it."""
        begin = data.tell()
        number, further = _NUMBER.unpack(data.read(_NUMBER.size))
        if not further:
            return _Header(number)
        data.seek(begin)
        return _RESPONSE.parse_header(data)

    @staticmethod
    def decode(data: Any) -> Any:
        """Return the answer in kafka-python's buffer, which stands behind the header.

        Raises:
            ValueError: It is none.
        """
        begin = data.tell()
        content = data.read()
        found = _stored(content)
        if found is not None:
            return found
        data.seek(begin)
        return _RESPONSE.decode(data)


def _stored(content: bytes) -> Answer | None:
    """Return an answer that says that all batches are stored; None for others, and for those with many parts."""
    try:
        topics, at = [], 1
        for _ in range(_count(content[0])):
            behind = at + 1 + _count(content[at])
            name = content[at + 1 : behind].decode()
            partitions, at = [], behind + 1
            for _ in range(_count(content[behind])):
                index, error, offset, appended, _ = _ANSWER.unpack_from(content, at)
                at += _ANSWER.size + len(_WITHOUT_ERROR)
                if error or content[at - len(_WITHOUT_ERROR) : at] != _WITHOUT_ERROR:
                    return None
                partitions.append(_Stored(index, error, offset, appended))
            if content[at]:
                return None
            at += 1
            topics.append(_StoredTopic(name, partitions))
        (throttled,) = _THROTTLE.unpack_from(content, at)
    except (IndexError, ValueError, struct.error):
        return None
    return Answer(topics, throttled) if content[at + _THROTTLE.size :] == _END else None


def _count(first: int) -> int:
    """Return a length from the first byte of its varint.

    Raises:
        ValueError: The varint has more bytes, or says that there is nothing.
    """
    if not 0 < first < _MORE:
        raise ValueError("no short length")
    return first - 1


def _text(text: str) -> bytes:
    data = text.encode()
    return _varint(len(data) + 1) + data


def _varint(number: int) -> bytes:
    if number < _MORE:
        return _SHORT[number]
    found = bytearray()
    while number >= _MORE:
        found.append(number & (_MORE - 1) | _MORE)
        number >>= 7
    found.append(number)
    return bytes(found)
