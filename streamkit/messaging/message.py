"""The message: a payload and its headers, neither of which ever changes."""

from collections.abc import Mapping
from typing import Final, Generic, TypeVar

from streamkit.messaging.headers import READ_ONLY, MessageHeaders

T_co = TypeVar("T_co", covariant=True)
P = TypeVar("P")


class NoPayload(bytes):
    """The payload of a message that has none: empty bytes to whoever wants bytes, None to whoever wants `X | None`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NO_PAYLOAD"


NO_PAYLOAD: Final = NoPayload()
"""The one there is: Kafka's tombstone, which deletes a key from a compacted topic."""


class Message(Generic[T_co]):
    """A payload with headers.

    Two messages are equal when their payloads and headers are, whatever their ids and timestamps.
    Deriving a message makes a new one, with an id and a timestamp of its own.
    """

    __slots__ = ("_headers", "_payload")

    def __init__(self, payload: T_co, headers: Mapping[str, object] | None = None) -> None:
        self._payload = payload
        self._headers = headers if type(headers) is MessageHeaders else MessageHeaders(headers)

    @classmethod
    def create(
        cls, payload: P, headers: Mapping[str, object] | None = None, /, **named: object
    ) -> "Message[P]":
        """A message of `payload`, with `headers` and the headers given by name."""
        return Message(payload, MessageHeaders.adopt({**(headers or {}), **named}))

    @property
    def payload(self) -> T_co:
        """What the message is about."""
        return self._payload

    @property
    def headers(self) -> MessageHeaders:
        """What is said about it."""
        return self._headers

    def with_header(self, name: str, value: object) -> "Message[T_co]":
        """A new message with one header set; None removes it."""
        return self.with_headers({name: value})

    def with_headers(self, headers: Mapping[str, object]) -> "Message[T_co]":
        """A new message with these headers set; those that are None are removed.

        Raises:
            ValueError: One of them is `id` or `timestamp`: every message has its own.
        """
        if not READ_ONLY.isdisjoint(headers):
            names = " and ".join(sorted(READ_ONLY.intersection(headers)))
            raise ValueError(f"header {names} is read-only: every message has its own")
        values = self._headers.user_values()
        values.update(headers)
        for name, value in headers.items():
            if value is None:
                del values[name]
        return Message(self._payload, MessageHeaders.adopt(values))

    def without_header(self, name: str) -> "Message[T_co]":
        """A new message that lacks the header `name`."""
        return self.with_headers({name: None})

    def with_payload(self, payload: P) -> "Message[P]":
        """A new message of `payload` with these headers."""
        return Message(payload, MessageHeaders.adopt(self._headers.user_values()))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return bool(self._payload == other._payload) and self._headers == other._headers

    def __hash__(self) -> int:
        return hash(self._payload)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._payload!r}, {self._headers.user_values()!r})"


class ErrorMessage(Message[Exception]):
    """What error channels carry: the exception, and the message it is about."""

    __slots__ = ("_original_message",)

    def __init__(
        self,
        payload: Exception,
        headers: Mapping[str, object] | None = None,
        *,
        original_message: Message[object] | None = None,
    ) -> None:
        super().__init__(payload, headers)
        self._original_message = original_message

    @property
    def original_message(self) -> Message[object] | None:
        """The message as it was before anything went wrong, or None when it is not known."""
        if self._original_message is None:
            failed: Message[object] | None = getattr(self._payload, "failed_message", None)
            return failed
        return self._original_message
