"""The message: a payload and its headers. A message never changes."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from msgspec import Struct, field
from msgspec.structs import force_setattr

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


class Message(Struct, Generic[T_co], frozen=True, eq=False):
    """A payload with headers.

    Two messages are equal if their payloads and headers are, whatever their ids and timestamps.
    A message that is derived from another has its own id and timestamp.

    Attributes:
        payload: The payload.
        headers: The headers; any mapping may be given, and is copied.
        conversions: The converted payload for each converter that has read it, for further attempts of this delivery;
            None if no further attempt can use it.
    """

    payload: T_co
    headers: MessageHeaders = field(default_factory=MessageHeaders)
    conversions: dict[object, object] | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            payload: T_co,
            headers: Mapping[str, object] | None = None,
            conversions: dict[object, object] | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        # `isinstance` would ask the metaclass of Mapping, which takes longer than the rest of this.
        if type(self.headers) is not MessageHeaders:
            force_setattr(self, "headers", MessageHeaders(self.headers))

    @classmethod
    def create(cls, payload: P, headers: Mapping[str, object] | None = None, /, **named: object) -> "Message[P]":
        """Return a message of `payload`, with `headers` and the headers given by name."""
        return Message(payload, MessageHeaders.adopt({**(headers or {}), **named}))

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
        values = self.headers.user_values()
        values.update(headers)
        for name, value in headers.items():
            if value is None:
                del values[name]
        return Message(self.payload, MessageHeaders.adopt(values))

    def without_header(self, name: str) -> "Message[T_co]":
        """Return a new message without the header `name`."""
        return self.with_headers({name: None})

    def with_payload(self, payload: P) -> "Message[P]":
        """Return a new message with these headers and another payload."""
        return Message(payload, MessageHeaders.adopt(self.headers.user_values()))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return bool(self.payload == other.payload) and self.headers == other.headers

    def __hash__(self) -> int:
        return hash(self.payload)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.payload!r}, {self.headers.user_values()!r})"


class ErrorMessage(Message[Exception], frozen=True, eq=False, kw_only=True):
    """The message of error channels: an exception, and the message that failed.

    Attributes:
        original_message: The message as it was before the failure: the one that the exception names if none is given,
            and None if it is not known.
    """

    original_message: Message[object] | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            payload: Exception,
            headers: Mapping[str, object] | None = None,
            *,
            original_message: Message[object] | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.original_message is None:
            force_setattr(self, "original_message", getattr(self.payload, "failed_message", None))
