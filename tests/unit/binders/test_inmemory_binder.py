"""The in-memory binder beyond the contract: partitions, shared brokers, strict mode, use in place of another binder."""

import asyncio

import pytest

from binders.inmemory.broker import InMemoryBroker
from binders.inmemory.destination import Destination
from binders.inmemory.group import Group, GroupQueue, Member
from binders.inmemory.timers import Timers
from streamkit import input_channel
from streamkit.application import StreamApplication
from streamkit.binder.binder import BindingState
from streamkit.binder.delivery import StartPosition
from streamkit.clock import SystemClock
from streamkit.errors import BinderError, ConfigurationError
from streamkit.listeners.listener import stream_listener
from streamkit.messaging.message import Message
from streamkit.testing.virtual_time import VirtualTime


class FakeMember(Member):
    """A member that only records its wake-ups."""

    def __init__(self, id_: str) -> None:
        self._id = id_
        self.woken: list[GroupQueue] = []

    @property
    def id(self) -> str:
        return self._id

    def wake(self, queue: GroupQueue) -> None:
        self.woken.append(queue)


def owners(group: Group) -> list[str | None]:
    """Return the owner of each partition."""
    return [queue.owner.id if queue.owner else None for queue in group.queues[:-1]]


def test_partitions_are_assigned_in_ranges() -> None:
    """The first members have one more; a leaving member's partitions go to the remaining ones."""
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


def test_group_filters_by_exact_tag() -> None:
    """`a||b` matches either; a message without a tag matches only `*`."""
    group = Group("g", 1)
    group.subscribe("a || b")
    for tag in ("a", "b", "ab", None):
        group.put(0, 0, Message(b"", {"streamkit_tags": tag} if tag else {}))
    assert group.pending == 2


def bodies(group: Group) -> list[bytes]:
    """Return the payloads that wait in the first partition."""
    return [bytes(delivery.message.payload) for delivery in group.queues[0].waiting]


@pytest.mark.parametrize(("has_member", "left"), [(False, [b"b"]), (True, [b"a", b"b"])])
def test_new_tags_apply_to_waiting_messages_of_an_empty_group(has_member: bool, left: list[bytes]) -> None:
    """A running member gets what came to it by its own tags, whatever the next member subscribes to."""
    group = Group("g", 1)
    for tag in ("a", "b"):
        group.put(0, 0, Message(tag.encode(), {"streamkit_tags": tag}))
    if has_member:
        group.join(FakeMember("m"))
    group.subscribe("b")
    assert bodies(group) == left


def test_a_member_that_joins_is_woken_for_waiting_messages() -> None:
    """Only for its queues that have any."""
    group, member = Group("g", 2), FakeMember("m")
    group.put(1, 0, Message(b"x"))
    group.join(member)
    assert [group.queues.index(queue) for queue in member.woken] == [1]


def test_messages_that_are_given_back_keep_their_order() -> None:
    """They come before those that wait, and the queue's owner is woken."""
    group, member = Group("g", 1), FakeMember("m")
    for body in (b"a", b"b", b"c"):
        group.put(0, 0, Message(body))
    queue = group.queues[0]
    taken = [queue.waiting.popleft() for _ in range(2)]
    group.join(member)
    member.woken.clear()
    group.give_back(queue, taken)
    assert bodies(group) == [b"a", b"b", b"c"]
    assert len(member.woken) == 1


def test_destination_retains_its_last_messages() -> None:
    """A group that starts at the beginning gets the retained ones."""
    destination = Destination("topic", partitions=1, retention=3, clock=SystemClock())
    for number in range(5):
        destination.put(str(number).encode(), {}, None)
    group = destination.group("late", None, StartPosition.EARLIEST)
    assert [delivery.message.payload for delivery in group.queues[0].waiting] == [b"2", b"3", b"4"]
    assert destination.group("now", None, StartPosition.LATEST).pending == 0


@pytest.mark.parametrize(("sent", "received"), [(3, 3), (4, 0)])
def test_a_group_begins_at_the_last_offset_once_the_first_message_is_gone(sent: int, received: int) -> None:
    """RocketMQ's rule: a new group receives all messages of a queue that still has its first one."""
    destination = Destination("topic", partitions=1, retention=3, clock=SystemClock())
    for number in range(sent):
        destination.put(str(number).encode(), {}, None)
    assert destination.group("g", None, StartPosition.LAST_OFFSET).pending == received


def test_timers_run_in_order_and_may_set_more() -> None:
    """A timer set by a timer is in the same order."""
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
    """Return an application on the in-memory binder."""
    return StreamApplication(
        config_location="optional:/none",
        properties={
            "spring.cloud.stream.default-binder": "inmemory",
            **{f"spring.cloud.stream.inmemory.binder.{key}": value for key, value in binder.items()},
        },
    )


class Topic:
    """An input."""

    topic = input_channel("topic")


def bind_something(made: StreamApplication) -> None:
    """Start and stop an application that needs its binder."""
    made.enable_binding(Topic)
    with made:
        assert made.binding("topic").state is BindingState.RUNNING


def test_unnamed_applications_share_nothing() -> None:
    """Each binder has its own broker until it stops; applications with one name share a lasting broker."""

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


def test_delayed_message_outlives_the_loop_of_its_sender() -> None:
    """A shared broker uses the loop of the present application."""
    came: list[str] = []  # the delay is longer than the second application takes to subscribe on a busy machine

    async def send_and_end() -> None:
        async with app(broker="moves-by-test") as one:
            await one.bridge.asend("topic", Message("first", {"streamkit_delay": 1.5}))

    async def send_and_wait() -> None:
        both, other = asyncio.Event(), app(broker="moves-by-test")

        other.enable_binding(Topic)

        @other.stream_listener("topic")
        async def note(text: str) -> None:
            came.append(text)
            if len(came) == 2:
                both.set()

        async with other:
            InMemoryBroker.named("moves-by-test").timers.after(
                1.6, lambda: InMemoryBroker.named("moves-by-test").destination("topic").put(b"second", {}, 0)
            )
            await asyncio.wait_for(both.wait(), 30)

    asyncio.run(send_and_end())
    asyncio.run(send_and_wait())
    InMemoryBroker.forget("moves-by-test")
    assert came == ["first", "second"]


def test_broker_cannot_be_used_by_two_loops() -> None:
    """Messages would reach listeners on the wrong loop."""
    first = app(broker="one-loop-by-test")
    first.enable_binding(Topic)
    with (
        first,
        pytest.raises(BinderError, match="'one-loop-by-test': an application on another event loop uses it"),
    ):
        bind_something(app(broker="one-loop-by-test"))
    bind_something(app(broker="one-loop-by-test"))
    InMemoryBroker.forget("one-loop-by-test")


@pytest.mark.parametrize("first_stops", [False, True])
def test_ordered_partition_changes_owner_after_the_current_call(first_stops: bool) -> None:
    """The new owner gets the next message, whether the old one stays in the group or leaves."""
    heard: list[tuple[str, str, float]] = []

    def member(name: str) -> StreamApplication:
        made = StreamApplication(
            config_location="optional:/none",
            properties={
                "spring.cloud.stream.default-binder": "inmemory",
                "spring.cloud.stream.inmemory.binder.broker": "ordered-by-test",
                "spring.cloud.stream.inmemory.binder.partitions": "2",
                "spring.cloud.stream.bindings.input.destination": "topic",
                "spring.cloud.stream.bindings.input.group": "g",
                "spring.cloud.stream.rocketmq.bindings.input.consumer.orderly": "true",
            },
        )

        @made.stream_listener("input")
        async def listen(text: str) -> None:
            heard.append((name, text, asyncio.get_running_loop().time()))
            await asyncio.sleep(10)

        return made

    async def main() -> None:
        async with member("first") as first:
            for text in "abc":
                await first.bridge.asend("topic", Message(text, {"scst_partition": 1}))
            await asyncio.sleep(1)
            async with member("second"):
                if first_stops:
                    await first.stop()
                await asyncio.sleep(40)
        InMemoryBroker.forget("ordered-by-test")

    with VirtualTime() as time:
        time.run(main())
    assert heard == [("first", "a", 0), ("second", "b", 10), ("second", "c", 20)]


def test_strict_mode_fails_on_unread_messages() -> None:
    """The error names destination and number."""

    async def main() -> None:
        async with app(strict="true") as application:
            await application.bridge.asend("lonely", "x")

    with pytest.raises(BinderError, match="1 sent to 'lonely', which has no consumer"):
        asyncio.run(main())


def test_settings_of_the_replaced_binder_type_are_read() -> None:
    """A wrong RocketMQ setting is an error on the in-memory binder too."""
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
    """A listener to bind."""

    @stream_listener("input")
    async def note(self, text: str) -> None:
        """Accept every message."""
