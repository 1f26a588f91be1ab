"""The settings `spring.kafka.*`, with the names of Spring Boot, which Spring's Kafka binder merges into its own.

Every client is configured by these layers, from the weakest to the strongest:

1. `spring.kafka.*`;
2. `spring.kafka.consumer.*`, `producer.*` or `admin.*`;
3. the binder's `configuration`, then its `consumer-properties` or `producer-properties`;
4. the binding's `configuration`.

In each of the first two, `properties` are the strongest. Brokers are those of the binder; if it names none, those of
the client, then those of `spring.kafka.bootstrap-servers`.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from enum import Enum
from typing import Annotated, Any, ClassVar, Final

from binders.kafka.client_config import (
    IGNORED,
    Client,
    checked,
    checked_of_clients,
    checked_of_consumers,
    checked_of_producers,
)
from streamkit.config.data_sizes import DataSize
from streamkit.config.durations import Milliseconds
from streamkit.config.environment import Environment
from streamkit.config.origin import scalar_text
from streamkit.config.relaxed import uniform_key
from streamkit.config.setting_limits import Accepted, Rejected
from streamkit.config.setting_values import After
from streamkit.config.settings_model import SettingsModel, SharedSettingsModel, setting
from streamkit.config.shape import section_of
from streamkit.config.tree import unknown_setting
from streamkit.config.verdict import SettingWarning

__all__ = ["PREFIX", "KafkaProperties", "boot_properties"]

PREFIX: Final = "spring.kafka"

_CONVERTED: Final = Accepted("payloads are read and written by the binding's content type")
_OF_THE_BINDING: Final = Accepted("the binding's group is used")
_SETTLED: Final = Accepted("offsets follow the settlements of messages")
_OF_THE_BINDER: Final = Accepted("the binder creates topics by its own settings")
_TRANSACTIONS: Final = Accepted("set spring.cloud.stream.kafka.binder.transaction.transaction-id-prefix")
_NO_BUNDLES: Final = Rejected("there are no bundles: name PEM files by trust-store-location and key-store-location")
_NO_JAAS: Final = Rejected("set properties.sasl.mechanism and properties.sasl.jaas.config", only=(True,))
_NO_LISTENERS: Final = Accepted("it configures @KafkaListener: bindings have their own settings")
_NO_TEMPLATE: Final = Accepted("it configures KafkaTemplate: bindings have their own settings")
_NO_STREAMS: Final = Accepted("it configures Kafka Streams, which has no binder here")


def _of_admins(properties: dict[str, str]) -> dict[str, str]:
    return checked(properties, Client.ADMIN)


class _Named(SharedSettingsModel):
    """Settings that are properties of Kafka's clients under other names.

    Attributes:
        kafka_names: The names in Kafka, by field.
    """

    kafka_names: ClassVar[Mapping[str, str]] = {}

    def client_properties(self) -> dict[str, str]:
        """Return the properties that are set, by their names in Kafka."""
        return {
            name: _text(value)
            for field, name in self.kafka_names.items()
            if (value := getattr(self, field)) is not None
        }


class SslProperties(_Named):
    """`ssl.*`."""

    kafka_names: ClassVar[Mapping[str, str]] = {
        "key_password": "ssl.key.password",
        "key_store_certificate_chain": "ssl.keystore.certificate.chain",
        "key_store_key": "ssl.keystore.key",
        "key_store_location": "ssl.keystore.location",
        "key_store_password": "ssl.keystore.password",
        "key_store_type": "ssl.keystore.type",
        "trust_store_certificates": "ssl.truststore.certificates",
        "trust_store_location": "ssl.truststore.location",
        "trust_store_type": "ssl.truststore.type",
    }

    key_password: str | None = None
    """The password of the client's key."""
    key_store_location: str | None = None
    """A PEM file with the client's certificate and key."""
    key_store_password: str | None = None
    """The password of that file, if `key-password` is not set."""
    key_store_type: str | None = None
    """The type of the file: `PEM`. Other types cannot be read."""
    trust_store_location: str | None = None
    """A PEM file with the certificates that are trusted."""
    trust_store_type: str | None = None
    """The type of the file: `PEM`. Other types cannot be read."""
    bundle: Annotated[str | None, _NO_BUNDLES] = None
    key_store_certificate_chain: Annotated[str | None, Rejected("name a PEM file by key-store-location")] = None
    key_store_key: Annotated[str | None, Rejected("name a PEM file by key-store-location")] = None
    trust_store_certificates: Annotated[str | None, Rejected("name a PEM file by trust-store-location")] = None
    trust_store_password: Annotated[str | None, Accepted("PEM files have no password")] = None
    protocol: Annotated[str | None, Accepted("Python chooses the version of TLS")] = None


class SecurityProperties(_Named):
    """`security.*`."""

    kafka_names: ClassVar[Mapping[str, str]] = {"protocol": "security.protocol"}

    protocol: str | None = None
    """The protocol between clients and brokers: `PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`."""


class _ClientSettings(_Named):
    """The settings that clients of all kinds have."""

    client_id: str | None = None
    """The name of the client in the brokers' logs. Unset: the application's name."""
    ssl: SslProperties = setting(default_factory=SslProperties)
    """Certificates and keys."""
    security: SecurityProperties = setting(default_factory=SecurityProperties)
    """The protocol between clients and brokers."""
    properties: dict[str, str] = setting(default_factory=dict)
    """Properties of clients, by Kafka's names."""

    def client_properties(self) -> dict[str, str]:
        """Return the properties that are set, by their names in Kafka; `properties` are the strongest."""
        return {
            **super().client_properties(),
            **self.ssl.client_properties(),
            **self.security.client_properties(),
            **self.properties,
        }


class IsolationLevel(Enum):
    """Which records a consumer sees."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class ConsumerProperties(_ClientSettings):
    """`consumer.*`."""

    kafka_names: ClassVar[Mapping[str, str]] = {
        "auto_commit_interval": "auto.commit.interval.ms",
        "auto_offset_reset": "auto.offset.reset",
        "client_id": "client.id",
        "fetch_max_wait": "fetch.max.wait.ms",
        "fetch_min_size": "fetch.min.bytes",
        "heartbeat_interval": "heartbeat.interval.ms",
        "isolation_level": "isolation.level",
        "max_poll_interval": "max.poll.interval.ms",
        "max_poll_records": "max.poll.records",
    }

    bootstrap_servers: list[str] | None = None
    """The bootstrap servers of consumers, instead of `spring.kafka.bootstrap-servers`."""
    auto_commit_interval: Milliseconds | None = None
    """How often offsets are committed with `ack-mode=TIME`."""
    auto_offset_reset: str | None = None
    """Where a group without committed offset begins: `earliest` or `latest`."""
    fetch_max_wait: Milliseconds | None = None
    """How long a broker waits until it can answer with `fetch-min-size`."""
    fetch_min_size: DataSize | None = None
    """The fewest bytes with which a broker answers a fetch."""
    heartbeat_interval: Milliseconds | None = None
    """The time between two heartbeats of a member of a group."""
    isolation_level: IsolationLevel | None = None
    """Whether messages of open and aborted transactions are received."""
    max_poll_interval: Milliseconds | None = None
    """The longest time between two polls, after which the group removes the member."""
    max_poll_records: int | None = setting(default=None, ge=1)
    """The most records that a poll returns."""
    properties: Annotated[dict[str, str], After(checked_of_consumers), IGNORED] = setting(default_factory=dict)
    """Properties of consumers, by Kafka's names."""
    enable_auto_commit: Annotated[bool | None, _SETTLED] = None
    group_id: Annotated[str | None, _OF_THE_BINDING] = None
    key_deserializer: Annotated[str | None, _CONVERTED] = None
    value_deserializer: Annotated[str | None, _CONVERTED] = None


class ProducerProperties(_ClientSettings):
    """`producer.*`."""

    kafka_names: ClassVar[Mapping[str, str]] = {
        "acks": "acks",
        "batch_size": "batch.size",
        "client_id": "client.id",
        "compression_type": "compression.type",
        "retries": "retries",
    }

    bootstrap_servers: list[str] | None = None
    """The bootstrap servers of producers, instead of `spring.kafka.bootstrap-servers`."""
    acks: str | None = None
    """The acknowledgments that a send waits for, instead of the binder's `required-acks`."""
    batch_size: DataSize | None = None
    """The most bytes of one partition's messages that are sent together, instead of the bindings' `buffer-size`."""
    compression_type: str | None = None
    """How batches are compressed, instead of the bindings' `compression-type`."""
    retries: int | None = setting(default=None, ge=0)
    """How often a failed send is tried again."""
    properties: Annotated[dict[str, str], After(checked_of_producers), IGNORED] = setting(default_factory=dict)
    """Properties of producers, by Kafka's names."""
    buffer_memory: Annotated[DataSize | None, Accepted("kafka-python has no such property")] = None
    key_serializer: Annotated[str | None, _CONVERTED] = None
    transaction_id_prefix: Annotated[str | None, _TRANSACTIONS] = None
    value_serializer: Annotated[str | None, _CONVERTED] = None


class AdminProperties(_ClientSettings):
    """`admin.*`."""

    kafka_names: ClassVar[Mapping[str, str]] = {"client_id": "client.id"}

    properties: Annotated[dict[str, str], After(_of_admins), IGNORED] = setting(default_factory=dict)
    """Properties of the client that creates topics, by Kafka's names."""
    auto_create: Annotated[bool, _OF_THE_BINDER] = True
    close_timeout: Annotated[Milliseconds | None, _OF_THE_BINDER] = None
    fail_fast: Annotated[bool, _OF_THE_BINDER] = False
    modify_topic_configs: Annotated[bool, _OF_THE_BINDER] = False
    operation_timeout: Annotated[Milliseconds | None, _OF_THE_BINDER] = None


class JaasProperties(SharedSettingsModel):
    """`jaas.*`."""

    enabled: Annotated[bool, _NO_JAAS] = False


class KafkaProperties(_ClientSettings):
    """`spring.kafka.*`."""

    kafka_names: ClassVar[Mapping[str, str]] = {"client_id": "client.id"}

    bootstrap_servers: list[str] = setting(default=["localhost:9092"])
    """The bootstrap servers of binders that set no `brokers`: `host:port`, separated by commas."""
    properties: Annotated[dict[str, str], After(checked_of_clients), IGNORED] = setting(default_factory=dict)
    """Properties of all clients, by Kafka's names."""
    consumer: ConsumerProperties = setting(default_factory=ConsumerProperties)
    """The consumers."""
    producer: ProducerProperties = setting(default_factory=ProducerProperties)
    """The producers."""
    admin: AdminProperties = setting(default_factory=AdminProperties)
    """The client that creates topics."""
    jaas: JaasProperties = setting(default_factory=JaasProperties)
    listener: Annotated[dict[str, Any], _NO_LISTENERS] = setting(default_factory=dict)
    retry: Annotated[dict[str, Any], _NO_LISTENERS] = setting(default_factory=dict)
    streams: Annotated[dict[str, Any], _NO_STREAMS] = setting(default_factory=dict)
    template: Annotated[dict[str, Any], _NO_TEMPLATE] = setting(default_factory=dict)

    def of(self, client: Client) -> dict[str, str]:
        """Return the properties of clients of a kind, by their names in Kafka."""
        return {**self.client_properties(), **self._settings_of(client).client_properties()}

    def brokers_of(self, client: Client) -> list[str]:
        """Return the addresses of the brokers of clients of a kind."""
        return getattr(self._settings_of(client), "bootstrap_servers", None) or self.bootstrap_servers

    def _settings_of(self, client: Client) -> _ClientSettings:
        return {Client.CONSUMER: self.consumer, Client.PRODUCER: self.producer, Client.ADMIN: self.admin}[client]


def boot_properties(environment: Environment) -> KafkaProperties:
    """Return the settings, and log a warning for each key that Spring Boot does not know.

    Raises:
        ConfigurationErrors: A value is wrong, or a setting is not supported.
    """
    environment.note(_unknown(environment, KafkaProperties))
    return environment.bind(PREFIX, KafkaProperties)


def _unknown(environment: Environment, model: type[SettingsModel]) -> Iterator[SettingWarning]:
    """Yield a warning for each unknown key: an application may keep settings of its own beside Spring Boot's."""
    section = section_of(model)
    for source in environment.sources:
        for entry in source.entries(uniform_key(PREFIX)):
            if next(section.locate(entry.segments, entry.loose), None) is None:
                near = unknown_setting(PREFIX, section, entry).suggestion
                hint = f"; did you mean {near}?" if near else ""
                yield SettingWarning(entry.value, f"Spring Boot has no such setting{hint}")


def _text(value: object) -> str:
    match value:
        case timedelta():
            return f"{value / timedelta(milliseconds=1):.0f}"
        case Enum():
            return str(value.value)
        case str() | int() | float() | bool():
            return scalar_text(value)
    raise TypeError(f"{value!r} is not a value of a client's property")
