"""Dead letters: rejected messages, in a topic of their group, with the headers of Spring's Kafka binder that tell why.

    x-original-topic, x-original-partition, x-original-offset, x-original-timestamp, x-original-timestamp-type
    x-exception-fqcn, x-exception-message, x-exception-stacktrace
    FAILURE_TYPE, FAILURE_MESSAGE, FAILURE_PLACE            the same on every binder of this framework

Numbers are big-endian, 4 bytes of the partition and 8 of offset and timestamp; texts are UTF-8. What the record had as
headers stays as it is, and so do its key and its value; of a record that has neither, the value is empty; of what is no
record, it is the bytes in its place. A letter that is too large goes without its stack trace, then without its value,
then without the record's key and headers: where the record is, it always tells. Its time is that of now, as Spring's
has it: with the record's, an old one would be past its topic's retention at once. One that cannot be written for
another reason is tried again until it is: its message counts as settled only then.
"""

import asyncio
import logging
import struct
import traceback
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Self, TypeAlias

from binders.kafka.headers import Record, RecordHeaders, with_types
from binders.kafka.sending import Sender
from kafka.errors import MessageSizeTooLargeError
from streamkit.binder.dead_letter import cause_headers
from streamkit.binder.settlement import RejectMessage
from streamkit.errors import BinderError
from streamkit.messaging.cause import text_of
from streamkit.messaging.headers import JSON_HEADER_TYPES
from streamkit.messaging.java_headers import STRING, declared_types

logger = logging.getLogger(__name__)

_TIMESTAMP_TYPES: Final = {0: "CreateTime", 1: "LogAppendTime"}
_STACKTRACE: Final = "x-exception-stacktrace"
_MESSAGE: Final = "x-exception-message"
_MAX_STACKTRACE: Final = 30_000
# Of an exception's text, where the letter is too large with all of it.
_BRIEF: Final = 500
_PAUSE: Final = 1.0

Provision: TypeAlias = Callable[[str, str], Awaitable[int]]
"""Makes a dead-letter topic for the letters of a topic; returns how many partitions it has."""


@dataclass(slots=True)
class Letter:
    """A dead letter, as it is sent.

    Attributes:
        own: The headers of the record.
        told: The headers that tell where it was, and why it is a letter.
        key: The key.
        value: The value.
    """

    own: RecordHeaders
    told: RecordHeaders
    key: bytes | None
    value: bytes | None

    @classmethod
    def of(cls, record: Record, rejected: RejectMessage) -> Self:
        """The letter that a record becomes."""
        own = [
            (name, data) for name, data in record.headers if name != JSON_HEADER_TYPES and data is not None
        ]
        # kafka-python refuses to send neither key nor value, and what is not exactly bytes.
        value = b"" if record.value is None and record.key is None else record.value
        return cls(
            own,
            [*_where(record), *_why(record, rejected)],
            record.key,
            None if value is None else bytes(value),
        )

    @property
    def headers(self) -> RecordHeaders:
        """All its headers."""
        return self.own + self.told

    def shrink(self) -> str:
        """Leave the next thing out; returns what that is."""
        told = [
            (name, data[:_BRIEF] if name == _MESSAGE else data)
            for name, data in self.told
            if name != _STACKTRACE
        ]
        if told != self.told:
            self.told = told
            return "its stack trace"
        if self.value:
            self.value = b""
            return "its value"
        self.own, self.key, self.value = [], None, b""
        self.told = [(name, data) for name, data in self.told if name != JSON_HEADER_TYPES]
        return "the key and the headers of its record"


def _where(record: Record) -> RecordHeaders:
    return [
        ("x-original-topic", record.topic.encode()),
        ("x-original-partition", struct.pack(">i", record.partition)),
        ("x-original-offset", struct.pack(">q", record.offset)),
        ("x-original-timestamp", struct.pack(">q", -1 if record.timestamp is None else record.timestamp)),
        (
            "x-original-timestamp-type",
            _TIMESTAMP_TYPES.get(record.timestamp_type, "NoTimestampType").encode(),
        ),
    ]


def _why(record: Record, rejected: RejectMessage) -> RecordHeaders:
    told = cause_headers(rejected)
    texts = _exception(rejected) | told
    types = declared_types(dict(record.headers).get(JSON_HEADER_TYPES) or b"{}")
    # An exception may quote text that has no form in UTF-8.
    headers = [(name, text.encode(errors="replace")) for name, text in texts.items()]
    return with_types(headers, types | dict.fromkeys(told, STRING))


def _exception(rejected: RejectMessage) -> dict[str, str]:
    cause = rejected.cause
    if cause is None:
        return {_MESSAGE: rejected.reason}
    trace = "".join(traceback.format_exception(cause))
    return {
        "x-exception-fqcn": f"{type(cause).__module__}.{type(cause).__qualname__}",
        _MESSAGE: text_of(cause),
        _STACKTRACE: trace[-_MAX_STACKTRACE:],
    }


class DeadLetters(ABC):
    """Where the rejected messages of one binding go."""

    @abstractmethod
    async def keep(self, record: Record, rejected: RejectMessage) -> None:
        """Return when the message may be forgotten.

        Raises:
            BinderError: They were closed before that.
        """

    async def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Keep no more."""


class Dropped(DeadLetters):
    """Nowhere: they are logged, as the settings ask for."""

    def __init__(self, binding: str) -> None:
        self._binding = binding

    async def keep(self, record: Record, rejected: RejectMessage) -> None:
        """Log what is lost."""
        logger.error(
            "Binding %r drops the message at %s: %s; it has no dead-letter topic",
            self._binding,
            place(record),
            rejected.reason,
        )


class DeadLetterTopic(DeadLetters):
    """A topic, made when a letter comes unless it is there."""

    def __init__(self, binding: str, topic: str, sender: Sender, provision: Provision) -> None:
        """Make one.

        Args:
            binding: Whose letters they are, for logs.
            topic: The topic.
            sender: Sends to it.
            provision: Makes it.
        """
        self._binding = binding
        self._topic = topic
        self._sender = sender
        self._provision = provision
        self._partitions: int | None = None
        self._is_closed = False

    async def make(self, origin: str) -> int:
        """Make the topic, unless it is there; returns how many partitions it has.

        Args:
            origin: The topic whose letters come.

        Raises:
            BinderError: Settings do not let it be made.
            KafkaError: The brokers are away, or refuse.
        """
        if self._partitions is None:
            self._partitions = await self._provision(self._topic, origin)
        return self._partitions

    async def keep(self, record: Record, rejected: RejectMessage) -> None:
        """Send the letter; returns when the broker has it.

        Raises:
            BinderError: They were closed before that.
        """
        letter = Letter.of(record, rejected)
        while not self._is_closed:
            try:
                await self._send(record, letter)
                return
            except MessageSizeTooLargeError as error:
                self._failed(record, f"{error!r}; it goes without {letter.shrink()}")
            except Exception as error:  # whatever it is, the partition must not stop without a word
                self._failed(record, repr(error))
                # It may be gone: somebody may have deleted it, to be rid of its letters.
                self._partitions = None
            await asyncio.sleep(_PAUSE)
        raise BinderError(f"the dead-letter topic {self._topic!r} is closed: {place(record)} stays unsettled")

    async def _send(self, record: Record, letter: Letter) -> None:
        await self._sender.send(
            self._topic,
            value=letter.value,
            key=letter.key,
            headers=letter.headers,
            partition=record.partition % await self.make(record.topic),
        )

    def _failed(self, record: Record, reason: str) -> None:
        logger.error(
            "Binding %r cannot write the message at %s to its dead-letter topic %r, and tries again: %s",
            self._binding,
            place(record),
            self._topic,
            reason,
        )

    async def close(self) -> None:
        """Close the producer of the letters."""
        self._is_closed = True
        await self._sender.close()


def place(record: Record) -> str:
    """Where a record stands, for people."""
    return f"{record.topic}-{record.partition}, offset {record.offset}"
