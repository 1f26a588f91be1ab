"""Do brokers still accept transactions? Open ones count until they end, which may take days without a producer."""

from collections.abc import Mapping, Sequence
from typing import Final

from rocket_admin.doctor.brokers import BrokerView
from streamkit.findings import Finding, Severity

__all__ = ["check_transactions"]

NEARLY_FULL: Final = 0.8
"""Share of the open transactions of one owner from which on there is a warning: they may all be of one."""

_MEND: Final = (
    "start the producers of their groups, which answer the broker's checks; without producers they end after "
    "transactionProducerWaitHours"
)


def check_transactions(views: Sequence[BrokerView]) -> list[Finding]:
    """Return brokers that refuse transactions because too many are open, or soon may; nothing for Apache's."""
    findings: list[Finding] = []
    known: list[int] = []
    for view in views:
        info = view.info or {}
        pending, most = _number(info, "transactionsPending"), _number(info, "transactionsPendingMax")
        of_one = _number(info, "transactionsOfOneOwnerMax")
        if not view.is_master or pending is None or most is None or of_one is None:
            continue
        known.append(pending)
        severity, refused = Severity.ERROR, info.get("transactionsRefusedTo")
        if pending >= most:
            fate = "which is the limit: further ones are refused"
        elif refused:
            fate = f"{of_one:,} of each of these, whose further ones are refused: {refused}"
        elif pending >= NEARLY_FULL * of_one:
            severity, fate = Severity.WARNING, f"a group or address that has {of_one:,} is refused further ones"
        else:
            continue
        text = f"{pending:,} transactions are open at broker {view}, {fate}"
        findings.append(Finding(severity=severity, check="transactions", about=(str(view),), found=text, mend=_MEND))
    if known and not findings:
        text = f"the broker with most open transactions has {max(known):,}"
        findings.append(Finding(severity=Severity.OK, check="transactions", found=text))
    return findings


def _number(info: Mapping[str, str], name: str) -> int | None:
    text = info.get(name, "")
    return int(text) if text.isdecimal() else None
