"""The options of format ``rocketmq``: their names, aliases and defaults, read into settings once, at the start.

Names follow Spark's Kafka connector where there is one, and those of Apache's old connector are aliases. Case
does not count, and each may be written with the prefix ``rocketmq.``. An unknown option is an error.
"""

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeVar

from pyspark_rocketmq.errors import OptionError, suggestion
from pyspark_rocketmq.partitions import Plan
from pyspark_rocketmq.starting import Position, Strategy, offsets_option, timestamps_option
from rocket_remoting.tls.settings import ClientTls
from rocket_remoting.wire.compression import DEFAULT_LIMIT
from rocket_remoting.wire.credentials import Credentials

PREFIX = "rocketmq."
DEFAULT_GROUP = "pyspark_rocketmq"

_TLS_FILE = "tls.config.file"
_TLS = (
    "tls.client.trustCertPath", "tls.client.certPath", "tls.client.keyPath", "tls.client.authServer",
    "tls.client.checkHostName",
)  # fmt: skip
"""Apache's keys. A password is not an option, because options are in the plans of queries: it is read from the file."""
_BOTH = {
    "nameServer", "topic", "requestTimeoutMs", "connectionIdleMs", "accessKey", "secretKey", "useTLS", _TLS_FILE, *_TLS,
}  # fmt: skip
_READ = {
    "subscribe", "subscribePattern", "assign", "startingOffsets", "endingOffsets", "startingTimestamp",
    "endingTimestamp", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy", "failOnDataLoss", "maxOffsetsPerTrigger", "maxBytesPerTrigger",
    "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions", "maxRecordsPerPartition", "packBelow",
    "consumerGroup", "groupIdPrefix", "commitOffsets", "pullTimeoutMs", "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs", "tag", "sql", "pullBatchSize", "pullDepth", "filterPushdown", "includeHeaders",
    "maxDecompressedBodySize", "pollNameServerIntervalMs",
}  # fmt: skip
_WRITE = {
    "tag", "delayLevel", "batchSize", "maxRequestSize", "maxMessageSize", "orderKey", "delivery",
    "writeId", "idColumn", "producerGroup", "sendDepth", "sendTimeoutMs",
}  # fmt: skip
_ALIASES = {"group": "consumerGroup", "subExpression": "tag"}
_OTHERS_NAMES = {
    "kafka.bootstrap.servers": "nameServer",
    "kafka.group.id": "consumerGroup",
    "namesrvaddr": "nameServer",
    "kafkaconsumer.polltimeoutms": "pullTimeoutMs",
}
_SPARKS_OWN = {"checkpointlocation", "queryname", "outputmode"}

_DURATION = re.compile(r"\s*(\d+)\s*(ms|s|m|min|h|d)\s*")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}

E = TypeVar("E", bound=Enum)


class Delivery(Enum):
    """The guarantee of the sink."""

    AT_LEAST_ONCE = "at-least-once"
    """Each row is stored; if a response was lost, its rows may be stored twice, with the same keys."""
    DEDUPLICATED = "deduplicated"
    """The broker refuses rows that an earlier attempt of the same batch has stored."""


@dataclass(frozen=True)
class ClusterOptions:
    """The cluster, and its timeouts in seconds."""

    name_servers: str
    group: str
    request_timeout: float
    idle_seconds: float
    retries: int = 3
    retry_interval: float = 1.0
    poll_interval: float = 30.0
    uses_tls: bool = False
    tls_file: str | None = None
    tls: tuple[tuple[str, str], ...] = ()
    """Keys ``tls.client.*`` with their values, if there is no `tls_file`."""
    credentials: Credentials | None = None
    """The keys that sign all requests. Spark hides the values of both options in plans and logs, by their names."""

    def client_tls(self) -> ClientTls | None:
        """Return how connections are encrypted, from the files of the machine that this runs on; None for plain ones.

        Raises:
            TlsError: A file cannot be read, or has a wrong setting.
        """
        if not self.uses_tls:
            return None
        from rocket_remoting.tls.properties import client_tls_of, client_tls_of_file

        return (
            client_tls_of(dict(self.tls), "options")
            if self.tls_file is None
            else client_tls_of_file(Path(self.tls_file))
        )


@dataclass(frozen=True)
class SourceOptions:
    """The options of a source; times are in seconds."""

    cluster: ClusterOptions
    topics: tuple[str, ...]
    pattern: str | None
    assigned: Mapping[str, Mapping[str, tuple[int, ...]]] | None
    starting: Position | None
    ending: Position
    fail_on_data_loss: bool
    max_offsets: int | None
    max_bytes: int | None
    min_offsets: int | None
    max_delay: float
    plan: Plan
    commit_offsets: bool
    expression: str
    expression_type: str
    pull_batch_size: int
    pull_depth: int
    patience: float
    include_headers: bool
    filter_pushdown: bool
    max_decompressed_body_size: int


@dataclass(frozen=True)
class SinkOptions:
    """The options of a sink; times are in seconds."""

    cluster: ClusterOptions
    topic: str | None
    tag: str | None
    delay_level: int
    batch_size: int
    max_request_size: int
    max_message_size: int
    order_key: str | None
    delivery: Delivery
    write_id: str | None
    id_column: str | None
    depth: int
    patience: float


def source_options(options: Mapping[str, str]) -> SourceOptions:
    """Read the options of a source.

    Raises:
        OptionError: An option is unknown, missing or has a wrong value.
        OffsetError: Offsets given are no such.
    """
    given = _GivenOptions(options, _BOTH | _READ, "read")
    topics, pattern, assigned = _topics_to_read(given)
    group = given.text("consumerGroup")
    prefix = given.text("groupIdPrefix")
    if group and prefix:
        raise OptionError("consumerGroup and groupIdPrefix are both given: give one")
    if group is None and given.boolean("commitOffsets", False):
        raise OptionError("'consumerGroup' is required with commitOffsets=true")
    starting = _starting(given)
    if group is None and starting is not None and starting.kind == "committed":
        raise OptionError("'consumerGroup' is required with startingOffsets=committed")
    expression, expression_type = _expression(given)
    pull_timeout = given.integer("pullTimeoutMs", 120_000, minimum=1) / 1000
    return SourceOptions(
        cluster=_cluster(given, group or (f"{prefix}-{uuid.uuid4().hex}" if prefix else DEFAULT_GROUP)),
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        starting=starting,
        ending=_ending(given),
        fail_on_data_loss=given.boolean("failOnDataLoss", True),
        max_offsets=given.optional_integer("maxOffsetsPerTrigger"),
        max_bytes=given.optional_integer("maxBytesPerTrigger"),
        min_offsets=given.optional_integer("minOffsetsPerTrigger"),
        max_delay=given.duration("maxTriggerDelay", 900.0),
        plan=Plan(
            given.optional_integer("minPartitions") or 0,
            given.optional_integer("maxRecordsPerPartition") or 0,
            given.integer("packBelow", 20_000, minimum=0),
        ),
        commit_offsets=given.boolean("commitOffsets", group is not None),
        expression=expression,
        expression_type=expression_type,
        pull_batch_size=given.integer("pullBatchSize", 4096, minimum=1),
        pull_depth=given.integer("pullDepth", 64, minimum=1),
        patience=pull_timeout,
        include_headers=given.boolean("includeHeaders", False),
        filter_pushdown=given.boolean("filterPushdown", False),
        max_decompressed_body_size=given.integer("maxDecompressedBodySize", DEFAULT_LIMIT, minimum=1),
    )


def stream_options(options: Mapping[str, str]) -> SourceOptions:
    """Read the options of a streaming source.

    Raises:
        OptionError: As for any source, or an option says where to end.
        OffsetError: Offsets given are no such.
    """
    chosen = source_options(options)
    if chosen.ending.option:
        raise OptionError(f"option {chosen.ending.option!r} is for batches: a stream has no end")
    return chosen


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Read the options of a sink.

    Raises:
        OptionError: An option is unknown, missing or has a wrong value.
    """
    given = _GivenOptions(options, _BOTH | _WRITE, "write")
    delivery = given.choice("delivery", Delivery, Delivery.AT_LEAST_ONCE)
    id_column = given.text("idColumn")
    if delivery is Delivery.DEDUPLICATED:
        if id_column:
            raise OptionError(
                "idColumn and delivery=deduplicated are both given: the broker identifies rows by their place in the"
                " batch, not by a column; with at-least-once, consumers can identify them by idColumn"
            )
        if given.text("delayLevel"):
            raise OptionError(
                "delayLevel and delivery=deduplicated are both given: delayed messages are not deduplicated"
            )
    return SinkOptions(
        cluster=_cluster(given, given.text("producerGroup") or DEFAULT_GROUP),
        topic=given.text("topic"),
        tag=given.text("tag"),
        delay_level=given.integer("delayLevel", 0, minimum=0),
        batch_size=given.integer("batchSize", 1024, minimum=1),
        max_request_size=given.integer("maxRequestSize", 1024 * 1024, minimum=1),
        max_message_size=given.integer("maxMessageSize", 4 * 1024 * 1024, minimum=1),
        order_key=given.text("orderKey"),
        delivery=delivery,
        write_id=given.text("writeId"),
        id_column=id_column,
        depth=given.integer("sendDepth", 8, minimum=1),
        patience=given.integer("sendTimeoutMs", 120_000, minimum=1) / 1000,
    )


def stream_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Read the options of a streaming sink.

    Raises:
        OptionError: As for any sink, or an id is given: batches are numbered from 0 on when a checkpoint is new,
            and under the same id the broker would take them for those it has.
    """
    chosen = sink_options(options)
    if chosen.write_id is not None:
        raise OptionError("option 'writeId' is for batch writes: a stream is identified by its checkpoint")
    return chosen


class _GivenOptions:
    """The given options, by their documented names."""

    def __init__(self, options: Mapping[str, str], known: set[str], direction: str) -> None:
        names = {name.lower(): name for name in known} | {
            alias.lower(): name for alias, name in _ALIASES.items() if name in known
        }
        self._values: dict[str, str] = {}
        written: dict[str, str] = {}
        for key, value in options.items():
            bare = key.lower().removeprefix(PREFIX)
            if bare in _SPARKS_OWN:
                continue
            name = names.get(bare)
            if name is None:
                hint = f"; it is {_OTHERS_NAMES[bare]!r} here" if bare in _OTHERS_NAMES else suggestion(bare, known)
                raise OptionError(f"unknown option {key!r} to {direction} format 'rocketmq'{hint}")
            if name in written:
                raise OptionError(f"option {name!r} is given twice: as {written[name]!r} and as {key!r}")
            written[name] = key
            self._values[name] = value

    def text(self, name: str) -> str | None:
        value = self._values.get(name)
        if value is not None and not value.strip():
            raise OptionError(f"option {name!r} is empty")
        return value.strip() if value is not None else None

    def optional_integer(self, name: str) -> int | None:
        return self.integer(name, 0, minimum=1) if name in self._values else None

    def integer(self, name: str, default: int, *, minimum: int) -> int:
        text = self.text(name)
        if text is None:
            return default
        if not re.fullmatch(r"-?\d+", text) or int(text) < minimum:
            raise OptionError(f"option {name!r} is {text!r}: write a whole number, at least {minimum}")
        return int(text)

    def boolean(self, name: str, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in {"true", "false"}:
            raise OptionError(f"option {name!r} is {text!r}: write true or false")
        return text.lower() == "true"

    def duration(self, name: str, default: float) -> float:
        text = self.text(name)
        if text is None:
            return default
        match = _DURATION.fullmatch(text)
        if match is None:
            raise OptionError(f"option {name!r} is {text!r}: write a duration such as 30s, 15m or 500ms")
        return int(match[1]) * _UNITS[match[2]]

    def choice(self, name: str, kinds: type[E], default: E) -> E:
        text = self.text(name)
        if text is None:
            return default
        for kind in kinds:
            if kind.value == text.lower():
                return kind
        values = ", ".join(repr(kind.value) for kind in kinds)
        raise OptionError(f"option {name!r} is {text!r}: write one of {values}")

    def one_of(self, *names: str) -> tuple[str, str] | None:
        """Return the given one of several options, with its value."""
        found = [(name, value) for name in names if (value := self.text(name)) is not None]
        if len(found) > 1:
            raise OptionError(f"{' and '.join(name for name, _ in found)} are both given: give one")
        return found[0] if found else None


def _cluster(given: _GivenOptions, group: str) -> ClusterOptions:
    servers = given.text("nameServer")
    if servers is None:
        raise OptionError("option 'nameServer' is missing: write host:port, several with ';' between")
    for address in re.split(r"[;,]", servers):
        host, _, port = address.strip().rpartition(":")
        if address.strip() and not (host and port.isdecimal()):
            raise OptionError(f"option 'nameServer': {address.strip()!r} is not host:port")
    return ClusterOptions(
        servers,
        group,
        given.integer("requestTimeoutMs", 3_000, minimum=1) / 1000,
        given.integer("connectionIdleMs", 540_000, minimum=1) / 1000,
        given.integer("fetchOffset.numRetries", 3, minimum=0),
        given.integer("fetchOffset.retryIntervalMs", 1_000, minimum=0) / 1000,
        given.integer("pollNameServerIntervalMs", 30_000, minimum=1) / 1000,
        *_tls(given),
        _credentials(given),
    )


def _credentials(given: _GivenOptions) -> Credentials | None:
    access_key, secret_key = given.text("accessKey"), given.text("secretKey")
    if access_key is not None and secret_key is not None:
        return Credentials(access_key, secret_key)
    if access_key is None and secret_key is None:
        return None
    missing = "secretKey" if secret_key is None else "accessKey"
    raise OptionError(f"option {missing!r} is missing: requests are signed with accessKey and secretKey")


def _tls(given: _GivenOptions) -> tuple[bool, str | None, tuple[tuple[str, str], ...]]:
    """Return whether connections are encrypted, the file with the settings, and the settings given as options."""
    file = given.text(_TLS_FILE)
    settings = tuple((name, value) for name in _TLS if (value := given.text(name)) is not None)
    if file is not None and settings:
        raise OptionError(f"{_TLS_FILE} and {settings[0][0]} are both given: write all settings of TLS into the file")
    uses_tls = given.boolean("useTLS", False)
    if not uses_tls and (file is not None or settings):
        raise OptionError(f"{_TLS_FILE if file is not None else settings[0][0]} is given without useTLS=true")
    for name in ("tls.client.authServer", "tls.client.checkHostName"):
        given.boolean(name, True)
    if given.text("tls.client.keyPath") and not given.text("tls.client.certPath"):
        raise OptionError("'tls.client.certPath' is required with tls.client.keyPath")
    return uses_tls, file, settings


def _topics_to_read(
    given: _GivenOptions,
) -> tuple[tuple[str, ...], str | None, Mapping[str, Mapping[str, tuple[int, ...]]] | None]:
    found = given.one_of("subscribe", "topic", "subscribePattern", "assign")
    if found is None:
        raise OptionError("no option names the topics to read: give 'subscribe', 'subscribePattern' or 'assign'")
    name, value = found
    if name == "assign":
        assigned = {
            topic: {broker: tuple(sorted(ids)) for broker, ids in brokers.items()}
            for topic, brokers in offsets_option(name, value, leaves=list).items()
        }
        return tuple(sorted(assigned)), None, assigned
    if name == "subscribePattern":
        try:
            re.compile(value)
        except re.error as error:
            raise OptionError(f"option {name!r} is {value!r}: not a regular expression: {error}") from None
        return (), value, None
    topics = tuple(sorted({part.strip() for part in value.split(",")} - {""}))
    if not topics:
        raise OptionError(f"option {name!r} is {value!r}: write topics with commas between")
    return topics, None, None


def _expression(given: _GivenOptions) -> tuple[str, str]:
    found = given.one_of("tag", "sql")
    if found is None:
        return "*", "TAG"
    name, value = found
    return value, "SQL92" if name == "sql" else "TAG"


def _starting(given: _GivenOptions) -> Position | None:
    """Return where to begin; None if no option says so: then a stream begins at the latest offset, a batch at the
    earliest."""
    strategy = given.choice("startingOffsetsByTimestampStrategy", Strategy, Strategy.ERROR)
    found = given.one_of("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
    return _position(found, strategy, {"earliest", "latest", "committed"}) if found else None


def _ending(given: _GivenOptions) -> Position:
    found = given.one_of("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
    if found is None:
        return Position("latest")
    return _position(found, Strategy.LATEST, {"latest"})


def _position(found: tuple[str, str], strategy: Strategy, words: set[str]) -> Position:
    name, value = found
    if name.endswith("ByTimestamp"):
        return timestamps_option(name, value, strategy)
    if name.endswith("Timestamp"):
        if not value.isdecimal():
            raise OptionError(f"option {name!r} is {value!r}: write milliseconds since 1970")
        return Position("timestamp", option=name, timestamp=int(value), strategy=strategy)
    if value.lower() in words:
        return Position(value.lower(), option=name)
    if value.startswith("{"):
        return Position("offsets", option=name, numbers=offsets_option(name, value, leaves=dict))
    raise OptionError(
        f"option {name!r} is {value!r}: write {', '.join(sorted(words))}, or JSON"
        ' as {"topic":{"broker-a":{"0":23,"1":-2}}}'
    )
