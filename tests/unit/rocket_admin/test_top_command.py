"""`streamkit top`, and the rates that it shows."""

import asyncio

import pytest

from rocket_admin.activity import GroupActivity, GroupActivityMeter
from rocket_admin.commands.group import group
from rocket_admin.commands.output import Output
from rocket_admin.commands.top import previews, top
from rocket_admin.commands.topic import topic
from rocket_admin.offsets import End, apply_plan, plan_move
from rocket_broker.threaded_broker import ThreadedBroker
from rocket_client import Admin, ClientSettings
from tests.unit.rocket_admin.cluster import commit, send
from tests.unit.rocket_admin.terminal import Screen, Terminal


def test_rates_are_those_between_two_looks(terminal: Terminal, broker: ThreadedBroker) -> None:
    """The first look has none; a group that consumes faster than messages arrive will have caught up."""
    terminal.lines(topic, "create", "orders", "--queues", "2")
    for name in ("kitchen", "audit", "new"):
        terminal.lines(group, "create", name)
    asyncio.run(send(broker.name_server, "orders", 8))
    for name in ("kitchen", "audit"):
        asyncio.run(commit(broker.name_server, "orders", name, 1))

    async def look_twice() -> None:
        meter = GroupActivityMeter()
        async with Admin(ClientSettings(name_servers=broker.name_server)) as admin:
            first = (await meter.sample(admin)).groups
            assert [(each.group, each.lag, each.consumed_per_second) for each in first] == [
                ("audit", 6, None),
                ("kitchen", 6, None),
            ]
            await send(broker.name_server, "orders", 2)
            await apply_plan(admin, await plan_move(admin, "kitchen", End.LATEST))
            behind, caught_up = (await meter.sample(admin)).groups
        assert (behind.group, behind.lag, behind.consumed_per_second, behind.seconds_to_catch_up) == (
            "audit",
            8,
            0,
            None,
        )
        assert (caught_up.group, caught_up.lag, caught_up.seconds_to_catch_up) == ("kitchen", 0, 0)
        assert caught_up.arriving_per_second is not None
        assert caught_up.consumed_per_second is not None
        assert 0 < caught_up.arriving_per_second < caught_up.consumed_per_second

    asyncio.run(look_twice())
    rounds = ("--rounds", "2", "--every", "0.1")
    assert [line.split()[0] for line in terminal.lines(top, *rounds)] == ["GROUP", "audit", "kitchen"] * 2
    assert [row["group"] for row in terminal.json(top, *rounds)] == ["audit", "kitchen"] * 2
    assert "1 more group(s)" in terminal.run(top, "--rounds", "1", "--most", "1").stderr
    for columns in (80, 200):
        assert max(map(len, terminal.lines(top, "--rounds", "1", columns=columns))) <= columns


def test_groups_of_the_first_look_are_shown_as_they_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those with the largest lag, on a terminal: a cluster may have a thousand groups."""
    screen = Screen()
    monkeypatch.setattr("sys.stdout", screen)
    seen = previews(Output(as_json=False, watch=1), most=2, every=0)
    for name, lag in (("audit", 1), ("kitchen", 3), ("bar", 2)):
        seen(GroupActivity(group=name, lag=lag))
    assert [line.split()[0] for line in screen.tables()[-1].splitlines()[-2:]] == ["kitchen", "bar"]
