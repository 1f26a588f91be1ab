"""Groups that a producer requires before they have a member."""

import asyncio
from types import SimpleNamespace

import pytest

from binders.inmemory.destination import Destination
from binders.rocket.groups import commit_missing_offsets
from rocket_remoting.wire.errors import ResponseError
from rocket_remoting.wire.message import MessageQueue
from streamkit.binder.delivery import StartPosition
from streamkit.clock import SystemClock

QUEUES = [MessageQueue("orders", "a", number) for number in range(2)]


class Offsets:
    """A client that answers and records requests about a group's offsets."""

    def __init__(self, committed: int | None, *, is_known: bool = True) -> None:
        self.reported: list[object] = []
        self._committed = committed
        self._is_known = is_known

    async def topic_route(self, topic: str) -> object:
        return SimpleNamespace(subscribe_queues=QUEUES)

    async def committed_offset(self, queue: MessageQueue, group: str) -> int | None:
        return self._committed

    async def max_offset(self, queue: MessageQueue) -> int:
        return 70 + queue.queue_id

    async def commit_offset(self, queue: MessageQueue, group: str, offset: int) -> None:
        if not self._is_known:
            raise ResponseError(26, "group not exist")
        self.reported.append(offset)

    async def create_group(self, config: object) -> None:
        self._is_known = True
        self.reported.append("made")


@pytest.mark.parametrize(
    ("broker", "message"),
    [
        (Offsets(None), [70, 71]),
        (Offsets(None, is_known=False), ["made", 70, 71]),
        (Offsets(0), []),
        (Offsets(12), []),
    ],
    ids=["a new one on 4.9", "a new one on 5.x", "one that begins at the start", "one that has been there"],
)
def test_new_group_starts_at_the_end_of_the_topic(broker: Offsets, message: list[object]) -> None:
    """On every queue; an existing group keeps its offsets and its settings."""
    asyncio.run(commit_missing_offsets(broker, "g", "orders"))
    assert broker.reported == message


def test_tags_of_the_first_member_apply_in_memory() -> None:
    """Retained messages that its first member does not subscribe to are not delivered."""
    home = Destination("orders", 1, 10, SystemClock())
    home.require("g")
    for tag in "ab":
        home.put(b"", {"streamkit_tags": tag}, None)
    group = home.group("g", "a", StartPosition.LATEST)
    assert group.pending == 1
    assert home.unheard == 0
