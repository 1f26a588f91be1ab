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
    """A clock that stands still until it is told otherwise."""

    def __init__(self, now_ms: int) -> None:
        self.time = now_ms

    def now_ms(self) -> int:
        return self.time


@pytest.mark.parametrize(
    ("host", "length"), [("127.0.0.1", 32), ("255.255.255.255", 32), ("::1", 56), ("2001:db8::1", 56)]
)
def test_offset_ids_come_back(host: str, length: int) -> None:
    """An offset id holds address, port and offset, and has 32 characters or, with IPv6, 56."""
    text = create_offset_id(host, 10911, 2**40)
    assert len(text) == length
    assert parse_offset_id(text) == (host, 10911, 2**40)


@pytest.mark.parametrize("text", ["", "0" * 31, "0" * 34, "x" * 32, "0 " * 16, "é" * 32])
def test_other_texts_are_no_ids(text: str) -> None:
    """What is not 32 or 56 hexadecimal characters is refused."""
    with pytest.raises(RemoteProtocolError, match="message id"):
        parse_offset_id(text)
    with pytest.raises(RemoteProtocolError, match="message id"):
        parse_unique_id(text, NOON)


def test_a_host_name_is_no_address() -> None:
    """Ids hold addresses in digits: a name is a mistake of ours."""
    with pytest.raises(LocalProtocolError, match="localhost"):
        create_offset_id("localhost", 1, 1)


@pytest.mark.parametrize(("ip", "length"), [("10.0.0.7", 32), ("2001:db8::7", 56)])
def test_unique_ids_tell_where_and_when(ip: str, length: int) -> None:
    """A unique id says host, process and millisecond of its birth."""
    text = UniqueIdGenerator(ip, clock=FixedClock(NOON)).create()
    assert len(text) == length
    assert parse_unique_id(text, NOON + 1000) == (ip, os.getpid() & 0xFFFF, NOON)


def test_birth_before_the_month_began() -> None:
    """An id made shortly before the turn of the month is read right after it."""
    clock = FixedClock(NOON)
    text = UniqueIdGenerator("10.0.0.7", clock=clock).create()
    assert parse_unique_id(text, NOON + 5 * 86_400_000)[2] == NOON


def test_ids_of_one_millisecond_differ() -> None:
    """The counter tells ids apart, even when it begins anew within a millisecond that does not end."""
    generator = UniqueIdGenerator("10.0.0.7", clock=FixedClock(NOON))
    assert len({generator.create() for _ in range(140_000)}) == 140_000


def test_generators_differ() -> None:
    """Two generators of one process do not meet."""
    clock = FixedClock(NOON)
    assert UniqueIdGenerator("10.0.0.7", clock=clock).create() != UniqueIdGenerator("10.0.0.7", clock=clock).create()


def test_the_month_is_followed() -> None:
    """A generator that lives across the turn of the month counts from the new one."""
    clock = FixedClock(NOON)
    generator = UniqueIdGenerator("10.0.0.7", clock=clock)
    generator.create()
    clock.time += 5 * 86_400_000
    assert parse_unique_id(generator.create(), clock.time)[2] == clock.time


def test_a_forked_process_has_ids_of_its_own() -> None:
    """After a fork the child's ids carry its own process id."""
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


def test_local_ip_is_an_address() -> None:
    """This host has an address in digits, if only the loopback one."""
    assert len(create_offset_id(local_ip(), 1, 1)) == 32
