"""The polled source on RocketMQ: settled offsets and ownership of queues."""

import asyncio
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest

from binders.rocket.polled import RocketPolledSource, _Progress
from rocket_client import Admin, ClientSettings, LitePullConsumer, LitePullConsumerSettings
from rocket_remoting import MessageQueue, ResponseError
from rocket_remoting.wire.topics import retry_topic
from streamkit import Message, Requeue
from streamkit.binder.binder import ConsumerDestination
from streamkit.binder.delivery import Delivery, ExtendedConsumerProperties
from streamkit.binder.permits import Permits
from streamkit.config.settings import ConsumerProperties
from streamkit.listeners.pollable_source import PollableMessageSource
from streamkit.testing.contract import Scenario
from streamkit.testing.contract.scenario import run_case
from streamkit.testing.virtual_time import VirtualTime
from tests.contract.rocket_environment import VirtualRocketEnvironment

BINDING = "spring.cloud.stream.bindings.input-in-0"


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[VirtualRocketEnvironment]:
    """Return a broker in virtual time."""
    with VirtualTime() as time:
        yield VirtualRocketEnvironment(time, tmp_path)


async def note(message: Message[bytes]) -> None:
    """A handler."""


async def drained(source: PollableMessageSource) -> int:
    """Return the number of messages polled until none was left."""
    count = 0
    while await source.poll(note):
        count += 1
    return count


def test_returning_queue_does_not_reset_the_groups_offset(environment: VirtualRocketEnvironment) -> None:
    """Messages that another member handled meanwhile stay settled."""

    async def main(s: Scenario) -> None:
        topic, group = await s.topic(partitions=1), s.name("group")
        settings = {
            "spring.cloud.stream.pollable-source": "input",
            f"{BINDING}.destination": topic,
            f"{BINDING}.group": group,
            **environment.consumer_properties("input-in-0", {"start": "earliest"}),
        }
        # Members sort by their ids: of the one queue the first of them is the owner.
        other, first = s.app(settings), s.app(settings)
        sources = [app.pollable_source("input") for app in (first, other)]
        await s.start(first)
        await s.send(topic, "a")
        assert await drained(sources[0]) == 1
        await other.start(watch_loop=False)
        await s.nothing_more()
        await s.send(topic, "b")
        assert await drained(sources[0]) + await drained(sources[1]) == 1
        await other.stop(5)
        await s.nothing_more()
        async with Admin(
            ClientSettings(name_servers=environment.properties[_NAME_SERVER]),
            transport=environment.transport(),
            clock=environment.clock,
        ) as admin:
            (queue,) = (await admin.topic_route(topic)).subscribe_queues
            assert await admin.committed_offset(queue, group) == 2

    run_case(environment, main)


_NAME_SERVER = "spring.cloud.stream.rocketmq.binder.name-server"


def test_a_queue_that_begins_earlier_again_forgets_what_was_open() -> None:
    """Otherwise the offset of a later message would be committed while an earlier one is not settled."""
    progress = _Progress()
    positions = []
    for offset in (5, 6, 3, 4):
        progress.begin(offset)
        positions.append(progress.position)
    for offset in (3, 6, 4):
        progress.settle(offset)
        positions.append(progress.position)
    assert positions == [5, 5, 3, 3, 4, 4, 5]


def test_redelivery_advances_only_its_own_queue(environment: VirtualRocketEnvironment) -> None:
    """It comes from the retry topic's queue, although it shows its original topic."""

    async def main(s: Scenario) -> None:
        topic, group = await s.topic(partitions=1), s.name("group")
        app = s.app(
            {
                "spring.cloud.stream.pollable-source": "input",
                f"{BINDING}.destination": topic,
                f"{BINDING}.group": group,
                **environment.consumer_properties("input-in-0", {"start": "earliest"}),
            }
        )
        source = app.pollable_source("input")
        seen: list[tuple[bytes, object]] = []

        async def once_more(message: Message[bytes]) -> None:
            first = not any(body == message.payload for body, _ in seen)
            seen.append((message.payload, message.headers["rocketmq_TOPIC"]))
            if message.payload == b"a" and first:
                raise Requeue("once more")

        await s.start(app)
        for body in ("a", "b", "c"):
            await s.send(topic, body)
        while await source.poll(once_more) or len(seen) < 4:
            pass
        assert seen == [(body, topic) for body in (b"a", b"b", b"c", b"a")]
        await app.stop(5)
        async with Admin(
            ClientSettings(name_servers=environment.properties[_NAME_SERVER]),
            transport=environment.transport(),
            clock=environment.clock,
        ) as admin:
            for name, offset in ((topic, 3), (retry_topic(group), 1)):
                (queue,) = (await admin.topic_route(name)).subscribe_queues
                assert await admin.committed_offset(queue, group) == offset

    run_case(environment, main)


def test_offset_reset_lasts_until_the_next_poll(environment: VirtualRocketEnvironment) -> None:
    """Neither a commit nor a stop undoes it; the messages are polled again."""

    async def main(s: Scenario) -> None:
        topic, group = await s.topic(partitions=1), s.name("group")
        app = s.app(
            {
                "spring.cloud.stream.pollable-source": "input",
                f"{BINDING}.destination": topic,
                f"{BINDING}.group": group,
                **environment.consumer_properties("input-in-0", {"start": "earliest"}),
            }
        )
        source = app.pollable_source("input")
        await s.start(app)
        for body in ("a", "b", "c"):
            await s.send(topic, body)
        assert await drained(source) == 3
        async with Admin(
            ClientSettings(name_servers=environment.properties[_NAME_SERVER]),
            transport=environment.transport(),
            clock=environment.clock,
        ) as admin:
            (queue,) = (await admin.topic_route(topic)).subscribe_queues
            await asyncio.sleep(6)
            assert await admin.committed_offset(queue, group) == 3
            await admin.reset_offsets(group, topic, 0)
            await asyncio.sleep(60)
            assert await admin.committed_offset(queue, group) == 0
            assert await drained(source) == 3
            await asyncio.sleep(6)
            assert await admin.committed_offset(queue, group) == 3
            await admin.reset_offsets(group, topic, 0)
            await asyncio.sleep(1)
            await app.stop(5)
            assert await admin.committed_offset(queue, group) == 0

    run_case(environment, main)


class SlowCommits(LitePullConsumer):
    """Offsets whose broker answers late."""

    async def commit(self, queues: Collection[MessageQueue] | Mapping[MessageQueue, int] | None = None) -> None:
        await asyncio.sleep(10)


def test_cancelled_stop_leaves_the_group(environment: VirtualRocketEnvironment) -> None:
    """A member that no longer polls would keep its queues from the others."""

    async def main(s: Scenario) -> None:
        topic, group = await s.topic(partitions=1), s.name("group")
        settings = LitePullConsumerSettings(name_servers=environment.properties[_NAME_SERVER], auto_commit=False)
        consumer = SlowCommits(group, settings, transport=environment.transport(), clock=environment.clock)
        destination = ConsumerDestination(
            topic, group, "in", ConsumerProperties(), ExtendedConsumerProperties(), Delivery(), Permits(1)
        )
        source = RocketPolledSource(destination, consumer)
        await source.start()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(source.stop(5), timeout=1)
        await asyncio.sleep(1)
        async with Admin(
            ClientSettings(name_servers=environment.properties[_NAME_SERVER]),
            transport=environment.transport(),
            clock=environment.clock,
        ) as admin:
            with pytest.raises(ResponseError, match="not online"):
                await admin.consumer_connections(group)

    run_case(environment, main)
