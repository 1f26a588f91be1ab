"""Members of a Kafka group compared with a model: a partition that moves is handled by one member after the other."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from kafka import OffsetAndMetadata, TopicPartition
from kafka.future import Future

from binders.kafka.dead_letter import NoDeadLetters
from binders.kafka.fetching import ConsumerClient, FetchThread, Subscription
from binders.kafka.handling import PartitionSettler
from binders.kafka.partition import AssignedPartition, Delivery
from streamkit.binder.binder import ConsumerDestination
from streamkit.binder.delivery import Delivery as DeliveryTerms
from streamkit.binder.delivery import ExtendedConsumerProperties
from streamkit.binder.drivers import ConcurrentDriver, Driver, OrderedDriver
from streamkit.binder.permits import Permits
from streamkit.config.settings import ConsumerProperties
from streamkit.settlement import ACCEPT, Requeue, Settlement

KEYS = [TopicPartition("orders", number) for number in range(3)]
PartitionDriver = Driver[AssignedPartition, Delivery]
AT_ONCE = Requeue(after=timedelta(0))


class Consumer:
    """A fake of kafka-python's consumer on the model's topics and offsets.

    Attributes:
        mine: Its partitions.
        generation: The group's, as far as it knows.
        is_patient: Whether it waits for calls under way before it gives partitions up.
    """

    def __init__(self, ends: Mapping[TopicPartition, int], committed: dict[TopicPartition, int]) -> None:
        self.mine: set[TopicPartition] = set()
        self.generation = 0
        self.is_patient = True
        self._ends = ends
        self._committed = committed
        self._positions: dict[TopicPartition, int] = {}

    def assign(self, keys: set[TopicPartition], generation: int) -> None:
        """Assign these partitions; as in kafka-python, those it had already keep their positions."""
        self.generation = generation
        self._positions = {key: self._positions.get(key, self._committed[key]) for key in keys}
        self.mine = keys

    def reset_positions(self) -> None:
        self._positions = {key: self._committed[key] for key in self.mine}

    def poll(self, *, timeout_ms: int) -> dict[TopicPartition, list[SimpleNamespace]]:
        found = {}
        for key in sorted(self.mine):
            offsets = range(self._positions[key], min(self._positions[key] + 2, self._ends[key]))
            if offsets:
                found[key] = [SimpleNamespace(offset=offset, key=None, value=None, headers=[]) for offset in offsets]
                self._positions[key] = offsets.stop
        return found

    def assignment(self) -> set[TopicPartition]:
        return self.mine

    def paused(self) -> set[TopicPartition]:
        return set()

    def begins_at(self, key: TopicPartition) -> int:
        return self._positions[key]

    def position(self, key: TopicPartition, *, timeout_ms: int) -> int:
        return self._positions[key]

    def seek(self, key: TopicPartition, offset: int) -> None:
        self._positions[key] = offset

    def commit_async(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Future:
        for key, position in offsets.items():
            assert key in self.mine
            self._committed[key] = position.offset
        return Future().success(None)

    async def wait_until(self, condition: Callable[[], bool], seconds: float) -> bool:
        while self.is_patient and not condition():  # noqa: ASYNC110 - so does the one it stands for
            await asyncio.sleep(0)
        return condition()


class Member:
    """A member of the group whose calls are ended by the test.

    Attributes:
        calls: The calls under way: with which message, and what becomes of it.
        revocation: The rebalance it prepares, or has prepared and waits in.
    """

    def __init__(
        self,
        consumer: Consumer,
        kind: type[PartitionDriver],
        begin: Callable[["Member", Delivery], None],
    ) -> None:
        self.consumer = consumer
        self.calls: list[tuple[Delivery, asyncio.Future[Settlement]]] = []
        self.revocation: asyncio.Task[None] | None = None
        self._begin = begin
        self._permits = Permits(2)
        destination = ConsumerDestination(
            "orders",
            "kitchen",
            "in",
            ConsumerProperties(),
            ExtendedConsumerProperties(),
            DeliveryTerms(),
            self._permits,
        )
        settler = PartitionSettler(NoDeadLetters(), lambda partition: None)
        driver = kind(destination, settler, self._call_receiver)

        def take(batches: Sequence[tuple[AssignedPartition, Sequence[Any]]]) -> None:
            for partition, records in batches:
                partition.take(records)
                driver.wake(partition)

        self.thread = FetchThread(
            "in", ConsumerClient({}), Subscription("orders"), take, driver.wake, recall=driver.recall
        )

    async def _call_receiver(self, deliveries: Sequence[Delivery]) -> Sequence[Settlement]:
        (delivery,) = deliveries
        await self._permits.acquire()
        self._begin(self, delivery)
        end: asyncio.Future[Settlement] = asyncio.get_running_loop().create_future()
        self.calls.append((delivery, end))
        try:
            return [await end]
        finally:
            self._permits.release()

    @property
    def has_given_up(self) -> bool:
        """Return whether its partitions may be assigned to another; a failed revocation raises its error."""
        return self.revocation is not None and self.revocation.done() and self.revocation.result() is None


class Group(RuleBasedStateMachine):
    """Two members, messages, calls that end, and rebalances at any time."""

    kind: type[PartitionDriver]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.ends = dict.fromkeys(KEYS, 0)
        self.committed = dict.fromkeys(KEYS, 0)
        self.accepted: set[tuple[TopicPartition, int]] = set()
        # Accepted, but not committed when their partition was given up: they come again.
        self.again: set[tuple[TopicPartition, int]] = set()
        self.members: list[Member] = []
        self.generation = 0
        # Calls that must not have begun.
        self.wrong: list[str] = []
        self.run(self.join)
        self.assign([0, 0, 0])

    def run(self, act: Callable[[], None]) -> None:
        """Run something on the loop, with all that follows from it."""

        async def main() -> None:
            act()
            for _ in range(12):
                await asyncio.sleep(0)

        self.runner.run(main())
        assert not self.wrong

    def join(self) -> None:
        """Make the members."""
        for _ in range(2):
            self.members.append(Member(Consumer(self.ends, self.committed), self.kind, self.begins))

    def begins(self, member: Member, delivery: Delivery) -> None:
        """Return the start position: accepted messages are not handled again unless their commit failed."""
        message = (delivery.partition.key, delivery.record.offset)
        if message in self.accepted and message not in self.again:
            self.wrong.append(f"{message} comes again")
        if member.has_given_up:
            self.wrong.append(f"{message} comes to a member that has given it up")

    def assign(self, owners: Sequence[int]) -> None:
        """Assign each partition to the member of that number."""

        def act() -> None:
            self.generation += 1
            for number, member in enumerate(self.members):
                self.deal(member, {key for key, owner in zip(KEYS, owners, strict=True) if owner == number})

        self.run(act)

    def deal(self, member: Member, keys: set[TopicPartition]) -> None:
        """Assign partitions to a member in this generation."""
        member.consumer.assign(keys, self.generation)
        member.revocation = None
        member.consumer.is_patient = True
        member.thread.assigned(member.consumer, keys)

    def revoke(self, member: Member) -> None:
        """Ask a member to give up its partitions."""
        giving_up = member.thread.before_revocation(member.consumer, set(member.consumer.mine))
        member.revocation = asyncio.get_running_loop().create_task(giving_up)

    @property
    def is_rebalancing(self) -> bool:
        return self.members[0].revocation is not None

    @invariant()
    def partitions_are_given_up_when_their_calls_have_ended(self) -> None:
        """Check that partitions are given up exactly when their calls have ended."""
        for member in self.members:
            if member.revocation is not None and member.consumer.is_patient:
                counting = [delivery for delivery, _ in member.calls if not delivery.partition.is_lost]
                assert not (member.has_given_up and counting)
                assert member.has_given_up or member.calls

    @rule(key=st.sampled_from(KEYS), count=st.integers(1, 3))
    def send(self, key: TopicPartition, count: int) -> None:
        """Send further messages of a partition."""
        self.ends[key] += count

    @rule(number=st.integers(0, 1))
    def fetch(self, number: int) -> None:
        """Run one round of a member's thread, unless it waits in a rebalance."""
        member = self.members[number]
        if member.revocation is None:
            self.run(lambda: member.thread.turn(member.consumer))
            assert member.thread.error is None

    @rule(number=st.integers(0, 1), which=st.integers(0, 9), is_retried=st.booleans())
    def end_call(self, number: int, which: int, is_retried: bool) -> None:
        """End a call in progress."""
        member = self.members[number]
        if not member.calls:
            return
        delivery, end = member.calls.pop(which % len(member.calls))
        if not is_retried:
            message = (delivery.partition.key, delivery.record.offset)
            self.accepted.add(message)
            if delivery.partition.is_lost or member.has_given_up:
                self.again.add(message)
        self.run(lambda: end.set_result(AT_ONCE if is_retried else ACCEPT))

    @precondition(lambda self: not self.is_rebalancing)
    @rule()
    def rebalance(self) -> None:
        """Ask the members to give up all partitions."""

        def act() -> None:
            for member in self.members:
                self.revoke(member)

        self.run(act)

    @precondition(lambda self: self.is_rebalancing)
    @rule(owners=st.lists(st.integers(0, 1), min_size=3, max_size=3))
    def deal_out(self, owners: Sequence[int]) -> None:
        """Assign partitions once all members have given theirs up."""
        if all(member.has_given_up for member in self.members):
            self.have_held_back_again()
            self.assign(owners)

    def have_held_back_again(self) -> None:
        """Allow messages behind an unsettled one to be repeated; in order there are none."""
        if self.kind is ConcurrentDriver:
            self.again |= {(key, offset) for key, offset in self.accepted if offset >= self.committed[key]}

    @precondition(lambda self: self.is_rebalancing)
    @rule(number=st.integers(0, 1), owners=st.lists(st.integers(0, 1), min_size=3, max_size=3))
    def miss(self, number: int, owners: Sequence[int]) -> None:
        """Rebalance without a member: the other one has all partitions until the next rebalance."""
        if not all(member.has_given_up for member in self.members):
            return
        other = self.members[1 - number]
        self.have_held_back_again()
        self.generation += 1
        self.run(lambda: self.deal(other, set(KEYS)))
        for _ in range(3):
            self.fetch(1 - number)
            self.end_call(1 - number, 0, is_retried=False)
        self.run(lambda: self.revoke(other))
        self.lose_patience(1 - number)
        self.deal_out(owners)

    @precondition(lambda self: self.is_rebalancing)
    @rule(number=st.integers(0, 1))
    def lose_patience(self, number: int) -> None:
        """End a member's patience: the rebalance no longer waits for its calls, which continue."""
        member = self.members[number]
        member.consumer.is_patient = False
        self.run(lambda: None)

    @precondition(lambda self: not self.is_rebalancing)
    @rule(number=st.integers(0, 1))
    def put_out(self, number: int) -> None:
        """Expire a member: the other one gets its partitions at once."""
        member, other = self.members[number], self.members[1 - number]
        keys = set(member.consumer.mine)
        self.again |= {(key, offset) for key, offset in self.accepted if offset >= self.committed[key]}

        def act() -> None:
            member.thread.lost(member.consumer, keys)
            member.consumer.assign(set(), self.generation)
            self.deal(other, set(KEYS))

        self.run(act)

    def teardown(self) -> None:
        """Check that no partition is stuck: in the end everything is handled and committed."""
        try:
            self.finish()
            assert self.committed == self.ends
        finally:
            for member in self.members:
                for _, end in member.calls:
                    end.cancel()
            self.runner.close()

    def finish(self) -> None:
        """End the rebalance and all calls, and fetch everything."""
        if self.is_rebalancing:
            for number in range(2):
                self.lose_patience(number)
            self.deal_out([0, 1, 0])
        for _ in range(100):
            for number in range(2):
                self.fetch(number)
                self.end_call(number, 0, is_retried=False)


class OrderedGroup(Group):
    """One call at a time per partition."""

    kind = OrderedDriver


class ConcurrentGroup(Group):
    """As many calls as there are permits."""

    kind = ConcurrentDriver


_SETTINGS = settings(max_examples=30, stateful_step_count=40, deadline=None)
TestOrderedGroup = OrderedGroup.TestCase
TestOrderedGroup.settings = _SETTINGS
TestConcurrentGroup = ConcurrentGroup.TestCase
TestConcurrentGroup.settings = _SETTINGS


def test_waiting_call_does_not_begin_after_its_partition_was_given_up() -> None:
    """Calls outlast a rebalance; one that waits for a permit is made by the partition's new owner."""
    group = OrderedGroup()
    for key in KEYS:
        group.send(key, 1)
    group.fetch(0)
    assert len(group.members[0].calls) == 2
    group.rebalance()
    group.lose_patience(0)
    group.end_call(0, 0, is_retried=False)
    assert len(group.members[0].calls) == 1
    group.teardown()


def test_member_that_missed_a_generation_continues_at_the_committed_offsets() -> None:
    """Only messages whose calls outlasted the rebalance are repeated."""
    group = OrderedGroup()
    for key in KEYS:
        group.send(key, 3)
    group.fetch(0)
    under_way = [delivery.partition.key for delivery, _ in group.members[0].calls]
    group.rebalance()
    group.lose_patience(0)
    group.miss(0, [0, 0, 0])
    group.teardown()
    assert {key for key, _ in group.again} <= {*under_way}


def test_who_missed_no_generation_keeps_its_calls() -> None:
    """A call that outlasts a rebalance is the message's only one if the partition stays where it was."""
    group = OrderedGroup()
    group.send(KEYS[0], 1)
    group.fetch(0)
    group.rebalance()
    group.lose_patience(0)
    group.deal_out([0, 0, 0])
    group.fetch(0)
    assert [delivery.record.offset for delivery, _ in group.members[0].calls] == [0]
    group.teardown()
