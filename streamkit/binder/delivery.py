"""The portable meaning of a binding's extended properties: order, redeliveries, delays, subscription and transactions.

Each binder has its own extended properties (``spring.cloud.stream.<type>.bindings.<name>.consumer.*``). Their model
translates them into a :class:`Delivery`. The attempts, the in-memory binder and the check of capabilities read only the
:class:`Delivery`.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import timedelta
from enum import Enum
from typing import Final, TypeAlias

import msgspec

from streamkit.binder.capabilities import Capability, Requirement
from streamkit.binder.dead_letter import Origin, cause_headers, origin_headers
from streamkit.config.settings_model import SettingsModel
from streamkit.messaging.message import Message
from streamkit.settlement import Reject, Requeue

__all__ = [
    "DEFAULT_BATCH_SIZE",
    "DEFAULT_DELAY_LEVELS",
    "DEFAULT_POLL_TIMEOUT",
    "ConsumerModel",
    "Delivery",
    "Effect",
    "ExtendedConsumerProperties",
    "ExtendedProducerProperties",
    "ProducerModel",
    "StartPosition",
    "parse_delay_levels",
]


def parse_delay_levels(text: str) -> tuple[timedelta, ...]:
    """Return the delays of a table such as ``1s 5s 10s 30s 1m``.

    Raises:
        ValueError: An entry is not a whole number followed by one of the units s, m, h and d.
    """
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    try:
        return tuple(timedelta(seconds=int(item[:-1]) * units[item[-1]]) for item in text.split())
    except (KeyError, ValueError):
        raise ValueError(f"{text!r} is not a list of delays: expected entries such as 1s 10m 2h") from None


DEFAULT_DELAY_LEVELS: Final = parse_delay_levels("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h")
"""The 18 delay levels of RocketMQ's ``messageDelayLevel``; level 1 is the first."""

DEFAULT_BATCH_SIZE: Final = 32
DEFAULT_POLL_TIMEOUT: Final = timedelta(seconds=5)

_BINDING: Final = "spring.cloud.stream.bindings.<name>"
_FIRST_REDELIVERY_LEVEL: Final = 3
_CONCURRENT_REDELIVERIES: Final = 16


class StartPosition(Enum):
    """The position at which a new group of a destination starts."""

    LATEST = "latest"
    """The end."""
    EARLIEST = "earliest"
    """The first message that is kept."""
    TIMESTAMP = "timestamp"
    """The first message that was stored at a given time or later."""
    LAST_OFFSET = "last-offset"
    """The end, but the first message of a partition of which no message was removed yet: RocketMQ's rule."""


class Delivery(msgspec.Struct, frozen=True):
    """The portable meaning of a consumer binding's extended properties.

    Attributes:
        ordered: Whether each partition has one call in flight, so that a failed message holds back later messages.
        broadcast: Whether every member receives every message; no message is redelivered then.
        max_reconsume_times: The number of redeliveries before a dead letter; ``None`` or a negative number means 16 in
            concurrent mode and no limit in ordered mode.
        redelivery_level: In concurrent mode, the delay level of redeliveries: ``0`` means level 3 for the first and the
            next level for each further redelivery, a positive number means this level each time, and a negative number
            means a dead letter without redelivery.
        suspend: In ordered mode, the pause before a redelivery.
        consume_timeout: The time in which a message has to be settled before it is redelivered; ``None`` is no limit.
        tags: The tags of the subscription, such as ``a||b``, or ``None`` for every message.
        sql: The SQL92 expression of the subscription over the headers, or ``None``.
        start: The position at which a new group starts.
        own_start: The position at which a member with a group of its own starts: an anonymous or a broadcasting member.
        start_time_ms: For :attr:`StartPosition.TIMESTAMP`, milliseconds since the epoch.
        batch_size: In batch mode, the largest number of messages in one batch.
        delay_levels: The table of delay levels; level 1 is the first entry.
        poll_timeout: How long a poll of a polled consumer waits for a message.
    """

    ordered: bool = False
    broadcast: bool = False
    max_reconsume_times: int | None = None
    redelivery_level: int = 0
    suspend: timedelta = timedelta(seconds=1)
    consume_timeout: timedelta | None = timedelta(minutes=15)
    tags: str | None = None
    sql: str | None = None
    start: StartPosition = StartPosition.LATEST
    own_start: StartPosition = StartPosition.LATEST
    start_time_ms: int | None = None
    batch_size: int = DEFAULT_BATCH_SIZE
    delay_levels: Sequence[timedelta] = DEFAULT_DELAY_LEVELS
    poll_timeout: timedelta = DEFAULT_POLL_TIMEOUT

    @property
    def redelivery_limit(self) -> int | None:
        """The number of redeliveries before a dead letter; ``None`` is no limit."""
        if self.broadcast:
            return 0
        if self.max_reconsume_times is not None and self.max_reconsume_times >= 0:
            return self.max_reconsume_times
        return None if self.ordered else _CONCURRENT_REDELIVERIES

    def level_delay(self, level: int) -> timedelta:
        """Return the delay of a level: zero for level 0, the table's last entry for a level beyond the table."""
        if level <= 0:
            return timedelta(0)
        return self.delay_levels[min(level, len(self.delay_levels)) - 1]

    def redelivery_delay(self, redeliveries: int) -> timedelta:
        """Return the pause before the next delivery of a message that was redelivered ``redeliveries`` times."""
        if self.ordered:
            return self.suspend
        level = self.redelivery_level if self.redelivery_level > 0 else _FIRST_REDELIVERY_LEVEL + redeliveries
        return self.level_delay(level)

    def pause_before(self, requeue: Requeue, redeliveries: int) -> float:
        """Return the seconds until the next delivery: those of ``requeue.after``, else of :meth:`redelivery_delay`."""
        after = self.redelivery_delay(redeliveries) if requeue.after is None else requeue.after
        return after.total_seconds()


class Effect(msgspec.Struct, frozen=True):
    """An effect of extended properties on which messages are delivered, to whom and how, in portable terms.

    The settings of two binder types mean the same if the values of their effects are equal.

    Attributes:
        name: The effect, as errors name it; each binder type uses the same name for the same effect.
        value: What the settings ask for, or ``None`` if they ask for nothing.
        properties: The possible names of the setting below the extended prefix of the binding.
        capability: The capability of the binder that the effect requires, or ``None``.
        instead: What an application does on a system that cannot have the effect.
    """

    name: str
    value: Hashable
    properties: tuple[str, ...]
    capability: Capability | None = None
    instead: str = "give this binding a binder of the setting's type"


def _requirements(effects: Iterable[Effect]) -> Iterable[Requirement]:
    for effect in effects:
        if effect.capability is not None and effect.value is not None:
            yield Requirement(effect.capability, effect.properties)


class ExtendedConsumerProperties(SettingsModel):
    """The base of a binder's extended consumer properties; a subclass has the fields and overrides `delivery`.

    They are read from ``spring.cloud.stream.<type>.bindings.<name>.consumer.*``, which overrides
    ``spring.cloud.stream.<type>.default.consumer.*``.
    """

    @property
    def starts(self) -> bool:
        """Whether the consumer starts with the application; otherwise it is started by hand."""
        return True

    def delivery(self) -> Delivery:
        """Return the portable meaning of these settings."""
        return Delivery()

    def dead_letter_topic(self, destination: str, group: str | None) -> str | None:
        """Return the destination of a binding's dead letters, or ``None`` if rejected messages are lost.

        Args:
            destination: The destination of the binding.
            group: Its group, or None for an anonymous group.
        """
        return None if group is None else f"%DLQ%{group}"

    @property
    def dead_letter_partitions(self) -> int | None:
        """The number of partitions of that destination; ``None`` for as many as the binding's destination has."""
        return 1

    def dead_letter_headers(self, origin: Origin, rejected: Reject) -> Mapping[str, object]:
        """Return the headers that a dead letter has in addition to those of its message, as a receiver sees them.

        Args:
            origin: Where the message was.
            rejected: The rejection.
        """
        return {**origin_headers(origin), **cause_headers(rejected)}

    def effects(self) -> Iterable[Effect]:
        """Return the effects of these settings on deliveries."""
        delivery = self.delivery()
        condition = "select the messages with the condition of a listener"
        yield Effect("the order", delivery.ordered or None, ("orderly", "push.orderly", "ordered"), Capability.ORDER)
        yield Effect(
            "the broadcasting",
            delivery.broadcast or None,
            ("broadcasting", "message-model", "broadcast"),
            Capability.BROADCAST,
            "give each instance a group of its own",
        )
        yield Effect("the SQL filter", delivery.sql or None, ("sql", "subscription"), Capability.SQL, condition)
        yield Effect(
            "the selection by tags", _selected_tags(delivery), ("tags", "subscription"), Capability.TAG, condition
        )
        yield Effect(
            "the place where a new group begins",
            _start_of(delivery),
            ("consume-from-where", "start-offset", "start"),
        )
        yield Effect(
            "the start by hand",
            None if self.starts else True,
            ("enabled",),
            instead=f"set {_BINDING}.consumer.auto-startup=false",
        )

    def requirements(self) -> Iterable[Requirement]:
        """Return the capabilities that these settings require of the binder."""
        return _requirements(self.effects())


def _start_of(delivery: Delivery) -> tuple[StartPosition, int | None]:
    """Return the start of a new group in a form that compares between binder types."""
    if delivery.start is StartPosition.TIMESTAMP:
        return delivery.start, delivery.start_time_ms
    return StartPosition.LATEST if delivery.start is StartPosition.LAST_OFFSET else delivery.start, None


def _selected_tags(delivery: Delivery) -> frozenset[str] | None:
    tags = frozenset(filter(None, (tag.strip() for tag in (delivery.tags or "*").split("||"))))
    return None if delivery.sql or not tags or "*" in tags else tags


class TransactionTerms(msgspec.Struct, frozen=True):
    """The portable meaning of a transactional producer binding's extended properties.

    Attributes:
        group: The producer group of the settings, or None.
        listener: The registered name of the transaction listener of the settings, or None.
        asked_by: The settings that make the binding transactional, below the extended prefix of the binding.
    """

    group: str | None
    listener: str | None
    asked_by: tuple[str, ...]


class ExtendedProducerProperties(SettingsModel):
    """The base of a binder's extended producer properties; a subclass has the fields and overrides `transaction`.

    They are read from ``spring.cloud.stream.<type>.bindings.<name>.producer.*``, which overrides
    ``spring.cloud.stream.<type>.default.producer.*``.
    """

    def transaction(self) -> TransactionTerms | None:
        """Return the portable meaning of the settings for transactions, or ``None`` if the binding has none."""
        return None

    @property
    def message_key(self) -> "Callable[[Message[object]], object] | None":
        """A function that returns the key of a message before conversion, or ``None``; it overrides the header."""
        return None

    @property
    def sends_header(self) -> "Callable[[str], bool] | None":
        """A function that returns whether a header is sent, by its name; ``None`` if all are."""
        return None

    @property
    def header_spellings(self) -> Mapping[str, str]:
        """The system's own names of headers that set a portable header."""
        return {}

    @property
    def topic_header(self) -> str | None:
        """The name of the header that may name a topic in place of the destination, or ``None``."""
        return None

    @property
    def largest_payload(self) -> int | None:
        """The largest payload in bytes; ``None`` if there is no limit. A larger one fails at the sender."""
        return None

    @property
    def message_selector(self) -> str | None:
        """The registered name of a function that chooses the partition from the whole message, or ``None``."""
        return None

    def unconfirmed_by(self) -> Sequence[str]:
        """Return the settings due to which a send returns before the system has stored the message."""
        return ()

    def effects(self) -> Iterable[Effect]:
        """Return the effects of these settings on deliveries."""
        terms = self.transaction()
        yield Effect(
            "the local transaction",
            None if terms is None else True,
            ("transactional", "producer-type") if terms is None else terms.asked_by,
            Capability.TRANSACTION,
        )
        yield Effect(
            "the choice of the partition",
            self.message_selector,
            ("message-queue-selector",),
            instead=f"set {_BINDING}.producer.partition-selector-name",
        )

    def requirements(self) -> Iterable[Requirement]:
        """Return what these settings ask of the binder."""
        return _requirements(self.effects())


ConsumerModel: TypeAlias = type[ExtendedConsumerProperties]
ProducerModel: TypeAlias = type[ExtendedProducerProperties]
