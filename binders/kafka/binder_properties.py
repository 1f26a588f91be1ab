"""The settings of the Kafka binder itself, with the names of Spring's binder."""

from datetime import timedelta
from typing import Annotated, Final

from binders.kafka.client_config import IGNORED, checked_of_clients, checked_of_consumers, checked_of_producers
from binders.kafka.properties import ClientProducerProperties
from streamkit.config.durations import Milliseconds, Positive, Seconds
from streamkit.config.setting_limits import Accepted, NotInMemory, Rejected
from streamkit.config.setting_values import After
from streamkit.config.settings_model import SettingsModel, setting

_COMMITTED: Final = Accepted("settled offsets are committed after each poll")

PREFIX: Final = "spring.cloud.stream.kafka.binder"
_NO_ZOOKEEPER: Final = Accepted("clients ask the brokers, not ZooKeeper")
DEFAULT_BROKERS: Final = ["localhost:9092"]
"""The brokers of a binder that names none."""


class TransactionProperties(SettingsModel):
    """`transaction.*`."""

    transaction_id_prefix: Annotated[str | None, NotInMemory("what a failed listener has sent is delivered")] = None
    """What a listener sends and its message's offset are one transaction, and so is each message that is sent outside
    of one. Every instance of the application needs a prefix of its own."""
    producer: ClientProducerProperties = setting(default_factory=ClientProducerProperties)


class MetricsProperties(SettingsModel):
    """`metrics.*`."""

    default_offset_lag_metrics_enabled: bool = True
    """Whether metrics tell how far the inputs are behind."""
    offset_lag_metrics_interval: Annotated[Seconds, Positive] | None = None
    """How long that is true: brokers are asked no more often; by default whenever somebody looks."""


def _checked_acks(text: str) -> str:
    if text not in ("all", "-1", "0", "1"):
        raise ValueError("expected all, 1 or 0")
    return text


class KafkaBinderProperties(SettingsModel):
    """`spring.cloud.stream.kafka.binder.*`."""

    brokers: tuple[str, ...] = ("localhost",)
    """Where clients begin: `host` or `host:port`, several separated by commas; unset:
    `spring.kafka.bootstrap-servers`."""
    default_broker_port: int = setting(default=9092, ge=1, le=65535)
    """The port of brokers that name none."""
    configuration: Annotated[dict[str, str], After(checked_of_clients), IGNORED] = setting(default_factory=dict)
    """Properties of every client, by their names in Kafka, such as `security.protocol`."""
    consumer_properties: Annotated[dict[str, str], After(checked_of_consumers), IGNORED] = setting(default_factory=dict)
    """Properties of every consumer; they win over `configuration`."""
    producer_properties: Annotated[dict[str, str], After(checked_of_producers), IGNORED] = setting(default_factory=dict)
    """Properties of every producer; they win over `configuration`."""
    required_acks: Annotated[str, After(_checked_acks)] = "all"
    """Which acknowledgments a send needs: `all`, `1`, or `0`, with which nothing is known of failures."""
    auto_create_topics: Annotated[bool, NotInMemory("topics are made when they are used")] = True
    """Whether topics that do not exist are made; else a binding is not bound without its topic."""
    auto_add_partitions: bool = False
    """Whether topics get more partitions, where they have fewer than a binding asks for."""
    min_partition_count: int = setting(default=1, ge=1)
    """Partitions of topics that are made or enlarged, at least."""
    replication_factor: int = setting(default=-1, ge=-1)
    """Replicas of each partition of topics that are made; -1: the brokers' own default."""
    health_timeout: Annotated[Seconds, Positive] = timedelta(seconds=60)
    """How long brokers may take to answer before the binder is down."""
    consider_down_when_any_partition_has_no_leader: bool = True
    """Whether one partition without a leader, of any topic in use, makes the binder down."""
    transaction: TransactionProperties = setting(default_factory=TransactionProperties)
    metrics: MetricsProperties = setting(default_factory=MetricsProperties)

    headers: Annotated[tuple[str, ...], Accepted("all headers travel as Kafka's own")] = ()
    authorization_exception_retry_interval: Annotated[
        Seconds | None, Accepted("whatever fails is tried again every second")
    ] = None
    certificate_store_directory: Annotated[str | None, Accepted("certificates are read where they are")] = None
    enable_observation: Annotated[bool, Accepted("signals report every message")] = False
    health_indicator_consumer_group: Annotated[str | None, Accepted("health needs no consumer")] = None
    zk_nodes: Annotated[tuple[str, ...], _NO_ZOOKEEPER] = ()
    default_zk_port: Annotated[int | None, _NO_ZOOKEEPER] = None
    zk_connection_timeout: Annotated[Milliseconds | None, _NO_ZOOKEEPER] = None
    zk_session_timeout: Annotated[Milliseconds | None, _NO_ZOOKEEPER] = None
    offset_update_time_window: Annotated[int | None, _COMMITTED] = None
    offset_update_count: Annotated[int | None, _COMMITTED] = None
    offset_update_shutdown_timeout: Annotated[int | None, _COMMITTED] = None
    socket_buffer_size: Annotated[int | None, Accepted("set configuration.receive.buffer.bytes")] = None
    fetch_size: Annotated[int | None, Accepted("set consumer-properties.max.partition.fetch.bytes")] = None
    max_wait: Annotated[int | None, Accepted("set consumer-properties.fetch.max.wait.ms")] = None
    queue_size: Annotated[int | None, Accepted("set consumer-properties.max.poll.records")] = None

    auto_alter_topics: Annotated[bool, Rejected("change a topic's configuration with Kafka's own tools: remove it")] = (
        False
    )
    header_mapper_bean_name: Annotated[str | None, Rejected("there is one mapping of headers: remove it")] = None
    jaas: Annotated[dict[str, str], Rejected("set configuration.sasl.mechanism and configuration.sasl.jaas.config")] = (
        setting(default_factory=dict)
    )

    @property
    def bootstrap_servers(self) -> list[str]:
        """The addresses of the brokers, each as `host:port`."""
        return [each if ":" in each else f"{each}:{self.default_broker_port}" for each in self.brokers]
