"""The RocketMQ settings of a consumer binding."""

from datetime import datetime, timedelta
from enum import Enum
from typing import Annotated, Final, TypeVar

from binders.rocket.properties import BindingProperties, PositiveMilliseconds
from rocket_remoting.wire.compression import DEFAULT_LIMIT
from streamkit.binder.delivery import Delivery, ExtendedConsumerProperties, StartPosition
from streamkit.config.durations import Milliseconds, Minutes, Positive
from streamkit.config.setting_limits import Accepted, NotInMemory
from streamkit.config.setting_values import After, Before, EntryError
from streamkit.config.settings_model import SettingsModel, setting

_POLL_TIMEOUT: Final = timedelta(seconds=5)

_NOT_PULLED: Final = "nothing is pulled, and a member has at most 1000 calls at once"

SQL_PREFIX: Final = "sql:"
MAX_BATCH_SIZE: Final = 1024
"""The largest batch, in messages, that Apache's clients allow."""

V = TypeVar("V")


class MessageModel(Enum):
    """Which members of a group receive a message: one member, or all."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


class ConsumeFromWhere(Enum):
    """The offset at which a new group begins."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class AllocateStrategy(Enum):
    """How the members of a group share a topic's queues."""

    AVERAGELY = "averagely"
    AVERAGELY_BY_CIRCLE = "averagely-by-circle"
    CONSISTENT_HASH = "consistent-hash"


_START: Final = {
    ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET: StartPosition.LAST_OFFSET,
    ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET: StartPosition.EARLIEST,
    ConsumeFromWhere.CONSUME_FROM_TIMESTAMP: StartPosition.TIMESTAMP,
}


class PushProperties(SettingsModel):
    """`consumer.push.*` of the second generation."""

    orderly: bool | None = None
    """The second generation's spelling of `orderly`. It takes precedence."""
    suspend_current_queue_time_millis: Milliseconds | None = None
    """The second generation's spelling of `suspend-current-queue-time-millis`. It takes precedence."""
    max_reconsume_times: int | None = setting(default=None, ge=-1)
    """The redeliveries before a message becomes a dead letter. Unset or -1: 16, or without limit if `orderly`."""
    delay_level_when_next_consume: int | None = setting(default=None, ge=-1)
    """The second generation's spelling of `delay-level-when-next-consume`. It takes precedence."""
    pull_threshold_for_topic: Annotated[int, NotInMemory(_NOT_PULLED)] = setting(default=-1, ge=-1)
    """The most messages cached for all queues of a topic. -1: only the limit of each queue applies."""
    pull_threshold_size_for_topic: Annotated[int, NotInMemory(_NOT_PULLED)] = setting(default=-1, ge=-1)
    """The same limit in MiB of bodies."""
    pull_interval: Milliseconds = timedelta(0)
    """The pause between two pulls of a queue."""
    consume_message_batch_max_size: int | None = setting(default=None, ge=1, le=MAX_BATCH_SIZE)
    """With `consumer.batch-mode`: the most messages in a list. Unset: `pull-batch-size`."""
    consume_timeout: Annotated[Minutes, Positive] = timedelta(minutes=15)
    """A message that is not settled in this time is delivered again."""


class PullProperties(SettingsModel):
    """`consumer.pull.*` of the second generation, for polled consumers."""

    poll_timeout_millis: Milliseconds | None = None
    """How long a poll waits for a message. Unset: `pull-timeout`, else 5s."""
    pull_threshold_for_all: Annotated[int, NotInMemory(_NOT_PULLED)] = setting(default=1000, ge=1)
    """While more messages than this wait for a poll, no queue is pulled."""
    pull_thread_nums: Annotated[int | None, Accepted("pulls need no threads")] = None
    topic_metadata_check_interval_millis: Annotated[
        int | None, Accepted("poll-name-server-interval says how often routes are looked up")
    ] = None
    consumer_timeout_millis_when_suspend: Annotated[
        int | None, Accepted("a pull waits as long as the client's own timeout")
    ] = None
    err_acknowledge: Annotated[
        str | None, Accepted("a failed message is rejected; raise Requeue to receive it again")
    ] = None


def _message_model(value: object) -> object:
    try:
        return MessageModel(value)
    except ValueError:
        # Spring Cloud Alibaba's binder logs the same sentence, for which its users search.
        raise ValueError(
            f"Property 'messageModel' was wrong. {value!r} is neither CLUSTERING nor BROADCASTING"
        ) from None


def _timestamp(text: str) -> str:
    _local_time(text)
    return text


class RocketConsumerProperties(ExtendedConsumerProperties, BindingProperties):
    """`spring.cloud.stream.rocketmq.bindings.<name>.consumer.*` and `….rocketmq.default.consumer.*`."""

    enabled: bool = True
    """Whether the consumer starts with the application."""
    orderly: bool = False
    """Whether each queue has one call at a time, and a failing message holds back those behind it."""
    broadcasting: bool = False
    """Whether every instance receives every message. Its position is kept under its address and index. Nothing is
    redelivered then."""
    message_model: Annotated[MessageModel, Before(_message_model)] = MessageModel.CLUSTERING
    """`BROADCASTING` is the same as `broadcasting=true`."""
    tags: str | None = None
    """Receive only messages with one of these tags: `a||b`."""
    sql: str | None = None
    """Receive only messages whose headers match this SQL expression. It overrides `tags`."""
    subscription: str | None = None
    """Tags (`a||b`) or an SQL expression (`sql:<expression>`). It overrides `tags` and `sql`."""
    delay_level_when_next_consume: int = setting(default=0, ge=-1)
    """Unless `orderly`: the delay level of redeliveries. 0: level 3 for the first, the next level for each further one.
    n: always level n. -1: a dead letter at once."""
    suspend_current_queue_time_millis: Milliseconds = timedelta(seconds=1)
    """With `orderly`: the pause before a failed message is delivered again."""
    allocate_message_queue_strategy: Annotated[
        AllocateStrategy, NotInMemory("the members of a group share the queues evenly, in ranges")
    ] = AllocateStrategy.AVERAGELY
    """How the group's members share the queues."""
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    """Where a new group begins."""
    consume_timestamp: Annotated[str, After(_timestamp)] | None = None
    """The time for CONSUME_FROM_TIMESTAMP, `yyyyMMddHHmmss` in local time. Unset: half an hour before the start."""
    pull_time_delay_mills_when_exception: Milliseconds = timedelta(seconds=1)
    """The pause after a failed pull."""
    pull_batch_size: int = setting(default=32, ge=1, le=4096)
    """The most messages that a pull asks for."""
    pull_threshold_for_queue: Annotated[int, NotInMemory(_NOT_PULLED)] = setting(default=1000, ge=1)
    """While more messages than this of a queue are cached, the queue is not pulled."""
    pull_threshold_size_for_queue: Annotated[int, NotInMemory(_NOT_PULLED)] = setting(default=100, ge=1)
    """The same limit in MiB of bodies as they are in memory. They are decompressed only while they are consumed."""
    max_decompressed_body_size: int = setting(default=DEFAULT_LIMIT, ge=1)
    """The most bytes of a body after decompression. A message with a larger body becomes a dead letter."""
    max_decompressed_size: int = setting(default=2 * DEFAULT_LIMIT, ge=1)
    """The most bytes of bodies over 256 KiB that are decompressed at the same time. It must be at least
    `max-decompressed-body-size`."""
    consume_max_span: Annotated[int, NotInMemory(_NOT_PULLED)] = setting(default=2000, ge=1)
    """Unless `orderly`: while the cached offsets of a queue span more than this, the queue is not pulled."""
    push: PushProperties = setting(default_factory=PushProperties)
    pull: PullProperties = setting(default_factory=PullProperties)
    group: Annotated[str | None, Accepted("the binding's own group is used")] = None
    trusted_packages: Annotated[tuple[str, ...], Accepted("headers never make classes")] = ()
    persist_consumer_offset_interval: PositiveMilliseconds | None = None
    """How often offsets are committed."""
    pull_timeout: Milliseconds | None = None
    """The first generation's spelling of `pull.poll-timeout-millis`."""
    from_store: Annotated[bool | None, Accepted("the broker always keeps the offsets of a group")] = None

    def _check(self) -> None:
        """Refuse bounds that the largest body does not fit into."""
        size, largest = self.max_decompressed_size, self.max_decompressed_body_size
        if size < largest:
            reason = f"{size} is smaller than max-decompressed-body-size, which is {largest}"
            raise EntryError("max_decompressed_size", reason)

    @property
    def poll_timeout(self) -> timedelta:
        """How long a poll waits for a message: the setting of either generation, else 5 s."""
        waits = (self.pull.poll_timeout_millis, self.pull_timeout, _POLL_TIMEOUT)
        return next(each for each in waits if each is not None)

    def delivery(self) -> Delivery:
        """Return these settings as the framework's `Delivery`; the second generation's spellings win."""
        push = self.push
        tags, sql = self._filter()
        start_time = None if self.consume_timestamp is None else _local_time(self.consume_timestamp)
        return Delivery(
            ordered=self.orderly if push.orderly is None else push.orderly,
            broadcast=self.broadcasting or self.message_model is MessageModel.BROADCASTING,
            max_reconsume_times=push.max_reconsume_times,
            redelivery_level=_first(push.delay_level_when_next_consume, self.delay_level_when_next_consume),
            suspend=_first(push.suspend_current_queue_time_millis, self.suspend_current_queue_time_millis),
            consume_timeout=push.consume_timeout,
            batch_size=push.consume_message_batch_max_size or min(self.pull_batch_size, MAX_BATCH_SIZE),
            tags=tags,
            sql=sql,
            start=_START[self.consume_from_where],
            own_start=self._own_start(),
            start_time_ms=None if start_time is None else int(start_time.timestamp() * 1000),
            poll_timeout=self.poll_timeout,
        )

    def _own_start(self) -> StartPosition:
        """Return where a member with a group of its own begins: an anonymous one always at the end."""
        start = _START[self.consume_from_where]
        broadcasts = self.broadcasting or self.message_model is MessageModel.BROADCASTING
        return start if broadcasts and start is not StartPosition.LAST_OFFSET else StartPosition.LATEST

    @property
    def starts(self) -> bool:
        """Whether the consumer starts with the application."""
        return self.enabled

    def _filter(self) -> tuple[str | None, str | None]:
        """Return tags and SQL expression; at most one of them is not None."""
        if self.subscription is None:
            return (None, self.sql) if self.sql else (self.tags, None)
        if self.subscription.startswith(SQL_PREFIX):
            return None, self.subscription.removeprefix(SQL_PREFIX)
        return self.subscription, None


def _first(*values: V | None) -> V:
    return next(value for value in values if value is not None)


def _local_time(text: str) -> datetime:
    try:
        return datetime.strptime(text, "%Y%m%d%H%M%S").astimezone()
    except ValueError:
        raise ValueError(f"expected a local time as yyyyMMddHHmmss, such as 20130131120000, not {text!r}") from None
