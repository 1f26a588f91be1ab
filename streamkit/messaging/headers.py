"""Message headers: the portable names, and the immutable mapping that carries them."""

from collections.abc import Iterator, Mapping
from types import NoneType
from typing import Self, TypeVar, overload
from uuid import UUID, uuid4

from streamkit.clock import current_clock

V = TypeVar("V")

ID = "id"
TIMESTAMP = "timestamp"
CONTENT_TYPE = "contentType"
ERROR_CHANNEL = "errorChannel"
REPLY_CHANNEL = "replyChannel"

KEY = "streamkit_key"
"""str or list of str: the business key a broker indexes the message by."""
TAGS = "streamkit_tags"
"""str: what subscriptions filter by."""
DELAY = "streamkit_delay"
"""timedelta, or a number of seconds: deliver that much later."""
DELIVER_AT = "streamkit_deliver_at"
"""An aware datetime, or milliseconds since 1970: deliver then."""
PARTITION = "scst_partition"
"""int: the partition chosen for an outgoing message, or the one an incoming message came from."""
PARTITION_OVERRIDE = "scst_partitionOverride"
"""int: wins over whatever the binding would choose."""
DELIVERY_ATTEMPT = "deliveryAttempt"
"""int: how often this message has been handed to the listener, this time included."""
SEND_TO_DESTINATION = "spring.cloud.stream.sendto.destination"
"""str: this one output goes to that binding or destination."""
JSON_HEADER_TYPES = "spring_json_header_types"
"""JSON object {header: Java class}: how the first binder generation types non-string headers."""

READ_ONLY = frozenset((ID, TIMESTAMP))


class MessageHeaders(Mapping[str, object]):
    """The headers of one message; they never change.

    `id` and `timestamp` belong to every message, but most messages die without anybody having asked
    for them: they are made at the first look and stay the same from then on.
    """

    # Invariant: nobody outside holds a reference to the dictionary; the only later change is that
    # `id` and `timestamp` appear.
    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, object] | None = None) -> None:
        self._values: dict[str, object] = {} if values is None else dict(values)

    @classmethod
    def adopt(cls, values: dict[str, object]) -> Self:
        """Headers that take `values` over without a copy: the caller must not touch it again."""
        headers = cls.__new__(cls)
        headers._values = values
        return headers

    @property
    def id(self) -> UUID | str:
        """This message's identity: a fresh UUID, or what the sender's side stamped."""
        try:
            return self._values[ID]  # type: ignore[return-value]  # only ever a UUID or the wire's text
        except KeyError:
            made = self._values[ID] = uuid4()
            return made

    @property
    def timestamp(self) -> int:
        """When the message was made, in milliseconds since 1970."""
        try:
            return self._values[TIMESTAMP]  # type: ignore[return-value]  # only ever milliseconds
        except KeyError:
            made = self._values[TIMESTAMP] = current_clock().now_ms()
            return made

    @property
    def content_type(self) -> str | None:
        """The `contentType` header as text, or None."""
        value = self._values.get(CONTENT_TYPE)
        return value if value is None or type(value) is str else str(value)

    def typed(self, name: str, type_: type[V]) -> V | None:
        """The header `name` when it is there.

        Raises:
            TypeError: It is there, but of another type.
        """
        value = self._values.get(name)
        if isinstance(value, (type_, NoneType)):
            return value
        raise TypeError(
            f"header {name!r} is the {type(value).__name__} {value!r}, not of type {type_.__name__}"
        )

    def user_values(self) -> dict[str, object]:
        """A new dictionary of all headers but `id` and `timestamp`."""
        values = self._values.copy()
        values.pop(ID, None)
        values.pop(TIMESTAMP, None)
        return values

    def __getitem__(self, name: str) -> object:
        try:
            return self._values[name]
        except KeyError:
            if name == ID:
                return self.id
            if name == TIMESTAMP:
                return self.timestamp
            raise

    @overload
    def get(self, key: str, /) -> object | None: ...
    @overload
    def get(self, key: str, /, default: V) -> object | V: ...
    def get(self, key: str, /, default: object = None) -> object:
        """The header `key`, or `default`."""
        value = self._values.get(key, default)
        if value is default and key in READ_ONLY:
            return self[key]
        return value

    def __contains__(self, name: object) -> bool:
        return name in self._values or name in READ_ONLY

    def __iter__(self) -> Iterator[str]:
        return iter(self._completed())

    def __len__(self) -> int:
        return len(self._completed())

    def _completed(self) -> dict[str, object]:
        """All headers, with the two made-on-demand ones made."""
        if ID not in self._values:
            _ = self.id
        if TIMESTAMP not in self._values:
            _ = self.timestamp
        return self._values

    def __eq__(self, other: object) -> bool:
        """Equal when every header but `id` and `timestamp` is."""
        if isinstance(other, MessageHeaders):
            return self.user_values() == other.user_values()
        if isinstance(other, Mapping):
            return dict(self) == dict(other)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]  # header values need not be hashable

    def __repr__(self) -> str:
        return f"MessageHeaders({self._values!r})"
