"""Lists of many groups: the first row is there long before brokers are asked about the last group."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from itertools import count

import pytest

from rocket_admin.activity import GroupActivityMeter
from rocket_admin.commands.output import ROWS_AT_ONCE, SECONDS_AT_MOST, Column, Output
from rocket_admin.dead_letters import dead_letter_groups
from rocket_admin.groups import GROUPS_AT_ONCE, list_groups
from rocket_admin.ordered_results import ordered_results
from rocket_client import Admin
from rocket_remoting import Message
from rocket_remoting.wire.bodies import ConsumeStats, TopicOffset
from rocket_remoting.wire.message import MessageQueue
from streamkit.testing.virtual_time import VirtualTime
from tests.end_to_end.client_stage import ClientStage, play

NAMES = [f"group{number:03}" for number in range(GROUPS_AT_ONCE + 20)]


class CountingAdmin(Admin):
    """Counts the groups that brokers are asked about.

    Attributes:
        asked: The number of these groups.
    """

    asked = 0

    async def progress_at(self, address: str, group: str) -> ConsumeStats:
        """Count a group, and ask how far it is."""
        self.asked += 1
        return await super().progress_at(address, group)

    async def topic_stats(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """Count a group, and ask for its dead letters."""
        self.asked += 1
        return await super().topic_stats(topic)


def with_groups(scene: Callable[[CountingAdmin], Awaitable[None]]) -> None:
    """Run a scene on a broker with many groups, each of which has committed an offset and has a dead letter."""

    async def prepared(stage: ClientStage) -> None:
        settings = stage.admin().settings
        async with (
            CountingAdmin(settings, transport=stage.transport, clock=stage.time.clock) as admin,
            stage.producer() as producer,
        ):
            (queue, *_) = (await admin.topic_route("orders")).subscribe_queues
            for name in NAMES:
                await admin.commit_offset(queue, name, 0)
                await admin.create_topic(f"%DLQ%{name}", 1)
                await producer.send(Message(f"%DLQ%{name}", b"cold"))
            await scene(admin)

    play(prepared)


def test_results_are_taken_one_by_one() -> None:
    """In the order of the items, some of which are worked on; an error ends the work on these."""
    begun: list[int] = []
    ended: list[int] = []

    async def work(number: int) -> int:
        begun.append(number)
        try:
            await asyncio.sleep(0)
            if number == 9:
                raise ValueError("nine")
            return number
        finally:
            ended.append(number)

    found: list[int] = []

    async def take() -> None:
        async with aclosing(ordered_results(work, range(100), at_once=4)) as results:
            async for number in results:
                found.append(number)
                assert len(begun) <= number + 4

    async def scene() -> None:
        with pytest.raises(ValueError, match="nine"):
            await take()
        assert found == list(range(9))
        assert sorted(ended) == begun == list(range(12))

    asyncio.run(scene())


def test_groups_are_listed_while_brokers_are_asked() -> None:
    """With their lag, or with the number of their dead letters."""

    async def scene(admin: CountingAdmin) -> None:
        async with aclosing(list_groups(admin, NAMES)) as groups:
            assert (await anext(groups)).group == NAMES[0]
            assert admin.asked == GROUPS_AT_ONCE
            assert [each.group async for each in groups] == NAMES[1:]
        admin.asked = 0
        async with aclosing(dead_letter_groups(admin, NAMES)) as letters:
            first = await anext(letters)
            assert (first.group, first.count) == (NAMES[0], 1)
            assert admin.asked < len(NAMES)
            assert [each.group async for each in letters] == NAMES[1:]

    with_groups(scene)


def test_activity_of_groups_is_told_while_brokers_are_asked() -> None:
    """`top --json` prints each group at once; its table has the groups that are behind most, so it needs all."""

    async def scene(admin: CountingAdmin) -> None:
        asked: dict[str, int] = {}
        found = await GroupActivityMeter().sample(admin, lambda group: asked.setdefault(group.group, admin.asked))
        assert list(asked) == NAMES
        assert asked[NAMES[0]] == GROUPS_AT_ONCE
        assert [each.group for each in found.groups] == NAMES

    with_groups(scene)


@pytest.mark.parametrize(("pause", "first"), [(0.0, ROWS_AT_ONCE), (SECONDS_AT_MOST / 2, 3)])
def test_rows_are_printed_as_they_come(pause: float, first: int, capsys: pytest.CaptureFixture[str]) -> None:
    """A hundred at once if they come fast, else those that came within a quarter of a second."""
    printed: list[int] = []

    async def numbers() -> AsyncIterator[int]:
        for number in range(ROWS_AT_ONCE + 20):
            printed.append(capsys.readouterr().out.count("\n"))
            yield number
            await asyncio.sleep(pause)

    async def scene() -> None:
        await Output(as_json=False).stream(numbers(), [Column(title="NUMBER", text=lambda number: number)])

    with VirtualTime() as time:
        time.run(scene())
    # The heading is a line, too.
    assert next(number for number in count() if printed[number]) == first
    assert printed[first] == first + 1
