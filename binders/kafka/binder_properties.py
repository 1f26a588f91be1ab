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
    """Setting it turns transactions on: the messages that a listener sends and the offset of its message are one
    transaction, and each message sent elsewhere is another. Every instance of the application needs its own prefix."""
    producer: ClientProducerProperties = setting(default_factory=ClientProducerProperties)


class MetricsProperties(SettingsModel):
    """`metrics.*`."""

    default_offset_lag_metrics_enabled: bool = True
    """Whether the metrics include the lag of the inputs."""
    offset_lag_metrics_interval: Annotated[Seconds, Positive] | None = None
    """How long a lag is cached. Unset: brokers are asked whenever the metrics are read."""


def _checked_acks(text: str) -> str:
    if text not in ("all", "-1", "0", "1"):
        raise ValueError("expected all, 1 or 0")
    return text


class KafkaBinderProperties(SettingsModel):
    """`spring.cloud.stream.kafka.binder.*`."""

    brokers: tuple[str, ...] = ("localhost",)
    """The bootstrap servers: `host` or `host:port`, separated by commas. Unset: `spring.kafka.bootstrap-servers`."""
    default_broker_port: int = setting(default=9092, ge=1, le=65535)
    """The port of brokers that are given without one."""
    configuration: Annotated[dict[str, str], After(checked_of_clients), IGNORED] = setting(default_factory=dict)
    """Properties of every client, by Kafka's names, such as `security.protocol`."""
    consumer_properties: Annotated[dict[str, str], After(checked_of_consumers), IGNORED] = setting(default_factory=dict)
    """Properties of every consumer. They override `configuration`."""
    producer_properties: Annotated[dict[str, str], After(checked_of_producers), IGNORED] = setting(default_factory=dict)
    """Properties of every producer. They override `configuration`."""
    required_acks: Annotated[str, After(_checked_acks)] = "all"
    """The acknowledgments that a send waits for: `all`, `1` or `0`. With `0`, failures stay unnoticed."""
    auto_create_topics: Annotated[bool, NotInMemory("topics are made when they are used")] = True
    """Whether missing topics are created. If not, a binding whose topic is missing is not bound."""
    auto_add_partitions: bool = False
    """Whether partitions are added to topics that have fewer than a binding asks for."""
    min_partition_count: int = setting(default=1, ge=1)
    """The fewest partitions of topics that are created or enlarged."""
    replication_factor: int = setting(default=-1, ge=-1)
    """The replicas of each partition of topics that are created. -1: the brokers' default."""
    health_timeout: Annotated[Seconds, Positive] = timedelta(seconds=60)
    """How long brokers may take to answer before health reports the binder as down."""
    consider_down_when_any_partition_has_no_leader: bool = True
    """Whether health reports the binder as down if any partition of a topic in use has no leader."""
    transaction: TransactionProperties = setting(default_factory=TransactionProperties)
    metrics: MetricsProperties = setting(default_factory=MetricsProperties)

    headers: Annotated[tuple[str, ...], Accepted("all headers are sent as Kafka's own headers")] = ()
    authorization_exception_retry_interval: Annotated[
        Seconds | None, Accepted("whatever fails is tried again every second")
    ] = None
    certificate_store_directory: Annotated[str | None, Accepted("certificates are read from their own files")] = None
    enable_observation: Annotated[bool, Accepted("the signals of the application report every message")] = False
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
    header_mapper_bean_name: Annotated[str | None, Rejected("headers are mapped in one way only: remove it")] = None
    jaas: Annotated[dict[str, str], Rejected("set configuration.sasl.mechanism and configuration.sasl.jaas.config")] = (
        setting(default_factory=dict)
    )

    @property
    def bootstrap_servers(self) -> list[str]:
        """The addresses of the brokers, each as `host:port`."""
        return [each if ":" in each else f"{each}:{self.default_broker_port}" for each in self.brokers]
