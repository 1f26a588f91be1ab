"""The routes while brokers register, and are removed, in steps."""

import asyncio
from collections.abc import Iterable, Iterator

import pytest

from rocket_broker.namesrv.route_table import RouteTable
from rocket_remoting.session.connection import Connection
from rocket_remoting.steps import run_all
from rocket_remoting.wire.bodies import DataVersion, TopicConfig
from rocket_remoting.wire.bodies.registration import Registered
from rocket_remoting.wire.errors import RemoteProtocolError
from tests.unit.rocket_broker.memory_peers import Peers, run_virtually

VERSION = DataVersion(timestamp=1, counter=1)
MANY = 1_000
"""Brokers that are not removed in one step of the loop."""


def register(
    table: RouteTable, number: int, connection: Connection, reported: Iterable[Registered] = (VERSION,)
) -> None:
    """Register a broker that is known by its number."""
    run_all(
        table.register(
            cluster="c",
            name=f"broker-{number}",
            broker_id=0,
            address=f"10.0.0.1:{number}",
            ha_address="",
            reported=reported,
            connection=connection,
        )
    )


def is_known(table: RouteTable, number: int) -> bool:
    """Return whether the broker is registered."""
    return table.data_version(f"10.0.0.1:{number}") is not None


def test_a_broker_that_registers_anew_outlives_its_closed_connection() -> None:
    """Also while the other brokers of that connection are being removed."""

    async def main() -> None:
        peers, table = Peers(), RouteTable(asyncio.get_running_loop().time)
        old, _ = await peers.connect("old")
        new, _ = await peers.connect("new")
        for number in range(MANY):
            register(table, number, old)
        table.connection_closed(old)
        assert is_known(table, MANY - 1)  # its turn is still to come
        register(table, MANY - 1, new)
        for _ in range(MANY):
            await asyncio.sleep(0)
        assert [number for number in range(MANY) if is_known(table, number)] == [MANY - 1]

    run_virtually(main)


def test_a_broker_that_registers_while_silent_ones_are_removed_stays() -> None:
    """It was silent when the removal began."""

    async def main() -> None:
        peers, table = Peers(), RouteTable(asyncio.get_running_loop().time)
        connection, _ = await peers.connect("brokers")
        for number in range(3):
            register(table, number, connection)
        await asyncio.sleep(2)
        removing = table.remove_silent(1)
        next(removing)
        register(table, 2, connection)
        run_all(removing)
        assert [is_known(table, number) for number in range(3)] == [False, False, True]

    run_virtually(main)


def test_a_registration_that_breaks_off_leaves_its_version_unknown() -> None:
    """So the broker's next one brings all topics again, although their version is the same."""

    def damaged() -> Iterator[Registered]:
        yield VERSION
        yield TopicConfig(topic_name="orders")
        raise RemoteProtocolError("the second topic cannot be read")

    async def main() -> None:
        peers, table = Peers(), RouteTable(asyncio.get_running_loop().time)
        connection, _ = await peers.connect("broker")
        with pytest.raises(RemoteProtocolError):
            register(table, 1, connection, damaged())
        assert table.is_changed("10.0.0.1:1", VERSION)
        register(table, 1, connection)
        assert not table.is_changed("10.0.0.1:1", VERSION)

    run_virtually(main)
