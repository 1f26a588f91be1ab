"""The Kafka binder's settings, by the names of Spring's."""

from datetime import timedelta
from pathlib import Path

import pytest

from binders.kafka.binder_properties import PREFIX, KafkaBinderProperties
from binders.kafka.properties import AckMode, KafkaConsumerProperties, KafkaProducerProperties
from streamkit.binder.delivery import Delivery, StartPosition
from streamkit.config.environment import Environment
from streamkit.config.explain import setting_text
from streamkit.config.secret import is_secret
from streamkit.errors import ConfigurationErrors
from streamkit.messaging.message import Message

KAFKA = "spring.cloud.stream.kafka"


def environment(**settings: str) -> Environment:
    return Environment.load(overrides=settings, variables={})


def consumer(**settings: str) -> KafkaConsumerProperties:
    keys = {f"{KAFKA}.bindings.input.consumer.{key}": value for key, value in settings.items()}
    return environment(**keys).bind_extended("kafka", "input", "consumer", KafkaConsumerProperties)


def producer(**settings: str) -> KafkaProducerProperties:
    keys = {f"{KAFKA}.bindings.output.producer.{key}": value for key, value in settings.items()}
    return environment(**keys).bind_extended("kafka", "output", "producer", KafkaProducerProperties)


def binder(**settings: str) -> KafkaBinderProperties:
    keys = {f"{PREFIX}.{key}": value for key, value in settings.items()}
    return environment(**keys).bind(PREFIX, KafkaBinderProperties)


def test_what_a_binding_means_that_sets_nothing() -> None:
    """One call at a time per partition, no redelivery, from the first message; a batch is what a poll may bring."""
    assert consumer().delivery() == Delivery(
        ordered=True, max_reconsume_times=0, start=StartPosition.EARLIEST, batch_size=500
    )


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"batch-size": "8", "configuration.max.poll.records": "9"}, 8),
        ({"configuration.max.poll.records": "9"}, 9),
    ],
)
def test_how_large_a_batch_is(settings: dict[str, str], expected: int) -> None:
    """Its own setting, else as many as a poll brings."""
    assert consumer(**settings).delivery().batch_size == expected


def test_settings_have_their_portable_meaning() -> None:
    """By the names of the in-memory binder, since Spring's has none for them."""
    found = consumer(
        **{
            "ordered": "false",
            "maxReconsumeTimes": "3",
            "redelivery-delays": "1s 2s 3s 4s",
            "suspend": "250ms",
            "consume-timeout": "2m",
            "startOffset": "latest",
        }
    ).delivery()
    assert not found.ordered
    assert found.redelivery_limit == 3
    assert found.redelivery_delay(0) == timedelta(seconds=3)
    assert found.suspend == timedelta(milliseconds=250)
    assert found.consume_timeout == timedelta(minutes=2)
    assert found.start is StartPosition.LATEST


@pytest.mark.parametrize("spelling", ["manual_immediate", "MANUAL_IMMEDIATE", "manual-immediate"])
def test_ack_modes_are_spelled_as_spring_allows(spelling: str) -> None:
    """In any case, with any separator."""
    assert consumer(ackMode=spelling).ack_mode is AckMode.MANUAL_IMMEDIATE


def test_brokers_without_a_port_get_the_default_one() -> None:
    """`brokers` lists hosts with or without one."""
    assert binder().bootstrap_servers == ["localhost:9092"]
    found = binder(brokers="one, two:1234", defaultBrokerPort="9093").bootstrap_servers
    assert found == ["one:9093", "two:1234"]


def test_the_clients_properties_keep_their_dots() -> None:
    """Whatever stands behind `configuration` is a name of Kafka's."""
    found = binder(**{"configuration.security.protocol": "SSL", "consumerProperties.fetch.min.bytes": "5"})
    assert found.configuration == {"security.protocol": "SSL"}
    assert found.consumer_properties == {"fetch.min.bytes": "5"}


def test_a_key_may_be_made_by_an_expression() -> None:
    """Of the message as it is sent."""
    key = producer(messageKeyExpression="headers['customer']").message_key
    assert key is not None
    assert key(Message("x", {"customer": "c1"})) == "c1"
    assert producer().message_key is None


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("bindings.in.consumer.configuration.max.poll.record=5", "did you mean 'max.poll.records'"),
        ("bindings.in.consumer.configuration.bootstrap.servers=x:1", "a binding uses its binder's brokers"),
        ("bindings.out.producer.message-key-expression=payload.", "message-key-expression"),
        ("bindings.in.consumer.start-offset=newest", "earliest"),
        ("bindings.in.consumer.converter-bean-name=mine", "there are no Spring beans"),
        ("bindings.out.producer.admin.replication-factor=2", "use topic.* instead"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, line: str, told: str) -> None:
    """File, line, and what to do instead."""
    file = tmp_path / "application.properties"
    file.write_text(f"# shop\n{KAFKA}.{line}\n")
    found = Environment.load(config_location=str(file), variables={})
    side = "consumer" if ".consumer." in line else "producer"
    model = KafkaConsumerProperties if side == "consumer" else KafkaProducerProperties
    with pytest.raises(ConfigurationErrors) as caught:
        found.bind_extended("kafka", "in" if side == "consumer" else "out", side, model)
    text = str(caught.value)
    assert told in text
    assert "application.properties:2" in text


def test_passwords_among_the_clients_properties_are_shown_to_nobody() -> None:
    """Neither in a report nor where settings are explained: passwords, logins, private keys."""
    properties = {
        "sasl.jaas.config": 'x required username="me" password="hush";',
        "ssl.key.password": "hush",
        "max.poll.records": "5",
    }
    assert setting_text(properties) == ("sasl.jaas.config=******,ssl.key.password=******,max.poll.records=5")
    assert is_secret(f"{PREFIX}.configuration.sasl.jaas.config")


def test_a_login_that_cannot_be_read_is_not_shown() -> None:
    """The error says what is expected of it, not what it is."""
    with pytest.raises(ConfigurationErrors, match="expected a login module") as caught:
        consumer(**{"configuration.sasl.jaas.config": "module required password=hunter2"})
    assert "hunter2" not in str(caught.value)
    assert all("hunter2" not in str(error.value) for error in caught.value.errors)
