"""Allocation strategies, by which a group's members share a topic's queues.

Every member computes the whole division by itself, from the same sorted lists, and keeps its own share. So a strategy
is a pure function of group, own client id, queues and member ids, and all members must use the same strategy.

This module does no I/O.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from hashlib import md5
from typing import Protocol

from rocket_remoting.wire.message import MessageQueue

_RING_SIZE = 1 << 32
_HASHES_A_STEP = 1_000
"""Hashes that are computed in one step of the loop, which takes two milliseconds."""


class AllocateMessageQueueStrategy(Protocol):
    """A function that divides queues among members."""

    def __call__(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the share of `client_id`. Queues and members are sorted; members include `client_id`."""


def averagely(group: str, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
    """Return a range of consecutive queues; the first members have one queue more. This is Java's default.

    Of 8 queues, 3 members have 0-2, 3-5 and 6-7.
    """
    index = members.index(client_id)
    size, rest = divmod(len(queues), len(members))
    start = index * size + min(index, rest)
    return list(queues[start : start + size + (index < rest)])


def averagely_by_circle(
    group: str, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
) -> list[MessageQueue]:
    """Return every n-th queue of n members: of 8 queues, 3 members have 0 3 6, 1 4 7 and 2 5."""
    return list(queues[members.index(client_id) :: len(members)])


class ByConfig:
    """Allocates fixed queues; the queues of other topics, such as the retry topic, are shared by `averagely`."""

    def __init__(self, queues: Sequence[MessageQueue]) -> None:
        self._queues = frozenset(queues)
        self._topics = frozenset(queue.topic for queue in queues)

    def __repr__(self) -> str:
        return f"ByConfig({sorted(self._queues)})"

    def __call__(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the fixed queues that exist."""
        if queues and queues[0].topic not in self._topics:
            return averagely(group, client_id, queues, members)
        return [queue for queue in queues if queue in self._queues]


class MachineRoom:
    """Shares the queues of brokers in certain machine rooms; ``hangzhou@broker-a`` is in the room ``hangzhou``.

    The queues of other brokers are not allocated to any member: another group must read them.
    """

    def __init__(self, rooms: Collection[str]) -> None:
        self._rooms = frozenset(rooms)

    def __repr__(self) -> str:
        return f"MachineRoom({sorted(self._rooms)})"

    def __call__(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the share of `client_id` in the queues of the rooms."""
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
    """Shares the queues of a machine room among its members, and those of rooms without members among all.

    Args:
        inner: The strategy within a room, and for the queues of rooms without members.
        room_of_broker: Returns the room of a queue's broker.
        room_of_client: Returns the room of a client id; it must return the same in every member.
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
        """Return the share of `client_id` in its own room, and in each room without members."""
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
    """Allocates each queue to the next member on a ring of hashes, so that few queues move when members change.

    The ring is Java's. Each member has `virtual_nodes` points, at the first four bytes of MD5(``<client id>-<n>``); a
    queue is at the first four bytes of MD5(``MessageQueue [topic=…, brokerName=…, queueId=…]``).
    """

    def __init__(self, virtual_nodes: int = 10) -> None:
        if virtual_nodes < 1:
            raise ValueError(f"a consistent hash needs at least one virtual node per member, not {virtual_nodes}")
        self._virtual_nodes = virtual_nodes

    def __repr__(self) -> str:
        return f"ConsistentHash(virtual_nodes={self._virtual_nodes})"

    def __call__(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues whose next point on the ring is one of `client_id`."""
        bounds = _bounds(client_id, tuple(members), self._virtual_nodes)
        return [queue for queue in queues if bisect_left(bounds, _place(queue)) % 2]

    def prepare(self, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> Iterator[None]:
        """Compute the hashes for a division of thousands of queues; yield after each step of a few milliseconds."""
        if len(queues) + len(members) * self._virtual_nodes <= _HASHES_A_STEP:
            return
        members_a_step = max(1, _HASHES_A_STEP // self._virtual_nodes)
        for start in range(0, len(members), members_a_step):
            for member in members[start : start + members_a_step]:
                _points(member, self._virtual_nodes)
            yield
        _bounds(client_id, tuple(members), self._virtual_nodes)
        for start in range(0, len(queues), _HASHES_A_STEP):
            yield
            for queue in queues[start : start + _HASHES_A_STEP]:
                _place(queue)


# Hashes are kept, because a group divides the same queues among the same members again every 20 s.


@lru_cache(maxsize=1 << 4)
def _bounds(client_id: str, members: tuple[str, ...], virtual_nodes: int) -> list[int]:
    """Return the bounds of a member's arcs of the ring, sorted. A queue behind an odd number of bounds is in an arc.

    ::

        points     … other    ours    other … other    ours …
        bounds          a        b               c        d
        in an arc       behind a, up to b        behind c, up to d
    """
    # A point that two members have belongs to the later one, as in Java.
    ring = {point: member for member in members for point in _points(member, virtual_nodes)}
    points = sorted(ring)
    bounds: list[int] = []
    for index, point in enumerate(points):
        if ring[point] == client_id:
            # The first point also has the queues behind the last one: the ring is closed.
            bounds += (points[index - 1], point) if index else (-1, point, points[-1], _RING_SIZE)
    return sorted(bounds)


@lru_cache(maxsize=1 << 12)
def _points(member: str, virtual_nodes: int) -> tuple[int, ...]:
    return tuple(_ring_hash(f"{member}-{number}") for number in range(virtual_nodes))


@lru_cache(maxsize=1 << 16)
def _place(queue: MessageQueue) -> int:
    return _ring_hash(f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]")


def _ring_hash(text: str) -> int:
    return int.from_bytes(md5(text.encode(), usedforsecurity=False).digest()[:4], "big")
