"""Message headers: the portable names, and the immutable mapping that carries them."""

import os
from collections.abc import Callable, ItemsView, Iterator, Mapping
from random import Random
from threading import RLock
from types import NoneType
from typing import TYPE_CHECKING, Self, TypeVar

from streamkit.clock import current_clock

V = TypeVar("V")

ID = "id"
TIMESTAMP = "timestamp"
CONTENT_TYPE = "contentType"
ERROR_CHANNEL = "errorChannel"
REPLY_CHANNEL = "replyChannel"

KEY = "streamkit_key"
"""str or list of str: the business key by which a broker indexes the message."""
TAGS = "streamkit_tags"
"""str: the tags by which subscriptions filter."""
DELAY = "streamkit_delay"
"""timedelta, or a number of seconds: deliver the message that much later."""
DELIVER_AT = "streamkit_deliver_at"
"""An aware datetime, or milliseconds since 1970: deliver the message at that time."""
DELAY_LEVEL = "DELAY"
"""int or its text: deliver after that entry of the broker's table of delays, counted from 1."""
PARTITION = "scst_partition"
"""int: the partition chosen for an outgoing message, or the one an incoming message came from."""
PARTITION_OVERRIDE = "scst_partitionOverride"
"""int: the partition, instead of the one that the binding would choose."""
DELIVERY_ATTEMPT = "deliveryAttempt"
"""int: how often the listener has been called with this message, this time included."""
SEND_TO_DESTINATION = "spring.cloud.stream.sendto.destination"
"""str: the binding or destination of this result, instead of the output's."""
TRANSACTION_ID = "TRANSACTION_ID"
"""str: identifies the local transaction of a message for a checker; generated if the sender sets none."""
TRANSACTIONAL_ARG = "TRANSACTIONAL_ARG"
"""Any object: the argument of a transaction listener's `execute_local_transaction`; it is not sent."""
TRANSACTIONAL_ARGS = "TRANSACTIONAL_ARGS"
"""The same, in the spelling of Spring Cloud Alibaba's second generation."""
TRANSACTION = "streamkit_transaction"
"""TransactionRequest: asks the binding to begin a transaction with the message; it is not sent."""
RECEIPT = "streamkit_receipt"
"""SendReceipt: records whether the message was stored or kept on the sender's side; it is not sent."""
SEQUENCE = "streamkit_sequence"
"""int: the place of an incoming message among all messages of its destination, if the binder knows it."""
JSON_HEADER_TYPES = "spring_json_header_types"
"""JSON object {header: Java class}: the classes of headers that are not text, as Spring's header mappers send them."""

CORRELATION_ID = "correlationId"
"""Identifies messages that belong together, such as the parts of a split message."""
SEQUENCE_NUMBER = "sequenceNumber"
"""int: the place of a part among all parts, from 1."""
SEQUENCE_SIZE = "sequenceSize"
"""int: the number of parts."""
SOURCE_DATA = "sourceData"
"""Message: on an error message, the failed message as the binder received it."""

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
        RECEIPT,
        JSON_HEADER_TYPES,
    }
)
"""Headers that control a send or a dispatch in this process and have no meaning for the receiver of the message."""

# Ids have to be unique, not secret, and `uuid.uuid4` costs more than everything else about a message.
_random = Random()
_random_bits = _random.getrandbits
# Held while headers begin to share their id and timestamp, or make one of their own: several threads may derive headers
# from the same ones. It is reentrant because a finalizer that runs meanwhile may do so, too.
_sharing = RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_sharing.acquire, after_in_parent=_sharing.release, after_in_child=_sharing.release)
    os.register_at_fork(after_in_child=_random.seed)


class MessageHeaders(Mapping[str, object]):
    """The headers of one message; they never change.

    Every message has an `id` and a `timestamp`, but most are never read. Both are made when they are first read, and
    stay the same from then on, in whatever threads they are read.
    """

    # Invariant: nothing outside changes the dictionary; the only later change is that `id` and `timestamp` appear.
    __slots__ = ("_shared", "_values")

    if TYPE_CHECKING:

        @property
        def _present(self) -> Mapping[str, object]:
            """The headers, with `id` and `timestamp` only if these were made or set already.

            Only for modules of the framework, which must not change them.
            """
            ...

    def __init__(self, values: Mapping[str, object] | None = None) -> None:
        self._values: dict[str, object] = {} if values is None else dict(values)
        # The id and the timestamp, once they are made; None as long as no other headers share them.
        self._shared: dict[str, object] | None = None

    @classmethod
    def adopt(cls, values: dict[str, object]) -> Self:
        """Return headers that use `values` without a copy: the caller must not change it any more."""
        headers = cls.__new__(cls)
        headers._values = values
        headers._shared = None
        return headers

    def sharing(self, values: dict[str, object], *, now_ms: int | None = None) -> "MessageHeaders":
        """Return headers for the same message that share its id and timestamp, even if these are made later.

        Args:
            values: The headers, used without a copy; the caller must not change them. An id or timestamp in them stays
                their own.
            now_ms: The timestamp in milliseconds since 1970, if the message has none yet; None makes it when it is
                first read.
        """
        shared = self._shared
        if shared is None:
            with _sharing:
                made: dict[str, object] = {}
                shared = self._shared
                if shared is None:
                    # Complete before other threads see it: they would make another id. No finalizer can derive headers
                    # from these in between, because nothing is called and no object is made.
                    own = self._values
                    if ID in own:
                        made[ID] = own[ID]
                    if TIMESTAMP in own:
                        made[TIMESTAMP] = own[TIMESTAMP]
                    self._shared = shared = made
        if now_ms is not None and TIMESTAMP not in shared:
            shared.setdefault(TIMESTAMP, now_ms)
        headers = MessageHeaders.__new__(MessageHeaders)
        headers._values = values
        headers._shared = shared
        return headers

    @property
    def id(self) -> str:
        """The message's id, a UUID as text: made here, or set by the sender."""
        made = self._values.get(ID)
        if made is None:
            made = self._made_id()
        return made if type(made) is str else str(made)

    @property
    def timestamp(self) -> int:
        """The time at which the message was made, in milliseconds since 1970."""
        made = self._values.get(TIMESTAMP)
        if not isinstance(made, int):
            made = self._made_timestamp()
        return made

    @property
    def content_type(self) -> str | None:
        """The `contentType` header as text, or None."""
        value = self._values.get(CONTENT_TYPE)
        return value if value is None or type(value) is str else str(value)

    def typed(self, name: str, type_: type[V]) -> V | None:
        """Return the header `name`, or None.

        Raises:
            TypeError: The header has another type.
        """
        value = self._values.get(name)
        if isinstance(value, (type_, NoneType)):
            return value
        raise TypeError(f"header {name!r} is the {type(value).__name__} {value!r}, not of type {type_.__name__}")

    def with_content_type(self, content_type: str) -> "MessageHeaders":
        """Return these headers, id and timestamp included, with another content type."""
        values = self._values
        if values.get(CONTENT_TYPE) == content_type:
            return self
        return self.sharing({**values, CONTENT_TYPE: content_type})

    def annotated(self, name: str, value: object) -> "MessageHeaders":
        """Return these headers, id and timestamp included, with one more header."""
        values = self._values.copy()
        values[name] = value
        return self.sharing(values)

    def without(self, *names: str) -> "MessageHeaders":
        """Return these headers, id and timestamp included, without the named ones."""
        values = self._completed()
        return MessageHeaders.adopt({name: value for name, value in values.items() if name not in names})

    def copy_without(self, names: frozenset[str]) -> "MessageHeaders":
        """Return a copy for another message, without some headers.

        Args:
            names: The headers to leave out. They must contain `id` and `timestamp`, because the other message gets its
                own.
        """
        values = self._values.copy()
        for name in names.intersection(values):
            del values[name]
        return MessageHeaders.adopt(values)

    def user_values(self) -> dict[str, object]:
        """Return a new dictionary of all headers except `id` and `timestamp`."""
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
        """Return the header `key`, or `default`."""
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

    def items(self) -> ItemsView[str, object]:
        """Return a view of all headers."""
        return self._completed().items()

    def _completed(self) -> dict[str, object]:
        """Return all headers, with `id` and `timestamp` made."""
        values = self._values
        if ID not in values:
            self._made_id()
        if TIMESTAMP not in values:
            self._made_timestamp()
        return values

    def __reduce__(self) -> "tuple[Callable[[dict[str, object]], MessageHeaders], tuple[dict[str, object]]]":
        """Copy and pickle headers with their id and timestamp, which would be made anew in each copy otherwise."""
        return MessageHeaders.adopt, (self._completed().copy(),)

    # Several threads may make a value at once. `setdefault` is atomic, so all return the first one. Others may derive
    # headers meanwhile: `_shared` is read again under the lock, and a value that is set before they do is copied.

    def _made_id(self) -> object:
        shared = self._shared
        made = None if shared is None else shared.get(ID)
        if made is None:
            made = new_id()
            if shared is None:
                with _sharing:
                    shared = self._shared
                    if shared is None:
                        self._values[ID] = made = self._values.setdefault(ID, made) or made
                        return made
            made = shared.setdefault(ID, made) or made
        self._values[ID] = made
        return made

    def _made_timestamp(self) -> int:
        shared = self._shared
        made = None if shared is None else shared.get(TIMESTAMP)
        if not isinstance(made, int):
            made = current_clock().now_ms()
            if shared is None:
                with _sharing:
                    shared = self._shared
                    if shared is None:
                        return _set_timestamp(self._values, made)
            made = _set_timestamp(shared, made)
        self._values[TIMESTAMP] = made
        return made

    def __eq__(self, other: object) -> bool:
        """Compare all headers except `id` and `timestamp`."""
        if isinstance(other, MessageHeaders):
            return self.user_values() == other.user_values()
        if isinstance(other, Mapping):
            return dict(self) == dict(other)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]  # header values need not be hashable

    def __repr__(self) -> str:
        return f"MessageHeaders({self._values!r})"


if not TYPE_CHECKING:
    # Another name of the slot: it is read six times for each message, and a property takes ten times as long.
    MessageHeaders._present = MessageHeaders._values


def _set_timestamp(values: dict[str, object], made: int) -> int:
    """Set the timestamp unless there is one already; return the one that is set then."""
    known = values.setdefault(TIMESTAMP, made)
    if not isinstance(known, int):  # a header of the sender, which only has that name
        values[TIMESTAMP] = known = made
    return known


def new_id() -> str:
    """Return a new random UUID (version 4, RFC 4122) as text."""
    # xxxxxxxx-xxxx-4xxx-axxx-xxxxxxxxxxxx: 4 is the version, and a is one of the variant's four digits, binary 10xx.
    digits = f"{_random_bits(128):032x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"
