"""A consumer group of one destination: its queues of waiting messages, and the members to which they belong.

A group has a queue for each partition and one for redeliveries. Each queue belongs to one member at a time. When a
member joins or leaves, the queues are assigned anew: the sorted members get ranges of queues, as RocketMQ's
`AllocateMessageQueueAveragely` assigns them, and the first member gets the queue of redeliveries::

    queues     0   1   2   3   4   redeliveries
    2 members  a   a   a   b   b   a
    3 members  a   a   b   b   c   a

A call that is in flight when its queue moves to another member is finished by the old member.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from streamkit.messaging.headers import TAGS
from streamkit.messaging.message import Message


class Delivery(msgspec.Struct):
    """A message in a queue of a group.

    Attributes:
        message: The message.
        partition: The partition to which it was sent.
        offset: The place of the message in its partition, counted from 0.
        redeliveries: The number of earlier redeliveries.
    """

    message: Message[bytes]
    partition: int
    offset: int
    redeliveries: int = 0


@dataclass(slots=True, eq=False)
class GroupQueue:
    """The waiting deliveries of one partition, or the redeliveries, of a group.

    Attributes:
        waiting: The deliveries, in their order.
        owner: The member to which the queue belongs, or None.
        is_busy: Whether the task of an ordered driver handles the queue; no other member begins a call then.
        calls: The number of calls in flight.
        unsettled: The messages of the partition that are not accepted or rejected yet, wherever they are.
    """

    waiting: deque[Delivery] = field(default_factory=deque)
    owner: "Member | None" = None
    is_busy: bool = False
    calls: int = 0
    unsettled: int = 0


class Member(Protocol):
    """A consumer binding, as its group sees it."""

    @property
    def id(self) -> str:
        """The key by which the members of a group are sorted."""
        ...

    def wake(self, queue: GroupQueue) -> None:
        """Handle the messages of `queue`: it has new messages, or it belongs to this member now."""
        ...


class Group:
    """A consumer group of a destination: its members and their queues.

    Attributes:
        name: The group's name.
        queues: A queue for each partition, then the queue of redeliveries.
    """

    def __init__(self, name: str, partitions: int) -> None:
        self.name = name
        self.queues = [GroupQueue() for _ in range(partitions + 1)]
        self._members: list[Member] = []
        self._tags: frozenset[str] | None = None

    @property
    def members(self) -> Sequence[Member]:
        """The members, sorted."""
        return self._members

    @property
    def pending(self) -> int:
        """The number of waiting deliveries."""
        return sum(len(queue.waiting) for queue in self.queues)

    def subscribe(self, tags: str | None) -> None:
        """Set the tags of the subscription: `a||b`, or None or `*` for every message.

        If the group has no members, its waiting messages with other tags are dropped, too. RocketMQ's brokers filter
        when messages are pulled, so there a new subscription applies to waiting messages as well.
        """
        wanted = {tag.strip() for tag in (tags or "*").split("||")}
        self._tags = None if "*" in wanted else frozenset(wanted)
        if not self._members:
            for queue in self.queues:
                kept = [delivery for delivery in queue.waiting if self._wants(delivery.message)]
                for delivery in queue.waiting:
                    self.queues[delivery.partition].unsettled -= not self._wants(delivery.message)
                queue.waiting.clear()
                queue.waiting.extend(kept)

    def join(self, member: Member) -> None:
        """Add a member, and assign the queues anew."""
        self._members = sorted([*self._members, member], key=lambda each: each.id)
        self._deal()

    def leave(self, member: Member) -> None:
        """Remove a member, and assign its queues to the other members."""
        self._members = [each for each in self._members if each is not member]
        self._deal()

    def put(self, partition: int, offset: int, message: Message[bytes]) -> None:
        """Add a new message of `partition`, if its tag is subscribed."""
        if self._tags is not None and not self._wants(message):
            return
        queue = self.queues[partition]
        queue.waiting.append(Delivery(message, partition, offset))
        queue.unsettled += 1
        if queue.owner is not None:
            queue.owner.wake(queue)

    def _wants(self, message: Message[bytes]) -> bool:
        return self._tags is None or message.headers.get(TAGS) in self._tags

    def redeliver(self, delivery: Delivery) -> None:
        """Add a requeued delivery to the queue of redeliveries; called when its redelivery delay is over."""
        queue = self.queues[-1]
        queue.waiting.append(delivery)
        if queue.owner is not None:
            queue.owner.wake(queue)

    def deliver_again(self, delivery: Delivery) -> None:
        """Put a delivery back at the front of its queue, as if it had not been delivered yet."""
        self.give_back(self.queues[-1 if delivery.redeliveries else delivery.partition], [delivery])

    def settle(self, delivery: Delivery) -> None:
        """Count a message as accepted or rejected."""
        self.queues[delivery.partition].unsettled -= 1

    def lag_of(self, member: Member) -> int:
        """Return the number of unsettled messages of the partitions that belong to a member."""
        *partitions, _ = self.queues
        return sum(queue.unsettled for queue in partitions if queue.owner is member)

    def give_back(self, queue: GroupQueue, deliveries: Sequence[Delivery]) -> None:
        """Put unsettled deliveries back at the front of `queue`, in their order."""
        queue.waiting.extendleft(reversed(deliveries))
        if queue.owner is not None and deliveries:
            queue.owner.wake(queue)

    def _deal(self) -> None:
        *partitions, redeliveries = self.queues
        for queue, owner in zip(partitions, _ranges(len(partitions), self._members), strict=True):
            queue.owner = owner
        redeliveries.owner = self._members[0] if self._members else None
        # Members that keep a queue are woken too; a driver ignores the wake of a queue that it already handles.
        for queue in self.queues:
            if queue.owner is not None and queue.waiting:
                queue.owner.wake(queue)

    def __repr__(self) -> str:
        return f"<Group {self.name!r} members={len(self._members)} pending={self.pending}>"


def _ranges(count: int, members: Sequence[Member]) -> list[Member | None]:
    """Return the owner of each of `count` queues: ranges of equal length, the first ones longer by one if need be."""
    if not members:
        return [None] * count
    share, rest = divmod(count, len(members))
    owners: list[Member | None] = []
    for index, member in enumerate(members):
        owners += [member] * (share + (index < rest))
    return owners
