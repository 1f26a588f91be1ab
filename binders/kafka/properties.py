"""The settings of Kafka bindings, with the names of Spring's Kafka binder.

A setting without annotation is honoured. An `Accepted` setting is ignored with a warning. A `Rejected` setting is an
error, with which the application does not start. Settings that Spring's binder does not have, such as `ordered`, have
the names of the in-memory binder's settings.

Two defaults differ from Spring's: a send waits for the broker's acknowledgment, and a rejected message is kept in the
group's dead-letter topic unless `enable-dlq=false` is set.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from enum import Enum
from typing import Annotated, Final

from binders.kafka.client_config import IGNORED, Client, checked
from binders.kafka.headers import NEVER_SENT, OWN_SPELLINGS, TOPIC, HeaderPatterns
from binders.kafka.letter_headers import letter_headers
from streamkit.binder.capabilities import Capability
from streamkit.binder.dead_letter import Origin
from streamkit.binder.delivery import (
    DEFAULT_DELAY_LEVELS,
    Delivery,
    Effect,
    ExtendedConsumerProperties,
    ExtendedProducerProperties,
    StartPosition,
    TransactionTerms,
)
from streamkit.config.durations import Milliseconds, Minutes, Positive, Seconds
from streamkit.config.setting_limits import Accepted, NotInMemory, Rejected
from streamkit.config.setting_values import After
from streamkit.config.settings_model import SettingsModel, setting
from streamkit.config.shape import Separator
from streamkit.errors import ExpressionError
from streamkit.expression import compile_expression
from streamkit.messaging.message import Message
from streamkit.settlement import Reject

DEFAULT_BATCH_SIZE: Final = 500
"""Kafka's `max.poll.records`."""

_MAX_REQUEST_SIZE: Final = 1024 * 1024

SHARED_PARTITIONS: Final = "the members of a group share the partitions evenly"

_NO_BEANS: Final = "there are no Spring beans: "
_TOPIC: Final = "use topic.* instead"
_ALL_OF_IT: Final = "a dead letter has the key and the headers of its record"
_BY_ITSELF: Final = "a dead letter is written outside of transactions, after its own was aborted"
_NOT_REACTIVE: Final = "there is one binder for functions of every kind"


def _of_consumers(properties: dict[str, str]) -> dict[str, str]:
    return checked(_without_brokers(properties), Client.CONSUMER)


def _of_producers(properties: dict[str, str]) -> dict[str, str]:
    return checked(_without_brokers(properties), Client.PRODUCER)


def _without_brokers(properties: dict[str, str]) -> dict[str, str]:
    if "bootstrap.servers" in properties:
        raise ValueError(
            "a binding uses its binder's brokers: configure a binder of its own under spring.cloud.stream.binders.*"
        )
    return properties


def _compiled(source: str | None) -> str | None:
    """Return an expression unchanged, if it is valid; raise ValueError if not."""
    if source is not None:
        try:
            compile_expression(source)
        except ExpressionError as error:
            raise ValueError(str(error)) from error
    return source


class AckMode(Enum):
    """When the offsets of settled messages are committed."""

    RECORD = "RECORD"
    """After each poll."""
    BATCH = "BATCH"
    """After each poll, as RECORD: the messages settled between two polls are one commit."""
    TIME = "TIME"
    """Every `auto.commit.interval.ms` of the consumer's configuration, 5 seconds."""
    MANUAL = "MANUAL"
    """As BATCH: a listener that asks for an `Acknowledgment` settles by hand."""
    MANUAL_IMMEDIATE = "MANUAL_IMMEDIATE"
    """As MANUAL."""


class StartOffset(Enum):
    """The offset at which a group without committed offset begins."""

    EARLIEST = "earliest"
    LATEST = "latest"

    @property
    def is_latest(self) -> bool:
        """Whether a group begins at the end."""
        return self is StartOffset.LATEST


class CompressionType(Enum):
    """How batches of messages are compressed."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class TopicProperties(SettingsModel):
    """`topic.*`: how a topic is made that does not exist."""

    replication_factor: int | None = setting(default=None, ge=-1)
    """The replicas of each partition. Unset: the binder's `replication-factor`."""
    replicas_assignments: dict[int, list[int]] = setting(default_factory=dict)
    """The brokers of each partition, instead of a number of partitions and replicas."""
    properties: dict[str, str] = setting(default_factory=dict)
    """The topic's configuration, such as `retention.ms`."""


class ClientProducerProperties(SettingsModel):
    """The settings of all producers: those of bindings, of dead letters and of transactions."""

    buffer_size: int = setting(default=16384, ge=0)
    """The most bytes of one partition's messages that are sent together."""
    batch_timeout: Milliseconds = timedelta()
    """How long a message waits so that others can be sent with it."""
    compression_type: CompressionType = CompressionType.NONE
    """How batches are compressed. All but `gzip` need a package of their own."""
    close_timeout: Annotated[Seconds, Positive] = timedelta(seconds=30)
    """How long a close waits for messages that are being sent."""
    configuration: Annotated[dict[str, str], After(_of_producers), IGNORED] = setting(default_factory=dict)
    """Properties of Kafka's producer, by Kafka's names, such as `linger.ms`."""


class LetterProducerProperties(ClientProducerProperties):
    """`dlq-producer-properties.*`: a letter is its record, and its topic is the group's, so the rest has no effect."""

    topic: TopicProperties = setting(default_factory=TopicProperties)

    sync: Annotated[bool, Accepted("the binder waits until a dead letter is written")] = True
    header_patterns: Annotated[tuple[str, ...], Accepted(_ALL_OF_IT)] = ()
    message_key_expression: Annotated[str | None, Accepted(_ALL_OF_IT)] = None
    use_topic_header: Annotated[bool, Accepted("dlq-name names the topic")] = False
    send_timeout_expression: Annotated[str | None, Accepted("a dead letter is sent again until it is written")] = None
    record_metadata_channel: Annotated[str | None, Accepted("results of sends are not published")] = None
    transaction_manager: Annotated[str | None, Accepted(_BY_ITSELF)] = None
    allow_non_transactional: Annotated[bool, Accepted(_BY_ITSELF)] = False


class KafkaProducerProperties(ExtendedProducerProperties, ClientProducerProperties):
    """`spring.cloud.stream.kafka.bindings.<name>.producer.*` and `….kafka.default.producer.*`."""

    sync: bool = True
    """Whether a send waits for the broker's acknowledgment. If not, at most 1000 sends are in flight, and failures go
    to the error channel."""
    header_patterns: tuple[str, ...] = ()
    """The headers that are sent: `!secret*,*`. The first pattern that matches decides; case does not matter. Unset:
    all."""
    message_key_expression: Annotated[str | None, After(_compiled)] = None
    """An expression that returns the key of a message, before the payload is converted: `payload.customer`,
    `headers['customer']`."""
    use_topic_header: bool = False
    """Whether the header `kafka_topic` of a message names its topic, instead of the destination."""
    topic: TopicProperties = setting(default_factory=TopicProperties)

    transactional: bool = False
    """Whether messages are sent in local transactions with a checker, as on RocketMQ. This binder refuses it."""
    group: str | None = None
    """The producer group of such transactions."""

    send_timeout_expression: Annotated[
        str | None, Rejected("set configuration.delivery.timeout.ms, a number of milliseconds")
    ] = None
    record_metadata_channel: Annotated[
        str | None, Rejected("results of sends are not published: failures are raised at the sender")
    ] = None
    transaction_manager: Annotated[str | None, Rejected(_NO_BEANS + "set binder.transaction.transaction-id-prefix")] = (
        None
    )
    allow_non_transactional: bool = False
    """If the binder is transactional: whether sends outside of a listener's transaction go without a transaction."""
    admin: Annotated[dict[str, str], Rejected(_TOPIC)] = setting(default_factory=dict)

    def unconfirmed_by(self) -> Sequence[str]:
        """Return `sync`, if a send does not wait for the broker's acknowledgment."""
        return () if self.sync else ("sync",)

    @property
    def message_key(self) -> Callable[[Message[object]], object] | None:
        """A function of a message that returns its key, from `message-key-expression`; None if that is not set."""
        source = self.message_key_expression
        return None if source is None else compile_expression(source)

    @property
    def sends_header(self) -> Callable[[str], bool]:
        """A function that returns whether a header is sent, by its name: `header-patterns` without Kafka's own."""
        travels = HeaderPatterns(self.header_patterns)
        return lambda name: name not in NEVER_SENT and travels(name)

    @property
    def header_spellings(self) -> Mapping[str, str]:
        """Kafka's own headers for the key, the partition and the timestamp."""
        return OWN_SPELLINGS

    @property
    def topic_header(self) -> str | None:
        """The header `kafka_topic`, if `use-topic-header` is set."""
        return TOPIC if self.use_topic_header else None

    @property
    def largest_payload(self) -> int:
        """The producer's `max.request.size`, which also counts the key and the headers of a record."""
        return int(self.configuration.get("max.request.size", _MAX_REQUEST_SIZE))

    def effects(self) -> Iterable[Effect]:
        """Return the effects of these settings on deliveries: those of all binders, and two of Kafka's own."""
        yield from super().effects()
        yield Effect(
            "the selection of headers",
            self.header_patterns or None,
            ("header-patterns",),
            instead="remove headers in a channel interceptor",
        )
        yield Effect(
            "the topic that a header names",
            self.use_topic_header or None,
            ("use-topic-header",),
            instead="send to the topic with StreamBridge",
        )

    def transaction(self) -> TransactionTerms | None:
        """Return these settings as the framework's `TransactionTerms`; None if `transactional` is false."""
        return TransactionTerms(self.group, None, ("transactional",)) if self.transactional else None


class KafkaConsumerProperties(ExtendedConsumerProperties):
    """`spring.cloud.stream.kafka.bindings.<name>.consumer.*` and `….kafka.default.consumer.*`."""

    ordered: bool = True
    """Whether each partition has one call at a time, and a failing message holds back those behind it. If not,
    `concurrency` limits the calls, and the smallest unsettled offset is committed."""
    broadcast: bool = False
    """Whether every instance receives every message that is sent while it runs. Nothing is redelivered then."""
    max_reconsume_times: int = setting(default=0, ge=-1)
    """The redeliveries before a message becomes a dead letter. -1: without limit if ordered, else 16."""
    redelivery_level: int = setting(default=0, ge=-1)
    """If not ordered: the entry of `redelivery-delays` for each redelivery. 0: entry 3 for the first, the next entry
    for each further one. n: always entry n. -1: a dead letter at once."""
    redelivery_delays: Annotated[tuple[Seconds, ...], Separator(" ")] = tuple(DEFAULT_DELAY_LEVELS)
    """If not ordered: the table of pauses before a message is delivered again."""
    suspend: Milliseconds = timedelta(seconds=1)
    """If ordered: the pause before a failed message is delivered again."""
    consume_timeout: Annotated[Minutes, Positive] = timedelta(minutes=15)
    """A message that is not settled in this time is delivered again."""
    tags: str | None = None
    """A filter by tags: `a||b`. This binder refuses it."""
    sql: str | None = None
    """An SQL filter over headers. This binder refuses it."""
    batch_size: int | None = setting(default=None, ge=1)
    """In batch mode: the most messages in a list. Unset: `configuration.max.poll.records`, else 500."""

    start_offset: StartOffset | None = None
    """Where a group without committed offset begins. Unset: `earliest`, for an anonymous group `latest`."""
    reset_offsets: Annotated[bool, NotInMemory("a group continues where it was")] = False
    """Whether every start begins at `start-offset`, whatever was committed."""
    ack_mode: AckMode = AckMode.BATCH
    """When offsets are committed. `TIME`: every `auto.commit.interval.ms`. The others: after each poll."""
    enable_dlq: bool | None = None
    """When the dead-letter topic is created. True: at the start. False: never; rejected messages are logged and lost.
    Unset: with the first dead letter. An anonymous group has none."""
    dlq_name: str | None = None
    """The dead-letter topic. Unset: `error.<destination>.<group>`."""
    dlq_partitions: int | None = setting(default=None, ge=1)
    """The partitions of the dead-letter topic. Unset: as many as the destination has. A dead letter goes to its
    message's partition, modulo this number."""
    dlq_producer_properties: LetterProducerProperties = setting(default_factory=LetterProducerProperties)
    """The settings of the producer of dead letters, and of their topic."""
    auto_rebalance_enabled: Annotated[bool, NotInMemory(SHARED_PARTITIONS)] = True
    """Whether Kafka assigns the partitions. If not, the instance with index i takes each partition p with p %
    instance-count = i."""
    destination_is_pattern: bool = False
    """Whether the destination is a regular expression. New topics that match it are found while the application
    runs."""
    poll_timeout: Annotated[Milliseconds, Positive] = timedelta(seconds=5)
    """How long a poll of a polled consumer waits for a message."""
    configuration: Annotated[dict[str, str], After(_of_consumers), IGNORED] = setting(default_factory=dict)
    """Properties of Kafka's consumer, by Kafka's names, such as `max.poll.records`."""
    topic: TopicProperties = setting(default_factory=TopicProperties)

    auto_commit_offset: Annotated[bool, Accepted("a listener that asks for an Acknowledgment settles by hand")] = True
    ack_each_record: Annotated[bool, Accepted("settled offsets are committed at once")] = False
    auto_commit_on_error: Annotated[
        bool | None, Accepted("a failed message is rejected; raise Requeue to receive it again")
    ] = None
    trusted_packages: Annotated[tuple[str, ...], Accepted("headers never make classes")] = ()
    standard_headers: Annotated[str | None, Accepted("id and timestamp are always there")] = None
    idle_event_interval: Annotated[Milliseconds | None, Accepted("there are no idle events")] = None
    tx_commit_recovered: Annotated[
        bool, Rejected("a rejected message always counts as consumed: remove it", only=(False,))
    ] = True
    converter_bean_name: Annotated[str | None, Rejected(_NO_BEANS + "give StreamApplication a message converter")] = (
        None
    )
    transaction_manager: Annotated[str | None, Rejected(_NO_BEANS + "set binder.transaction.transaction-id-prefix")] = (
        None
    )
    common_error_handler_bean_name: Annotated[
        str | None, Rejected(_NO_BEANS + "name a function with error-handler-definition")
    ] = None
    reactive_auto_commit: Annotated[bool, Accepted(_NOT_REACTIVE)] = False
    reactive_at_most_once: Annotated[bool, Rejected(_NOT_REACTIVE + ", at least once")] = False
    admin: Annotated[dict[str, str], Rejected(_TOPIC)] = setting(default_factory=dict)

    def effects(self) -> Iterable[Effect]:
        """Return the effects of these settings on deliveries: also that the destination is a pattern."""
        yield from super().effects()
        yield Effect(
            "the pattern of destinations",
            self.destination_is_pattern or None,
            ("destination-is-pattern",),
            Capability.PATTERN,
            "list the destinations, separated by commas",
        )

    def delivery(self) -> Delivery:
        """Return these settings as the framework's `Delivery`."""
        most = self.batch_size or int(self.configuration.get("max.poll.records", DEFAULT_BATCH_SIZE))
        return Delivery(
            ordered=self.ordered,
            broadcast=self.broadcast,
            max_reconsume_times=self.max_reconsume_times,
            redelivery_level=self.redelivery_level,
            suspend=self.suspend,
            consume_timeout=self.consume_timeout,
            tags=self.tags,
            sql=self.sql,
            start=self._start(StartOffset.EARLIEST),
            own_start=self._start(StartOffset.LATEST),
            batch_size=most,
            delay_levels=self.redelivery_delays,
            poll_timeout=self.poll_timeout,
        )

    def _start(self, default: StartOffset) -> StartPosition:
        """Return where a group begins; a default applies if no setting says so."""
        configured = self.configuration.get("auto.offset.reset", default.value)
        latest = configured == StartOffset.LATEST.value if self.start_offset is None else self.start_offset.is_latest
        return StartPosition.LATEST if latest else StartPosition.EARLIEST

    def dead_letter_topic(self, destination: str, group: str | None) -> str | None:
        """Return the dead-letter topic; None if rejected messages are logged and lost."""
        if group is None or self.broadcast or self.enable_dlq is False:
            return None
        if self.destination_is_pattern and self.dlq_name is None:
            return None
        return self.dlq_name or f"error.{destination}.{group}"

    @property
    def dead_letter_partitions(self) -> int | None:
        """The number of partitions of the dead-letter topic; None for as many as the destination has."""
        return self.dlq_partitions

    def dead_letter_headers(self, origin: Origin, rejected: Reject) -> Mapping[str, object]:
        """Return the headers of Spring's Kafka binder for the origin and the exception, and those of all binders."""
        return letter_headers(origin, rejected)
