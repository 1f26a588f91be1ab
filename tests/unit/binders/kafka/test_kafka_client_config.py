"""Kafka's property names and the resulting configuration of kafka-python."""

import re
from pathlib import Path

import pytest

from binders.kafka.binder_properties import KafkaBinderProperties
from binders.kafka.boot_properties import KafkaProperties
from binders.kafka.client_config import IGNORED, Client, checked, translated
from binders.kafka.clients import ClientMaker
from binders.kafka.properties import ClientProducerProperties

JAVA_PROPERTIES = Path(__file__).with_name("java_properties.txt")
PEM = {"ssl.truststore.location": "/ca.pem", "ssl.truststore.type": "PEM"}
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="secret";'


def test_names_and_types_are_converted_for_kafka_python() -> None:
    """Numbers, flags and texts; kafka-python's own spelling is accepted too."""
    properties = {"max.poll.records": "10", "check.crcs": "false", "isolation.level": "read_committed"}
    assert translated(Client.CONSUMER, properties, {"fetch_min_bytes": "5"}) == {
        "max_poll_records": 10,
        "check_crcs": False,
        "isolation_level": "read_committed",
        "fetch_min_bytes": 5,
    }


def test_every_property_of_javas_clients_is_known() -> None:
    """Of kafka-clients 3.9.1, 4.1.1 and 4.3.1 (`ConsumerConfig.configNames()`…); each refusal has a reason."""
    reported = [_refusal(*line.split()) for line in JAVA_PROPERTIES.read_text().splitlines()]
    assert not [each for each in reported if "is not a property of" in each]


def _refusal(client: str, name: str) -> str:
    try:
        checked({name: "1"}, Client(client))
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bootstrap.servers", "spring.cloud.stream.kafka.binder.brokers"),
        ("ssl.truststore.certificates", "ssl.truststore.location"),
        ("sasl.oauthbearer.token.endpoint.url", "does not support tokens"),
        ("config.providers", "placeholders of their own"),
    ],
)
def test_unsupported_security_properties_are_refused(name: str, message: str) -> None:
    """A warning is not enough: the client would trust others than intended."""
    with pytest.raises(ValueError, match=re.escape(message)):
        checked({name: "x"}, *Client)


def test_later_layers_take_precedence() -> None:
    """The binding's properties override the binder's."""
    assert translated(Client.PRODUCER, {"acks": "all"}, {"acks": "1"}) == {"acks": 1}


def test_properties_of_other_clients_are_left_out() -> None:
    """Properties for all clients reach only those that know them."""
    both = {"linger.ms": "5", "max.poll.records": "10", "client.id": "shop"}
    assert translated(Client.CONSUMER, both) == {"max_poll_records": 10, "client_id": "shop"}
    assert translated(Client.PRODUCER, both) == {"linger_ms": 5, "client_id": "shop"}
    assert translated(Client.ADMIN, both) == {"client_id": "shop"}


def test_credentials_are_read_from_the_login_module() -> None:
    """As for Java's clients."""
    properties = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN}
    assert translated(Client.ADMIN, properties) == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "me",
        "sasl_plain_password": "secret",
    }


@pytest.mark.parametrize(
    ("options", "user", "password"),
    [
        ("username='me' password='it is \"secret\"';", "me", 'it is "secret"'),
        ("username=me password=secret;", "me", "secret"),
        (r'username="me" password="a\"b\\c";', "me", r'a"b\c'),
        (r'username="me" password="a\tb\44\q";', "me", "a\tb$q"),
        ('password="username=you" username="me";', "me", "username=you"),
    ],
)
def test_login_module_values_are_parsed_as_in_java(options: str, user: str, password: str) -> None:
    """In quotes of either kind, with escapes, or without quotes."""
    config = translated(Client.ADMIN, {"sasl.jaas.config": f"x.PlainLoginModule required {options}"})
    assert config == {"sasl_plain_username": user, "sasl_plain_password": password}


def test_trust_and_key_stores_are_pem_files() -> None:
    """They become kafka-python's CA file and certificate file."""
    properties = PEM | {
        "ssl.keystore.location": "file:/me.pem",
        "ssl.key.password": "secret",
        "ssl.endpoint.identification.algorithm": "",
        "ssl.cipher.suites": "A,B",
    }
    assert translated(Client.ADMIN, properties) == {
        "ssl_cafile": "/ca.pem",
        "ssl_certfile": "/me.pem",
        "ssl_password": "secret",
        "ssl_check_hostname": False,
        "ssl_ciphers": "A:B",
    }


def test_javas_assignors_are_known() -> None:
    """By their classes or by their protocol names."""
    name = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
    config = translated(Client.CONSUMER, {"partition.assignment.strategy": name})
    assert config == {"partition_assignment_strategy": ("cooperative-sticky",)}
    several = {"partition.assignment.strategy": "range, org.apache.kafka.clients.consumer.RoundRobinAssignor"}
    assert translated(Client.CONSUMER, several) == {"partition_assignment_strategy": ("range", "roundrobin")}


def test_property_without_effect_is_left_out() -> None:
    """Java's clients know the name; the settings that have it warn that it has no effect."""
    assert translated(Client.CONSUMER, {"enable.auto.commit": "true"}) == {}
    assert IGNORED.why("enable.auto.commit") == "offsets follow the settlements of messages"


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"max.poll.record": "10"}, "did you mean 'max.poll.records'"),
        ({"max.poll.records": "many"}, "max.poll.records: expected a whole number, not 'many'"),
        ({"check.crcs": "yes"}, "check.crcs: expected true or false, not 'yes'"),
        ({"linger.ms": "5"}, "'linger.ms' is not a property of Kafka's consumer"),
        ({"sasl.jaas.config": "nonsense"}, "expected a login module"),
        ({"ssl.truststore.location": "/trust.jks"}, "is a Java key store"),
        ({"partition.assignment.strategy": "Fair"}, "'Fair' is not one of RangeAssignor"),
        (
            {"partition.assignment.strategy": "RangeAssignor, CooperativeStickyAssignor"},
            "has to be the only assignor",
        ),
    ],
)
def test_invalid_property_is_reported_before_connecting(properties: dict[str, str], message: str) -> None:
    """An unknown name with the nearest one, a value with what is expected."""
    with pytest.raises(ValueError, match=message):
        checked(properties, Client.CONSUMER)


def test_producer_metrics_are_off_by_default() -> None:
    """kafka-python would collect them unread; a customizer may enable them."""
    config = ClientMaker(KafkaBinderProperties(), "shop", KafkaProperties()).producer_config(ClientProducerProperties())
    assert config["metrics_enabled"] is False
