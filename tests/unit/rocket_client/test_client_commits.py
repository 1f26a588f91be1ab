"""Commits of a clustering group's offsets, before brokers that answer late."""

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
    """Broker and offset of each commit that was asked for."""
    return [
        (broker.name, command.header(UpdateConsumerOffsetRequestHeader).commit_offset)
        for broker in brokers
        for command in broker.asked
        if command.code == UPDATE
    ]


def play(time: VirtualTime, scene: Callable[[BrokerOffsets, ScriptedBroker, ScriptedBroker], Awaitable[None]]) -> None:
    """Run the scene with a group's offsets, at two brokers with three queues each."""

    async def main() -> None:
        async with ScriptedCluster(time) as cluster, cluster.client() as client:
            for broker in cluster.brokers:
                broker.late[UPDATE] = LATE
            first, second = cluster.brokers
            await scene(BrokerOffsets(client.requests, "kitchen"), first, second)

    time.run(main())


def test_a_topics_first_commit_is_made_alone(virtual: VirtualTime) -> None:
    """At each broker: Apache's make the topic's table for it, and would make two. All later ones come at once."""

    async def scene(offsets: BrokerOffsets, first: ScriptedBroker, second: ScriptedBroker) -> None:
        for moved in (5, 6):
            for queue in QUEUES:
                offsets.update(queue, moved)
            persisting = asyncio.create_task(offsets.persist(QUEUES))
            await asyncio.sleep(LATE / 2)
            under_way = commits(first, second)
            if moved == 5:
                assert under_way == [("a", 5), ("b", 5)]
            await persisting
            assert sorted(commits(first, second)) == sorted((queue.broker_name, moved) for queue in QUEUES)
            first.asked.clear()
            second.asked.clear()
        assert len(under_way) == len(QUEUES)

    play(virtual, scene)


def test_a_first_commit_that_got_no_answer_stays_alone(virtual: VirtualTime) -> None:
    """The broker may be at it still; the others are made with the next persist, which begins with one again."""

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


def test_a_queue_whose_commit_is_refused_holds_up_no_other(virtual: VirtualTime) -> None:
    """A topic may have fewer queues than before: the next one's commit is the first, and alone."""

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


def test_a_commit_waits_for_one_that_was_cancelled(virtual: VirtualTime) -> None:
    """A broker handles requests on many threads, and might keep the older offset."""

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


def test_an_offset_is_committed_again_after_the_queue_was_away(virtual: VirtualTime) -> None:
    """Another member, or a reset, may have moved it meanwhile: what was committed before says nothing."""

    async def scene(offsets: BrokerOffsets, first: ScriptedBroker, second: ScriptedBroker) -> None:
        queue = QUEUES[0]
        for _ in range(2):
            offsets.update(queue, 5)
            await offsets.persist([queue])
            await offsets.persist([queue])
            offsets.remove(queue)
        assert commits(first, second) == [("a", 5), ("a", 5)]

    play(virtual, scene)
