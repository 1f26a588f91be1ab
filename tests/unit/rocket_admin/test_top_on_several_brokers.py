"""`streamkit top` on a cluster of two brokers, of which one may be away."""

import asyncio
from collections.abc import Iterator

import pytest

from rocket_admin.activity import GroupActivity, GroupActivityMeter
from rocket_admin.commands.group import group
from rocket_admin.commands.top import top
from rocket_admin.commands.topic import topic
from rocket_admin.offsets import End, apply_plan, plan_move
from rocket_broker.threaded_broker import ThreadedBroker
from rocket_client import Admin, ClientSettings
from tests.unit.rocket_admin.cluster import commit, send
from tests.unit.rocket_admin.terminal import Terminal
from tests.unit.rocket_admin.test_broker_commands import register


@pytest.fixture(scope="module")
def other() -> Iterator[ThreadedBroker]:
    """A broker with a name server of its own, which tests register at the first one's."""
    with ThreadedBroker(settings={"brokerName": "broker-b"}) as broker:
        yield broker


@pytest.fixture(scope="module", autouse=True)
def names(broker: ThreadedBroker, other: ThreadedBroker) -> None:
    """Store four messages on each broker, of which a group has consumed two."""
    for each in (broker, other):
        terminal = Terminal(each.name_server)
        terminal.lines(topic, "create", "bills", "--queues", "2")
        terminal.lines(group, "create", "kitchen")
        asyncio.run(send(each.name_server, "bills", 4))
        asyncio.run(commit(each.name_server, "bills", "kitchen", 1))


async def look(meter: GroupActivityMeter, name_server: str) -> GroupActivity:
    """Return what the group did since the last look."""
    async with Admin(ClientSettings(name_servers=name_server)) as admin:
        (found,) = (await meter.sample(admin)).groups
    return found


def test_rates_of_both_brokers_are_added(broker: ThreadedBroker, other: ThreadedBroker) -> None:
    """Eight messages arrive, four at each broker; six of them are consumed, all at one."""

    async def look_twice() -> None:
        meter = GroupActivityMeter()
        before = await look(meter, broker.name_server)
        for each in (broker, other):
            await send(each.name_server, "bills", 4)
        async with Admin(ClientSettings(name_servers=other.name_server)) as admin:
            plan = await plan_move(admin, "kitchen", End.LATEST)
            await apply_plan(admin, plan)
        after = await look(meter, broker.name_server)
        assert before.lag is not None
        assert plan.skipped is not None
        assert after.lag == before.lag + 8 - plan.skipped
        assert after.arriving_per_second
        assert after.consumed_per_second
        assert after.consumed_per_second / after.arriving_per_second == pytest.approx(plan.skipped / 8, rel=0.1)

    with register(broker.name_server, "broker-b", other.address):
        asyncio.run(look_twice())


def test_offsets_of_different_brokers_are_not_compared(broker: ThreadedBroker, other: ThreadedBroker) -> None:
    """Each broker is away at one look, so both see as many queues, but others."""

    async def look_twice() -> None:
        meter = GroupActivityMeter()
        await look(meter, other.name_server)
        found = await look(meter, broker.name_server)
        assert (found.arriving_per_second, found.consumed_per_second) == (None, None)

    asyncio.run(look_twice())


def test_time_to_catch_up_is_not_known_while_a_broker_is_away(terminal: Terminal) -> None:
    """It is a dash, as the lag is, although the rates at the other broker are known."""
    with register(terminal.name_server, "broker-b", "127.0.0.1:1"):
        done = terminal.run(top, "--rounds", "2", "--every", "0.1")
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("kitchen")]
    assert rows == [["kitchen", "-", "-", "-", "-"], ["kitchen", "-", "0.0", "0.0", "-"]]
    assert "broker-b at 127.0.0.1:1" in done.stderr
