"""Settings of the in-memory binder: its own, and the extended properties of bindings with `stands-in-for=inmemory`."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated

from binders.inmemory.broker import CHECK_INTERVAL, CHECK_MAX
from streamkit.binder.delivery import (
    DEFAULT_BATCH_SIZE,
    DEFAULT_POLL_TIMEOUT,
    Delivery,
    ExtendedConsumerProperties,
    ExtendedProducerProperties,
    StartPosition,
    TransactionTerms,
)
from streamkit.chaos import Chaos
from streamkit.config.durations import Milliseconds, Minutes, Positive, Seconds
from streamkit.config.setting_values import Before
from streamkit.config.settings_model import SettingsModel, setting
from streamkit.messaging import headers as portable


def _chaos(value: object) -> object:
    return Chaos.parse(value) if isinstance(value, str) else value


class InMemoryBinderProperties(SettingsModel):
    """`spring.cloud.stream.inmemory.binder.*`."""

    stands_in_for: str = "rocketmq"
    """The binder type whose binding settings are read, so that one setting moves an application into memory and back.
    `inmemory` reads `spring.cloud.stream.inmemory.bindings.*`."""
    broker: str | None = None
    """The name of a broker that applications in this process share. Unset: the binder has its own broker."""
    partitions: Annotated[int, setting(ge=1)] = 4
    """The number of partitions of a destination."""
    retention: Annotated[int, setting(ge=0)] = 10_000
    """The number of messages that a partition keeps for groups that join later and start at the beginning."""
    message_delay_level: str | None = None
    """The table of delays, such as `1s 5s 10s`. Unset: the table of the binder that this one stands in for."""
    transaction_check_interval: Annotated[Seconds, Positive] = CHECK_INTERVAL
    """The time before the first check of an unfinished transaction, and between checks."""
    transaction_check_max: Annotated[int, setting(ge=1)] = CHECK_MAX
    """The most checks of a transaction. After that its message goes to `TRANS_CHECK_MAX_TIME_TOPIC`."""
    chaos: Annotated[Chaos | None, Before(_chaos)] = None
    """Faults for tests: `seed=7,duplicate=1%,reorder=2%,drop-connection=0.5%,delay=20ms`."""
    strict: bool = False
    """Whether a stop raises an error if there are messages that no consumer has read."""


class InMemoryConsumerProperties(ExtendedConsumerProperties):
    """`spring.cloud.stream.inmemory.bindings.<name>.consumer.*`, when the binder has no `stands-in-for`."""

    ordered: bool = False
    """Whether each partition has one call at a time, and a failing message holds back those behind it."""
    broadcast: bool = False
    """Whether every member receives every message. Nothing is redelivered then."""
    max_reconsume_times: int | None = None
    """The redeliveries before a message becomes a dead letter. Unset or negative: 16, or without limit if ordered."""
    redelivery_level: int = 0
    """The delay of redeliveries. 0: from the table, longer each time. A positive number: always that entry. A negative
    one: a dead letter at once."""
    suspend: Milliseconds = timedelta(seconds=1)
    """If ordered: the pause before a failed message is delivered again."""
    consume_timeout: Minutes = timedelta(minutes=15)
    """A message that is not settled in this time is delivered again."""
    tags: str | None = None
    """Receive only messages with one of these tags: `a||b`."""
    sql: str | None = None
    """An SQL filter over headers. This binder refuses it."""
    batch_size: Annotated[int, setting(ge=1)] = DEFAULT_BATCH_SIZE
    """In batch mode: the largest number of messages in a list."""
    start: StartPosition | None = None
    """Where a new group begins. Unset: `earliest`, for an anonymous group `latest`."""
    poll_timeout: Annotated[Milliseconds, Positive] = DEFAULT_POLL_TIMEOUT
    """How long a poll of a polled consumer waits for a message."""

    def delivery(self) -> Delivery:
        """Return the portable meaning of these settings."""
        return Delivery(
            ordered=self.ordered,
            broadcast=self.broadcast,
            max_reconsume_times=self.max_reconsume_times,
            redelivery_level=self.redelivery_level,
            suspend=self.suspend,
            consume_timeout=self.consume_timeout,
            tags=self.tags,
            sql=self.sql,
            start=self.start or StartPosition.EARLIEST,
            own_start=self.start or StartPosition.LATEST,
            batch_size=self.batch_size,
            poll_timeout=self.poll_timeout,
        )


class InMemoryProducerProperties(ExtendedProducerProperties):
    """`spring.cloud.stream.inmemory.bindings.<name>.producer.*`, when the binder has no `stands-in-for`."""

    transactional: bool = False
    """Whether messages are sent in local transactions, which the group's transaction listener checks."""
    group: str | None = None
    """The producer group of the transactions. Unset: the destination."""
    transaction_listener: str | None = None
    """The name of a registered transaction listener, instead of the group's."""

    @property
    def header_spellings(self) -> Mapping[str, str]:
        """RocketMQ's own names of the portable headers for tags and keys."""
        return {"TAGS": portable.TAGS, "KEYS": portable.KEY}

    def transaction(self) -> TransactionTerms | None:
        """Return the portable meaning of the settings for transactions, or None if the binding has none."""
        if not self.transactional:
            return None
        return TransactionTerms(self.group, self.transaction_listener, ("transactional",))
