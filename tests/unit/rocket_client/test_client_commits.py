"""Commits of a clustering group's offsets, to brokers that answer late."""

import asyncio
from collections.abc import Awaitable, Callable

from rocket_client.consuming.offsets import BrokerOffsets
from rocket_remoting import RemotingCommand, RequestCode
from rocket_remoting.wire.headers import UpdateConsumerOffsetRequestHeader
from rocket_remoting.wire.message import MessageQueue
from streamkit.testing.virtual_time import VirtualTime
from tests.unit.rocket_client.scripted_cluster import ScriptedBroker, ScriptedCluster

LATE = 0.1
"""Seconds a broker takes to answer a commit."""

UPDATE = RequestCode.UPDATE_CONSUMER_OFFSET

QUEUES = [MessageQueue("orders", broker, number) for broker in "ab" for number in range(3)]


def commits(*brokers: ScriptedBroker) -> list[tuple[str, int]]:
    """Return broker and offset of each commit request."""
    return [
        (broker.name, command.header(UpdateConsumerOffsetRequestHeader).commit_offset)
        for broker in brokers
        for command in broker.asked
        if command.code == UPDATE
    ]


def play(time: VirtualTime, scene: Callable[[BrokerOffsets, ScriptedBroker, ScriptedBroker], Awaitable[None]]) -> None:
    """Run the scene with a group's offsets at two brokers with three queues each."""

    async def main() -> None:
        async with ScriptedCluster(time) as cluster, cluster.client() as client:
            for broker in cluster.brokers:
                broker.late[UPDATE] = LATE
            first, second = cluster.brokers
            await scene(BrokerOffsets(client.requests, "kitchen"), first, second)

    time.run(main())


def test_first_commit_of_a_topic_is_sent_alone(virtual: VirtualTime) -> None:
    """Per broker:

    Apache's broker would create the topic's offset table twice for concurrent first commits. Later commits are sent at
    once.
    """

    async def scene(offsets: BrokerOffsets, first: ScriptedBroker, second: ScriptedBroker) -> None:
        for moved in (5, 6):
            for queue in QUEUES:
                offsets.update(queue, moved)
            persisting = asyncio.create_task(offsets.persist(QUEUES))
            await asyncio.sleep(LATE / 2)
            under_way = commits(first, second)
            if moved == 5:
                assert under_way == [("a", 5), ("b", 5)]
                await asyncio.sleep(LATE)
                assert len(commits(first, second)) == len(QUEUES)
            await persisting
            assert sorted(commits(first, second)) == sorted((queue.broker_name, moved) for queue in QUEUES)
            first.asked.clear()
            second.asked.clear()
        assert len(under_way) == len(QUEUES)

    play(virtual, scene)


def test_first_commit_without_an_answer_is_repeated_alone(virtual: VirtualTime) -> None:
    """The broker may still be handling it; the others follow with the next persist."""

    async def scene(offsets: BrokerOffsets, first: ScriptedBroker, second: ScriptedBroker) -> None:
        for queue in QUEUES:
            offsets.update(queue, 5)
        first.answers[UPDATE] = lambda command: None
        await offsets.persist(QUEUES)
        assert commits(first, second) == [("a", 5), *[("b", 5)] * 3]
        del first.answers[UPDATE]
        persisting = asyncio.create_task(offsets.persist(QUEUES))
        await asyncio.sleep(LATE / 2)
        assert commits(first) == [("a", 5)] * 2
        await persisting
        assert commits(first, second) == [("a", 5)] * 4 + [("b", 5)] * 3

    play(virtual, scene)


def test_refused_commit_of_a_queue_blocks_no_other(virtual: VirtualTime) -> None:
    """A topic may have lost queues: the next queue's commit becomes the first one, and is sent alone."""

    async def scene(offsets: BrokerOffsets, first: ScriptedBroker, second: ScriptedBroker) -> None:
        for queue in QUEUES:
            offsets.update(queue, 5)
        first.answers[UPDATE] = lambda command: (
            first.refuse(command) if first.count(UPDATE) == 1 else RemotingCommand.response(command)
        )
        persisting = asyncio.create_task(offsets.persist(QUEUES))
        for under_way in (1, 2, 3):
            await asyncio.sleep(LATE / 2)
            assert len(commits(first)) == under_way
            await asyncio.sleep(LATE / 2)
        await persisting
        assert commits(first) == [("a", 5)] * 3

    play(virtual, scene)


def test_commit_waits_for_a_cancelled_one(virtual: VirtualTime) -> None:
    """A broker handles requests on many threads and might keep the older offset."""

    async def scene(offsets: BrokerOffsets, first: ScriptedBroker, second: ScriptedBroker) -> None:
        queue = QUEUES[0]
        offsets.update(queue, 5)
        given_up = asyncio.create_task(offsets.persist([queue]))
        await asyncio.sleep(LATE / 2)
        given_up.cancel()
        offsets.update(queue, 6)
        last = asyncio.create_task(offsets.persist([queue]))
        await asyncio.sleep(LATE / 4)
        assert commits(first) == [("a", 5)]
        await last
        assert given_up.cancelled()
        assert commits(first) == [("a", 5), ("a", 6)]

    play(virtual, scene)


def test_offset_is_committed_again_after_the_queue_returns(virtual: VirtualTime) -> None:
    """Another member or a reset may have changed it meanwhile."""

    async def scene(offsets: BrokerOffsets, first: ScriptedBroker, second: ScriptedBroker) -> None:
        queue = QUEUES[0]
        for _ in range(2):
            offsets.update(queue, 5)
            await offsets.persist([queue])
            await offsets.persist([queue])
            offsets.remove(queue)
        assert commits(first, second) == [("a", 5), ("a", 5)]

    play(virtual, scene)
