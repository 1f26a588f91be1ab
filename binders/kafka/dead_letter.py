"""Dead letters: rejected messages in a topic of the group, with headers for origin and cause (`letter_headers.py`).

A letter has the record's headers, key and value unchanged, except: if the record has neither key nor value, the
letter's value is empty; if the bytes in the partition are not a readable record, they are the letter's value.

If a letter is too large for the brokers, it is sent without its stack trace, then without its value, then without the
record's key and headers. It always has the record's place. A letter's timestamp is the time of sending, as with Spring:
with the timestamp of an old record, the letter could be past the topic's retention at once.

A letter that cannot be written for another reason is tried again until it is written. Only then the rejected message is
settled.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Self, TypeAlias

from binders.kafka.headers import ID, Record, RecordHeaders, with_types
from binders.kafka.letter_headers import CREATE_TIME, EXCEPTION_MESSAGE, EXCEPTION_STACKTRACE, letter_headers
from binders.kafka.sending import Sender
from kafka.errors import MessageSizeTooLargeError
from streamkit.binder.dead_letter import Origin
from streamkit.errors import BinderError
from streamkit.messaging.headers import JSON_HEADER_TYPES
from streamkit.messaging.java_headers import declared_types, java_type
from streamkit.settlement import Reject

logger = logging.getLogger(__name__)

_TIMESTAMP_TYPES: Final = {0: CREATE_TIME, 1: "LogAppendTime"}
# Bytes of the exception's message in a letter that would otherwise be too large.
_BRIEF: Final = 500
_PAUSE: Final = 1.0

Provision: TypeAlias = Callable[[str, str], Awaitable[int]]
"""A function that makes sure a dead-letter topic exists, and returns the number of its partitions.

Its arguments are the dead-letter topic and the topic of the rejected messages.
"""


@dataclass(slots=True)
class Letter:
    """A dead letter to send.

    Attributes:
        own: The headers of the record.
        reasons: The headers with the record's place and the cause of the rejection.
        key: The key.
        value: The value.
    """

    own: RecordHeaders
    reasons: RecordHeaders
    key: bytes | None
    value: bytes | None

    @classmethod
    def of(cls, record: Record, rejected: Reject, group: str | None) -> Self:
        """Return the letter for a record that a group rejected; None for an anonymous group."""
        own = [(name, data) for name, data in record.headers if name != JSON_HEADER_TYPES and data is not None]
        # kafka-python refuses a record with neither key nor value, and values of subclasses of bytes.
        value = b"" if record.value is None and record.key is None else record.value
        return cls(
            own,
            _reasons(record, rejected, group),
            record.key,
            None if value is None else bytes(value),
        )

    @property
    def headers(self) -> RecordHeaders:
        """All headers of the letter."""
        return self.own + self.reasons

    def shrink(self) -> str:
        """Remove the next part of the letter to make it smaller, and return the name of that part."""
        reasons = [
            (name, data[:_BRIEF] if name == EXCEPTION_MESSAGE else data)
            for name, data in self.reasons
            if name != EXCEPTION_STACKTRACE
        ]
        if reasons != self.reasons:
            self.reasons = reasons
            return "its stack trace"
        if self.value:
            self.value = b""
            return "its value"
        self.own, self.key, self.value = [], None, b""
        self.reasons = [(name, data) for name, data in self.reasons if name != JSON_HEADER_TYPES]
        return "the key and the headers of its record"


def _reasons(record: Record, rejected: Reject, group: str | None) -> RecordHeaders:
    sent_id = dict(record.headers).get(ID)
    message_id = None if sent_id is None else sent_id.decode(errors="replace")
    origin = Origin(record.topic, record.partition, record.offset, record.timestamp, group, message_id)
    timestamp_type = _TIMESTAMP_TYPES.get(record.timestamp_type, "NoTimestampType")
    reasons = letter_headers(origin, rejected, timestamp_type)
    types = declared_types(dict(record.headers).get(JSON_HEADER_TYPES) or b"{}")
    headers: RecordHeaders = []
    for name, value in reasons.items():
        if isinstance(value, bytes):
            headers.append((name, value))
            continue
        headers.append((name, str(value).encode()))
        types[name] = java_type(value)
    return with_types(headers, types)


class DeadLetters(ABC):
    """Keeps the rejected messages of one binding."""

    @property
    def topic(self) -> str | None:
        """The dead-letter topic; None if rejected messages are lost."""
        return None

    @abstractmethod
    async def keep(self, record: Record, rejected: Reject) -> None:
        """Keep a rejected message, and return when the message counts as settled.

        Raises:
            BinderError: `close` was called before the message was kept.
        """

    async def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Stop keeping messages, and release resources."""


class NoDeadLetters(DeadLetters):
    """Drops rejected messages, for bindings without a dead-letter topic; the rejection has been logged."""

    async def keep(self, record: Record, rejected: Reject) -> None:
        """Do nothing."""


class DeadLetterTopic(DeadLetters):
    """Writes rejected messages to a topic, which is created with the first letter if it is missing."""

    def __init__(self, binding: str, topic: str, group: str | None, sender: Sender, provision: Provision) -> None:
        """Prepare the topic's producer; nothing is connected yet.

        Args:
            binding: The binding's name, for logs.
            topic: The dead-letter topic.
            group: The group whose letters they are, or None if it is anonymous.
            sender: Sends the letters.
            provision: Makes sure that the topic exists.
        """
        self._binding = binding
        self._topic = topic
        self._group = group
        self._sender = sender
        self._provision = provision
        self._partitions: int | None = None
        self._is_closed = False

    @property
    def topic(self) -> str:
        """The dead-letter topic."""
        return self._topic

    async def make(self, origin: str) -> int:
        """Create the topic if it is missing, and return the number of its partitions.

        Args:
            origin: The topic of the rejected messages.

        Raises:
            BinderError: The settings do not allow to create the topic.
            KafkaError: The brokers are away, or refuse.
        """
        if self._partitions is None:
            self._partitions = await self._provision(self._topic, origin)
        return self._partitions

    async def keep(self, record: Record, rejected: Reject) -> None:
        """Send the letter, again after each failure, and return when the broker has acknowledged it.

        Raises:
            BinderError: `close` was called before the broker had acknowledged the letter.
        """
        letter = Letter.of(record, rejected, self._group)
        while not self._is_closed:
            try:
                await self._send(record, letter)
                return
            except MessageSizeTooLargeError as error:
                self._failed(record, f"{error!r}; sending it without {letter.shrink()}")
            except Exception as error:  # any error is logged and tried again: the partition must go on
                self._failed(record, repr(error))
                # The topic may have been deleted, with all its letters: create it again if so.
                self._partitions = None
            await asyncio.sleep(_PAUSE)
        raise BinderError(f"the dead-letter topic {self._topic!r} is closed, so {place(record)} stays unsettled")

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
        """Stop waiting for letters, and close their producer."""
        self._is_closed = True
        await self._sender.close()


def place(record: Record) -> str:
    """Return topic, partition and offset of a record as text for logs."""
    return f"{record.topic}-{record.partition}, offset {record.offset}"
