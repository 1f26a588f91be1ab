"""How a group's members share a topic's queues.

Every member computes the whole division by itself, from the same sorted lists, and keeps its own share;
so a strategy is a pure function of (group, own client id, queues, member ids). Members must all use the
same one.

This module does no I/O.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import md5
from typing import Protocol

from rocket_remoting.wire.message import MessageQueue


class AllocateMessageQueueStrategy(Protocol):
    """One way to divide queues among members."""

    def __call__(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        """The share of `client_id`; queues and members come sorted, and members include it."""


def averagely(
    group: str, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
) -> list[MessageQueue]:
    """Consecutive ranges of almost equal length, the first members having one queue more (Java's default).

    With 8 queues, 3 members have 0-2, 3-5 and 6-7.
    """
    index = members.index(client_id)
    size, rest = divmod(len(queues), len(members))
    start = index * size + min(index, rest)
    return list(queues[start : start + size + (index < rest)])


def averagely_by_circle(
    group: str, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
) -> list[MessageQueue]:
    """Dealt out in turn: with 8 queues, 3 members have 0 3 6, 1 4 7 and 2 5."""
    return list(queues[members.index(client_id) :: len(members)])


class ByConfig:
    """Always the queues that were given; other topics (the retry topic) are shared averagely."""

    def __init__(self, queues: Sequence[MessageQueue]) -> None:
        self._queues = frozenset(queues)
        self._topics = frozenset(queue.topic for queue in queues)

    def __repr__(self) -> str:
        return f"ByConfig({sorted(self._queues)})"

    def __call__(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        """Those of the given queues that exist."""
        if queues and queues[0].topic not in self._topics:
            return averagely(group, client_id, queues, members)
        return [queue for queue in queues if queue in self._queues]


class MachineRoom:
    """The queues of brokers in certain rooms, shared averagely; a broker called ``hangzhou@broker-a`` is in one.

    Queues of other brokers are nobody's: another group reads them.
    """

    def __init__(self, rooms: Collection[str]) -> None:
        self._rooms = frozenset(rooms)

    def __repr__(self) -> str:
        return f"MachineRoom({sorted(self._rooms)})"

    def __call__(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        """The share of `client_id` in the queues of those rooms, a queue that is left over going to the first."""
        here = [queue for queue in queues if self._is_here(queue)]
        index, (size, rest) = members.index(client_id), divmod(len(here), len(members))
        share = here[index * size : (index + 1) * size]
        if rest > index:
            share.append(here[size * len(members) + index])
        return share

    def _is_here(self, queue: MessageQueue) -> bool:
        room, at, broker = queue.broker_name.partition("@")
        return bool(at) and "@" not in broker and room in self._rooms


class MachineRoomNearby:
    """Members take the queues of brokers in their own room; those of rooms without members are shared by all.

    Args:
        inner: How the queues of a room are divided among its members, and the others among all.
        room_of_broker: The room of a queue's broker.
        room_of_client: The room of a member, by its client id; every member must come to the same.
    """

    def __init__(
        self,
        inner: AllocateMessageQueueStrategy,
        room_of_broker: Callable[[MessageQueue], str],
        room_of_client: Callable[[str], str],
    ) -> None:
        self._inner = inner
        self._room_of_broker = room_of_broker
        self._room_of_client = room_of_client

    def __repr__(self) -> str:
        return f"MachineRoomNearby({self._inner!r})"

    def __call__(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        """The share of `client_id` in its own room, and in each room without members."""
        by_room: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            by_room.setdefault(self._room_of_broker(queue), []).append(queue)
        mine = self._room_of_client(client_id)
        inhabited = {self._room_of_client(member) for member in members}
        neighbours = [member for member in members if self._room_of_client(member) == mine]
        share = self._inner(group, client_id, by_room.get(mine, []), neighbours)
        for room in sorted(by_room.keys() - inhabited):
            share += self._inner(group, client_id, by_room[room], members)
        return share


class ConsistentHash:
    """Each queue goes to the next member on a ring of hashes, so that few queues move when members change.

    The ring is Java's: `virtual_nodes` points per member at the first four bytes of MD5(``<client id>-<n>``),
    queues at those of MD5(``MessageQueue [topic=…, brokerName=…, queueId=…]``).
    """

    def __init__(self, virtual_nodes: int = 10) -> None:
        if virtual_nodes < 1:
            raise ValueError(
                f"a consistent hash needs at least one virtual node per member, not {virtual_nodes}"
            )
        self._virtual_nodes = virtual_nodes

    def __repr__(self) -> str:
        return f"ConsistentHash(virtual_nodes={self._virtual_nodes})"

    def __call__(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        """The queues whose next point on the ring is one of `client_id`."""
        ring: Mapping[int, str] = {
            _ring_hash(f"{member}-{number}"): member
            for member in members
            for number in range(self._virtual_nodes)
        }
        points = sorted(ring)
        return [
            queue for queue in queues if ring[_next_point(points, _ring_hash(_java_text(queue)))] == client_id
        ]


def _next_point(points: Sequence[int], value: int) -> int:
    index = bisect_left(points, value)
    return points[index] if index < len(points) else points[0]


def _ring_hash(text: str) -> int:
    return int.from_bytes(md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


def _java_text(queue: MessageQueue) -> str:
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
