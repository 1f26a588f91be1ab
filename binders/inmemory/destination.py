"""A destination: partitions that keep their newest messages, and the groups that consume them."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count

from binders.inmemory.group import Group
from streamkit.binder.delivery import StartPosition
from streamkit.clock import Clock
from streamkit.messaging.headers import PARTITION, SEQUENCE, MessageHeaders
from streamkit.messaging.message import Message, message_of


@dataclass(slots=True)
class _Partition:
    """The newest messages of a partition.

    Attributes:
        stored: The messages, each with the time at which it was stored, in milliseconds since 1970.
        end: The offset of the next message: the number of messages that were ever stored.
    """

    stored: deque[tuple[int, Message[bytes]]]
    end: int = 0

    def since(self, start: StartPosition, since_ms: int) -> list[tuple[int, Message[bytes]]]:
        """Return the messages that a new group receives, each with its offset.

        As on RocketMQ, a named group receives all messages of a partition that still has its first message.
        """
        first = self.end - len(self.stored)
        if start is StartPosition.LAST_OFFSET and first:
            return []
        by_time = start is StartPosition.TIMESTAMP
        numbered = enumerate(self.stored, first)
        return [(offset, message) for offset, (at, message) in numbered if not by_time or at >= since_ms]


class Destination:
    """A topic in memory.

    Attributes:
        name: The topic's name.
        groups: The groups by name; a durable group stays when its last member leaves.
        unheard: The number of messages that were put while there was no group.
        lost: The number of messages that were waiting in groups when these were removed.
    """

    def __init__(self, name: str, partitions: int, retention: int, clock: Clock) -> None:
        """Make an empty destination.

        Args:
            name: The topic's name.
            partitions: The number of partitions.
            retention: The number of messages that each partition keeps for later groups.
            clock: The time at which messages are stored.
        """
        self.name = name
        self.groups: dict[str, Group] = {}
        self.unheard = 0
        self.lost = 0
        self._clock = clock
        self._kept = [_Partition(deque(maxlen=retention)) for _ in range(partitions)]
        self._turns = count()
        self._sequence = count()

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return len(self._kept)

    @property
    def messages(self) -> list[Message[bytes]]:
        """The messages that are kept, partition by partition."""
        return [message for partition in self._kept for _, message in partition.stored]

    def group(self, name: str, tags: str | None, start: StartPosition, since_ms: int = 0) -> Group:
        """Return the group of that name; make it if it is new.

        Args:
            name: The group's name.
            tags: The tags of the subscription; they replace the tags of an existing group.
            start: Where a new group begins.
            since_ms: For `StartPosition.TIMESTAMP`, the time in milliseconds since 1970.
        """
        group = self.groups.get(name)
        is_new = group is None
        if group is None:
            group = self.groups[name] = Group(name, self.partitions)
        group.subscribe(tags)
        if is_new and start is not StartPosition.LATEST:
            self.unheard = 0
            for number, partition in enumerate(self._kept):
                for offset, message in partition.since(start, since_ms):
                    group.put(number, offset, message)
        return group

    def require(self, name: str) -> None:
        """Make a group that has no member yet, so that it receives the messages that are put from now on."""
        if name not in self.groups:
            self.groups[name] = Group(name, self.partitions)

    def forget(self, group: Group) -> None:
        """Remove a group that is not durable after its member has left."""
        if self.groups.pop(group.name, None) is not None:
            self.lost += group.pending

    def put(
        self,
        payload: bytes,
        headers: dict[str, object],
        partition: int | None,
        sender: MessageHeaders | None = None,
    ) -> None:
        """Store a message and put it into the queues of every group.

        Args:
            payload: The payload.
            headers: The headers. They are kept and changed, so the caller must not use them afterwards.
            partition: The number of the partition, modulo their count; None chooses the partitions in turn.
            sender: The sender's headers, whose id and timestamp the message has; None for new ones.
        """
        kept = self._kept
        chosen = (next(self._turns) if partition is None else partition) % len(kept)
        headers[PARTITION] = chosen
        headers[SEQUENCE] = next(self._sequence)
        now_ms = self._clock.now_ms()
        received = MessageHeaders.adopt(headers) if sender is None else sender.sharing(headers, now_ms=now_ms)
        message = message_of(payload, received)
        into = kept[chosen]
        into.stored.append((now_ms, message))
        offset = into.end
        into.end = offset + 1
        if not self.groups:
            self.unheard += 1
        for group in self.groups.values():
            group.put(chosen, offset, message)

    def pending(self) -> Iterable[Group]:
        """Return the groups that have waiting messages."""
        return (group for group in self.groups.values() if group.pending)

    def __repr__(self) -> str:
        return f"<Destination {self.name!r} partitions={self.partitions} groups={sorted(self.groups)}>"
