"""Committed offsets of groups: how far a group is in each queue, and how it is moved.

A move is planned first. The plan says for each queue how many messages the group would get again or skip, and
`apply_plan` carries it out. Where members are connected, brokers tell them the new offsets; else the offsets are
committed for the group.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

import msgspec

from rocket_admin.broker_answers import BrokerFailure, ask_masters
from rocket_admin.errors import GroupNotFoundError, MoveRefusedError
from rocket_admin.times import milliseconds, time_of
from rocket_client import Admin
from rocket_remoting.wire.bodies import OffsetWrapper
from rocket_remoting.wire.message import MessageQueue
from rocket_remoting.wire.topics import is_retry_topic

__all__ = [
    "End",
    "GroupQueue",
    "GroupQueues",
    "Move",
    "MovePlan",
    "Target",
    "apply_plan",
    "group_queues",
    "lag_of",
    "plan_clone",
    "plan_move",
]

Item = TypeVar("Item")
T = TypeVar("T")

QUEUES_AT_ONCE = 64
"""Queues that are asked about at the same time."""


class End(StrEnum):
    """An end of a queue."""

    EARLIEST = "earliest"
    """The oldest message that the broker still has."""
    LATEST = "latest"
    """Behind the newest message."""


Target = datetime | End | int
"""Where a group shall be: at the messages stored from a time on, at an end of each queue, or at an offset."""


class GroupQueue(msgspec.Struct, frozen=True, kw_only=True):
    """How far a group is in one queue.

    Attributes:
        topic: The topic.
        broker: The name of the broker that has the queue.
        queue: The queue's number.
        committed: The offset at which the group begins: the one that it has committed, or 0 where brokers begin a group
            that has committed none; absent if its members decide that.
        max_offset: The offset that the queue's next message will get.
        lag: Messages from `committed` on; absent if that is.
        last_consumed: When the last message before `committed` was stored; absent if that is not known.
    """

    topic: str
    broker: str
    queue: int
    committed: int | None
    max_offset: int
    lag: int | None
    last_consumed: datetime | None


class GroupQueues(msgspec.Struct, frozen=True, kw_only=True):
    """How far a group is in all queues of the topics that it has committed offsets in.

    Attributes:
        queues: The queues, sorted by topic, broker and number.
        failures: The brokers that did not answer; their queues are missing.
    """

    queues: tuple[GroupQueue, ...]
    failures: tuple[BrokerFailure, ...]


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """The change of a group's offset in one queue.

    Attributes:
        topic: The topic.
        broker: The name of the broker that has the queue.
        queue: The queue's number.
        committed: The offset before the move; absent if the group has committed none.
        target: The offset afterwards.
        again: Messages that the group has consumed and gets again; absent if `committed` is.
        skipped: Messages that the group has not consumed and will not get; absent if `committed` is.
    """

    topic: str
    broker: str
    queue: int
    committed: int | None
    target: int
    again: int | None
    skipped: int | None


class MovePlan(msgspec.Struct, frozen=True, kw_only=True):
    """A move of a group, before it is carried out.

    Attributes:
        group: The group.
        target: Where it shall be; None for offsets of another group.
        members: Connected members, which get the new offsets from the brokers.
        moves: The queues, sorted by topic, broker and number.
    """

    group: str
    target: Target | None
    members: int
    moves: tuple[Move, ...]

    @property
    def again(self) -> int | None:
        """Messages that the group gets again in all queues; None if that is not known for each."""
        return _sum(move.again for move in self.moves)

    @property
    def skipped(self) -> int | None:
        """Messages that the group will not get in all queues; None if that is not known for each."""
        return _sum(move.skipped for move in self.moves)


async def group_queues(
    admin: Admin,
    group: str,
    *,
    topics: Collection[str] = (),
    brokers: Collection[str] | None = None,
    masters: Mapping[str, str] | None = None,
) -> GroupQueues:
    """Return how far a group is in the queues of the topics that it has committed offsets in.

    Args:
        admin: A running admin.
        group: The group.
        topics: Topics; by default all, the group's retry topic among them.
        brokers: Names of the brokers that are asked; by default all.
        masters: The addresses of their masters by name, if they are known.
    """
    found = await ask_masters(admin, lambda address: admin.progress_at(address, group), brokers, masters=masters)
    tables = (answer.offset_table for answer in found.answers.values())
    stats = {queue: offsets for table in tables for queue, offsets in table.items()}
    wanted = sorted(queue for queue in stats if not topics or queue.topic in topics)
    queues = await _in_parallel(lambda queue: _group_queue(admin, group, queue, stats[queue]), wanted)
    return GroupQueues(queues=tuple(queues), failures=found.failures)


def lag_of(queues: Iterable[GroupQueue]) -> int | None:
    """Return the messages that a group has not consumed in queues; None if that is not known for each, or for none."""
    return _sum(queue.lag for queue in queues)


async def plan_move(
    admin: Admin, group: str, target: Target, *, topics: Collection[str] = (), queues: Collection[MessageQueue] = ()
) -> MovePlan:
    """Plan to move a group to a target in all queues of topics, or in some queues.

    Args:
        admin: A running admin.
        group: The group.
        target: Where it shall be.
        topics: Topics; by default those that the group has committed offsets in or its members subscribe to, except
            for its retry topic.
        queues: Queues of these topics; by default all.

    Raises:
        GroupNotFoundError: No broker has the group.
        TopicNotFoundError: A topic does not exist.
        MoveRefusedError: The group has committed no offset and no topic is named, a queue does not exist, a queue does
            not have the target's offset, or a broker did not answer.
    """
    members, subscribed = await _members(admin, group)
    found = await _progress(admin, group)
    known = {MessageQueue(queue.topic, queue.broker, queue.queue): queue.committed for queue in found}
    its_own = subscribed.union(queue.topic for queue in found)
    chosen = topics or sorted(topic for topic in its_own if not is_retry_topic(topic))
    if not chosen:
        raise MoveRefusedError(group, "it has committed none yet, and has no members; name the topic")
    every = [queue for topic in chosen for queue in (await admin.topic_route(topic)).subscribe_queues]
    missing = [queue for queue in queues if queue not in every]
    if missing:
        raise MoveRefusedError(group, f"there is no {missing[0]}")
    wanted = [queue for queue in every if queue in queues] if queues else every
    moves = await _in_parallel(lambda queue: _move(admin, group, queue, target, known.get(queue)), wanted)
    return MovePlan(group=group, target=target, members=members, moves=tuple(moves))


async def plan_clone(admin: Admin, source: str, group: str, *, topics: Collection[str] = ()) -> MovePlan:
    """Plan to move a group to where another one is.

    Args:
        admin: A running admin.
        source: The other group; it is not changed.
        group: The group that is moved.
        topics: Topics; by default those that the other group has committed offsets in, except for its retry topic.

    Raises:
        GroupNotFoundError: No broker has one of the groups.
        MoveRefusedError: The other group has committed no offset there, or a broker did not answer.
    """
    await _members(admin, source)
    members, _ = await _members(admin, group)
    at = {
        MessageQueue(queue.topic, queue.broker, queue.queue): queue.committed
        for queue in await _progress(admin, source)
        if queue.committed is not None and (queue.topic in topics if topics else not is_retry_topic(queue.topic))
    }
    if not at:
        where = f" in {', '.join(sorted(topics))}" if topics else ""
        raise MoveRefusedError(group, f"group {source} has committed none{where}")
    known = {
        MessageQueue(queue.topic, queue.broker, queue.queue): queue.committed for queue in await _progress(admin, group)
    }
    moves = await _in_parallel(lambda queue: _move(admin, group, queue, at[queue], known.get(queue)), sorted(at))
    return MovePlan(group=group, target=None, members=members, moves=tuple(moves))


async def apply_plan(admin: Admin, plan: MovePlan) -> None:
    """Carry a plan out.

    Connected members continue at the new offsets: brokers compute these from the plan's time again, so messages that
    were stored since the plan was made count.

    Raises:
        MoveRefusedError: The group has members, and the plan has offsets of its own, which they would overwrite; or
            members joined, and an offset that was committed did not stay.
        ResponseError: A broker refused.
    """
    group = plan.group
    if not plan.members:
        # Queues whose offset stays, too: an offset of 0 may be one that the group has not committed.
        await _commit_all(admin, group, plan.moves)
        await _in_parallel(lambda move: _check(admin, group, move), plan.moves)
        return
    if plan.target is None or isinstance(plan.target, int):
        raise MoveRefusedError(
            group,
            f"it has {plan.members} connected member(s), which would overwrite them; stop the members, or move the "
            "group to a time with `streamkit group rewind`",
        )
    timestamp = (
        {End.EARLIEST: 0, End.LATEST: -1}[plan.target] if isinstance(plan.target, End) else milliseconds(plan.target)
    )
    # A broker of 4.9 resets no group that has not committed in each queue; 0 may be the beginning of such a group.
    await _commit_all(admin, group, [move for move in plan.moves if not move.committed])
    for topic in sorted({move.topic for move in plan.moves}):
        await admin.reset_offsets(group, topic, timestamp)


async def _commit_all(admin: Admin, group: str, moves: Iterable[Move]) -> None:
    """Commit the targets.

    Those of one topic on one broker are committed one after the other: Apache's brokers make the table of a group in a
    topic at its first commit, and of two first commits at once they may lose one.
    """
    places: dict[tuple[str, str], list[Move]] = {}
    for move in moves:
        places.setdefault((move.topic, move.broker), []).append(move)

    async def one_by_one(of_place: Sequence[Move]) -> None:
        for move in of_place:
            await admin.commit_offset(_queue(move), group, move.target)

    await _in_parallel(one_by_one, list(places.values()))


async def _check(admin: Admin, group: str, move: Move) -> None:
    """Check that a target is the committed offset.

    Raises:
        MoveRefusedError: It is not.
    """
    queue = _queue(move)
    committed = await admin.committed_offset(queue, group)
    if committed != move.target:
        raise MoveRefusedError(
            group, f"{queue} was set to {move.target} and is at {committed} now: a member joined, or a reset is pending"
        )


async def _move(admin: Admin, group: str, queue: MessageQueue, target: Target, committed: int | None) -> Move:
    first, end = await admin.min_offset(queue), await admin.max_offset(queue)
    if committed is None:
        committed = await admin.committed_offset(queue, group)
    if target is End.EARLIEST:
        offset = first
    elif target is End.LATEST:
        offset = end
    elif isinstance(target, datetime):
        offset = min(max(first, await admin.search_offset(queue, milliseconds(target))), end)
    else:
        offset = int(target)
        if not first <= offset <= end:
            raise MoveRefusedError(group, f"{queue} has no offset {offset}: it has {first} to {end}")
    return Move(
        topic=queue.topic,
        broker=queue.broker_name,
        queue=queue.queue_id,
        committed=committed,
        target=offset,
        again=None if committed is None else max(0, min(committed, end) - offset),
        skipped=None if committed is None else max(0, offset - max(committed, first)),
    )


async def _members(admin: Admin, group: str) -> tuple[int, set[str]]:
    """Return the number of connected members, and the topics that they subscribe to.

    Raises:
        GroupNotFoundError: No broker has the group.
        MoveRefusedError: A broker did not answer.
    """
    configs = await ask_masters(admin, admin.group_configs)
    members = await ask_masters(admin, lambda address: admin.members_at(address, group))
    _refuse_gaps(group, (*configs.failures, *members.failures))
    if not any(group in table for table in configs.answers.values()):
        raise GroupNotFoundError(group)
    connected = [answer for answer in members.answers.values() if answer is not None]
    ids = {connection.client_id for answer in connected for connection in answer.connection_set}
    return len(ids), set[str]().union(*(answer.subscription_table for answer in connected))


async def _progress(admin: Admin, group: str) -> Sequence[GroupQueue]:
    found = await group_queues(admin, group)
    _refuse_gaps(group, found.failures)
    return found.queues


def _refuse_gaps(group: str, failures: Sequence[BrokerFailure]) -> None:
    if failures:
        raise MoveRefusedError(group, f"broker {failures[0].broker_name}: {failures[0].reason}")


async def _group_queue(admin: Admin, group: str, queue: MessageQueue, offsets: OffsetWrapper) -> GroupQueue:
    committed: int | None = offsets.consumer_offset
    if not committed and offsets.broker_offset:
        # Brokers say 0 for a queue without a committed offset.
        committed = await admin.committed_offset(queue, group)
    lag = None if committed is None else max(0, offsets.broker_offset - committed)
    return GroupQueue(
        topic=queue.topic,
        broker=queue.broker_name,
        queue=queue.queue_id,
        committed=committed,
        max_offset=offsets.broker_offset,
        lag=lag,
        last_consumed=time_of(offsets.last_timestamp),
    )


async def _in_parallel(work: Callable[[Item], Awaitable[T]], items: Sequence[Item]) -> list[T]:
    """Return the results of the work for each item; some items are worked on at the same time."""
    turns = asyncio.Semaphore(QUEUES_AT_ONCE)

    async def in_turn(item: Item) -> T:
        async with turns:
            return await work(item)

    return await asyncio.gather(*map(in_turn, items))


def _queue(move: Move) -> MessageQueue:
    return MessageQueue(move.topic, move.broker, move.queue)


def _sum(numbers: Iterable[int | None]) -> int | None:
    """Return the sum; None if a number is not known, or there is none."""
    total: int | None = None
    for number in numbers:
        if number is None:
            return None
        total = number if total is None else total + number
    return total
