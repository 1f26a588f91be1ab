"""Which consumers are alive, who is told of it, and the guard against different subscriptions."""

import asyncio
import logging

import pytest

from rocket_broker.clients.client_channel import ClientChannel
from rocket_broker.clients.consumer_table import ConsumerTable
from rocket_broker.clients.producer_table import ProducerTable
from rocket_broker.limits.refusal import Refusal
from rocket_remoting.session.connection import Connection
from rocket_remoting.steps import run_all
from rocket_remoting.wire.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.java_hash import java_hash
from tests.unit.rocket_broker.memory_peers import Peers, run_virtually

CHANGED = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED


def heartbeat(*subscriptions: SubscriptionData, group: str = "g") -> ConsumerData:
    return ConsumerData(
        group_name=group,
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        message_model=MessageModel.CLUSTERING,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        subscription_data_set=list(subscriptions),
    )


def wants(expression: str = "*", *, topic: str = "orders", version: int = 1) -> SubscriptionData:
    return SubscriptionData(topic=topic, sub_string=expression, sub_version=version)


class Group:
    """A table with clients that join group ``g``."""

    def __init__(self) -> None:
        self.table = ConsumerTable()
        self.peers = Peers(self.table.connection_closed)
        self.clients: dict[str, tuple[Connection, Connection]] = {}

    async def join(self, client_id: str, *subscriptions: SubscriptionData) -> bool:
        """Let the client send a heartbeat, over its own connection."""
        if client_id not in self.clients:
            self.clients[client_id] = await self.peers.connect(client_id)
        client = ClientChannel(self.clients[client_id][0], client_id)
        changed = run_all(self.table.register(client, heartbeat(*subscriptions or (wants(),))))
        await asyncio.sleep(0.01)
        return changed

    def told(self, client_id: str) -> int:
        """Return how often the client was told that the group changed."""
        return self.peers.pushed_to(client_id).count(CHANGED)


def test_every_member_is_told_at_once_when_one_joins() -> None:
    """The newcomer too: it takes part in the division."""

    async def main() -> None:
        group = Group()
        assert await group.join("a")
        assert await group.join("b")
        assert (group.told("a"), group.told("b")) == (2, 1)

    run_virtually(main)


def test_a_heartbeat_that_changes_nothing_tells_nobody() -> None:
    """Members send one every 30 seconds."""

    async def main() -> None:
        group = Group()
        await group.join("a")
        assert not await group.join("a")
        assert group.told("a") == 1

    run_virtually(main)


def test_a_closed_socket_takes_its_member_out_and_tells_the_others() -> None:
    """Take-over needs no heartbeat to be missed."""

    async def main() -> None:
        group = Group()
        await group.join("a")
        await group.join("b")
        await group.clients["b"][1].close()
        await asyncio.sleep(0.01)
        members = group.table.get("g")
        assert members is not None and members.client_ids() == ["a"]  # noqa: PT018
        assert group.told("a") == 3

    run_virtually(main)


def test_the_last_member_takes_the_group_with_it() -> None:
    """A group without members is unknown."""

    async def main() -> None:
        group = Group()
        await group.join("a")
        group.table.unregister("g", group.clients["a"][0])
        assert "g" not in group.table
        assert len(group.table) == 0

    run_virtually(main)


def test_a_silent_member_is_forgotten_and_its_connection_named() -> None:
    """The others are told, as when it leaves."""

    async def main() -> None:
        group = Group()
        await group.join("silent")
        await asyncio.sleep(100)
        await group.join("alive")
        await asyncio.sleep(21)
        assert run_all(group.table.remove_silent(120)) == [group.clients["silent"][0]]
        await asyncio.sleep(0.01)
        assert group.told("alive") == 2
        assert run_all(group.table.remove_silent(120)) == []

    run_virtually(main)


def test_a_client_that_reconnects_is_listed_once() -> None:
    """Its old socket may live on for a while; with two entries it would get half of its queues."""

    async def main() -> None:
        group = Group()
        await group.join("a")
        old = group.clients.pop("a")
        await group.join("a")
        members = group.table.get("g")
        assert members is not None
        assert len(members) == 2
        assert members.client_ids() == ["a"]
        found = members.find("a")
        assert found is not None and found.connection is not old[0]  # noqa: PT018

    run_virtually(main)


def test_the_newest_subscription_of_a_topic_counts() -> None:
    """An older version is passed over, a topic that is no more named is dropped."""

    async def main() -> None:
        group = Group()
        await group.join("a", wants("A", version=2), wants(topic="other"))
        assert await group.join("a", wants("B", version=1))
        members = group.table.get("g")
        assert members is not None
        assert {t: s.data.sub_string for t, s in members.subscriptions.items()} == {"orders": "A"}
        assert members.subscriptions["orders"].filter.codes == {java_hash("A")}

    run_virtually(main)


def test_members_with_different_subscriptions_are_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    """The warning names both clients and what each wants, once for each change."""

    async def main() -> None:
        group = Group()
        await group.join("one", wants("A"))
        await group.join("two", wants("B"))
        await group.join("one", wants("A"))
        await group.join("two", wants("B"))

    with caplog.at_level(logging.WARNING, "rocket_broker"):
        run_virtually(main)
    (warning,) = caplog.messages
    assert "one subscribes to {orders: A}, two to {orders: B}" in warning


def test_a_member_that_changes_its_mind_is_warned_about_again(caplog: pytest.LogCaptureFixture) -> None:
    """One warning for each new difference, none when they agree again."""

    async def main() -> None:
        group = Group()
        await group.join("one", wants("A"))
        await group.join("two", wants("B"))
        await group.join("two", wants("C", version=2))
        await group.join("two", wants("A", version=3))

    with caplog.at_level(logging.WARNING, "rocket_broker"):
        run_virtually(main)
    assert len(caplog.messages) == 2


def test_tags_in_another_order_are_the_same_wish(caplog: pytest.LogCaptureFixture) -> None:
    """So is nothing and ``*``."""

    async def main() -> None:
        group = Group()
        await group.join("one", wants("A||B"), wants("", topic="other"))
        await group.join("two", wants("B || A"), wants("*", topic="other"))

    with caplog.at_level(logging.WARNING, "rocket_broker"):
        run_virtually(main)
    assert caplog.messages == []


def test_members_that_consume_in_different_ways_are_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    """One broadcasting and one not, or one that is pushed to and one that pulls."""

    async def main() -> None:
        table, peers = ConsumerTable(), Peers()
        for name, model in (("one", MessageModel.CLUSTERING), ("two", MessageModel.BROADCASTING)):
            broker_end, _ = await peers.connect(name)
            data = heartbeat(wants())
            data.message_model = model
            run_all(table.register(ClientChannel(broker_end, name), data))

    with caplog.at_level(logging.WARNING, "rocket_broker"):
        run_virtually(main)
    (warning,) = caplog.messages
    assert "one is CLUSTERING CONSUME_PASSIVELY, two is BROADCASTING CONSUME_PASSIVELY" in warning


def test_a_member_that_contradicts_is_refused_when_that_is_set(caplog: pytest.LogCaptureFixture) -> None:
    """Until it agrees, or who was there before is gone; meanwhile it is no member and warned about once."""

    async def main() -> None:
        group = Group()
        group.table.guard.refuses = lambda: True
        await group.join("one", wants("A"))
        for _ in range(2):
            with pytest.raises(Refusal, match=r"one subscribes to \{orders: A\}, two to \{orders: B\}"):
                await group.join("two", wants("B"))
        members = group.table.get("g")
        assert members is not None
        assert members.client_ids() == ["one"]
        await group.join("two", wants("A"))
        assert members.client_ids() == ["one", "two"]
        with pytest.raises(Refusal):
            await group.join("two", wants("B", version=2))
        assert members.client_ids() == ["one"]
        group.table.unregister("g", group.clients["one"][0])
        await group.join("two", wants("B", version=2))

    with caplog.at_level(logging.WARNING, "rocket_broker"):
        run_virtually(main)
    assert len(caplog.messages) == 2


def test_nobody_is_told_when_the_group_wants_no_notices() -> None:
    """The group's own setting, and the broker's, both silence them."""

    async def main() -> None:
        group = Group()
        broker_end, _ = await group.peers.connect("a")
        run_all(group.table.register(ClientChannel(broker_end, "a"), heartbeat(wants()), notify=False))
        group.table.notify_enabled = lambda: False
        await group.join("b")
        assert group.peers.pushed == []

    run_virtually(main)


def test_producers_live_until_they_leave_fall_silent_or_lose_their_connection() -> None:
    """By group; the groups go with their last member."""

    async def main() -> None:
        table = ProducerTable()
        peers = Peers(table.connection_closed)
        for name in ("leaving", "closing", "silent"):
            broker_end, client_end = await peers.connect(name)
            table.register(f"group-{name}", ClientChannel(broker_end, name))
            if name == "leaving":
                table.unregister("group-leaving", broker_end)
            elif name == "closing":
                await client_end.close()
        await asyncio.sleep(121)
        assert [member.client_id for member in table.members("group-silent")] == ["silent"]
        assert list(table) == ["group-silent"]
        assert len(run_all(table.remove_silent(120))) == 1
        assert len(table) == 0

    run_virtually(main)
