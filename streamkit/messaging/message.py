"""The message: a payload and its headers. A message never changes."""

from collections.abc import Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from streamkit.messaging.headers import READ_ONLY, MessageHeaders

T_co = TypeVar("T_co", covariant=True)
P = TypeVar("P")


class NoPayload(bytes):
    """The type of `NO_PAYLOAD`. A listener receives it as empty bytes, or as None if its annotation is `X | None`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NO_PAYLOAD"


NO_PAYLOAD: Final = NoPayload()
"""The payload of a message without one: Kafka's tombstone, which deletes a key from a compacted topic."""


class Message(Generic[T_co]):
    """A payload with headers.

    Two messages are equal if their payloads and headers are, whatever their ids and timestamps.
    A message that is derived from another has its own id and timestamp.

    Attributes:
        payload: The payload.
        headers: The headers.
        conversions: The converted payload for each converter that has read it, for further attempts of this delivery;
            None if no further attempt can use it.
    """

    __slots__ = ("_headers", "_payload", "conversions")
    _headers: MessageHeaders

    def __init__(
        self,
        payload: T_co,
        headers: Mapping[str, object] | None = None,
        conversions: dict[object, object] | None = None,
    ) -> None:
        self._payload = payload
        # `isinstance` asks the metaclass of Mapping, which takes longer than the rest of this.
        self._headers = headers if type(headers) is MessageHeaders else MessageHeaders(headers)
        self.conversions = conversions

    @classmethod
    def create(cls, payload: P, headers: Mapping[str, object] | None = None, /, **named: object) -> "Message[P]":
        """Return a message of `payload`, with `headers` and the headers given by name."""
        return Message(payload, MessageHeaders.adopt({**(headers or {}), **named}))

    if TYPE_CHECKING:

        @property
        def payload(self) -> T_co:
            """The payload."""
            ...

        @property
        def headers(self) -> MessageHeaders:
            """The headers."""
            ...

    else:
        # Both are read many times for each message, and this takes half of the time that a function takes.
        payload = property(attrgetter("_payload"), doc="The payload.")
        headers = property(attrgetter("_headers"), doc="The headers.")

    def with_header(self, name: str, value: object) -> "Message[T_co]":
        """Return a new message with one header set; None removes the header."""
        return self.with_headers({name: value})

    def with_headers(self, headers: Mapping[str, object]) -> "Message[T_co]":
        """Return a new message with these headers set; headers that are None are removed.

        Raises:
            ValueError: One of them is `id` or `timestamp`, of which every message has its own.
        """
        if not READ_ONLY.isdisjoint(headers):
            names = " and ".join(sorted(READ_ONLY.intersection(headers)))
            raise ValueError(f"header {names} is read-only: each message makes its own value")
        values = self._headers.user_values()
        values.update(headers)
        for name, value in headers.items():
            if value is None:
                del values[name]
        return Message(self._payload, MessageHeaders.adopt(values))

    def without_header(self, name: str) -> "Message[T_co]":
        """Return a new message without the header `name`."""
        return self.with_headers({name: None})

    def with_payload(self, payload: P) -> "Message[P]":
        """Return a new message with these headers and another payload."""
        return Message(payload, MessageHeaders.adopt(self._headers.user_values()))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return bool(self._payload == other._payload) and self._headers == other._headers

    def __hash__(self) -> int:
        return hash(self._payload)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._payload!r}, {self._headers.user_values()!r})"


def message_of(payload: P, headers: MessageHeaders, conversions: dict[object, object] | None = None) -> Message[P]:
    """Return a message, as `Message` with the same arguments does, in two thirds of the time."""
    # A call of a class enters a new evaluation loop for its `__init__`.
    message: Message[P] = Message.__new__(Message)
    message._payload = payload
    message._headers = headers
    message.conversions = conversions
    return message


class ErrorMessage(Message[Exception]):
    """The message of error channels: an exception, and the message that failed."""

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
        """The message as it was before the failure, or None if it is not known."""
        if self._original_message is None:
            failed: Message[object] | None = getattr(self._payload, "failed_message", None)
            return failed
        return self._original_message
