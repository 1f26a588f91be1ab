"""What groups do: their lag, how fast messages arrive and are consumed, and when a group will have caught up.

Committed offsets are compared from one sample to the next. Members commit every few seconds, so rates are rough.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import aclosing

import msgspec

from rocket_admin.broker_answers import BrokerFailure
from rocket_admin.groups import GROUPS_AT_ONCE, group_names
from rocket_admin.offsets import GroupQueues, group_queues, lag_of
from rocket_admin.ordered_results import ordered_results
from rocket_client import Admin

__all__ = ["Activity", "GroupActivity", "GroupActivityMeter", "by_lag"]


class GroupActivity(msgspec.Struct, frozen=True, kw_only=True):
    """The rates of a group since the last sample.

    Attributes:
        group: The name.
        lag: Messages that it has not consumed yet; absent if that is not known for each queue.
        arriving_per_second: Messages that arrived for it per second; absent in the first sample, and if its queues
            are not those of the last sample, because a broker came or went.
        consumed_per_second: Messages that it consumed per second, by committed offsets; absent if `arriving_per_second`
            is. Less than 0 if it was moved back.
        seconds_to_catch_up: When its lag will be 0 at these rates; absent if it falls behind or does nothing, or if
            its lag is not known.
    """

    group: str
    lag: int | None
    arriving_per_second: float | None = None
    consumed_per_second: float | None = None
    seconds_to_catch_up: float | None = None


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """The rates of all groups since the last sample.

    Attributes:
        groups: The groups that have committed an offset, the one with the largest lag first.
        failures: The brokers that did not answer; what happens there is missing.
    """

    groups: tuple[GroupActivity, ...]
    failures: tuple[BrokerFailure, ...]


class GroupActivityMeter:
    """Compares the offsets of groups from one sample to the next."""

    def __init__(self) -> None:
        self._seen: dict[str, _Sample] = {}

    async def sample(self, admin: Admin, seen: Callable[[GroupActivity], None] | None = None) -> Activity:
        """Ask the brokers; return the rates of all groups since the last call.

        Args:
            admin: A running admin.
            seen: Called with each group that has committed an offset, in the order of the names, as brokers answer.

        Raises:
            NoBrokerError: No master is registered.
        """
        masters = await admin.masters()
        names = await group_names(admin)

        async def progress(group: str) -> tuple[str, GroupQueues, float]:
            found = await group_queues(admin, group, masters=masters)
            return group, found, asyncio.get_running_loop().time()

        groups: list[GroupActivity] = []
        failures = dict.fromkeys(names.failures)
        async with aclosing(ordered_results(progress, names.names, at_once=GROUPS_AT_ONCE)) as samples:
            async for group, found, at in samples:
                failures |= dict.fromkeys(found.failures)
                if found.queues:
                    groups.append(self._compared(group, found, at))
                    if seen is not None:
                        seen(groups[-1])
        return Activity(groups=by_lag(groups), failures=tuple(failures))

    def _compared(self, group: str, found: GroupQueues, at: float) -> GroupActivity:
        now = _Sample(
            at=at,
            stored=sum(queue.max_offset for queue in found.queues),
            consumed=sum(queue.committed or 0 for queue in found.queues),
            queues=frozenset((queue.topic, queue.broker, queue.queue) for queue in found.queues),
        )
        before = self._seen.get(group)
        self._seen[group] = now
        lag = None if found.failures else lag_of(found.queues)
        if before is None or before.queues != now.queues or now.at <= before.at:
            return GroupActivity(group=group, lag=lag)
        seconds = now.at - before.at
        arriving, consumed = (now.stored - before.stored) / seconds, (now.consumed - before.consumed) / seconds
        rest = (
            None if lag is None else 0.0 if lag == 0 else lag / (consumed - arriving) if consumed > arriving else None
        )
        return GroupActivity(
            group=group,
            lag=lag,
            arriving_per_second=round(arriving, 2),
            consumed_per_second=round(consumed, 2),
            seconds_to_catch_up=None if rest is None else round(rest, 1),
        )


class _Sample(msgspec.Struct, frozen=True, kw_only=True):
    """A group at one time: sums over its queues, each known by topic, broker and number."""

    at: float
    stored: int
    consumed: int
    queues: frozenset[tuple[str, str, int]]


def by_lag(groups: Iterable[GroupActivity]) -> tuple[GroupActivity, ...]:
    """Return groups in the order of their lag: those whose lag is not known first, then the largest, by name."""
    return tuple(sorted(groups, key=lambda group: (group.lag is not None, -(group.lag or 0), group.group)))
