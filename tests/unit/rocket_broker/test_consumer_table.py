"""Live consumers, notices of group changes, and the check for differing subscriptions."""

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

    async def join(self, client_id: str, *subscriptions: SubscriptionData, seconds: float = 0.01) -> bool:
        """Register the heartbeat of a client with a connection of its own; return whether the group changed.

        Args:
            client_id: The client.
            subscriptions: Its subscriptions.
            seconds: The time that passes then.
        """
        if client_id not in self.clients:
            self.clients[client_id] = await self.peers.connect(client_id)
        client = ClientChannel(self.clients[client_id][0], client_id)
        changed = run_all(self.table.register(client, heartbeat(*subscriptions or (wants(),))))
        await asyncio.sleep(seconds)
        return changed

    def notices(self, client_id: str) -> int:
        """Return how many group-change notices the client got."""
        return self.peers.pushed_to(client_id).count(CHANGED)


def test_every_member_is_notified_when_one_joins() -> None:
    """The new member too, since it takes part in the rebalance."""

    async def main() -> None:
        group = Group()
        assert await group.join("a")
        assert await group.join("b")
        assert (group.notices("a"), group.notices("b")) == (2, 1)

    run_virtually(main)


def test_unchanged_heartbeat_notifies_nobody() -> None:
    """Members send one every 30 seconds."""

    async def main() -> None:
        group = Group()
        await group.join("a")
        assert not await group.join("a")
        assert group.notices("a") == 1

    run_virtually(main)


def test_closed_connection_removes_its_member_and_notifies_the_others() -> None:
    """The group rebalances before any heartbeat is missed."""

    async def main() -> None:
        group = Group()
        await group.join("a")
        await group.join("b")
        await group.clients["b"][1].close()
        await asyncio.sleep(0.01)
        members = group.table.get("g")
        assert members is not None and members.client_ids() == ("a",)  # noqa: PT018
        assert group.notices("a") == 3

    run_virtually(main)


def test_members_that_join_in_a_row_share_a_notification() -> None:
    """Otherwise their number would grow with the square of the members', and so would that of the members' requests."""

    async def main() -> None:
        group = Group()
        for number in range(200):
            await group.join(f"old-{number}", seconds=0)
        await asyncio.sleep(1)
        before = group.notices("old-0")
        for number in range(50):
            await group.join(f"new-{number}", seconds=0.002)
        await asyncio.sleep(1)
        # They need 100 ms. A group of 200 to 250 members waits 20 to 25 ms between two notifications.
        assert 5 <= group.notices("old-0") - before <= 6
        assert group.notices("new-49") == 1

    run_virtually(main)


def test_first_change_after_a_pause_is_notified_at_once() -> None:
    """However large the group is."""

    async def main() -> None:
        group = Group()
        for number in range(200):
            await group.join(f"old-{number}", seconds=0)
        await asyncio.sleep(1)
        before = group.notices("old-0")
        await group.join("new", seconds=0.001)
        assert group.notices("old-0") == before + 1
        group.table.unregister("g", group.clients["new"][0])
        await asyncio.sleep(0.018)
        assert group.notices("old-0") == before + 1
        await asyncio.sleep(0.002)
        assert group.notices("old-0") == before + 2

    run_virtually(main)


def test_group_without_members_is_unknown() -> None:
    """The last member's departure removes it."""

    async def main() -> None:
        group = Group()
        await group.join("a")
        group.table.unregister("g", group.clients["a"][0])
        assert "g" not in group.table
        assert len(group.table) == 0

    run_virtually(main)


def test_silent_member_is_removed_and_its_connection_returned() -> None:
    """The other members are notified, as when it leaves."""

    async def main() -> None:
        group = Group()
        await group.join("silent")
        await asyncio.sleep(100)
        await group.join("alive")
        await asyncio.sleep(21)
        assert run_all(group.table.remove_silent(120)) == [group.clients["silent"][0]]
        await asyncio.sleep(0.01)
        assert group.notices("alive") == 2
        assert run_all(group.table.remove_silent(120)) == []

    run_virtually(main)


def test_reconnected_client_is_listed_once() -> None:
    """Its old socket may stay open for a while; a second entry would get half of its queues."""

    async def main() -> None:
        group = Group()
        await group.join("a")
        old = group.clients.pop("a")
        await group.join("a")
        members = group.table.get("g")
        assert members is not None
        assert len(members) == 2
        assert members.client_ids() == ("a",)
        found = members.find("a")
        assert found is not None and found.connection is not old[0]  # noqa: PT018

    run_virtually(main)


def test_newest_subscription_version_wins() -> None:
    """An older version is ignored; a topic that is no longer listed is dropped."""

    async def main() -> None:
        group = Group()
        await group.join("a", wants("A", version=2), wants(topic="other"))
        assert await group.join("a", wants("B", version=1))
        members = group.table.get("g")
        assert members is not None
        assert {t: s.data.sub_string for t, s in members.subscriptions.items()} == {"orders": "A"}
        assert members.subscriptions["orders"].filter.codes == {java_hash("A")}

    run_virtually(main)


def test_differing_subscriptions_are_warned_about_once_per_change(caplog: pytest.LogCaptureFixture) -> None:
    """The warning names both clients and their subscriptions."""

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


def test_new_subscription_difference_is_warned_about_again(caplog: pytest.LogCaptureFixture) -> None:
    """Each difference gets one warning; equal subscriptions get none."""

    async def main() -> None:
        group = Group()
        await group.join("one", wants("A"))
        await group.join("two", wants("B"))
        await group.join("two", wants("C", version=2))
        await group.join("two", wants("A", version=3))

    with caplog.at_level(logging.WARNING, "rocket_broker"):
        run_virtually(main)
    assert len(caplog.messages) == 2


def test_tag_order_does_not_make_subscriptions_differ(caplog: pytest.LogCaptureFixture) -> None:
    """An empty expression equals ``*``."""

    async def main() -> None:
        group = Group()
        await group.join("one", wants("A||B"), wants("", topic="other"))
        await group.join("two", wants("B || A"), wants("*", topic="other"))

    with caplog.at_level(logging.WARNING, "rocket_broker"):
        run_virtually(main)
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("attribute", "value", "text"),
    [
        ("consume_type", ConsumeType.CONSUME_ACTIVELY, "one is CLUSTERING CONSUME_PASSIVELY, two is CLUSTERING CONSU"),
        ("message_model", MessageModel.BROADCASTING, "message models, and those of CLUSTERING will miss messages"),
    ],
)
def test_differing_consume_modes_are_warned_about(
    caplog: pytest.LogCaptureFixture, attribute: str, value: object, text: str
) -> None:
    """Broadcasting beside clustering, or push beside pull."""

    async def main() -> None:
        table, peers = ConsumerTable(), Peers()
        one, two = heartbeat(wants(), wants(topic="%RETRY%g")), heartbeat(wants(), wants(topic="%RETRY%g"))
        setattr(two, attribute, value)
        if attribute == "message_model":  # a broadcasting member has no retry topic
            two.subscription_data_set.pop()
        for name, data in (("one", one), ("two", two)):
            run_all(table.register(ClientChannel((await peers.connect(name))[0], name), data))

    with caplog.at_level(logging.WARNING, "rocket_broker"):
        run_virtually(main)
    (warning,) = caplog.messages
    assert text in warning


@pytest.mark.parametrize(("model", "warnings"), [(MessageModel.CLUSTERING, 1), (MessageModel.BROADCASTING, 0)])
def test_two_members_with_one_client_id_are_warned_about(
    caplog: pytest.LogCaptureFixture, model: MessageModel, warnings: int
) -> None:
    """Once: they count as one member, so both take all queues that it gets. Broadcasting members get all anyway."""

    async def main() -> None:
        table, peers = ConsumerTable(), Peers()
        data = heartbeat(wants())
        data.message_model = model
        ends = [(await peers.connect(name))[0] for name in ("one", "two", "gone")]
        run_all(table.register(ClientChannel(ends[2], "other"), data))
        await ends[2].close()
        run_all(table.register(ClientChannel(ends[0], "other"), data))
        for end in ends[:2] * 2:
            run_all(table.register(ClientChannel(end, "10.0.0.1@same"), data))

    with caplog.at_level(logging.WARNING, "rocket_broker"):
        run_virtually(main)
    assert len(caplog.messages) == warnings
    assert all("have the same client id, 10.0.0.1@same" in message for message in caplog.messages)


def test_member_with_a_differing_subscription_can_be_refused(caplog: pytest.LogCaptureFixture) -> None:
    """Until it agrees or the earlier member leaves; meanwhile it is no member and is warned about once."""

    async def main() -> None:
        group = Group()
        group.table.guard.refuses = lambda: True
        await group.join("one", wants("A"))
        for _ in range(2):
            with pytest.raises(Refusal, match=r"one subscribes to \{orders: A\}, two to \{orders: B\}"):
                await group.join("two", wants("B"))
        members = group.table.get("g")
        assert members is not None
        assert members.client_ids() == ("one",)
        await group.join("two", wants("A"))
        assert members.client_ids() == ("one", "two")
        with pytest.raises(Refusal):
            await group.join("two", wants("B", version=2))
        assert members.client_ids() == ("one",)
        group.table.unregister("g", group.clients["one"][0])
        await group.join("two", wants("B", version=2))

    with caplog.at_level(logging.WARNING, "rocket_broker"):
        run_virtually(main)
    assert len(caplog.messages) == 2


def test_notices_can_be_disabled_for_a_group_or_the_broker() -> None:
    """Either setting suppresses them."""

    async def main() -> None:
        group = Group()
        broker_end, _ = await group.peers.connect("a")
        run_all(group.table.register(ClientChannel(broker_end, "a"), heartbeat(wants()), notify=False))
        group.table.notify_enabled = lambda: False
        await group.join("b")
        assert group.peers.pushed == []

    run_virtually(main)


def test_producers_expire_by_leaving_silence_or_disconnection() -> None:
    """A group disappears with its last producer."""

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
