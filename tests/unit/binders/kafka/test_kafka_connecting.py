"""Errors of connecting that need no broker; the others are in `test_kafka_secured`."""

import socket
import ssl
import threading
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, codec
from kafka.errors import KafkaTimeoutError

from binders.kafka.connecting import RefusedError, connected, located
from streamkit.config.environment import Environment
from tests.unit.binders.kafka.silent_broker import answering

NOBODY = {"bootstrap_servers": "127.0.0.1:1", "bootstrap_timeout_ms": 200}


@pytest.mark.parametrize("client", [KafkaAdminClient, KafkaConsumer, KafkaProducer])
def test_failed_client_leaves_no_threads(client: type) -> None:
    """A binding retries again and again, so threads must not accumulate."""
    before = set(threading.enumerate())
    with pytest.raises(KafkaTimeoutError):
        connected(client, NOBODY)
    assert before.issuperset(threading.enumerate())


@pytest.mark.parametrize(
    ("setting", "properties"),
    [
        ("ssl_cafile", "ssl.truststore.location"),
        ("ssl_certfile", "ssl.keystore.location"),
        ("ssl_crlfile", "ssl.crlfile"),
    ],
)
def test_file_without_certificates_is_reported_before_connecting(tmp_path: Path, setting: str, properties: str) -> None:
    """Empty, or with other content."""
    file = tmp_path / "it.pem"
    config = {**NOBODY, "security_protocol": "SSL", setting: str(file)}
    with pytest.raises(RefusedError, match=f"{file} cannot be used: No such file") as raised:
        connected(KafkaProducer, config)
    assert raised.value.properties[0] == properties
    file.write_text("no PEM")
    with pytest.raises(RefusedError, match=f"{file} cannot be used: it is not a PEM file of the right kind"):
        connected(KafkaProducer, config)


def test_connection_error_names_the_most_likely_setting_and_its_origin() -> None:
    """By precedence of layers and properties; otherwise the brokers' addresses."""
    settings = {"weak.ssl.cafile": "ca.pem", "strong.security.protocol": "SSL", "brokers": "here"}
    environment = Environment.load(overrides=settings, variables={}, config_location="optional:/none")
    refusal = RefusedError("it is not trusted", ("ssl.truststore.location", "ssl.cafile", "security.protocol"))
    error = located(refusal, environment, ["strong", "weak"], "brokers")
    assert str(error) == "given in code: weak.ssl.cafile: it is not trusted"
    error = located(RefusedError("it is missing", ("other",)), environment, ["strong", "weak"], "brokers")
    assert (str(error), error.origin) == ("strong.other: it is missing", None)
    error = located(RefusedError("it is another host's"), environment, ["strong", "weak"], "brokers")
    assert str(error) == "given in code: brokers: it is another host's"


def test_compression_without_its_library_is_reported_before_connecting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the package that it needs."""
    monkeypatch.setattr(codec, "snappy", None)
    with pytest.raises(RefusedError, match="snappy needs the package python-snappy: install it"):
        connected(KafkaProducer, {**NOBODY, "compression_type": "snappy"})


def test_inconsistent_properties_are_reported_and_not_retried() -> None:
    """All of them by Kafka's names."""
    with pytest.raises(RefusedError, match="must be larger than") as raised:
        connected(KafkaConsumer, {**NOBODY, "connections_max_idle_ms": 500})
    assert raised.value.properties == ("connections.max.idle.ms", "request.timeout.ms", "fetch.max.wait.ms")


def in_http(connection: socket.socket) -> None:
    connection.recv(1)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    while connection.recv(4096):
        pass


def without_ciphers(connection: socket.socket) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # has none without a certificate
    with context.wrap_socket(connection, server_side=True):
        pass


def test_broker_without_tls_is_distinguished_from_an_unreachable_one() -> None:
    """It answers in another protocol, so the error suggests another security.protocol."""
    with answering(in_http) as address, pytest.raises(RefusedError, match="does not speak TLS"):
        connected(KafkaAdminClient, {"bootstrap_servers": address, "security_protocol": "SSL"})


def test_refusal_by_one_broker_does_not_end_retries_of_others() -> None:
    """Unreachable brokers may come back."""
    with answering(in_http) as address, pytest.raises(KafkaTimeoutError):
        connected(
            KafkaAdminClient,
            {**NOBODY, "bootstrap_servers": [address, "127.0.0.1:1"], "security_protocol": "SSL"},
        )


def test_missing_common_cipher_suggests_the_cipher_setting() -> None:
    """The brokers may want a certificate, but they did not say so."""
    with (
        answering(without_ciphers) as address,
        pytest.raises(RefusedError, match="agree on no cipher") as raised,
    ):
        connected(KafkaAdminClient, {"bootstrap_servers": address, "security_protocol": "SSL"})
    assert raised.value.properties[0] == "ssl.cipher.suites"
    assert {"ssl.keystore.location", "security.protocol"} <= set(raised.value.properties)
