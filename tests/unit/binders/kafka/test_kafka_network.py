"""Socket connections: writes are sent at once, reads are not split, and a connection stays registered."""

import selectors
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from kafka.errors import KafkaConnectionError

from binders.kafka.repairs.network import Network
from binders.kafka.repairs.transports import _PlainTransport


class Protocol:
    """The protocol object that kafka-python gives its transport."""

    _sensors = None

    def __init__(self) -> None:
        self.data = bytearray()
        self.lost: list[Exception | None] = []

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.append(error)


class CountingSelector(selectors.DefaultSelector):  # type: ignore[valid-type, misc]  # it depends on the system
    """A selector that counts registrations."""

    registered = 0

    def register(self, *details: object) -> selectors.SelectorKey:
        self.registered += 1
        return super().register(*details)


@contextmanager
def connected() -> Iterator[tuple[Network, _PlainTransport, Protocol, socket.socket]]:
    """Return a reading transport and the other end of its socket."""
    here, there = socket.socketpair()
    here.setblocking(False)
    network = Network(selector=CountingSelector)
    protocol = Protocol()
    transport = _PlainTransport(network, here)
    transport.set_protocol(protocol)
    transport.resume_reading()
    network.poll(timeout_ms=0)
    try:
        yield network, transport, protocol, there
    finally:
        transport.abort()
        there.close()
        network.close()


def test_write_is_sent_at_once() -> None:
    """In order, before the next poll."""
    with connected() as (_, transport, _, there):
        transport.write(b"one")
        transport.write(b"two")
        assert there.recv(100) == b"onetwo"


def test_unsent_rest_is_sent_when_the_socket_is_writable() -> None:
    """Later writes follow it."""
    with connected() as (network, transport, _, there):
        transport.write(b"x" * 5_000_000)
        transport.write(b"end")
        received = bytearray()
        while not received.endswith(b"end"):
            with suppress(BlockingIOError):
                received += there.recv(1 << 20, socket.MSG_DONTWAIT)
            network.poll(timeout_ms=0)
        assert len(received) == 5_000_003


def test_write_to_a_closed_socket_ends_the_connection_at_the_next_poll() -> None:
    """Not within the write, because the caller registers its request first."""
    with connected() as (network, transport, protocol, there):
        there.close()
        transport.write(b"x")
        assert protocol.lost == []
        network.poll(timeout_ms=0)
        (error,) = protocol.lost
        assert isinstance(error, KafkaConnectionError)


@pytest.mark.parametrize("size", [1, 65_536, 200_000])
def test_data_is_read_completely(size: int) -> None:
    """In reads of any size; the connection is registered only once."""
    with connected() as (network, _, protocol, there):
        before = network._selector.registered
        for part in (b"a", b"b", b"c"):
            sent = 0
            while sent < size:
                sent += there.send(part * (size - sent), socket.MSG_DONTWAIT)
                network.poll(timeout_ms=0)
            network.poll(timeout_ms=0)
        assert protocol.data == b"a" * size + b"b" * size + b"c" * size
        assert network._selector.registered == before


def test_last_data_is_read_before_the_end() -> None:
    """The next read reports the end."""
    with connected() as (network, _, protocol, there):
        there.sendall(b"refused")
        there.close()
        network.poll(timeout_ms=0)
        assert protocol.data == b"refused"
        assert protocol.lost == []
        network.poll(timeout_ms=0)
        (error,) = protocol.lost
        assert isinstance(error, KafkaConnectionError)


def test_closed_connection_is_unregistered() -> None:
    """Its descriptor may belong to another socket soon."""
    with connected() as (network, transport, protocol, _):
        registered = len(network._selector.get_map())
        transport.close()
        assert protocol.lost == [None]
        assert len(network._selector.get_map()) == registered - 1


def test_poll_may_skip_timers() -> None:
    """It then runs only what is ready."""
    network = Network()
    try:
        done: list[str] = []

        async def timed() -> None:
            done.append("timed")

        async def ready() -> None:
            done.append("ready")

        network.call_later(0, timed)
        network.call_soon(ready)
        network.poll_without_timers()
        assert done == ["ready"]
        network.poll(timeout_ms=0)
        assert done == ["ready", "timed"]
    finally:
        network.close()
