"""Message headers: the portable names, and the immutable mapping that carries them."""

import os
from collections.abc import Iterator, Mapping
from random import Random
from types import NoneType
from typing import Self, TypeVar

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
DELAY_LEVEL = "DELAY"
"""int or its text: deliver after that entry of the broker's table of delays, counted from 1."""
PARTITION = "scst_partition"
"""int: the partition chosen for an outgoing message, or the one an incoming message came from."""
PARTITION_OVERRIDE = "scst_partitionOverride"
"""int: wins over whatever the binding would choose."""
DELIVERY_ATTEMPT = "deliveryAttempt"
"""int: how often this message has been handed to the listener, this time included."""
SEND_TO_DESTINATION = "spring.cloud.stream.sendto.destination"
"""str: this one output goes to that binding or destination."""
TRANSACTION_ID = "TRANSACTION_ID"
"""str: by which a checker knows the local transaction of a message again; made where the sender sets none."""
TRANSACTIONAL_ARG = "TRANSACTIONAL_ARG"
"""Any object: the argument of a transaction listener's `execute_local_transaction`; it does not travel."""
TRANSACTIONAL_ARGS = "TRANSACTIONAL_ARGS"
"""The same, as the second generation spells it."""
TRANSACTION = "streamkit_transaction"
"""TransactionRequest: asks the binding to begin a transaction with the message; it does not travel."""
SEQUENCE = "streamkit_sequence"
"""int: the place of an incoming message among all of its destination, where the binder knows it."""
JSON_HEADER_TYPES = "spring_json_header_types"
"""JSON object {header: Java class}: how the first binder generation types non-string headers."""

CORRELATION_ID = "correlationId"
"""What belongs together has the same: the parts of a split message."""
SEQUENCE_NUMBER = "sequenceNumber"
"""int: the place of a part in its whole, from 1."""
SEQUENCE_SIZE = "sequenceSize"
"""int: how many parts there are."""
SOURCE_DATA = "sourceData"
"""Message: on an error message, the one that failed as the binder received it."""

READ_ONLY = frozenset((ID, TIMESTAMP))

STEERING = frozenset(
    {
        DELAY,
        DELIVER_AT,
        DELAY_LEVEL,
        PARTITION,
        PARTITION_OVERRIDE,
        DELIVERY_ATTEMPT,
        SEQUENCE,
        ERROR_CHANNEL,
        REPLY_CHANNEL,
        SEND_TO_DESTINATION,
        JSON_HEADER_TYPES,
    }
)
"""Headers that steer a send or a dispatch in this process and mean nothing to whoever receives the message."""

# Ids have to be unique, not secret, and `uuid.uuid4` costs more than everything else about a message.
_random = Random()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_random.seed)


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
    def id(self) -> str:
        """This message's identity, a UUID's text: made here, or what the sender stamped."""
        made = self._values.get(ID)
        if made is None:
            made = self._values[ID] = new_id()
        return made if type(made) is str else str(made)

    @property
    def timestamp(self) -> int:
        """When the message was made, in milliseconds since 1970."""
        made = self._values.get(TIMESTAMP)
        if not isinstance(made, int):
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

    def with_content_type(self, content_type: str) -> "MessageHeaders":
        """The headers of the same message, id and timestamp included, that say this content type."""
        values = self._completed()
        if values.get(CONTENT_TYPE) == content_type:
            return self
        return MessageHeaders.adopt({**values, CONTENT_TYPE: content_type})

    def annotated(self, name: str, value: object) -> "MessageHeaders":
        """The headers of the same message, id and timestamp included, with one more."""
        return MessageHeaders.adopt({**self._completed(), name: value})

    def without(self, *names: str) -> "MessageHeaders":
        """The headers of the same message, id and timestamp included, that lack these."""
        values = self._completed()
        return MessageHeaders.adopt({name: value for name, value in values.items() if name not in names})

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

    def get(self, key: str, default: object = None, /) -> object:
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
        values = self._values
        if ID not in values:
            values[ID] = new_id()
        if TIMESTAMP not in values:
            values[TIMESTAMP] = current_clock().now_ms()
        return values

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


def new_id() -> str:
    """A new random UUID (version 4, RFC 4122) as text."""
    digits = f"{_random.getrandbits(128):032x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"
