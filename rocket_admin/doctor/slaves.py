"""Do slaves have what their masters have, and do masters that wait for a slave have one?"""

from collections.abc import Sequence
from typing import Final

from rocket_admin.doctor.brokers import BrokerView
from streamkit.findings import Finding, Severity

__all__ = ["check_slaves"]

FAR_BEHIND: Final = 256 * 1024 * 1024
"""Bytes by which a slave may be behind, unless the master's haSlaveFallbehindMax says otherwise."""


def check_slaves(views: Sequence[BrokerView]) -> list[Finding]:
    """Return slaves that are far behind, and SYNC_MASTERs without a slave; nothing if there is no replication."""
    findings: list[Finding] = []
    behind: list[int] = []
    for master in (view for view in views if view.is_master):
        settings = master.settings or {}
        waits = settings.get("brokerRole") == "SYNC_MASTER"
        slaves = [view for view in views if view.name == master.name and not view.is_master]
        if waits and not master.has_slaves:
            findings.append(
                Finding(
                    severity=Severity.ERROR,
                    check="slaves",
                    about=(master.name,),
                    found=f"broker {master} is a SYNC_MASTER and has no slave: senders are told SLAVE_NOT_AVAILABLE",
                    mend=f"start a broker with brokerName={master.name}, brokerRole=SLAVE and a brokerId above 0",
                )
            )
        far = int(settings.get("haSlaveFallbehindMax") or FAR_BEHIND)
        for slave in slaves:
            bytes_behind = _behind(master, slave)
            if bytes_behind is None:
                continue
            behind.append(bytes_behind)
            if bytes_behind > far:
                findings.append(_far(slave, bytes_behind, waits=waits))
    if behind and not findings:
        text = f"the slave that is farthest behind lacks {max(behind):,} bytes of its master's log"
        findings.append(Finding(severity=Severity.OK, check="slaves", found=text))
    return findings


def _far(slave: BrokerView, bytes_behind: int, *, waits: bool) -> Finding:
    promised = "its master does not wait for it" if waits else "they are lost if its master is"
    return Finding(
        severity=Severity.ERROR if waits else Severity.WARNING,
        check="slaves",
        about=(str(slave),),
        found=f"slave {slave} lacks {bytes_behind:,} bytes of its master's log: {promised}",
        mend="look for the reason in the logs of both; a slave whose log is not the master's must lose its store",
    )


def _behind(master: BrokerView, slave: BrokerView) -> int | None:
    """Return the bytes that a slave lacks; None if one of the two does not report the end of its log."""
    ends = [(view.info or {}).get("commitLogMaxOffset", "") for view in (master, slave)]
    return max(0, int(ends[0]) - int(ends[1])) if all(end.isdecimal() for end in ends) else None
