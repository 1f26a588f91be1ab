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


def test_defaults_of_a_binding() -> None:
    """One call at a time per partition, no redelivery, from the first message; a batch is what a poll may return."""
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
def test_batch_size_is_its_setting_or_max_poll_records(settings: dict[str, str], expected: int) -> None:
    """The former takes precedence."""
    assert consumer(**settings).delivery().batch_size == expected


def test_settings_with_portable_names() -> None:
    """The names are the in-memory binder's, since Spring has none for them."""
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


def test_brokers_without_a_port_get_the_default_port() -> None:
    """`brokers` lists hosts with or without a port."""
    assert binder().bootstrap_servers == ["localhost:9092"]
    found = binder(brokers="one, two:1234", defaultBrokerPort="9093").bootstrap_servers
    assert found == ["one:9093", "two:1234"]


def test_client_properties_keep_their_dots() -> None:
    """Everything after `configuration` is a name of Kafka's."""
    found = binder(**{"configuration.security.protocol": "SSL", "consumerProperties.fetch.min.bytes": "5"})
    assert found.configuration == {"security.protocol": "SSL"}
    assert found.consumer_properties == {"fetch.min.bytes": "5"}


def test_key_expression_is_parsed() -> None:
    """It is evaluated on the message as it is sent."""
    key = producer(messageKeyExpression="headers['customer']").message_key
    assert key is not None
    assert key(Message("x", {"customer": "c1"})) == "c1"
    assert producer().message_key is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("bindings.in.consumer.configuration.max.poll.record=5", "did you mean 'max.poll.records'"),
        ("bindings.in.consumer.configuration.bootstrap.servers=x:1", "a binding uses its binder's brokers"),
        ("bindings.out.producer.message-key-expression=payload.", "message-key-expression"),
        ("bindings.in.consumer.start-offset=newest", "earliest"),
        ("bindings.in.consumer.converter-bean-name=mine", "there are no Spring beans"),
        ("bindings.out.producer.admin.replication-factor=2", "use topic.* instead"),
    ],
)
def test_invalid_setting_is_reported_with_file_and_line(tmp_path: Path, line: str, message: str) -> None:
    """And with what to write instead."""
    file = tmp_path / "application.properties"
    file.write_text(f"# shop\n{KAFKA}.{line}\n")
    found = Environment.load(config_location=str(file), variables={})
    side = "consumer" if ".consumer." in line else "producer"
    model = KafkaConsumerProperties if side == "consumer" else KafkaProducerProperties
    with pytest.raises(ConfigurationErrors) as caught:
        found.bind_extended("kafka", "in" if side == "consumer" else "out", side, model)
    text = str(caught.value)
    assert message in text
    assert "application.properties:2" in text


def test_secrets_in_client_properties_are_masked() -> None:
    """Passwords, logins and private keys, in reports and where settings are explained."""
    properties = {
        "sasl.jaas.config": 'x required username="me" password="hush";',
        "ssl.key.password": "hush",
        "max.poll.records": "5",
    }
    assert setting_text(properties) == ("sasl.jaas.config=******,ssl.key.password=******,max.poll.records=5")
    assert is_secret(f"{PREFIX}.configuration.sasl.jaas.config")


def test_malformed_login_is_not_shown() -> None:
    """The error says only what is expected."""
    with pytest.raises(ConfigurationErrors, match="expected a login module") as caught:
        consumer(**{"configuration.sasl.jaas.config": "module required password=hunter2"})
    assert "hunter2" not in str(caught.value)
    assert all("hunter2" not in str(error.value) for error in caught.value.errors)
