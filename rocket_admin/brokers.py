"""Brokers: where they are, what they do, their settings; and how one is emptied before it is removed."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from datetime import datetime

import msgspec

from rocket_admin.broker_answers import BrokerFailure
from rocket_admin.times import time_of
from rocket_admin.versions import version_of_name
from rocket_client import Admin
from rocket_remoting import RemotingError
from rocket_remoting.wire.topics import is_system_group

__all__ = ["Backlog", "Broker", "BrokerList", "Draining", "drain", "list_brokers", "show_broker"]

MASTER_ID = 0


class Broker(msgspec.Struct, frozen=True, kw_only=True):
    """A broker, as the name servers know it and as it reports itself.

    Attributes:
        cluster: The name of its cluster.
        broker: Its name, which a master shares with its slaves.
        broker_id: Its id; 0 is the master.
        address: Its address for clients.
        version: The version of the protocol that it speaks, such as `4.9.7`; absent if it did not answer.
        started: When it was started; absent if it did not answer.
        sends_per_second: Messages that it stored per second, in the last ten seconds; absent if it did not say.
        deliveries_per_second: Messages that it delivered per second, in the last ten seconds; absent if it did not say.
        disk_used: Share of the disk of its commit log that is used, 0 to 1; absent if it did not say.
    """

    cluster: str
    broker: str
    broker_id: int
    address: str
    version: str | None = None
    started: datetime | None = None
    sends_per_second: float | None = None
    deliveries_per_second: float | None = None
    disk_used: float | None = None


class BrokerList(msgspec.Struct, frozen=True, kw_only=True):
    """The brokers of all clusters.

    Attributes:
        brokers: The brokers, sorted by cluster, name and id.
        failures: Those that did not answer.
    """

    brokers: tuple[Broker, ...]
    failures: tuple[BrokerFailure, ...]


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """What a group has still to consume on one broker.

    Attributes:
        group: The group.
        lag: Messages; absent if it is not known.
        members: Members that are connected to the broker.
    """

    group: str
    lag: int | None
    members: int


class Draining(msgspec.Struct, frozen=True, kw_only=True):
    """How far the emptying of a broker is.

    Attributes:
        broker: The broker's name.
        arriving: Messages that arrived since the last check; absent at the first one.
        delayed: Messages that wait for their delay level; absent if the broker did not say.
        transactions: Transactions without a decision; absent if the broker did not say, as Apache's do not.
        backlogs: The groups that have messages to consume there, sorted by name.
        is_drained: Whether nothing arrived since the last check, nothing waits, and no group has anything to consume.
    """

    broker: str
    arriving: int | None
    delayed: int | None
    transactions: int | None
    backlogs: tuple[Backlog, ...]
    is_drained: bool


async def list_brokers(admin: Admin) -> BrokerList:
    """Return all brokers, masters and slaves; each is asked about itself.

    Raises:
        NameServersUnreachableError: No name server answered.
    """
    table = (await admin.cluster_info()).broker_addr_table
    places = sorted(
        (data.cluster, name, broker_id, address)
        for name, data in table.items()
        for broker_id, address in data.broker_addrs.items()
    )
    answers = await asyncio.gather(*(_broker(admin, *place) for place in places))
    return BrokerList(
        brokers=tuple(broker for broker, _ in answers),
        failures=tuple(failure for _, failure in answers if failure is not None),
    )


async def show_broker(admin: Admin, broker: str) -> Mapping[str, str]:
    """Return all figures that the master of a broker reports about itself, by Apache's names, sorted.

    Raises:
        ValueError: No master of the broker is registered.
    """
    (address,) = (await admin.masters([broker])).values()
    return dict(sorted((await admin.runtime_info(address)).items()))


async def drain(admin: Admin, broker: str, *, every: float, without: Collection[str] = ()) -> AsyncIterator[Draining]:
    """Wait until a broker is empty; yield how far that is until it is. Remove its write permission before.

    Args:
        admin: A running admin.
        broker: The broker's name.
        every: Seconds between two checks. Producers read routes every 30 seconds, so messages may arrive that long.
        without: Groups that are not waited for.

    Raises:
        ValueError: No master of the broker is registered.
        RemotingError: The broker cannot be asked.
    """
    (address,) = (await admin.masters([broker])).values()
    before: int | None = None
    while True:
        info = await admin.runtime_info(address)
        stored = int(info.get("putMessageTimesTotal", "0"))
        delayed = _delayed(info)
        transactions = int(info["transactionsPending"]) if "transactionsPending" in info else None
        backlogs = await _backlogs(admin, address, without)
        arriving = None if before is None else stored - before
        is_drained = arriving == 0 and not (delayed or transactions or backlogs)
        yield Draining(
            broker=broker,
            arriving=arriving,
            delayed=delayed,
            transactions=transactions,
            backlogs=backlogs,
            is_drained=is_drained,
        )
        if is_drained:
            return
        before = stored
        await asyncio.sleep(every)


def _delayed(info: Mapping[str, str]) -> int | None:
    """Return the messages that wait for their delay level, which a broker reports as ``next,end`` for each level."""
    levels = [text.split(",") for name, text in info.items() if name.startswith("scheduleMessageOffset_")]
    return sum(int(end) - int(offset) for offset, end in levels) if levels else None


async def _backlogs(admin: Admin, address: str, without: Collection[str]) -> tuple[Backlog, ...]:
    found: list[Backlog] = []
    for group in sorted(await admin.group_configs(address)):
        if is_system_group(group) or group in without:
            continue
        offsets = (await admin.progress_at(address, group)).offset_table.values()
        lag = sum(max(0, offset.broker_offset - offset.consumer_offset) for offset in offsets)
        if lag:
            members = await admin.members_at(address, group)
            found.append(Backlog(group=group, lag=lag, members=0 if members is None else len(members.connection_set)))
    return tuple(found)


async def _broker(
    admin: Admin, cluster: str, name: str, broker_id: int, address: str
) -> tuple[Broker, BrokerFailure | None]:
    try:
        info = await admin.runtime_info(address)
    except RemotingError as error:
        broker = Broker(cluster=cluster, broker=name, broker_id=broker_id, address=address)
        return broker, BrokerFailure(broker_name=name, address=address, reason=str(error))
    version = info.get("brokerVersionDesc")
    return Broker(
        cluster=cluster,
        broker=name,
        broker_id=broker_id,
        address=address,
        version=None if version is None else version_of_name(version),
        started=time_of(int(info.get("bootTimestamp", "0"))),
        sends_per_second=_rate(info.get("putTps")),
        deliveries_per_second=_rate(info.get("getTransferredTps") or info.get("getTransferedTps")),
        disk_used=_share(info.get("commitLogDiskRatio")),
    ), None


def _rate(text: str | None) -> float | None:
    """Return the rate of the last ten seconds: the first of several numbers."""
    return None if not text or not text.split() else round(float(text.split()[0]), 2)


def _share(text: str | None) -> float | None:
    try:
        share = float(text or "")
    except ValueError:
        return None
    return round(share, 4) if 0 <= share <= 1 else None
