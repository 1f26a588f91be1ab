"""What keeps a client from being connected, where no broker is needed; the rest is in `test_kafka_secured`."""

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
def test_nothing_is_left_of_a_client_that_reaches_nobody(client: type) -> None:
    """A binding is tried again and again: no threads may pile up."""
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
def test_a_file_without_certificates_is_told_before_anything_is_connected(
    tmp_path: Path, setting: str, properties: str
) -> None:
    """Whether it is none, or holds something else."""
    file = tmp_path / "it.pem"
    config = {**NOBODY, "security_protocol": "SSL", setting: str(file)}
    with pytest.raises(RefusedError, match=f"{file} cannot be used: No such file") as raised:
        connected(KafkaProducer, config)
    assert raised.value.properties[0] == properties
    file.write_text("no PEM")
    with pytest.raises(RefusedError, match=f"{file} cannot be used: it is not a PEM file of the right kind"):
        connected(KafkaProducer, config)


def test_the_error_names_the_setting_that_is_nearest_and_its_place() -> None:
    """The strongest place of the likeliest property that is set; without any, the brokers' addresses."""
    settings = {"weak.ssl.cafile": "ca.pem", "strong.security.protocol": "SSL", "brokers": "here"}
    environment = Environment.load(overrides=settings, variables={}, config_location="optional:/none")
    refusal = RefusedError("it is not trusted", ("ssl.truststore.location", "ssl.cafile", "security.protocol"))
    error = located(refusal, environment, ["strong", "weak"], "brokers")
    assert str(error) == "given in code: weak.ssl.cafile: it is not trusted"
    error = located(RefusedError("it is missing", ("other",)), environment, ["strong", "weak"], "brokers")
    assert (str(error), error.origin) == ("strong.other: it is missing", None)
    error = located(RefusedError("it is another host's"), environment, ["strong", "weak"], "brokers")
    assert str(error) == "given in code: brokers: it is another host's"


def test_a_compression_without_its_library_is_told_before_anything_is_connected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the package that it needs."""
    monkeypatch.setattr(codec, "snappy", None)
    with pytest.raises(RefusedError, match="snappy needs the package python-snappy: install it"):
        connected(KafkaProducer, {**NOBODY, "compression_type": "snappy"})


def test_properties_that_do_not_go_together_are_told_and_not_tried_again() -> None:
    """By the names that kafka-python gives them, of which one is set."""
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


def test_who_speaks_no_tls_is_told_apart_from_who_is_away() -> None:
    """A server that answers in another protocol, which another security.protocol would suit."""
    with answering(in_http) as address, pytest.raises(RefusedError, match="does not speak TLS"):
        connected(KafkaAdminClient, {"bootstrap_servers": address, "security_protocol": "SSL"})


def test_a_broker_that_refuses_does_not_speak_for_others_that_are_away() -> None:
    """They may come back, so that it is worth another try."""
    with answering(in_http) as address, pytest.raises(KafkaTimeoutError):
        connected(
            KafkaAdminClient,
            {**NOBODY, "bootstrap_servers": [address, "127.0.0.1:1"], "security_protocol": "SSL"},
        )


def test_who_has_no_cipher_in_common_is_pointed_to_the_ciphers() -> None:
    """A certificate may be what the brokers want, but they did not say so."""
    with (
        answering(without_ciphers) as address,
        pytest.raises(RefusedError, match="agree on no cipher") as raised,
    ):
        connected(KafkaAdminClient, {"bootstrap_servers": address, "security_protocol": "SSL"})
    assert raised.value.properties[0] == "ssl.cipher.suites"
    assert {"ssl.keystore.location", "security.protocol"} <= set(raised.value.properties)
