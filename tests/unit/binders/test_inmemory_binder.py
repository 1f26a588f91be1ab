"""The in-memory binder beyond the contract: partitions, sharing, strictness, standing in."""

import asyncio

import pytest

from binders.inmemory.broker import InMemoryBroker
from binders.inmemory.destination import Destination
from binders.inmemory.group import Group, GroupQueue, Member
from binders.inmemory.timers import Timers
from streamkit.application import StreamApplication
from streamkit.errors import BinderError, ConfigurationError
from streamkit.listener import stream_listener
from streamkit.messaging.message import Message
from streamkit.testing.virtual_time import VirtualTime


class FakeMember(Member):
    """A member that only notes what it is woken for."""

    def __init__(self, id_: str) -> None:
        self._id = id_
        self.woken: list[GroupQueue] = []

    @property
    def id(self) -> str:
        return self._id

    def wake(self, queue: GroupQueue) -> None:
        self.woken.append(queue)


def owners(group: Group) -> list[str | None]:
    """Who has which partition."""
    return [queue.owner.id if queue.owner else None for queue in group.queues[:-1]]


def test_partitions_are_dealt_out_in_ranges() -> None:
    """The first members have one more; a leaving member's partitions go to those who stay."""
    group = Group("g", 5)
    members = [FakeMember(name) for name in "cab"]
    for member in members:
        group.join(member)
    assert owners(group) == ["a", "a", "b", "b", "c"]
    group.leave(members[1])
    assert owners(group) == ["b", "b", "b", "c", "c"]
    group.leave(members[0])
    group.leave(members[2])
    assert owners(group) == [None] * 5


def test_a_group_filters_by_exact_tag() -> None:
    """`a||b` is either; what has no tag matches only `*`."""
    group = Group("g", 1)
    group.subscribe("a || b")
    for tag in ("a", "b", "ab", None):
        group.put(0, Message(b"", {"streamkit_tags": tag} if tag else {}))
    assert group.pending == 2


def test_a_destination_keeps_its_last_messages() -> None:
    """A group that starts at the beginning gets what is still there."""
    destination = Destination("topic", partitions=1, retention=3)
    for number in range(5):
        destination.put(str(number).encode(), {}, None)
    group = destination.group("late", None, from_the_beginning=True)
    assert [delivery.message.payload for delivery in group.queues[0].waiting] == [b"2", b"3", b"4"]
    assert destination.group("now", None, from_the_beginning=False).pending == 0


def test_timers_fire_in_order_and_may_set_more() -> None:
    """One heap: a timer set by a timer is in line with the others."""
    fired: list[tuple[str, float]] = []

    async def main() -> None:
        timers = Timers()
        loop = asyncio.get_running_loop()

        def note(name: str) -> None:
            fired.append((name, loop.time()))

        timers.after(3, lambda: note("c"))
        timers.after(1, lambda: (note("a"), timers.after(1, lambda: note("b"))))  # type: ignore[arg-type]
        timers.after(9, lambda: note("never"))
        await asyncio.sleep(5)
        assert len(timers) == 1
        timers.close()

    with VirtualTime() as time:
        time.run(main())
    assert fired == [("a", 1), ("b", 2), ("c", 3)]


def app(**binder: str) -> StreamApplication:
    """An application on memory."""
    return StreamApplication(
        config_location="optional:/none",
        properties={
            "spring.cloud.stream.default-binder": "inmemory",
            **{f"spring.cloud.stream.inmemory.binder.{key}": value for key, value in binder.items()},
        },
    )


def test_applications_without_a_name_share_nothing() -> None:
    """Each binder has a broker of its own, gone when it stops; named ones meet and last."""

    async def main() -> None:
        async with app() as one, app() as other:
            await one.bridge.asend("topic", "x")
            await other.bridge.asend("topic", "x")
        async with app(broker="shared-by-test") as one:
            await one.bridge.asend("topic", "x")
        broker = InMemoryBroker.named("shared-by-test")
        assert [message.payload for message in broker.destination("topic").messages] == [b"x"]
        InMemoryBroker.forget("shared-by-test")
        assert InMemoryBroker.named("shared-by-test").destinations == {}
        InMemoryBroker.forget("shared-by-test")

    asyncio.run(main())


def test_strict_mode_fails_on_a_message_nobody_read() -> None:
    """The error names destination and number."""

    async def main() -> None:
        async with app(strict="true") as application:
            await application.bridge.asend("lonely", "x")

    with pytest.raises(BinderError, match="1 sent to 'lonely', which nobody consumes"):
        asyncio.run(main())


def test_it_reads_the_settings_of_the_type_it_stands_in_for() -> None:
    """A wrong setting of RocketMQ's is found on memory too."""
    wrong = {"spring.cloud.stream.rocketmq.bindings.input.consumer.orderley": "true"}
    application = StreamApplication(
        _Listener(),
        config_location="optional:/none",
        properties={
            "spring.cloud.stream.default-binder": "inmemory",
            "spring.cloud.stream.bindings.input.destination": "topic",
            **wrong,
        },
    )
    with pytest.raises(ConfigurationError, match="orderley"), application:
        pass


class _Listener:
    """Something to bind."""

    @stream_listener("input")
    async def note(self, text: str) -> None:
        """Take everything."""
