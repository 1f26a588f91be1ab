"""A destination: partitions that keep their newest messages, and the groups that consume them."""

from collections import deque
from collections.abc import Iterable
from itertools import count

from binders.inmemory.group import Group
from streamkit.messaging.headers import PARTITION, SEQUENCE, MessageHeaders
from streamkit.messaging.message import Message


class Destination:
    """A topic in memory.

    Attributes:
        name: The topic's name.
        groups: The groups by name; a durable group stays when its last member leaves.
        unheard: The number of messages that were put while there was no group.
        lost: The number of messages that were waiting in groups when these were removed.
    """

    def __init__(self, name: str, partitions: int, retention: int) -> None:
        """Make an empty destination.

        Args:
            name: The topic's name.
            partitions: The number of partitions.
            retention: The number of messages that each partition keeps for later groups.
        """
        self.name = name
        self.groups: dict[str, Group] = {}
        self.unheard = 0
        self.lost = 0
        self._kept: list[deque[Message[bytes]]] = [deque(maxlen=retention) for _ in range(partitions)]
        self._turns = count()
        self._sequence = count()

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return len(self._kept)

    @property
    def messages(self) -> list[Message[bytes]]:
        """The messages that are kept, partition by partition."""
        return [message for kept in self._kept for message in kept]

    def group(self, name: str, tags: str | None, from_the_beginning: bool) -> Group:
        """Return the group of that name; make it if it is new.

        Args:
            name: The group's name.
            tags: The tags of the subscription; they replace the tags of an existing group.
            from_the_beginning: Whether a new group receives the messages that are kept.
        """
        group = self.groups.get(name)
        is_new = group is None
        if group is None:
            group = self.groups[name] = Group(name, self.partitions)
        group.subscribe(tags)
        if is_new and from_the_beginning:
            self.unheard = 0
            for partition, kept in enumerate(self._kept):
                for message in kept:
                    group.put(partition, message)
        return group

    def require(self, name: str) -> None:
        """Make a group that has no member yet, so that it receives the messages that are put from now on."""
        if name not in self.groups:
            self.groups[name] = Group(name, self.partitions)

    def forget(self, group: Group) -> None:
        """Remove a group that is not durable after its member has left."""
        if self.groups.pop(group.name, None) is not None:
            self.lost += group.pending

    def put(self, payload: bytes, headers: dict[str, object], partition: int | None) -> None:
        """Store a message and put it into the queues of every group.

        Args:
            payload: The payload.
            headers: The headers. They are kept and changed, so the caller must not use them afterwards.
            partition: The number of the partition, modulo their count; None chooses the partitions in turn.
        """
        chosen = (next(self._turns) if partition is None else partition) % len(self._kept)
        headers[PARTITION] = chosen
        headers[SEQUENCE] = next(self._sequence)
        message = Message(payload, MessageHeaders.adopt(headers))
        self._kept[chosen].append(message)
        if not self.groups:
            self.unheard += 1
        for group in self.groups.values():
            group.put(chosen, message)

    def pending(self) -> Iterable[Group]:
        """Return the groups that have waiting messages."""
        return (group for group in self.groups.values() if group.pending)

    def __repr__(self) -> str:
        return f"<Destination {self.name!r} partitions={self.partitions} groups={sorted(self.groups)}>"
