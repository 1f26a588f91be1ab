"""The log while a Kafka broker cannot be reached."""

import logging
import socket
import threading

import pytest
from kafka import KafkaConsumer
from kafka.errors import KafkaConnectionError, KafkaTimeoutError, SaslAuthenticationFailedError

from binders.kafka import outages
from binders.kafka.repairs import abandoned_clients
from binders.kafka.repairs.bootstrapping import Bootstrapping
from tests.ports import free_ports
from tests.unit.binders.kafka.silent_broker import broker_that_falls_silent


def test_outage_is_one_line_at_its_begin_and_one_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    """However often clients try; kafka-python's own lines are left out."""
    caplog.set_level(logging.INFO)
    port = free_ports()[1]
    address = f"127.0.0.1:{port}"
    for _ in range(2):
        _connect(address, 250)
    (warning,) = (each.getMessage() for each in caplog.records if each.levelno > logging.INFO)
    assert warning.startswith(f"Kafka broker {address} cannot be reached: KafkaConnectionError: 111 ECONNREFUSED")
    with socket.create_server(("127.0.0.1", port)) as server:
        accepting = threading.Thread(target=_accept_one, args=[server])
        accepting.start()
        _connect(address, 250)
        accepting.join()
    assert f"Kafka broker {address} answers again" in caplog.messages


def _accept_one(server: socket.socket) -> None:
    server.accept()[0].close()


def _connect(address: str, milliseconds: int) -> None:
    """Try to connect for a while."""
    connections = Bootstrapping(lambda error: None, bootstrap_servers=address, reconnect_backoff_ms=10)
    connections.network.start()
    try:
        with pytest.raises(KafkaTimeoutError):
            connections.bootstrap(milliseconds)
    finally:
        abandoned_clients.end(connections)


def test_broker_that_does_not_answer_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """For each attempt to connect: kafka-python reports a time-out four times, first as that of the request."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        _connect(f"127.0.0.1:{server.getsockname()[1]}", 250)
    assert not [each for each in caplog.messages if "RequestTimedOutError" in each]
    logging.getLogger("kafka.net.connection").warning("Request timed out after 249 ms. Closing connection.")
    assert "Request timed out after 249 ms. Closing connection." in caplog.messages


def test_attempt_that_a_stop_interrupts_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The start of an application that gets a signal while a broker does not answer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connections = Bootstrapping(lambda error: None, bootstrap_servers=f"127.0.0.1:{server.getsockname()[1]}")
        connections.network.start()
        interrupting = threading.Thread(target=_interrupt_after_accepting, args=[server, connections])
        interrupting.start()
        with pytest.raises(KafkaConnectionError):
            connections.bootstrap(60_000)
        interrupting.join()
        abandoned_clients.end(connections)
    assert not [each.getMessage() for each in caplog.records if each.levelno > logging.INFO]


def _interrupt_after_accepting(server: socket.socket, connections: Bootstrapping) -> None:
    with server.accept()[0]:
        connections.interrupt()


def test_only_lines_about_connections_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """A refused user is not; with the level DEBUG everything is logged."""
    outages.without_repetitions()
    log = logging.getLogger("kafka.net.manager")
    log.error("Connection failed: %s", "KafkaConnectionError: 111 ECONNREFUSED")
    log.error("Connection failed: %s", SaslAuthenticationFailedError("no such user"))
    with caplog.at_level(logging.DEBUG, "kafka"):
        log.error("Connection failed: KafkaConnectionError again")
    assert len(caplog.messages) == 2
    assert "no such user" in caplog.messages[0]
    assert "again" in caplog.messages[1]


def test_forgotten_outage_is_logged_again(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """If no client has tried for a while, the next failure is news."""
    for forgotten_after in (600, 600, -1):
        monkeypatch.setattr(outages, "FORGOTTEN_AFTER", forgotten_after)
        outages.note_failure("far:9092", OSError("away"))
    outages.note_answer("far:9092")
    assert [message.partition(":9092 ")[2].partition(":")[0] for message in caplog.messages] == [
        "cannot be reached",
        "cannot be reached",
        "answers again",
    ]


@pytest.mark.parametrize("is_filtered", [False, True])
def test_stop_during_a_metadata_request_is_no_error(is_filtered: bool, caplog: pytest.LogCaptureFixture) -> None:
    """A client that is closed cancels the request; kafka-python by itself logs that as an error."""
    logger = logging.getLogger("kafka.cluster")
    filters, logger.filters = logger.filters, []
    try:
        if is_filtered:
            outages.without_repetitions()
        with broker_that_falls_silent() as (address, asked_again):
            client = KafkaConsumer(bootstrap_servers=address)
            client._manager.cluster.request_update()
            assert asked_again.wait(60)
            client.close()
    finally:
        logger.filters = filters
    errors = [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]
    assert errors == ([] if is_filtered else ["Metadata refresh: failed Cancelled"])
