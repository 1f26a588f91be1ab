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
    """As `orderly`."""
    suspend_current_queue_time_millis: Milliseconds | None = None
    """As `suspend-current-queue-time-millis`."""
    max_reconsume_times: int | None = setting(default=None, ge=-1)
    """Redeliveries before the dead letter; unset or -1: 16 when concurrent, without bound when ordered."""
    delay_level_when_next_consume: int | None = setting(default=None, ge=-1)
    """As `delay-level-when-next-consume`."""
    pull_threshold_for_topic: Annotated[int, NotInMemory(_NOT_PULLED)] = setting(default=-1, ge=-1)
    """Messages cached over all queues of a topic; -1: no limit but each queue's."""
    pull_threshold_size_for_topic: Annotated[int, NotInMemory(_NOT_PULLED)] = setting(default=-1, ge=-1)
    """The same in MiB."""
    pull_interval: Milliseconds = timedelta(0)
    """Pause between two pulls of a queue."""
    consume_message_batch_max_size: int | None = setting(default=None, ge=1, le=MAX_BATCH_SIZE)
    """With `consumer.batch-mode`: messages handed over at once, at most; unset: as many as `pull-batch-size`."""
    consume_timeout: Annotated[Minutes, Positive] = timedelta(minutes=15)
    """A message not settled by then is delivered again."""


class PullProperties(SettingsModel):
    """`consumer.pull.*` of the second generation, for polled consumers."""

    poll_timeout_millis: Milliseconds | None = None
    """How long a poll waits for a message; unset: `pull-timeout`, else 5s."""
    pull_threshold_for_all: Annotated[int, NotInMemory(_NOT_PULLED)] = setting(default=1000, ge=1)
    """No queue is pulled while more messages than this wait to be polled."""
    pull_thread_nums: Annotated[int | None, Accepted("pulls need no threads")] = None
    topic_metadata_check_interval_millis: Annotated[
        int | None, Accepted("poll-name-server-interval says how often routes are looked up")
    ] = None
    consumer_timeout_millis_when_suspend: Annotated[
        int | None, Accepted("a pull waits as long as the client's own timeout")
    ] = None
    err_acknowledge: Annotated[str | None, Accepted("what fails is rejected; raise Requeue to have it again")] = None


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
    """False: the consumer is not started with the application."""
    orderly: bool = False
    """One call at a time per queue; a failing message holds back those behind it."""
    broadcasting: bool = False
    """Every instance receives every message, and keeps its place by its address and index; nothing is redelivered."""
    message_model: Annotated[MessageModel, Before(_message_model)] = MessageModel.CLUSTERING
    """BROADCASTING is `broadcasting=true`."""
    tags: str | None = None
    """`a||b`: receive only messages with one of these tags."""
    sql: str | None = None
    """Receive only messages whose headers match; wins over `tags`."""
    subscription: str | None = None
    """`a||b`, or `sql:<expression>`; wins over `tags` and `sql`."""
    delay_level_when_next_consume: int = setting(default=0, ge=-1)
    """Concurrent: -1 dead letter at once; 0 level 3 + redeliveries so far; n that delay level each time."""
    suspend_current_queue_time_millis: Milliseconds = timedelta(seconds=1)
    """Ordered: pause before the queue's head is tried again."""
    allocate_message_queue_strategy: Annotated[
        AllocateStrategy, NotInMemory("the members of a group share the queues evenly, in ranges")
    ] = AllocateStrategy.AVERAGELY
    """How the group's members share the queues."""
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    """Where a new group begins."""
    consume_timestamp: Annotated[str, After(_timestamp)] | None = None
    """`yyyyMMddHHmmss` in local time, for CONSUME_FROM_TIMESTAMP; unset: half an hour before the start."""
    pull_time_delay_mills_when_exception: Milliseconds = timedelta(seconds=1)
    """Pause of pulling after a pull failed."""
    pull_batch_size: int = setting(default=32, ge=1, le=4096)
    """Messages asked for in one pull."""
    pull_threshold_for_queue: Annotated[int, NotInMemory(_NOT_PULLED)] = setting(default=1000, ge=1)
    """A queue is not pulled while more messages than this are cached."""
    pull_threshold_size_for_queue: Annotated[int, NotInMemory(_NOT_PULLED)] = setting(default=100, ge=1)
    """The same in MiB: bodies count as they are in memory, decompressed only while they are consumed."""
    max_decompressed_body_size: int = setting(default=DEFAULT_LIMIT, ge=1)
    """Bytes that a compressed body may have when it is decompressed; a message whose body has more is a dead letter."""
    max_decompressed_size: int = setting(default=2 * DEFAULT_LIMIT, ge=1)
    """Bytes of bodies over 256 KiB that are decompressed at once; at least `max-decompressed-body-size`."""
    consume_max_span: Annotated[int, NotInMemory(_NOT_PULLED)] = setting(default=2000, ge=1)
    """Concurrent: a queue is not pulled while its cached offsets span more than this."""
    push: PushProperties = setting(default_factory=PushProperties)
    pull: PullProperties = setting(default_factory=PullProperties)
    group: Annotated[str | None, Accepted("the binding's own group is used")] = None
    trusted_packages: Annotated[tuple[str, ...], Accepted("no classes are made from headers")] = ()
    persist_consumer_offset_interval: PositiveMilliseconds | None = None
    """How often offsets are committed."""
    pull_timeout: Milliseconds | None = None
    """The first generation's spelling of `pull.poll-timeout-millis`."""
    from_store: Annotated[bool | None, Accepted("a group's offsets are always the broker's")] = None

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
