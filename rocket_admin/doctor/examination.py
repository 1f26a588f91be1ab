"""Runs all checks of a cluster at once, within a bounded time."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Final

from rocket_admin.doctor import brokers as broker_checks
from rocket_admin.doctor import name_servers as name_server_checks
from rocket_admin.doctor.brokers import BrokerView
from rocket_admin.doctor.groups import check_dead_letters, check_subscriptions, growing, sample, waiting
from rocket_admin.doctor.name_servers import NameServerView
from rocket_admin.doctor.permissions import check_permissions
from rocket_admin.doctor.slaves import check_slaves
from rocket_admin.doctor.transactions import check_transactions
from rocket_admin.groups import is_own_group
from rocket_client import Admin
from rocket_remoting import RemotingError
from rocket_remoting.clock import SystemClock
from rocket_remoting.wire.bodies import SubscriptionGroupConfig, TopicConfig
from streamkit.findings import Finding, Severity

__all__ = ["examine"]

PATIENCE: Final = 3
"""A check of topics or groups may take as long as this many answers may take, plus the time between samples."""


async def examine(admin: Admin, *, seconds: float = 3.0) -> list[Finding]:
    """Return what is wrong with a cluster, and what is not.

    Servers that do not answer are left out of the further checks, so each costs its timeouts once.

    Args:
        admin: A running admin.
        seconds: Time between the two samples that tell whether lag grows; 0 for one sample.
    """
    async with AsyncExitStack() as stack:
        servers, findings = await name_server_checks.look(admin, stack)
        if not servers:
            return findings
        findings += name_server_checks.disagreements(servers)
        clock = admin.clock or SystemClock()
        brokers, places = await broker_checks.look(servers[0].admin, servers[0].cluster, clock)
        findings += places
        findings += broker_checks.check_versions(brokers)
        findings += broker_checks.check_clocks(brokers)
        findings += broker_checks.check_disks(brokers)
        findings += check_slaves(brokers)
        findings += check_transactions(brokers)
        findings += broker_checks.check_settings(brokers)
        masters = [view for view in brokers if view.is_master and view.info is not None]
        if masters:
            findings += await _topics_and_groups(servers, masters, seconds)
        return findings


async def _topics_and_groups(
    servers: Sequence[NameServerView], masters: Sequence[BrokerView], seconds: float
) -> list[Finding]:
    admin = servers[0].admin
    patience = PATIENCE * admin.settings.request_timeout.total_seconds()
    tables = await asyncio.gather(*(_tables(admin, master) for master in masters))
    findings = [table for table in tables if isinstance(table, Finding)]
    known = [(master, *table) for master, table in zip(masters, tables, strict=True) if not isinstance(table, Finding)]
    told = [master for master, _, _ in known]
    topics = {master.name: configs for master, configs, _ in known}
    groups = {master.name: configs for master, _, configs in known}
    names = sorted({name for configs in groups.values() for name in configs if not is_own_group(name)})
    checked = await asyncio.gather(
        _checked("permissions", check_permissions(servers, told, topics, groups), patience),
        _checked("dead letters", check_dead_letters(admin, told, topics), patience),
        _checked("lag", _groups(admin, told, names, seconds), patience + seconds),
    )
    return [*findings, *(finding for found in checked for finding in found)]


async def _tables(
    admin: Admin, master: BrokerView
) -> tuple[Mapping[str, TopicConfig], Mapping[str, SubscriptionGroupConfig]] | Finding:
    try:
        return await asyncio.gather(admin.topic_configs(master.address), admin.group_configs(master.address))
    except RemotingError as error:
        return Finding(
            severity=Severity.WARNING,
            check="brokers",
            about=(master.name,),
            found=f"the topics and groups of broker {master.name} were not examined: {error}",
        )


async def _groups(admin: Admin, masters: Sequence[BrokerView], names: Sequence[str], seconds: float) -> list[Finding]:
    first = await sample(admin, masters, names)
    subscriptions, _ = await asyncio.gather(check_subscriptions(admin, first), asyncio.sleep(seconds))
    last = await sample(admin, masters, names) if seconds else first
    lag = [*waiting(last), *growing(first, last, seconds)]
    if names and not lag:
        what = "no group falls behind, or has lag and no members"
        lag.append(Finding(severity=Severity.OK, check="lag", found=f"{what} ({len(names)} group(s))"))
    return [*subscriptions, *lag]


async def _checked(check: str, work: Awaitable[list[Finding]], patience: float) -> list[Finding]:
    """Return the findings of a check; if it fails or takes too long, the finding that says so."""
    try:
        async with asyncio.timeout(patience):
            return await work
    except RemotingError as error:
        text, mend = f"the check was not finished: {error}", None
    except TimeoutError:
        text = f"the check was not finished within {patience:g} s"
        mend = "give servers more time: --answer-within"
    return [Finding(severity=Severity.WARNING, check=check, found=text, mend=mend)]
