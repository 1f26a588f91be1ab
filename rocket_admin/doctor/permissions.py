"""What was taken away: by the name servers, by a broker's setting, from a topic, or from a group."""

import asyncio
from collections.abc import Collection, Mapping, Sequence

from rocket_admin.doctor.brokers import BrokerView
from rocket_admin.doctor.name_servers import NameServerView
from rocket_admin.topics import TopicKind, kind_of, own_topics
from rocket_client import TopicNotFoundError
from rocket_remoting.wire.bodies import SubscriptionGroupConfig, TopicConfig
from rocket_remoting.wire.sys_flag import PERM_READ, PERM_WRITE
from streamkit.findings import Finding, Severity, listed

__all__ = ["check_permissions"]

CHECK = "permissions"


async def check_permissions(
    servers: Sequence[NameServerView],
    masters: Sequence[BrokerView],
    topics: Mapping[str, Mapping[str, TopicConfig]],
    groups: Mapping[str, Mapping[str, SubscriptionGroupConfig]],
) -> list[Finding]:
    """Return brokers, topics and groups that cannot be written to or consumed from.

    Args:
        servers: The name servers that answer.
        masters: The masters that are reachable.
        topics: The topics by broker name.
        groups: The groups by broker name.
    """
    wiped = await asyncio.gather(
        *(_wiped(server, master, topics.get(master.name, {})) for server in servers for master in masters)
    )
    findings = [
        *_wiped_brokers([where for where in wiped if where is not None]),
        *_closed_brokers(masters),
        *_closed_topics(topics, {name for server in servers for name in own_topics(server.cluster)}),
        *_closed_groups(groups),
    ]
    if not findings and masters:
        text = "all brokers and topics can be written to and read, and all groups may consume"
        findings.append(Finding(severity=Severity.OK, check=CHECK, found=text))
    return findings


async def _wiped(
    server: NameServerView, master: BrokerView, configs: Mapping[str, TopicConfig]
) -> tuple[str, str] | None:
    """Return the broker and the name server if that took the broker's write permission away; else None.

    It takes it from all topics of the broker, so one topic tells; each broker has a topic of its own name.
    """
    writable = [name for name in (master.name, *configs) if name in configs and configs[name].perm & PERM_WRITE]
    if not writable or not _permission_of(master) & PERM_WRITE:
        return None
    try:
        route = await server.admin.topic_route(writable[0])
    except TopicNotFoundError:  # a new topic, which is registered soon
        return None
    perms = [queue.perm for queue in route.data.queue_datas if queue.broker_name == master.name]
    return (master.name, server.address) if perms and not perms[0] & PERM_WRITE else None


def _wiped_brokers(wiped: Collection[tuple[str, str]]) -> list[Finding]:
    return [
        Finding(
            severity=Severity.WARNING,
            check=CHECK,
            about=(broker,),
            found=f"the write permission of broker {broker} was taken away at name server "
            f"{listed({server for name, server in wiped if name == broker})}: producers do not choose it",
            mend=f"streamkit broker add-perm {broker}",
        )
        for broker in sorted({broker for broker, _ in wiped})
    ]


def _closed_brokers(masters: Sequence[BrokerView]) -> list[Finding]:
    return [
        Finding(
            severity=Severity.WARNING,
            check=CHECK,
            about=(master.name,),
            found=f"broker {master.name} {_missing(_permission_of(master))} (its setting brokerPermission)",
            mend=f"streamkit broker config {master.name} --set brokerPermission=6",
        )
        for master in masters
        if _missing(_permission_of(master))
    ]


def _closed_topics(topics: Mapping[str, Mapping[str, TopicConfig]], own: Collection[str]) -> list[Finding]:
    """Return a finding for all topics of a broker that lack the same permissions."""
    findings: list[Finding] = []
    for broker, configs in topics.items():
        closed: dict[str, list[str]] = {}
        for name, config in configs.items():
            missing = _missing(config.perm)
            if missing and kind_of(name, own) is TopicKind.NORMAL:
                closed.setdefault(missing, []).append(name)
        findings.extend(
            Finding(
                severity=Severity.WARNING,
                check=CHECK,
                about=tuple(sorted(names)),
                found=f"on broker {broker}, {listed(names)} {missing}",
                mend=f"streamkit topic update {min(names)} --permission rw --broker {broker}",
            )
            for missing, names in sorted(closed.items())
        )
    return findings


def _closed_groups(groups: Mapping[str, Mapping[str, SubscriptionGroupConfig]]) -> list[Finding]:
    return [
        Finding(
            severity=Severity.WARNING,
            check=CHECK,
            about=tuple(sorted(names)),
            found=f"broker {broker} gives no messages to {listed(names)}",
            mend=f"streamkit group update {min(names)} --consume --broker {broker}",
        )
        for broker, configs in groups.items()
        if (names := [name for name, config in configs.items() if not config.consume_enable])
    ]


def _permission_of(master: BrokerView) -> int:
    """Return what the broker's settings allow; everything if it does not show them."""
    text = (master.settings or {}).get("brokerPermission", "")
    return int(text) if text.isdecimal() else PERM_READ | PERM_WRITE


def _missing(perm: int) -> str:
    """Return what a permission does not allow, as the end of a sentence; empty if it allows everything."""
    if not perm & (PERM_READ | PERM_WRITE):
        return "can neither be written to nor read"
    if not perm & PERM_WRITE:
        return "cannot be written to"
    return "" if perm & PERM_READ else "cannot be read"
