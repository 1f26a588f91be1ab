"""One look at a group: its members, what they subscribe to, and its lag."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from rocket_admin.broker_answers import ask_masters
from rocket_admin.groups import is_own_group
from rocket_admin.versions import version_text
from rocket_client import Admin
from rocket_remoting.wire.bodies import ConsumerConnection, ConsumeStats

__all__ = ["ConnectedMember", "GroupLook", "look_at_group"]


@dataclass(frozen=True, kw_only=True)
class ConnectedMember:
    """A member of a group.

    Attributes:
        client_id: Its client id.
        address: The address that it is connected from.
        language: Its programming language.
        version: The version of the protocol that it speaks.
    """

    client_id: str
    address: str
    language: str
    version: str


@dataclass(frozen=True, kw_only=True)
class GroupLook:
    """What is known about a group.

    Attributes:
        group: The name.
        members: The connected members; None if a broker did not answer.
        model: `clustering` or `broadcasting`; None without members.
        lag: Messages that it has not consumed; None if a broker did not answer, or it has committed no offset.
        lags: The same by topic.
        topics: The topics that it subscribes to, or has committed offsets in.
        is_system: Whether brokers made the group for themselves.
    """

    group: str
    members: tuple[ConnectedMember, ...] | None = None
    model: str | None = None
    lag: int | None = None
    lags: Mapping[str, int] = field(default_factory=dict)
    topics: tuple[str, ...] = ()
    is_system: bool = False

    @classmethod
    def unknown(cls, group: str) -> Self:
        """Return a group of which only the name is known."""
        return cls(group=group, is_system=is_own_group(group))


async def look_at_group(admin: Admin, group: str, masters: Mapping[str, str]) -> GroupLook:
    """Return what the masters of a cluster know about a group: two requests to each.

    A queue without a committed offset counts from 0, as brokers report it.

    Args:
        admin: Asks the cluster.
        group: The name.
        masters: The addresses of the masters by broker name.
    """
    members, progress = await asyncio.gather(
        ask_masters(admin, lambda address: admin.members_at(address, group), masters=masters),
        ask_masters(admin, lambda address: admin.progress_at(address, group), masters=masters),
    )
    connected = [answer for answer in members.answers.values() if answer is not None]
    lags = _lags(progress.answers)
    subscribed = {topic for answer in connected for topic in answer.subscription_table}
    model = next((answer.message_model.lower() for answer in connected if answer.message_model is not None), None)
    return GroupLook(
        group=group,
        members=None if members.failures else _members(connected),
        model=model,
        lag=None if progress.failures or not lags else sum(lags.values()),
        lags=lags,
        topics=tuple(sorted(subscribed.union(lags))),
        is_system=is_own_group(group),
    )


def _lags(answers: Mapping[str, ConsumeStats]) -> dict[str, int]:
    lags: dict[str, int] = {}
    for answer in answers.values():
        for queue, offsets in answer.offset_table.items():
            behind = max(0, offsets.broker_offset - offsets.consumer_offset)
            lags[queue.topic] = lags.get(queue.topic, 0) + behind
    return lags


def _members(answers: list[ConsumerConnection]) -> tuple[ConnectedMember, ...]:
    found = {
        each.client_id: ConnectedMember(
            client_id=each.client_id,
            address=each.client_addr,
            language=each.language,
            version=version_text(each.version),
        )
        for answer in answers
        for each in answer.connection_set
    }
    return tuple(found[client_id] for client_id in sorted(found))
