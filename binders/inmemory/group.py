"""A consumer group at one destination: what it has still to handle, and which member handles it.

A group has a queue for each partition and one for redeliveries. Each queue belongs to one member at a time;
when members come or go the queues are dealt out anew, in ranges over the sorted members as RocketMQ does. A
call under way when its queue moves on is finished by the member that began it.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from streamkit.messaging.headers import TAGS
from streamkit.messaging.message import Message


@dataclass(slots=True)
class Delivery:
    """A message on its way to a group.

    Attributes:
        message: The message.
        redeliveries: How often it was given back.
    """

    message: Message[bytes]
    redeliveries: int = 0


@dataclass(slots=True, eq=False)
class GroupQueue:
    """The deliveries of one partition that a group has not begun.

    Attributes:
        waiting: In their order.
        owner: The member they go to.
        busy: Whether an ordered call of this queue is under way: nobody begins another one then.
    """

    waiting: deque[Delivery] = field(default_factory=deque)
    owner: "Member | None" = None
    busy: bool = False


class Member(Protocol):
    """A consumer binding, as its group sees it."""

    @property
    def id(self) -> str:
        """Sorts the members of a group."""
        ...

    def wake(self, queue: GroupQueue) -> None:
        """There is something in `queue`, or it is yours now."""
        ...


class Group:
    """The members of one name at one destination, and their queues.

    Attributes:
        name: The group's name.
        queues: One for each partition, then the one for redeliveries.
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
        """How many deliveries nobody has begun."""
        return sum(len(queue.waiting) for queue in self.queues)

    def subscribe(self, tags: str | None) -> None:
        """From now on the group receives only messages with one of `tags` (`a||b`); None or `*` is all.

        What a group without members has kept is sorted out too, as a broker that filters what is pulled would.
        """
        wanted = {tag.strip() for tag in (tags or "*").split("||")}
        self._tags = None if "*" in wanted else frozenset(wanted)
        if not self._members:
            for queue in self.queues:
                kept = [delivery for delivery in queue.waiting if self._wants(delivery.message)]
                queue.waiting.clear()
                queue.waiting.extend(kept)

    def join(self, member: Member) -> None:
        """`member` shares the queues from now on."""
        self._members = sorted([*self._members, member], key=lambda each: each.id)
        self._deal()

    def leave(self, member: Member) -> None:
        """`member` has no queue any more."""
        self._members = [each for each in self._members if each is not member]
        self._deal()

    def put(self, partition: int, message: Message[bytes]) -> None:
        """Add a new message of `partition`, if the group wants it."""
        if not self._wants(message):
            return
        queue = self.queues[partition]
        queue.waiting.append(Delivery(message))
        if queue.owner is not None:
            queue.owner.wake(queue)

    def _wants(self, message: Message[bytes]) -> bool:
        return self._tags is None or message.headers.get(TAGS) in self._tags

    def redeliver(self, delivery: Delivery) -> None:
        """Add a delivery that was given back and is due again."""
        queue = self.queues[-1]
        queue.waiting.append(delivery)
        if queue.owner is not None:
            queue.owner.wake(queue)

    def give_back(self, queue: GroupQueue, deliveries: Sequence[Delivery]) -> None:
        """Put deliveries that were begun but not settled to the front, in their order."""
        queue.waiting.extendleft(reversed(deliveries))
        if queue.owner is not None and deliveries:
            queue.owner.wake(queue)

    def _deal(self) -> None:
        *partitions, redeliveries = self.queues
        for queue, owner in zip(partitions, _ranges(len(partitions), self._members), strict=True):
            queue.owner = owner
        redeliveries.owner = self._members[0] if self._members else None
        for queue in self.queues:
            if queue.owner is not None and queue.waiting:
                queue.owner.wake(queue)

    def __repr__(self) -> str:
        return f"<Group {self.name!r} members={len(self._members)} pending={self.pending}>"


def _ranges(count: int, members: Sequence[Member]) -> list[Member | None]:
    """The owner of each of `count` queues: the first ones have one more where it is uneven."""
    if not members:
        return [None] * count
    share, rest = divmod(count, len(members))
    owners: list[Member | None] = []
    for index, member in enumerate(members):
        owners += [member] * (share + (index < rest))
    return owners
