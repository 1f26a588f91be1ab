"""Looks at the destinations and groups of a messaging system, for consoles.

An explorer changes nothing: it joins no group, commits nothing and creates nothing. It connects when it is first asked.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

__all__ = ["Explorer", "Group", "GroupMember", "GroupPartition", "Partition", "Record", "Topic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A destination, in the words of the messaging system.

    Attributes:
        name: The name.
        partitions: The number of its partitions.
        replicas: The replicas of the partition that has the fewest.
        without_leader: The number of partitions that nobody can write to or read from now.
        is_internal: Whether it is one of the messaging system's own.
    """

    name: str
    partitions: int
    replicas: int
    without_leader: int
    is_internal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition of a topic.

    Attributes:
        number: Its number.
        begin: The offset of its oldest record; None if it is not known.
        end: The offset that its next record will have; None if it is not known.
        leader: The server that writes and reads it; None if there is none.
    """

    number: int
    begin: int | None
    end: int | None
    leader: str | None

    @property
    def records(self) -> int | None:
        """The number of offsets from `begin` to `end`, which is the most records that can be stored."""
        return None if self.begin is None or self.end is None else self.end - self.begin


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A consumer group.

    Attributes:
        name: The name.
        state: Its state, in the words of the messaging system.
    """

    name: str
    state: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member of a group.

    Attributes:
        client_id: The name that the client has given.
        host: The machine that it is connected from.
        partitions: Its partitions, each as `topic-number`.
    """

    client_id: str
    host: str
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPartition:
    """How far a group is in a partition.

    Attributes:
        topic: The topic.
        number: The number of the partition.
        committed: The offset at which the group goes on.
        end: The offset that the next record of the partition will have; None if it is not known.
    """

    topic: str
    number: int
    committed: int
    end: int | None

    @property
    def lag(self) -> int | None:
        """The number of offsets that the group has not come to."""
        return None if self.end is None else max(0, self.end - self.committed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A stored message.

    Attributes:
        topic: The topic.
        partition: The number of its partition.
        offset: Its place there.
        time: Its timestamp; None if it has none.
        key: Its key; None if it has none.
        headers: Its headers, in their order; names may repeat.
        body: Its value; None for the mark that deletes a key.
    """

    topic: str
    partition: int
    offset: int
    time: datetime | None
    key: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    body: bytes | None


class Explorer(ABC):
    """Looks at one messaging system. All methods raise a `BinderError` if its servers are away, or refuse.

    Attributes:
        address: Where its servers are, for people.
    """

    address: str

    @abstractmethod
    async def topics(self) -> Sequence[Topic]:
        """Return all topics."""

    @abstractmethod
    async def partitions(self, topic: str) -> Sequence[Partition] | None:
        """Return the partitions of a topic; None if there is no such topic."""

    @abstractmethod
    async def groups(self) -> Sequence[Group]:
        """Return all consumer groups."""

    @abstractmethod
    async def members(self, group: str) -> Sequence[GroupMember]:
        """Return the members of a group that exists."""

    @abstractmethod
    async def positions(self, group: str) -> Sequence[GroupPartition]:
        """Return how far a group that exists is, in each partition in which it has committed an offset."""

    @abstractmethod
    async def newest(self, topic: str, limit: int, *, seconds: float) -> Sequence[Record]:
        """Return the newest records of a topic, the newest first.

        Args:
            topic: The topic.
            limit: The largest number of records.
            seconds: The time limit in seconds, after which the records read so far are returned.
        """

    @abstractmethod
    async def record(self, topic: str, partition: int, offset: int, *, seconds: float) -> Record | None:
        """Return the record at an offset; None if there is none, or it does not arrive within `seconds` seconds."""

    @abstractmethod
    async def close(self) -> None:
        """Disconnect."""
