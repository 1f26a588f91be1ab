"""How a consumer binding delivers, in terms every binder shares.

Each binder has its own extended properties (``spring.cloud.stream.<type>.bindings.<name>.consumer.*``). Their
meaning is translated once into a :class:`Delivery`; attempts, the in-memory binder and the capability check
read only that.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Final, TypeAlias

from streamkit.binder.capabilities import Capability, Requirement
from streamkit.binder.settlement import Retry
from streamkit.config.settings_model import SettingsModel
from streamkit.messaging.message import Message

__all__ = [
    "DEFAULT_BATCH_SIZE",
    "DEFAULT_DELAY_LEVELS",
    "ConsumerModel",
    "Delivery",
    "ExtendedConsumerProperties",
    "ExtendedProducerProperties",
    "ProducerModel",
    "StartPosition",
    "parse_delay_levels",
]


def parse_delay_levels(text: str) -> tuple[timedelta, ...]:
    """Return the delays of a table such as ``1s 5s 10s 30s 1m``.

    Raises:
        ValueError: An entry is no number with one of the units s, m, h, d.
    """
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    try:
        return tuple(timedelta(seconds=int(item[:-1]) * units[item[-1]]) for item in text.split())
    except (KeyError, ValueError):
        raise ValueError(f"{text!r} is no table of delays: expected entries such as 1s 10m 2h") from None


DEFAULT_DELAY_LEVELS: Final = parse_delay_levels("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h")
"""The 18 delay levels of RocketMQ's ``messageDelayLevel``; level 1 is the first."""

DEFAULT_BATCH_SIZE: Final = 32

_FIRST_REDELIVERY_LEVEL: Final = 3
_CONCURRENT_REDELIVERIES: Final = 16


class StartPosition(Enum):
    """Where a group that is new to a destination starts."""

    LATEST = "latest"
    EARLIEST = "earliest"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, slots=True)
class Delivery:
    """The portable meaning of a consumer binding's extended properties.

    Attributes:
        ordered: One call in flight per partition; a failing message holds back those behind it.
        broadcast: Every member receives every message; nothing is redelivered.
        max_reconsume_times: Redeliveries before the dead letter; ``None`` or negative is the default of the
            mode: 16 when concurrent, without bound when ordered.
        redelivery_level: Concurrent mode: ``0`` follows the table (level 3 + redeliveries so far), a positive
            number takes that level each time, a negative one sends to the dead letter at once.
        suspend: Ordered mode: the pause before a failed message is tried again.
        consume_timeout: A message not settled by then is retried; ``None`` waits for ever.
        tags: ``a||b``, or ``None`` for every message.
        sql: An SQL92 expression over the headers, or ``None``.
        start: Where a new group begins.
        start_time_ms: For :attr:`StartPosition.TIMESTAMP`, milliseconds since the epoch.
        batch_size: In batch mode: how many messages are delivered at once, at most.
        delay_levels: The table that levels refer to.
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
    start_time_ms: int | None = None
    batch_size: int = DEFAULT_BATCH_SIZE
    delay_levels: Sequence[timedelta] = DEFAULT_DELAY_LEVELS

    @property
    def redelivery_limit(self) -> int | None:
        """How many redeliveries come before the dead letter; ``None`` is without bound."""
        if self.broadcast:
            return 0
        if self.max_reconsume_times is not None and self.max_reconsume_times >= 0:
            return self.max_reconsume_times
        return None if self.ordered else _CONCURRENT_REDELIVERIES

    def level_delay(self, level: int) -> timedelta:
        """Return the delay of ``level``; a level above the table is its last one."""
        if level <= 0:
            return timedelta(0)
        return self.delay_levels[min(level, len(self.delay_levels)) - 1]

    def redelivery_delay(self, redeliveries: int) -> timedelta:
        """Return the pause before the next delivery, after ``redeliveries`` redeliveries so far."""
        if self.ordered:
            return self.suspend
        level = self.redelivery_level if self.redelivery_level > 0 else _FIRST_REDELIVERY_LEVEL + redeliveries
        return self.level_delay(level)

    def pause_before(self, retry: Retry, redeliveries: int) -> float:
        """Return the seconds before the next delivery: what ``retry`` says, else :meth:`redelivery_delay`."""
        after = self.redelivery_delay(redeliveries) if retry.after is None else retry.after
        return after.total_seconds()


class ExtendedConsumerProperties(SettingsModel):
    """A binder's own settings of one consumer binding; subclass it and say what they mean.

    Read from ``spring.cloud.stream.<type>.default.consumer.*`` and, stronger,
    ``spring.cloud.stream.<type>.bindings.<name>.consumer.*``.
    """

    @property
    def starts(self) -> bool:
        """Whether the consumer starts with the application; where not, it can be started by hand."""
        return True

    def delivery(self) -> Delivery:
        """Return what these settings mean in portable terms."""
        return Delivery()

    def requirements(self) -> Iterable[Requirement]:
        """Return what these settings ask of the binder."""
        delivery = self.delivery()
        if delivery.ordered:
            yield Requirement(Capability.ORDER, ("orderly", "push.orderly", "ordered"))
        if delivery.broadcast:
            yield Requirement(Capability.BROADCAST, ("broadcasting", "message-model", "broadcast"))
        if delivery.sql:
            yield Requirement(Capability.SQL, ("sql", "subscription"))
        elif delivery.tags and delivery.tags != "*":
            yield Requirement(Capability.TAG, ("tags", "subscription"))


@dataclass(frozen=True, slots=True)
class TransactionTerms:
    """The portable meaning of a transactional producer binding's extended properties.

    Attributes:
        group: The producer group, where the settings name one.
        listener: The name under which its listener was registered, where the settings name one.
        asked_by: The settings that ask for transactions, below the extended prefix of the binding.
    """

    group: str | None
    listener: str | None
    asked_by: tuple[str, ...]


class ExtendedProducerProperties(SettingsModel):
    """A binder's own settings of one producer binding; subclass it and say what they ask.

    Read from ``spring.cloud.stream.<type>.default.producer.*`` and, stronger,
    ``spring.cloud.stream.<type>.bindings.<name>.producer.*``.
    """

    def transaction(self) -> TransactionTerms | None:
        """Return what these settings say of transactions, or ``None`` where messages are sent without."""
        return None

    @property
    def message_key(self) -> "Callable[[Message[object]], object] | None":
        """What makes a message's key, out of the message as it was sent; it wins over the header."""
        return None

    @property
    def message_selector(self) -> str | None:
        """The name of what chooses a message's partition by looking at the whole message; it needs no key."""
        return None

    def requirements(self) -> Iterable[Requirement]:
        """Return what these settings ask of the binder."""
        terms = self.transaction()
        if terms is not None:
            yield Requirement(Capability.TRANSACTION, terms.asked_by)


ConsumerModel: TypeAlias = type[ExtendedConsumerProperties]
ProducerModel: TypeAlias = type[ExtendedProducerProperties]
