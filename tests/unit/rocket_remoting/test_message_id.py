"""Message ids."""

import calendar
import os

import pytest

from rocket_remoting.wire.errors import LocalProtocolError, RemoteProtocolError
from rocket_remoting.wire.message_id import (
    UniqueIdGenerator,
    create_offset_id,
    local_ip,
    parse_offset_id,
    parse_unique_id,
)

NOON = calendar.timegm((2024, 2, 29, 12, 0, 0)) * 1000


class FixedClock:
    """A clock set by hand."""

    def __init__(self, now_ms: int) -> None:
        self.time = now_ms

    def now_ms(self) -> int:
        return self.time


@pytest.mark.parametrize(
    ("host", "length"), [("127.0.0.1", 32), ("255.255.255.255", 32), ("::1", 56), ("2001:db8::1", 56)]
)
def test_offset_id_round_trip(host: str, length: int) -> None:
    """It has address, port and offset in 32 characters or, with IPv6, 56."""
    text = create_offset_id(host, 10911, 2**40)
    assert len(text) == length
    assert parse_offset_id(text) == (host, 10911, 2**40)


@pytest.mark.parametrize("text", ["", "0" * 31, "0" * 34, "x" * 32, "0 " * 16, "é" * 32])
def test_malformed_ids_are_refused(text: str) -> None:
    """All but 32 or 56 hexadecimal characters."""
    with pytest.raises(RemoteProtocolError, match="message id"):
        parse_offset_id(text)
    with pytest.raises(RemoteProtocolError, match="message id"):
        parse_unique_id(text, NOON)


def test_host_name_in_an_id_is_refused() -> None:
    """Ids contain numeric addresses; a name is the caller's mistake."""
    with pytest.raises(LocalProtocolError, match="localhost"):
        create_offset_id("localhost", 1, 1)


@pytest.mark.parametrize(("ip", "length"), [("10.0.0.7", 32), ("2001:db8::7", 56)])
def test_unique_id_has_host_process_and_time(ip: str, length: int) -> None:
    """The time of creation in milliseconds."""
    text = UniqueIdGenerator(ip, clock=FixedClock(NOON)).create()
    assert len(text) == length
    assert parse_unique_id(text, NOON + 1000) == (ip, os.getpid() & 0xFFFF, NOON)


def test_id_of_the_previous_month_is_read() -> None:
    """Of an id made just before the turn of the month and read right after it."""
    clock = FixedClock(NOON)
    text = UniqueIdGenerator("10.0.0.7", clock=clock).create()
    assert parse_unique_id(text, NOON + 5 * 86_400_000)[2] == NOON


def test_ids_of_one_millisecond_differ() -> None:
    """Also when the counter wraps within that millisecond."""
    generator = UniqueIdGenerator("10.0.0.7", clock=FixedClock(NOON))
    assert len({generator.create() for _ in range(140_000)}) == 140_000


def test_generators_differ() -> None:
    """Two generators of one process make different ids."""
    clock = FixedClock(NOON)
    assert UniqueIdGenerator("10.0.0.7", clock=clock).create() != UniqueIdGenerator("10.0.0.7", clock=clock).create()


def test_generator_follows_the_month() -> None:
    """After the turn of the month it counts from the new one."""
    clock = FixedClock(NOON)
    generator = UniqueIdGenerator("10.0.0.7", clock=clock)
    generator.create()
    clock.time += 5 * 86_400_000
    assert parse_unique_id(generator.create(), clock.time)[2] == clock.time


def test_forked_process_has_its_own_ids() -> None:
    """They contain the child's process id."""
    generator = UniqueIdGenerator("10.0.0.7", clock=FixedClock(NOON))
    generator.create()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, generator.create().encode())
        os._exit(0)
    os.close(writer)
    text = os.read(reader, 100).decode()
    os.close(reader)
    os.waitpid(child, 0)
    assert parse_unique_id(text, NOON)[1] == child & 0xFFFF


def test_local_ip_is_numeric() -> None:
    """At least the loopback address."""
    assert len(create_offset_id(local_ip(), 1, 1)) == 32
