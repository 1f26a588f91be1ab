"""A destination: partitions that keep their last messages, and the groups that consume them."""

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
        groups: Its groups by name; a group with a name stays when its last member leaves.
        unheard: How many messages came when there was no group at all.
        lost: How many messages waited for consumers without a group, which are gone.
    """

    def __init__(self, name: str, partitions: int, retention: int) -> None:
        self.name = name
        self.groups: dict[str, Group] = {}
        self.unheard = 0
        self.lost = 0
        self._kept: list[deque[Message[bytes]]] = [deque(maxlen=retention) for _ in range(partitions)]
        self._turns = count()
        self._sequence = count()

    @property
    def partitions(self) -> int:
        """How many partitions there are."""
        return len(self._kept)

    @property
    def messages(self) -> list[Message[bytes]]:
        """The messages still kept, partition by partition."""
        return [message for kept in self._kept for message in kept]

    def group(self, name: str, tags: str | None, from_the_beginning: bool) -> Group:
        """The group of that name, made when it is new.

        Args:
            name: The group's name.
            tags: What it subscribes to; an existing group takes over the newest subscription.
            from_the_beginning: Whether a new group gets the messages that are still kept.
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
        """Have the group of that name receive what is put from now on, although it has no member yet."""
        if name not in self.groups:
            self.groups[name] = Group(name, self.partitions)

    def forget(self, group: Group) -> None:
        """Remove a group that is nobody's any more."""
        if self.groups.pop(group.name, None) is not None:
            self.lost += group.pending

    def put(self, payload: bytes, headers: dict[str, object], partition: int | None) -> None:
        """Store a message and give it to every group.

        Args:
            payload: Its payload.
            headers: Its headers, taken over: the caller must not touch them again.
            partition: Where it goes; a number beyond the last partition wraps round, None takes them in turn.
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
        """The groups that have not handled everything."""
        return (group for group in self.groups.values() if group.pending)

    def __repr__(self) -> str:
        return f"<Destination {self.name!r} partitions={self.partitions} groups={sorted(self.groups)}>"
