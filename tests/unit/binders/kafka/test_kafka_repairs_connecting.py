"""Faults of kafka-python while it connects, each shown without and with its repair."""

import gc
import logging
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from kafka import KafkaAdminClient, KafkaConsumer
from kafka.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError, UnsupportedSaslMechanismError
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager

from binders.kafka.repairs import abandoned_clients
from binders.kafka.repairs.bootstrapping import Bootstrapping
from tests.unit.binders.kafka.silent_broker import answering, refuse_mechanism
from tests.unit.binders.kafka.test_kafka_connecting import NOBODY

LOGIN = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": "shop",
    "sasl_plain_password": "secret",
}


class Unrepaired(Bootstrapping):
    """Connections with kafka-python's own transports."""

    _build_transport = KafkaConnectionManager._build_transport


@contextmanager
def failures(kind: type[Bootstrapping], address: str, **settings: object) -> Iterator[list[BaseException]]:
    """Return why connections to a broker failed within 300 ms; the errors are kept alive."""
    found: list[BaseException] = []

    def note(error: BaseException) -> KafkaError | None:
        found.append(error)
        return None

    connections = kind(note, bootstrap_servers=address, **settings)
    connections.network.start()
    try:
        with pytest.raises(KafkaTimeoutError):
            connections.bootstrap(300)
        yield found
    finally:
        abandoned_clients.end(connections)


def test_without_the_repair_data_before_a_close_is_dropped() -> None:
    """kafka-python only reports the lost connection."""
    with answering(refuse_mechanism) as address, failures(Unrepaired, address, **LOGIN) as errors:
        assert errors
        assert not [each for each in errors if isinstance(each, UnsupportedSaslMechanismError)]


def test_data_before_a_close_is_read() -> None:
    """The repair returns the data first, and the end with the next read."""
    with answering(refuse_mechanism) as address, failures(Bootstrapping, address, **LOGIN) as errors:
        assert {type(each) for each in errors} == {UnsupportedSaslMechanismError}


def open_sockets(address: str) -> list[ssl.SSLSocket]:
    """Return this process's open TLS sockets that are connected to an address."""
    # `isinstance` would ask weak references for what they no longer refer to.
    found = [each for each in gc.get_objects() if issubclass(type(each), ssl.SSLSocket)]
    peers: list[ssl.SSLSocket] = []
    for each in found:
        with suppress(OSError):  # it is closed
            if "{}:{}".format(*each.getpeername()) == address:
                peers.append(each)
    return peers


def in_http_at_once(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.parametrize(("kind", "leaves"), [(Unrepaired, True), (Bootstrapping, False)])
def test_without_the_repair_a_failed_handshake_leaks_its_socket(kind: type[Bootstrapping], leaves: bool) -> None:
    """Until the garbage collector finds it; the repair closes it."""
    context = ssl.create_default_context()
    with (
        answering(in_http_at_once) as address,
        failures(kind, address, security_protocol="SSL", ssl_context=context) as errors,
    ):
        left = open_sockets(address)
        assert {type(each) for each in errors} == {KafkaConnectionError}
        assert bool(left) is leaves
        for each in left:
            each.close()


@contextmanager
def clients_ended() -> Iterator[dict[str, object]]:
    """Return settings by which kafka-python's clients are recorded; they are closed afterwards."""
    made: list[KafkaNetClient] = []

    def client(**settings: object) -> KafkaNetClient:
        made.append(KafkaNetClient(**settings))
        return made[-1]

    try:
        yield {"kafka_client": client}
    finally:
        for each in made:
            each._net.stop()
            each.close()


def test_without_the_repair_a_refusing_broker_is_retried_until_the_timeout(caplog: pytest.LogCaptureFixture) -> None:
    """The error says only that; for the repaired behaviour see `test_kafka_connecting`."""
    caplog.set_level(logging.DEBUG, "kafka")  # the records keep the sockets, so that they can be closed below
    with answering(in_http_at_once) as address, clients_ended() as noting:
        config = {"bootstrap_servers": address, "bootstrap_timeout_ms": 300, "security_protocol": "SSL"}
        with pytest.raises(KafkaTimeoutError, match="Unable to bootstrap"):
            KafkaAdminClient(**noting, **config)
        for each in open_sockets(address):
            each.close()


@pytest.mark.parametrize("client", [KafkaAdminClient, KafkaConsumer])
def test_without_the_repair_a_failed_client_leaks_its_thread(client: type) -> None:
    """With the repair: `test_failed_client_leaves_no_threads`."""
    before = set(threading.enumerate())
    with clients_ended() as noting:
        with pytest.raises(KafkaTimeoutError):
            client(**noting, **NOBODY)
        assert set(threading.enumerate()) - before
