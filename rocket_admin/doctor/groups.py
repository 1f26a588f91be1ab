"""Groups: lag that nobody consumes, lag that grows, members that subscribe to different things, dead letters."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from rocket_admin.dead_letters import first_kept
from rocket_admin.doctor.brokers import BrokerView
from rocket_admin.groups import same_expression
from rocket_admin.offsets import group_queues, lag_of
from rocket_admin.times import moment
from rocket_client import Admin, TopicNotFoundError
from rocket_remoting import RemotingError
from rocket_remoting.wire.bodies import TopicConfig
from rocket_remoting.wire.topics import DLQ_PREFIX, is_dead_letter_topic, is_retry_topic
from streamkit.findings import Finding, Severity, falls_behind, listed

__all__ = ["GroupSample", "check_dead_letters", "check_subscriptions", "growing", "sample", "waiting"]

AT_ONCE: Final = 32
"""Groups, members and topics that are asked about at the same time."""

MEMBERS_ASKED: Final = 20
"""Members of a group that are asked for their subscriptions."""


class GroupSample(msgspec.Struct, frozen=True, kw_only=True):
    """How far a group is at one moment.

    Attributes:
        group: The group.
        members: The address of the broker that each connected member is connected to, by client id.
        lag: Messages that it has not consumed; None if that is not known.
        stored: The sum of the maximum offsets of its queues: what arrives makes it greater.
    """

    group: str
    members: Mapping[str, str]
    lag: int | None
    stored: int


async def sample(admin: Admin, masters: Sequence[BrokerView], groups: Iterable[str]) -> dict[str, GroupSample]:
    """Return how far each group is.

    Args:
        admin: A running admin.
        masters: The masters that are asked.
        groups: The groups.
    """
    turns = asyncio.Semaphore(AT_ONCE)
    brokers = [master.name for master in masters]

    async def of(group: str) -> GroupSample:
        async with turns:
            answers = await asyncio.gather(*(admin.members_at(master.address, group) for master in masters))
            progress = await group_queues(admin, group, brokers=brokers)
        members = {
            connection.client_id: master.address
            for master, answer in zip(masters, answers, strict=True)
            if answer is not None
            for connection in answer.connection_set
        }
        stored = sum(queue.max_offset for queue in progress.queues)
        lag = None if progress.failures else lag_of(progress.queues)
        return GroupSample(group=group, members=members, lag=lag, stored=stored)

    return {found.group: found for found in await asyncio.gather(*map(of, groups))}


def waiting(samples: Mapping[str, GroupSample]) -> list[Finding]:
    """Return groups that have lag and no members, and those whose lag is not known."""
    findings = [
        Finding(
            severity=Severity.WARNING,
            check="lag",
            about=(group.group,),
            found=f"group {group.group} has no members, and {group.lag:,} message(s) to consume",
            mend=f"start its application; if it is not needed any more: streamkit group delete {group.group}",
        )
        for group in samples.values()
        if group.lag and not group.members
    ]
    unknown = [group.group for group in samples.values() if group.lag is None]
    if unknown:
        text = f"the lag of {listed(unknown)} is not known: no offset is committed for each queue, or it broadcasts"
        findings.append(Finding(severity=Severity.UNKNOWN, check="lag", about=tuple(unknown), found=text))
    return findings


def growing(before: Mapping[str, GroupSample], after: Mapping[str, GroupSample], seconds: float) -> list[Finding]:
    """Return groups with members that fall behind.

    Args:
        before: The groups at first.
        after: The groups later.
        seconds: The time between.
    """
    findings: list[Finding] = []
    for name in sorted(before.keys() & after.keys()):
        first, second = before[name], after[name]
        if first.lag is None or second.lag is None or not second.members:
            continue
        if falls_behind(first.lag, second.lag, arrived=second.stored - first.stored, seconds=seconds):
            text = f"the lag of group {name} grew from {first.lag:,} to {second.lag:,} in {seconds:g} s"
            mend = f"add members, or look where they hang: streamkit group members {name}"
            findings.append(Finding(severity=Severity.WARNING, check="lag", about=(name,), found=text, mend=mend))
    return findings


async def check_subscriptions(admin: Admin, samples: Mapping[str, GroupSample]) -> list[Finding]:
    """Return groups whose members subscribe to different topics or expressions.

    Brokers keep the newest subscription of a group only, so the members get each other's messages, and drop them.
    """
    turns = asyncio.Semaphore(AT_ONCE)
    several = [group for group in samples.values() if len(group.members) > 1]

    async def of(group: str, client_id: str, address: str) -> dict[str, str] | None:
        async with turns:
            try:
                state = await admin.member_state(address, group, client_id)
            except RemotingError:  # pull consumers of Java and clients in other languages do not answer this
                return None
        wanted = (each for each in state.subscription_set if not is_retry_topic(each.topic))
        return {each.topic: _expression(each.expression_type, each.sub_string) for each in wanted}

    async def look(group: GroupSample) -> list[Finding]:
        ids = sorted(group.members)[:MEMBERS_ASKED]
        answers = await asyncio.gather(*(of(group.group, each, group.members[each]) for each in ids))
        return _differing(group, dict(zip(ids, answers, strict=True)))

    findings = [finding for found in await asyncio.gather(*map(look, several)) for finding in found]
    if not findings and several:
        text = f"the members of each group subscribe to the same topics ({len(several)} group(s) with several members)"
        findings.append(Finding(severity=Severity.OK, check="subscriptions", found=text))
    return findings


def _expression(kind: str | None, text: str | None) -> str:
    same = same_expression(kind, text)
    return same if kind in (None, "", "TAG") else f"{kind} {same}"


def _differing(group: GroupSample, answers: Mapping[str, Mapping[str, str] | None]) -> list[Finding]:
    silent = [client_id for client_id, answer in answers.items() if answer is None]
    left_out = len(group.members) - len(answers)
    findings: list[Finding] = []
    if silent or left_out:
        text = f"the subscriptions of {len(silent) + left_out} of {len(group.members)} members of {group.group} are not"
        why = "known: they do not answer" if silent else f"asked for: only those of {MEMBERS_ASKED} are"
        findings.append(
            Finding(severity=Severity.UNKNOWN, check="subscriptions", about=(group.group,), found=f"{text} {why}")
        )
    variants: dict[str, list[str]] = {}
    for client_id, answer in answers.items():
        if answer is not None:
            text = ", ".join(f"{topic} {expression}" for topic, expression in sorted(answer.items())) or "nothing"
            variants.setdefault(text, []).append(client_id)
    if len(variants) > 1:
        text = "; ".join(f"{listed(ids)}: {wanted}" for wanted, ids in sorted(variants.items()))
        findings.append(
            Finding(
                severity=Severity.ERROR,
                check="subscriptions",
                about=(group.group,),
                found=f"members of group {group.group} subscribe to different things, so messages get lost: {text}",
                mend="give all members of a group the same topics and expressions, or each a group of its own",
            )
        )
    return findings


async def check_dead_letters(
    admin: Admin, masters: Sequence[BrokerView], topics: Mapping[str, Mapping[str, TopicConfig]]
) -> list[Finding]:
    """Return groups that have dead letters which were not dropped.

    Args:
        admin: A running admin.
        masters: The masters that are asked.
        topics: The topics by broker name.
    """
    turns = asyncio.Semaphore(AT_ONCE)

    async def of(master: BrokerView, topic: str) -> tuple[str, int, int]:
        count = newest = 0
        async with turns:
            for queue, offsets in (await admin.topic_stats_at(master.address, topic)).items():
                if offsets.max_offset > offsets.min_offset:
                    try:
                        first = await first_kept(admin, queue, offsets.min_offset)
                    except TopicNotFoundError:  # a new topic, whose letters nobody can have dropped
                        first = offsets.min_offset
                    count += max(0, offsets.max_offset - first)
                    newest = max(newest, offsets.last_update_timestamp)
        return topic.removeprefix(DLQ_PREFIX), count, newest

    places = [(master, topic) for master in masters for topic in topics.get(master.name, ())]
    found = await asyncio.gather(*(of(*place) for place in places if is_dead_letter_topic(place[1])))
    findings: list[Finding] = []
    for group in sorted({name for name, count, _ in found if count}):
        count = sum(number for name, number, _ in found if name == group)
        newest = max(time for name, _, time in found if name == group)
        when = f", the newest of {moment(newest).astimezone():%Y-%m-%d %H:%M:%S}" if newest > 0 else ""
        findings.append(
            Finding(
                severity=Severity.WARNING,
                check="dead letters",
                about=(group,),
                found=f"group {group} has {count:,} dead letter(s){when}",
                mend=f"streamkit dlq show {group}",
            )
        )
    if not findings and masters:
        findings.append(Finding(severity=Severity.OK, check="dead letters", found="no group has dead letters"))
    return findings
