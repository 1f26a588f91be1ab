"""`spring.kafka.*`: Spring Boot's settings for Kafka, weaker than the binder's own."""

import asyncio
import logging
from pathlib import Path

import pytest

from binders.kafka.binder import KafkaBinder
from binders.kafka.binder_properties import PREFIX as BINDER
from binders.kafka.binder_properties import KafkaBinderProperties
from binders.kafka.boot_properties import boot_properties
from binders.kafka.client_config import Client
from binders.kafka.clients import ClientMaker
from binders.kafka.properties import ClientProducerProperties, KafkaConsumerProperties
from streamkit.binder.binder import BinderContext, ConsumerDestination
from streamkit.binder.delivery import Delivery
from streamkit.binder.permits import Permits
from streamkit.clock import SystemClock
from streamkit.config.environment import Environment
from streamkit.config.settings import ConsumerProperties
from streamkit.errors import ConfigurationErrors
from streamkit.plugins.application_plugins import ApplicationPlugins


def clients(**settings: str) -> ClientMaker:
    """The maker of clients with settings below `spring.`."""
    environment = Environment.load(overrides={f"spring.{key}": value for key, value in settings.items()}, variables={})
    return ClientMaker(environment.bind(BINDER, KafkaBinderProperties), "shop", boot_properties(environment))


def consumer_config(maker: ClientMaker, **configuration: str) -> dict[str, object]:
    extended = KafkaConsumerProperties(configuration=configuration)
    destination = ConsumerDestination("orders", "kitchen", "in", ConsumerProperties(), extended, Delivery(), Permits(1))
    return maker.consumer_config(destination, extended, "kitchen")


OWN = "cloud.stream.kafka.binder"


@pytest.mark.parametrize(
    ("settings", "consumer", "admin"),
    [
        ({}, ["localhost:9092"], ["localhost:9092"]),
        ({"kafka.bootstrap-servers": "a:1,b:2"}, ["a:1", "b:2"], ["a:1", "b:2"]),
        ({"kafka.bootstrap-servers": "a:1", "kafka.consumer.bootstrapServers": "c:3"}, ["c:3"], ["a:1"]),
        ({"kafka.bootstrap-servers": "a:1", f"{OWN}.brokers": "b"}, ["b:9092"], ["b:9092"]),
        ({"kafka.bootstrap-servers": "a:1", f"{OWN}.brokers": "localhost"}, ["a:1"], ["a:1"]),
    ],
)
def test_brokers_are_the_binders_unless_it_has_the_default(
    settings: dict[str, str], consumer: list[str], admin: list[str]
) -> None:
    """As Spring's binder: an address that is written but equal to the default counts as none."""
    maker = clients(**settings)
    assert (maker.brokers(Client.CONSUMER), maker.brokers(Client.ADMIN)) == (consumer, admin)


def test_the_settings_are_properties_of_clients() -> None:
    """By their names in Kafka, durations in milliseconds and sizes in bytes."""
    maker = clients(
        **{
            "kafka.client-id": "till",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.ssl.trust-store-location": "file:/ca.pem",
            "kafka.properties.sasl.mechanism": "PLAIN",
            "kafka.consumer.max-poll-interval": "2m",
            "kafka.consumer.fetch-min-size": "4KB",
            "kafka.consumer.isolationLevel": "READ_COMMITTED",
            "kafka.producer.batch-size": "32KB",
            "kafka.producer.acks": "1",
            "kafka.producer.ssl.trust-store-location": "classpath:/tls/other.pem",
        }
    )
    common = {"client_id": "till", "security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}
    consumer = {"ssl_cafile": "/ca.pem", "max_poll_interval_ms": 120_000, "fetch_min_bytes": 4096}
    assert consumer_config(maker).items() >= (common | consumer | {"isolation_level": "read_committed"}).items()
    producer = {"ssl_cafile": "tls/other.pem", "batch_size": 32_768, "acks": 1}
    assert maker.producer_config(ClientProducerProperties()).items() >= (common | producer).items()


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (["kafka.consumer.max-poll-records"], 1),
        (["kafka.properties.max.poll.records", "kafka.consumer.max-poll-records"], 2),
        (["kafka.consumer.max-poll-records", "kafka.consumer.properties.max.poll.records"], 2),
        (["kafka.consumer.properties.max.poll.records", f"{OWN}.configuration.max.poll.records"], 2),
        ([f"{OWN}.configuration.max.poll.records", f"{OWN}.consumer-properties.max.poll.records"], 2),
    ],
)
def test_later_layers_win(written: list[str], expected: int) -> None:
    """The settings are numbered as they are written; the binding's own win over all."""
    maker = clients(**{key: str(number) for number, key in enumerate(written, 1)})
    assert consumer_config(maker)["max_poll_records"] == expected
    assert consumer_config(maker, **{"max.poll.records": "9"})["max_poll_records"] == 9


@pytest.mark.parametrize(
    ("settings", "milliseconds"), [({}, 10_000), ({f"{OWN}.configuration.bootstrap.timeout.ms": "3000"}, 3000)]
)
def test_attempt_to_reach_a_broker_is_bounded(settings: dict[str, str], milliseconds: int) -> None:
    """Less than kafka-python's 30 seconds, because the framework makes further attempts; of clients of each kind."""
    maker = clients(**settings)
    assert consumer_config(maker)["bootstrap_timeout_ms"] == milliseconds
    assert maker.producer_config(ClientProducerProperties())["bootstrap_timeout_ms"] == milliseconds


def test_properties_of_all_producers_win_over_required_acks() -> None:
    """As in Spring's binder, where `required-acks` is only the value where no property says another."""
    maker = clients(**{f"{OWN}.required-acks": "all", f"{OWN}.configuration.acks": "1"})
    assert maker.producer_config(ClientProducerProperties())["acks"] == 1


def test_what_has_no_effect_warns(caplog: pytest.LogCaptureFixture) -> None:
    """Settings for Spring's own classes, and keys that Spring Boot does not know."""
    with caplog.at_level(logging.WARNING):
        clients(
            **{
                "kafka.listener.ack-mode": "manual",
                "kafka.consumer.group-id": "kitchen",
                "kafka.bootstrap-server": "a:1",
                "kafka.properties.spring.json.trusted.packages": "*",
            }
        )
    said = "\n".join(caplog.messages)
    assert "spring.kafka.listener.ack-mode has no effect: it configures @KafkaListener" in said
    assert "spring.kafka.consumer.group-id has no effect: the binding's group is used" in said
    assert "spring.kafka.bootstrap-server has no effect: Spring Boot has no such setting; did you mean" in said
    assert "spring.kafka.bootstrap-servers?" in said


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("spring.kafka.consumer.fetch-min-size=much", "expected a size, such as 512B"),
        ("spring.kafka.properties.max.poll.record=5", "did you mean 'max.poll.records'"),
        ("spring.kafka.properties.schema.registry.url=http://x", "there is no client of schema registries"),
        ("spring.kafka.jaas.enabled=true", "set properties.sasl.mechanism and properties.sasl.jaas.config"),
        ("spring.kafka.ssl.bundle=mine", "name PEM files"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_line(tmp_path: Path, line: str, reason: str) -> None:
    """The line of the property itself, also if others stand before it in the same table."""
    file = tmp_path / "application.properties"
    file.write_text(f"spring.kafka.properties.security.protocol=SSL\n{line}\n")
    environment = Environment.load(config_location=str(file), variables={})
    with pytest.raises(ConfigurationErrors) as caught:
        boot_properties(environment)
    assert reason in str(caught.value)
    assert "application.properties:2" in str(caught.value)


def test_a_binder_of_its_own_has_spring_kafka_settings_of_its_own() -> None:
    """Its `environment` wins over the application's settings."""
    settings = {
        "spring.kafka.bootstrap-servers": "near:1",
        "spring.cloud.stream.binders.far.environment.spring.kafka.bootstrap-servers": "far:1",
    }
    environment = Environment.load(overrides=settings, variables={})
    below = environment.below("spring.cloud.stream.binders.far.environment")
    models = ApplicationPlugins().binder_types().extended_models
    near, far = (KafkaBinder("it", BinderContext(each, SystemClock(), "shop", models)) for each in (environment, below))
    assert asyncio.run(near.health()).details["brokers"] == "near:1"
    assert asyncio.run(far.health()).details["brokers"] == "far:1"
