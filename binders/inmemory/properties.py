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
    """The type whose extended properties of bindings are read, so that an application can be moved here and
    back by one setting; `inmemory` reads `spring.cloud.stream.inmemory.bindings.*`."""
    broker: str | None = None
    """The name of a broker that applications of this process share; without one the binder has its own."""
    partitions: Annotated[int, setting(ge=1)] = 4
    """How many partitions a destination has."""
    retention: Annotated[int, setting(ge=0)] = 10_000
    """How many messages a partition keeps for groups that come later and start at the beginning."""
    message_delay_level: str | None = None
    """The table of delays, such as `1s 5s 10s`; unset: the table of the binder that it stands in for."""
    transaction_check_interval: Annotated[Seconds, Positive] = CHECK_INTERVAL
    """How long after it began, and then how often, a transaction that has not ended is asked about."""
    transaction_check_max: Annotated[int, setting(ge=1)] = CHECK_MAX
    """How often at most; then its message goes to `TRANS_CHECK_MAX_TIME_TOPIC`."""
    chaos: Annotated[Chaos | None, Before(_chaos)] = None
    """Faults for tests: `seed=7,duplicate=1%,reorder=2%,drop-connection=0.5%,delay=20ms`."""
    strict: bool = False
    """Whether stopping is an error while there are messages that no consumer has read."""


class InMemoryConsumerProperties(ExtendedConsumerProperties):
    """`spring.cloud.stream.inmemory.bindings.<name>.consumer.*`, when the binder has no `stands-in-for`."""

    ordered: bool = False
    """One call in flight per partition; a failing message holds back those behind it."""
    broadcast: bool = False
    """Every member receives every message; nothing is redelivered."""
    max_reconsume_times: int | None = None
    """Redeliveries before the dead letter; unset or negative: 16, and without bound when ordered."""
    redelivery_level: int = 0
    """0 follows the table, a positive number takes that entry each time, a negative one gives up at once."""
    suspend: Milliseconds = timedelta(seconds=1)
    """Ordered: the pause before a failed message is tried again."""
    consume_timeout: Minutes = timedelta(minutes=15)
    """A message not settled by then is retried."""
    tags: str | None = None
    """`a||b`: only messages with one of these tags."""
    sql: str | None = None
    """Only messages whose headers match: asked for, it is refused."""
    batch_size: Annotated[int, setting(ge=1)] = DEFAULT_BATCH_SIZE
    """In batch mode: the largest number of messages in a list."""
    start: StartPosition | None = None
    """Where a new group begins: `latest` or `earliest`; unset: earliest, and latest for an anonymous one."""
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
    """Messages are sent within local transactions, which a transaction listener of the group answers for."""
    group: str | None = None
    """The producer group of the transactions; unset: the destination."""
    transaction_listener: str | None = None
    """The name of the registered listener, in place of the one of the group."""

    @property
    def header_spellings(self) -> Mapping[str, str]:
        """RocketMQ's own names of the portable headers for tags and keys."""
        return {"TAGS": portable.TAGS, "KEYS": portable.KEY}

    def transaction(self) -> TransactionTerms | None:
        """Return the portable meaning of the settings for transactions, or None if the binding has none."""
        if not self.transactional:
            return None
        return TransactionTerms(self.group, self.transaction_listener, ("transactional",))
