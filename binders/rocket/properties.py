"""The settings of the RocketMQ binder, in the spellings of both generations of Spring Cloud Alibaba's.

`spring.cloud.stream.rocketmq.binder.*` is `RocketBinderProperties`; a binding's own are `RocketConsumerProperties`
and `RocketProducerProperties`. A setting that says nothing more is honoured; `Accepted` ones mean nothing here and
warn, `Rejected` ones stop the start and say why.

Where the generations' defaults differ: sends wait for the broker's answer, the VIP channel is off, a producer's
group is its destination, 32 messages are pulled at once, and a message is redelivered as `Delivery` says.
"""

from datetime import datetime, timedelta
from enum import Enum
from typing import Annotated, Final, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidatorFunctionWrapHandler, field_validator

from rocket_client.settings import parse_addresses
from rocket_remoting.address import parse_address
from rocket_remoting.errors import ConnectError
from rocket_remoting.topics import validate_group
from streamkit.binder.delivery import (
    DEFAULT_DELAY_LEVELS,
    Delivery,
    ExtendedConsumerProperties,
    ExtendedProducerProperties,
    StartPosition,
    TransactionTerms,
)
from streamkit.config.durations import Milliseconds, Minutes, Positive, Seconds
from streamkit.config.shape import Separator
from streamkit.config.support import Accepted, Rejected

_NOT_YET_SIGNED: Final = "requests are not signed: use a cluster without ACL"
_NO_TRACE: Final = "no message trace is written"
_POLL_TIMEOUT: Final = timedelta(seconds=5)

_NO_TEMPLATE: Final = (
    "there is no RocketMQTemplate: set it for the binding, below spring.cloud.stream.rocketmq"
)

SQL_PREFIX: Final = "sql:"
MAX_BATCH_SIZE: Final = 1024
"""Messages that RocketMQ's clients hand over at once, at most."""

V = TypeVar("V")

PositiveMilliseconds = Annotated[Milliseconds, Positive]


class Embedded(Enum):
    """Whether a broker is started in this process."""

    AUTO = "auto"
    """When no name server is configured and nobody listens on the default address."""
    ALWAYS = "always"
    """Always, on free ports unless a name server's address says which."""
    NEVER = "never"
    """Never: a name server that is away is waited for."""


class Provisioning(Enum):
    """What is done about topics before they are bound."""

    AUTO = "auto"
    """`create` on an embedded broker, `none` elsewhere."""
    CREATE = "create"
    """Make the topic where it is missing."""
    VERIFY = "verify"
    """Refuse to bind a topic that is missing."""
    NONE = "none"
    """Leave it to the broker."""


class SendType(Enum):
    """When a send returns."""

    SYNC = "Sync"
    """When the broker has answered."""
    ASYNC = "Async"
    """When it is on its way; failures go to the error channel. At most 1000 are on their way at once."""
    ONE_WAY = "OneWay"
    """When it is written to the socket; the broker does not answer."""


class ProducerType(Enum):
    """Whether messages are part of local transactions."""

    NORMAL = "Normal"
    TRANS = "Trans"


class MessageModel(Enum):
    """Who of a group receives a message."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


class ConsumeFromWhere(Enum):
    """Where a new group begins."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class AllocateStrategy(Enum):
    """How the members of a group share a topic's queues."""

    AVERAGELY = "averagely"
    AVERAGELY_BY_CIRCLE = "averagely-by-circle"
    CONSISTENT_HASH = "consistent-hash"


_START: Final = {
    ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET: StartPosition.LATEST,
    ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET: StartPosition.EARLIEST,
    ConsumeFromWhere.CONSUME_FROM_TIMESTAMP: StartPosition.TIMESTAMP,
}


class RocketBinderProperties(BaseModel):
    """`spring.cloud.stream.rocketmq.binder.*`."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    name_server: str | None = None
    """Name servers as `host:port`, several separated by `;` or `,`. Unset: `127.0.0.1:9876`, see `embedded`."""
    embedded: Embedded = Embedded.AUTO
    """Whether a broker is started in this process."""
    embedded_store: str = ".streamkit"
    """Where the embedded broker keeps its store."""
    provisioning: Provisioning = Provisioning.AUTO
    """What is done about topics before they are bound."""
    message_delay_level: Annotated[tuple[Seconds, ...], Separator(" ")] = DEFAULT_DELAY_LEVELS
    """The broker's `messageDelayLevel`, such as `1s 5s 10s`; set it here when it is changed there."""
    group: str | None = None
    """The group of producers that name none; unset: their destination."""
    unit_name: str | None = None
    """Appended to the client id."""
    offset_store: str | None = None
    """Where broadcasting consumers keep their offsets; unset: `~/.rocketmq_offsets`, as Apache's client does."""
    vip_channel_enabled: bool = False
    """Send through the broker's second port, its port minus 2."""
    access_key: Annotated[str | None, Rejected(_NOT_YET_SIGNED)] = None
    secret_key: Annotated[str | None, Rejected(_NOT_YET_SIGNED)] = None
    namespace: Annotated[
        str | None, Rejected("namespaces are not put before topics and groups: remove it")
    ] = None
    namespace_v2: Annotated[str | None, Rejected("namespaces are not put into requests: remove it")] = None
    use_tls: Annotated[bool, Rejected("connections are plain: remove it"), Field(alias="useTLS")] = False
    enable_msg_trace: Annotated[bool, Accepted(_NO_TRACE)] = False
    customized_trace_topic: Annotated[str | None, Accepted(_NO_TRACE)] = None
    access_channel: Annotated[str | None, Accepted(_NO_TRACE)] = None
    enabled: Annotated[bool, Accepted("it is read of bindings only")] = True
    poll_name_server_interval: PositiveMilliseconds = timedelta(seconds=30)
    """How often routes are looked up again."""
    heartbeat_broker_interval: PositiveMilliseconds = timedelta(seconds=30)
    """How often brokers are told who is there."""
    persist_consumer_offset_interval: PositiveMilliseconds = timedelta(seconds=5)
    """How often offsets are committed."""

    @field_validator("name_server")
    @classmethod
    def _name_server(cls, value: str | None) -> str | None:
        for address in parse_addresses(value or ""):
            try:
                parse_address(address)
            except ConnectError:
                raise ValueError(
                    f"{address!r} is no address: expected host:port, such as 127.0.0.1:9876"
                ) from None
        return value

    @field_validator("group")
    @classmethod
    def _group(cls, value: str | None) -> str | None:
        return _legal_group(value)


class RocketSpringProducerProperties(BaseModel):
    """`rocketmq.producer.*`."""

    model_config = ConfigDict(extra="ignore", frozen=True, use_attribute_docstrings=True)

    group: Annotated[str | None, Accepted(_NO_TEMPLATE)] = None
    access_key: Annotated[str | None, Rejected(_NOT_YET_SIGNED)] = None
    secret_key: Annotated[str | None, Rejected(_NOT_YET_SIGNED)] = None
    enable_msg_trace: Annotated[bool, Accepted(_NO_TRACE)] = False
    customized_trace_topic: Annotated[str | None, Accepted(_NO_TRACE)] = None
    send_message_timeout: Annotated[int | None, Accepted(_NO_TEMPLATE)] = None
    compress_message_body_threshold: Annotated[int | None, Accepted(_NO_TEMPLATE)] = None
    retry_times_when_send_failed: Annotated[int | None, Accepted(_NO_TEMPLATE)] = None
    retry_times_when_send_async_failed: Annotated[int | None, Accepted(_NO_TEMPLATE)] = None
    retry_next_server: Annotated[bool | None, Accepted(_NO_TEMPLATE)] = None
    max_message_size: Annotated[int | None, Accepted(_NO_TEMPLATE)] = None


class RocketSpringProperties(BaseModel):
    """`rocketmq.*`, the settings of Spring's RocketMQ starter, which the first generation's binder reads too."""

    model_config = ConfigDict(extra="ignore", frozen=True, use_attribute_docstrings=True)

    name_server: str | None = None
    """Name servers, where `spring.cloud.stream.rocketmq.binder.name-server` is not set."""
    producer: RocketSpringProducerProperties = RocketSpringProducerProperties()


class _BindingProperties(BaseModel):
    """What producers and consumers have in common; unset ones are the binder's."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    name_server: Annotated[
        str | None,
        Rejected("a binding uses its binder's name server: configure a binder of its own under binders.*"),
    ] = None
    unit_name: str | None = None
    """Appended to the client id."""
    vip_channel_enabled: bool | None = None
    """Use the broker's second port, its port minus 2."""
    poll_name_server_interval: PositiveMilliseconds | None = None
    """How often routes are looked up again."""
    heartbeat_broker_interval: PositiveMilliseconds | None = None
    """How often brokers are told who is there."""
    access_key: Annotated[str | None, Rejected(_NOT_YET_SIGNED)] = None
    secret_key: Annotated[str | None, Rejected(_NOT_YET_SIGNED)] = None
    namespace: Annotated[
        str | None, Rejected("namespaces are not put before topics and groups: remove it")
    ] = None
    use_tls: Annotated[bool, Rejected("connections are plain: remove it"), Field(alias="useTLS")] = False
    enable_msg_trace: Annotated[bool, Accepted(_NO_TRACE)] = False
    customized_trace_topic: Annotated[str | None, Accepted(_NO_TRACE)] = None
    access_channel: Annotated[str | None, Accepted(_NO_TRACE)] = None


class PushProperties(BaseModel):
    """`consumer.push.*` of the second generation."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    orderly: bool | None = None
    """As `orderly`."""
    suspend_current_queue_time_millis: Milliseconds | None = None
    """As `suspend-current-queue-time-millis`."""
    max_reconsume_times: int | None = Field(default=None, ge=-1)
    """Redeliveries before the dead letter; unset or -1: 16 when concurrent, without bound when ordered."""
    delay_level_when_next_consume: int | None = Field(default=None, ge=-1)
    """As `delay-level-when-next-consume`."""
    pull_threshold_for_topic: int = Field(default=-1, ge=-1)
    """Messages cached over all queues of a topic; -1: no limit but each queue's."""
    pull_threshold_size_for_topic: int = Field(default=-1, ge=-1)
    """The same in MiB."""
    pull_interval: Milliseconds = timedelta(0)
    """Pause between two pulls of a queue."""
    consume_message_batch_max_size: int | None = Field(default=None, ge=1, le=MAX_BATCH_SIZE)
    """With `consumer.batch-mode`: messages handed over at once, at most; unset: as many as `pull-batch-size`."""
    consume_timeout: Annotated[Minutes, Positive] = timedelta(minutes=15)
    """A message not settled by then is delivered again."""


class PullProperties(BaseModel):
    """`consumer.pull.*` of the second generation, for polled consumers."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    poll_timeout_millis: Milliseconds | None = None
    """How long a poll waits for a message; unset: `pull-timeout`, else 5s."""
    pull_threshold_for_all: int = Field(default=1000, ge=1)
    """No queue is pulled while more messages than this wait to be polled."""
    pull_thread_nums: Annotated[int | None, Accepted("pulls need no threads")] = None
    topic_metadata_check_interval_millis: Annotated[
        int | None, Accepted("poll-name-server-interval says how often routes are looked up")
    ] = None
    consumer_timeout_millis_when_suspend: Annotated[
        int | None, Accepted("a pull waits as long as the client's own timeout")
    ] = None
    err_acknowledge: Annotated[
        str | None, Accepted("what fails is rejected; raise Requeue to have it again")
    ] = None


class RocketConsumerProperties(ExtendedConsumerProperties, _BindingProperties):
    """`spring.cloud.stream.rocketmq.bindings.<name>.consumer.*` and `….rocketmq.default.consumer.*`."""

    enabled: bool = True
    """False: the consumer is not started with the application."""
    orderly: bool = False
    """One call at a time per queue; a failing message holds back those behind it."""
    broadcasting: bool = False
    """Every instance receives every message; nothing is redelivered."""
    message_model: MessageModel = MessageModel.CLUSTERING
    """BROADCASTING is `broadcasting=true`."""

    @field_validator("message_model", mode="wrap")
    @classmethod
    def _message_model(cls, value: object, validate: ValidatorFunctionWrapHandler) -> object:
        try:
            return validate(value)
        except ValueError:
            # The sentence Spring Cloud Alibaba's users look for in their logs.
            raise ValueError(
                f"Property 'messageModel' was wrong. {value!r} is neither CLUSTERING nor BROADCASTING"
            ) from None

    tags: str | None = None
    """`a||b`: receive only messages with one of these tags."""
    sql: str | None = None
    """Receive only messages whose headers match; wins over `tags`."""
    subscription: str | None = None
    """`a||b`, or `sql:<expression>`; wins over `tags` and `sql`."""
    delay_level_when_next_consume: int = Field(default=0, ge=-1)
    """Concurrent: -1 dead letter at once; 0 level 3 + redeliveries so far; n that delay level each time."""
    suspend_current_queue_time_millis: Milliseconds = timedelta(seconds=1)
    """Ordered: pause before the queue's head is tried again."""
    allocate_message_queue_strategy: AllocateStrategy = AllocateStrategy.AVERAGELY
    """How the group's members share the queues."""
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    """Where a new group begins."""
    consume_timestamp: str | None = None
    """`yyyyMMddHHmmss` in local time, for CONSUME_FROM_TIMESTAMP; unset: half an hour before the start."""
    pull_time_delay_mills_when_exception: Milliseconds = timedelta(seconds=1)
    """Pause of pulling after a pull failed."""
    pull_batch_size: int = Field(default=32, ge=1, le=4096)
    """Messages asked for in one pull."""
    pull_threshold_for_queue: int = Field(default=1000, ge=1)
    """A queue is not pulled while more messages than this are cached."""
    pull_threshold_size_for_queue: int = Field(default=100, ge=1)
    """The same in MiB."""
    consume_max_span: int = Field(default=2000, ge=1)
    """Concurrent: a queue is not pulled while its cached offsets span more than this."""
    push: PushProperties = PushProperties()
    pull: PullProperties = PullProperties()
    group: Annotated[str | None, Accepted("the binding's own group is used")] = None
    trusted_packages: Annotated[tuple[str, ...], Accepted("no classes are made from headers")] = ()
    persist_consumer_offset_interval: PositiveMilliseconds | None = None
    """How often offsets are committed."""
    pull_timeout: Milliseconds | None = None
    """The first generation's spelling of `pull.poll-timeout-millis`."""
    from_store: Annotated[bool | None, Accepted("a group's offsets are always the broker's")] = None

    @field_validator("consume_timestamp")
    @classmethod
    def _timestamp(cls, value: str | None) -> str | None:
        if value is not None:
            _local_time(value)
        return value

    @property
    def poll_timeout(self) -> timedelta:
        """How long a poll waits for a message."""
        waits = (self.pull.poll_timeout_millis, self.pull_timeout, _POLL_TIMEOUT)
        return next(each for each in waits if each is not None)

    def delivery(self) -> Delivery:
        """What these settings mean in portable terms; the second generation's spelling wins."""
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
            start_time_ms=None if start_time is None else int(start_time.timestamp() * 1000),
        )

    @property
    def starts(self) -> bool:
        """Whether the consumer starts with the application."""
        return self.enabled

    def _filter(self) -> tuple[str | None, str | None]:
        """Tags and SQL expression, of which at most one is set."""
        if self.subscription is None:
            return (None, self.sql) if self.sql else (self.tags, None)
        if self.subscription.startswith(SQL_PREFIX):
            return None, self.subscription.removeprefix(SQL_PREFIX)
        return self.subscription, None


class RocketProducerProperties(ExtendedProducerProperties, _BindingProperties):
    """`spring.cloud.stream.rocketmq.bindings.<name>.producer.*` and `….rocketmq.default.producer.*`."""

    enabled: Annotated[
        bool, Rejected("a disabled binding only fails: remove the setting, or the binding")
    ] = True
    """False: the binding is refused."""
    group: str | None = None
    """The producer group; unset: the binder's, else the destination."""
    send_type: SendType = SendType.SYNC
    """When a send returns."""
    sync: bool | None = None
    """The first generation's spelling: true is send type Sync, false is Async."""
    send_message_timeout: PositiveMilliseconds = Field(
        default=timedelta(seconds=3),
        validation_alias=AliasChoices("send_message_timeout", "send_msg_timeout"),
    )
    """How long a send may take, its retries included."""
    compress_message_body_threshold: int = Field(
        default=4096,
        ge=1,
        validation_alias=AliasChoices("compress_message_body_threshold", "compress_msg_body_threshold"),
    )
    """Bodies of this many bytes and more are compressed."""
    retry_times_when_send_failed: int = Field(default=2, ge=0)
    """Further attempts of a Sync send."""
    retry_times_when_send_async_failed: int = Field(default=2, ge=0)
    """Further attempts of an Async send."""
    retry_next_server: bool = Field(
        default=False, validation_alias=AliasChoices("retry_next_server", "retry_another_broker")
    )
    """Try another broker when the answer is not SEND_OK."""
    max_message_size: int = Field(default=4 * 1024 * 1024, ge=1)
    """Largest body in bytes; a larger one fails at the sender."""
    transactional: bool = False
    """Messages are sent within local transactions; a transaction listener of the group answers for them."""
    producer_type: ProducerType = ProducerType.NORMAL
    """The second generation's spelling: `Trans` is `transactional=true`."""
    transaction_listener: str | None = None
    """The name of the registered transaction listener, in place of the one of the group."""
    send_call_back: Annotated[str | None, Rejected("subscribe to the binding's error channel instead")] = None
    message_queue_selector: str | None = None
    """The name of a registered function that chooses a queue: of the message and the number of queues."""
    persist_consumer_offset_interval: Annotated[
        PositiveMilliseconds | None, Accepted("a producer has no offsets")
    ] = None
    error_message_strategy: Annotated[str | None, Accepted("no version reads it")] = None
    send_failure_channel: Annotated[str | None, Accepted("no version reads it")] = None
    check_forbidden_hook: Annotated[str | None, Rejected("add a channel interceptor instead")] = None
    send_message_hook: Annotated[str | None, Rejected("add a channel interceptor instead")] = None

    @field_validator("group")
    @classmethod
    def _group(cls, value: str | None) -> str | None:
        return _legal_group(value)

    def transaction(self) -> TransactionTerms | None:
        """What these settings mean in portable terms."""
        if not self.transactional and self.producer_type is ProducerType.NORMAL:
            return None
        return TransactionTerms(self.group, self.transaction_listener, ("transactional", "producer-type"))

    @property
    def message_selector(self) -> str | None:
        """`message-queue-selector`."""
        return self.message_queue_selector

    @property
    def effective_send_type(self) -> SendType:
        """The send type that `sync`, if set, or `send_type` asks for."""
        if self.sync is None:
            return self.send_type
        return SendType.SYNC if self.sync else SendType.ASYNC


def _first(*values: V | None) -> V:
    return next(value for value in values if value is not None)


def _legal_group(name: str | None) -> str | None:
    if name is not None:
        validate_group(name)
    return name


def _local_time(text: str) -> datetime:
    try:
        return datetime.strptime(text, "%Y%m%d%H%M%S").astimezone()
    except ValueError:
        raise ValueError(
            f"expected a local time as yyyyMMddHHmmss, such as 20130131120000, not {text!r}"
        ) from None
