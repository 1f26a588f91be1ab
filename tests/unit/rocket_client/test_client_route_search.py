"""The search for another master, when one is lost or has become a slave."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from rocket_client import Message, Producer
from rocket_client.consuming.offsets import BrokerOffsets
from rocket_client.errors import SendError
from rocket_remoting import RequestCode, ResponseCode
from rocket_remoting.wire.headers import UpdateConsumerOffsetRequestHeader
from rocket_remoting.wire.message import MessageQueue
from streamkit.testing.virtual_time import VirtualTime
from tests.unit.rocket_client.consumer_script import ConsumerScript, give_locks, pulled, record
from tests.unit.rocket_client.scripted_cluster import ScriptedCluster

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
SOON = 1.0
"""Seconds of the first search, and the send after it; the periodic update comes after 30 s."""


def play(virtual: VirtualTime, scene: Callable[[ScriptedCluster, Producer], Awaitable[None]]) -> None:
    """Run the scene with two replicas of one broker, of which the first is the master, and a producer that has sent."""

    async def main() -> None:
        async with ScriptedCluster(virtual, brokers=["a", "a"]) as cluster:
            cluster.routes["orders"] = cluster.route(2, cluster.brokers[:1])
            async with cluster.producer() as producer:
                await producer.send(Message("orders", b"x"))
                await asyncio.sleep(2)  # the periodic updates have begun
                await scene(cluster, producer)

    virtual.run(main())


def lookups(cluster: ScriptedCluster) -> int:
    return sum(server.count(ROUTE) for server in cluster.name_servers)


def test_replaced_master_is_found_after_its_connection_is_lost(virtual: VirtualTime) -> None:
    """And the new one gets a heartbeat before anything is sent: it may have transactions to ask about."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        former, new = cluster.brokers
        await former.stop()
        cluster.routes["orders"] = cluster.route(2, [new])
        await asyncio.sleep(SOON)
        assert [command.code for command in new.asked] == [RequestCode.HEART_BEAT]
        await producer.send(Message("orders", b"x"))
        assert len(new.stored) == 1

    play(virtual, scene)


def test_master_that_came_back_as_a_slave_is_replaced(virtual: VirtualTime) -> None:
    """It refuses sends at its former address."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        former, new = cluster.brokers
        former.reply = int(ResponseCode.SERVICE_NOT_AVAILABLE)
        with pytest.raises(SendError):
            await producer.send(Message("orders", b"x"))
        cluster.routes["orders"] = cluster.route(2, [new])
        await asyncio.sleep(SOON)
        await producer.send(Message("orders", b"x"))
        assert len(new.stored) == 1

    play(virtual, scene)


@pytest.mark.parametrize("is_refused", [False, True])
def test_search_for_a_master_that_stays_away_slows_down(virtual: VirtualTime, is_refused: bool) -> None:
    """However often sends fail: five look-ups after 0.5 s, 1 s, 2 s … for each period of the updates."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        former = cluster.brokers[0]
        if is_refused:
            former.reply = int(ResponseCode.SERVICE_NOT_AVAILABLE)
        else:
            await former.stop()
        before = lookups(cluster)
        for _ in range(60):
            with pytest.raises(SendError):
                await producer.send(Message("orders", b"x"))
            await asyncio.sleep(1)
        assert lookups(cluster) - before <= 3 * (5 + 1)

    play(virtual, scene)


def test_second_loss_begins_a_new_search(virtual: VirtualTime) -> None:
    """Also long after the first one, whose search found nothing."""

    async def scene(cluster: ScriptedCluster, producer: Producer) -> None:
        former, new = cluster.brokers
        await former.stop()
        await asyncio.sleep(40)
        await former.start()
        await producer.send(Message("orders", b"x"))
        await asyncio.sleep(40)
        await former.stop()
        cluster.routes["orders"] = cluster.route(2, [new])
        await asyncio.sleep(SOON)
        await producer.send(Message("orders", b"x"))
        assert len(new.stored) == 1

    play(virtual, scene)


def test_lock_is_asked_for_again_after_the_master_was_lost(virtual: VirtualTime) -> None:
    """Before the next call: the next master, or the same one after a restart, knows no locks."""

    async def main() -> None:
        async with ScriptedCluster(virtual, brokers=["a", "a"]) as cluster:
            script = ConsumerScript(cluster, orderly=True)
            former, new = cluster.brokers
            new.answers.update(former.answers)
            cluster.routes["orders"] = cluster.route(1, [former])
            ended = asyncio.Event()

            async def says() -> None:
                await ended.wait()

            script.says = says
            script.replies = [pulled(ResponseCode.SUCCESS, 2, record(0) + record(1))]
            async with script.consumer:
                await asyncio.sleep(2)
                assert len(script.heard) == 1
                await former.stop()
                new.answers[RequestCode.LOCK_BATCH_MQ] = new.refuse
                cluster.routes["orders"] = cluster.route(1, [new])
                ended.set()
                await asyncio.sleep(2)
                assert len(script.heard) == 1
                new.answers[RequestCode.LOCK_BATCH_MQ] = give_locks
                await asyncio.sleep(5)
                assert len(script.heard) == 2

    virtual.run(main())


def test_offsets_are_committed_to_the_next_master(virtual: VirtualTime) -> None:
    """Although they have not moved: the next master may have older ones."""

    async def main() -> None:
        async with ScriptedCluster(virtual, brokers=["a", "a"]) as cluster, cluster.client() as client:
            former, new = cluster.brokers
            cluster.routes["orders"] = cluster.route(1, [former])
            await client.routes.refresh("orders")
            offsets, queue = BrokerOffsets(client.requests, "kitchen"), MessageQueue("orders", "a", 0)
            offsets.update(queue, 7)
            for _ in range(2):
                await offsets.persist([queue])
            assert former.count(RequestCode.UPDATE_CONSUMER_OFFSET) == 1
            cluster.routes["orders"] = cluster.route(1, [new])
            await client.routes.refresh("orders")
            await offsets.persist([queue])
            (commit,) = [each for each in new.asked if each.code == RequestCode.UPDATE_CONSUMER_OFFSET]
            assert commit.header(UpdateConsumerOffsetRequestHeader).commit_offset == 7

    virtual.run(main())
