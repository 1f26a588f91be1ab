"""Are brokers reachable at the addresses that they advertise? Versions, clocks, disks and settings of those."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from rocket_admin.brokers import MASTER_ID
from rocket_admin.versions import version_of_name
from rocket_client import Admin
from rocket_remoting import RemotingError, ResponseError
from rocket_remoting.clock import Clock
from rocket_remoting.wire.bodies import ClusterInfo
from streamkit.findings import Finding, Severity, listed

__all__ = ["BrokerView", "check_clocks", "check_disks", "check_settings", "check_versions", "clock_skew", "look"]

SKEW_MS: Final = 2_000
"""Milliseconds that a broker's clock may differ. Rewinds to a time and delayed messages go by the broker's clock."""

DISK_FULL: Final = 90
"""Percent of the disk above which brokers refuse messages, unless diskSpaceWarningLevelRatio says otherwise."""
DISK_FORCED: Final = 85
"""Percent above which they delete messages before their time, unless diskSpaceCleanForciblyRatio says otherwise."""
DISK_CLEANED: Final = 75
"""The default of diskMaxUsedSpaceRatio: percent above which they delete at once what is older than its time."""

_DURATION: Final = re.compile(r"(\d[\d.,'\u00a0\u2019\u202f]*) (days|hours|minutes|seconds)")
"""A part of a broker's run time. Java writes 1234 days with the separator of its country."""
_MILLISECONDS: Final = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}


class BrokerView(msgspec.Struct, frozen=True, kw_only=True):
    """A broker that is reachable at its address.

    Attributes:
        name: Its name.
        broker_id: Its id; 0 is the master.
        address: Its address.
        has_slaves: Whether the name servers know a slave of its name.
        settings: Its effective settings by their names in ``broker.conf``; None if it does not show them.
        info: Its runtime figures by Apache's names; None if it does not show them.
        asked_ms: When it was asked for them, by the clock of this machine, in milliseconds since 1970.
        answered_ms: When the answer was there.
    """

    name: str
    broker_id: int
    address: str
    has_slaves: bool = False
    settings: Mapping[str, str] | None = None
    info: Mapping[str, str] | None = None
    asked_ms: int = 0
    answered_ms: int = 0

    @property
    def is_master(self) -> bool:
        """Whether the name servers call it a master."""
        return self.broker_id == MASTER_ID

    def __str__(self) -> str:
        return self.name if self.is_master else f"{self.name} (id {self.broker_id})"


async def look(admin: Admin, cluster: ClusterInfo, clock: Clock) -> tuple[list[BrokerView], list[Finding]]:
    """Ask each broker at its advertised address; return those that answer, and the findings about addresses.

    Args:
        admin: A running admin.
        cluster: The brokers that the name servers know.
        clock: The clock of this machine.
    """
    places = [
        BrokerView(
            name=name, broker_id=broker_id, address=address, has_slaves=broker_id == MASTER_ID and len(addresses) > 1
        )
        for name, data in sorted(cluster.broker_addr_table.items())
        if (addresses := data.broker_addrs)
        for broker_id, address in sorted(addresses.items())
    ]
    if not places:
        return [], [
            Finding(
                severity=Severity.ERROR,
                check="brokers",
                found="no broker is registered with the name servers",
                mend="start a broker (`streamkit broker`), with namesrvAddr in its broker.conf",
            )
        ]
    results = await asyncio.gather(*(_asked(admin, clock, place) for place in places))
    views = [view for view, _ in results if view is not None]
    findings = [finding for _, found in results for finding in found]
    for name, data in sorted(cluster.broker_addr_table.items()):
        if MASTER_ID not in data.broker_addrs:
            findings.append(
                Finding(
                    severity=Severity.ERROR,
                    check="brokers",
                    about=(name,),
                    found=f"broker {name} has no master: nothing can be sent to it",
                    mend=f"start the master of {name}",
                )
            )
    if not findings:
        names = tuple(str(view) for view in views)
        text = f"{listed(names)}: reachable from here, at the advertised addresses"
        findings.append(Finding(severity=Severity.OK, check="brokers", about=names, found=text))
    return views, findings


async def _asked(admin: Admin, clock: Clock, place: BrokerView) -> tuple[BrokerView | None, list[Finding]]:
    """Return the broker with its settings and figures, None if it does not answer; and the findings about it."""
    address, described = place.address, f"{place.name} (id {place.broker_id})"
    findings: list[Finding] = []
    view = place
    try:
        try:
            view = replace(view, settings=await admin.broker_config(address))
        except ResponseError as error:
            findings.append(_refused(place, "settings", error))
        asked = clock.now_ms()  # the connection is open now, so the time until the answer is short
        try:
            info = await admin.runtime_info(address)
            view = replace(view, info=info, asked_ms=asked, answered_ms=clock.now_ms())
        except ResponseError as error:
            findings.append(_refused(place, "figures", error))
    except RemotingError as error:
        text = f"broker {described} cannot be reached from here at {address}, which it advertises: {error}"
        mend = "start it; if it runs, set brokerIP1 in its broker.conf to an address that clients reach"
        return None, [_unreachable(place, text, mend)]
    settings = view.settings or {}
    its_name, its_id = settings.get("brokerName", place.name), settings.get("brokerId", str(place.broker_id))
    if (its_name, its_id) != (place.name, str(place.broker_id)):
        text = f"at {address}, which broker {described} advertises, broker {its_name} (id {its_id}) answers"
        mend = f"set brokerIP1 and listenPort in broker.conf of {place.name} to an address of its own"
        return None, [_unreachable(place, text, mend)]
    return view, findings


def _unreachable(place: BrokerView, text: str, mend: str) -> Finding:
    return Finding(severity=Severity.ERROR, check="brokers", about=(place.name,), found=text, mend=mend)


def _refused(place: BrokerView, what: str, error: ResponseError) -> Finding:
    return Finding(
        severity=Severity.UNKNOWN,
        check="brokers",
        about=(place.name,),
        found=f"broker {place} at {place.address} answers, but does not show its {what}: {error}",
        mend="give the keys of an account that may: --access-key and --secret-key, or --tools-file",
    )


def check_versions(views: Sequence[BrokerView]) -> list[Finding]:
    """Return versions that differ or have a known hole."""
    by_version: dict[str, list[str]] = {}
    for view in views:
        name = None if view.info is None else view.info.get("brokerVersionDesc")
        if name is not None:
            by_version.setdefault(version_of_name(name), []).append(str(view))
    findings: list[Finding] = []
    if len(by_version) > 1:
        text = "; ".join(f"{version}: {listed(names)}" for version, names in sorted(by_version.items()))
        findings.append(
            Finding(
                severity=Severity.WARNING,
                check="versions",
                about=tuple(sorted(name for names in by_version.values() for name in names)),
                found=f"the brokers have different versions: {text}",
                mend="bring all brokers to the newest of them",
            )
        )
    for version, names in sorted(by_version.items()):
        if _has_hole(version):
            findings.append(
                Finding(
                    severity=Severity.WARNING,
                    check="versions",
                    about=tuple(names),
                    found=f"{listed(names)}: version {version} lets anyone who reaches the broker run programs on its "
                    "machine (CVE-2023-33246)",
                    mend="upgrade to 4.9.7, or to 5.1.2 or later",
                )
            )
    if not findings and by_version:
        text = f"all brokers have version {next(iter(by_version))}"
        findings.append(Finding(severity=Severity.OK, check="versions", found=text))
    return findings


def _has_hole(version: str) -> bool:
    match = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    number = tuple(map(int, match.groups())) if match else ()
    return bool(number) and (number < (4, 9, 6) or (5, 0, 0) <= number < (5, 1, 1))


def clock_skew(view: BrokerView) -> tuple[int, int] | None:
    """Return the least and the greatest milliseconds that the broker's clock can be ahead; None if it does not tell.

    A broker reports when it was started, and for how long it runs, in whole seconds. Both together are its time at a
    moment between request and answer.
    """
    info = view.info or {}
    parts = {unit: int(re.sub(r"\D", "", number)) for number, unit in _DURATION.findall(info.get("runtime", ""))}
    boot = info.get("bootTimestamp", "")
    if parts.keys() != _MILLISECONDS.keys() or not boot.isdecimal():
        return None
    time = int(boot) + sum(_MILLISECONDS[unit] * number for unit, number in parts.items())
    return time - view.answered_ms, time + 1_000 - view.asked_ms


def check_clocks(views: Sequence[BrokerView]) -> list[Finding]:
    """Return brokers whose clock surely differs from that of this machine by more than `SKEW_MS`."""
    findings: list[Finding] = []
    unknown: list[str] = []
    for view in views:
        skew = clock_skew(view)
        if skew is None:
            unknown.append(str(view))
            continue
        least, most = skew
        if least > SKEW_MS or most < -SKEW_MS:
            low, high = sorted((abs(least) / 1_000, abs(most) / 1_000))
            findings.append(
                Finding(
                    severity=Severity.WARNING,
                    check="clocks",
                    about=(str(view),),
                    found=f"the clock of broker {view} is {low:.1f} to {high:.1f} seconds "
                    f"{'ahead of' if least > 0 else 'behind'} that of this machine, by its start and run time",
                    mend="synchronise both machines by NTP",
                )
            )
    if unknown:
        text = f"the time of {listed(unknown)} is not known: start and run time are not among the figures"
        findings.append(Finding(severity=Severity.UNKNOWN, check="clocks", about=tuple(unknown), found=text))
    if not findings and views:
        text = f"no broker's clock surely differs from this machine's by more than {SKEW_MS // 1_000} seconds"
        findings.append(Finding(severity=Severity.OK, check="clocks", found=f"{text}, by start and run time"))
    return findings


def check_disks(views: Sequence[BrokerView]) -> list[Finding]:
    """Return brokers whose disk is so full that they delete or refuse messages."""
    findings: list[Finding] = []
    unknown: list[str] = []
    used: list[float] = []
    for view in views:
        share = _number((view.info or {}).get("commitLogDiskRatio"))
        if share is None or not 0 <= share <= 1:
            unknown.append(str(view))
            continue
        used.append(share)
        finding = _disk(view, share * 100)
        if finding is not None:
            findings.append(finding)
    if unknown:
        text = f"the disk use of {listed(unknown)} is not known: commitLogDiskRatio is not among the figures"
        findings.append(Finding(severity=Severity.UNKNOWN, check="disk", about=tuple(unknown), found=text))
    if not findings and used:
        text = f"the fullest disk of a commit log is used to {max(used):.0%}"
        findings.append(Finding(severity=Severity.OK, check="disk", found=text))
    return findings


def _disk(view: BrokerView, percent: float) -> Finding | None:
    settings = view.settings or {}
    full = _number(settings.get("diskSpaceWarningLevelRatio")) or DISK_FULL
    forced = _number(settings.get("diskSpaceCleanForciblyRatio")) or DISK_FORCED
    if percent < (_number(settings.get("diskMaxUsedSpaceRatio")) or DISK_CLEANED):
        return None
    severity = Severity.WARNING
    text = f"the disk of broker {view} is used to {percent:.0f} %"
    if percent >= full:
        severity, what = Severity.ERROR, f"above {full:.0f} % it refuses messages"
    elif settings.get("cleanFileForciblyEnable") == "false":
        what = f"above {full:.0f} % it will refuse messages"
    elif percent >= forced:
        what = f"above {forced:.0f} % it deletes messages before fileReservedTime, above {full:.0f} % it refuses them"
    else:
        what = f"above {forced:.0f} % it will delete messages before fileReservedTime"
    mend = f"free or add disk space, or keep messages for less time: fileReservedTime in broker.conf of {view.name}"
    return Finding(severity=severity, check="disk", about=(str(view),), found=f"{text}: {what}", mend=mend)


def check_settings(views: Sequence[BrokerView]) -> list[Finding]:
    """Return hints about settings that suit a developer's broker and not one in production."""
    masters = [view for view in views if view.is_master and view.settings is not None]
    created = [view.name for view in masters if (view.settings or {}).get("autoCreateTopicEnable") == "true"]
    lost = [
        view.name
        for view in masters
        if (view.settings or {}).get("flushDiskType") == "ASYNC_FLUSH" and not view.has_slaves
    ]
    findings: list[Finding] = []
    if created:
        text = f"{listed(created)}: a message to a misspelt topic creates the topic (autoCreateTopicEnable)"
        mend = "in production: set autoCreateTopicEnable=false in broker.conf, and create topics before"
        findings.append(Finding(severity=Severity.OK, check="settings", about=tuple(created), found=text, mend=mend))
    if lost:
        text = (
            f"{listed(lost)}: a machine that fails loses the last messages that it has accepted "
            "(flushDiskType=ASYNC_FLUSH, and no slave)"
        )
        mend = "if that must not be: set flushDiskType=SYNC_FLUSH in broker.conf, or add a slave"
        findings.append(Finding(severity=Severity.OK, check="settings", about=tuple(lost), found=text, mend=mend))
    return findings


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
