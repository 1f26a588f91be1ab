"""The polled source on RocketMQ: how far its queues are settled, and whose they are."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocket_client import Admin, ClientSettings
from streamkit import Message
from streamkit.pollable_source import PollableMessageSource
from streamkit.testing.contract import Scenario
from streamkit.testing.virtual_time import VirtualTime
from tests.contract.rocket_environment import VirtualRocketEnvironment

BINDING = "spring.cloud.stream.bindings.input-in-0"


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[VirtualRocketEnvironment]:
    """A broker on virtual time."""
    with VirtualTime() as time:
        yield VirtualRocketEnvironment(time, tmp_path)


async def note(message: Message[bytes]) -> None:
    """A handler."""


async def drained(source: PollableMessageSource) -> int:
    """How many messages there were."""
    count = 0
    while await source.poll(note):
        count += 1
    return count


def test_a_queue_that_went_and_came_back_is_not_set_back(environment: VirtualRocketEnvironment) -> None:
    """What another member has handled meanwhile stays handled."""

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

    environment.check(main)


_NAME_SERVER = "spring.cloud.stream.rocketmq.binder.name-server"
