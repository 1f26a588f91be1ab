"""What a check of a messaging system, or of an application's settings, found.

`streamkit doctor` shows findings. Its checks of RocketMQ are in `rocket_admin`; those of other systems are in binders
(:meth:`streamkit.binder.binder.Binder.examine`). This module imports nothing of the framework, because
`rocket_admin.doctor` imports nothing else of it.
"""

from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import Final

import msgspec

__all__ = ["Finding", "Severity", "exit_status", "falls_behind", "listed", "worst_first"]

NAMES_SHOWN: Final = 5

BEHIND_SECONDS: Final = 10
"""A backlog larger than the arrivals of this many seconds is a lag: clients commit every five seconds, so a smaller one
may only be the delay of their commits."""


class Severity(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    """Nothing is wrong; with something to do, a hint."""
    UNKNOWN = "unknown"
    """A server or a member does not tell; whether something is wrong is not known."""
    WARNING = "warning"
    """Something is wrong, or soon will be."""
    ERROR = "error"
    """Messages cannot be sent or consumed, or get lost."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What a check found.

    Attributes:
        severity: `ok`, `unknown`, `warning` or `error`.
        check: The check, such as `disk`.
        about: The names of the brokers, topics, groups, bindings or settings that it is about; empty for all.
        found: What was found, in a sentence.
        mend: The command or the setting that mends it; absent if there is nothing to do.
    """

    severity: Severity
    check: str
    about: tuple[str, ...] = ()
    found: str
    mend: str | None = None


def falls_behind(first: int, second: int, *, arrived: int, seconds: float) -> bool:
    """Return whether a group falls behind, by two measurements of its lag.

    Commits lag behind the work, so the lag of a healthy group goes up and down. A group falls behind if it had a lag
    before, and either consumed less than half of what arrived, or has a backlog of more than `BEHIND_SECONDS` of
    arrivals, and that grew.

    Args:
        first: The lag at first, in messages.
        second: The lag later.
        arrived: The messages that arrived between.
        seconds: The time between.
    """
    growth = second - first
    return first > 0 and growth > 0 and (growth * 2 >= arrived or second * seconds > arrived * BEHIND_SECONDS)


def exit_status(findings: Iterable[Finding]) -> int:
    """Return 2 if there is an error, else 1 if there is a warning, else 0."""
    severities = {finding.severity for finding in findings}
    return 2 if Severity.ERROR in severities else 1 if Severity.WARNING in severities else 0


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings sorted by severity, the errors first; equally bad ones stay in their order."""
    order = list(reversed(Severity))
    return sorted(findings, key=lambda finding: order.index(finding.severity))


def listed(names: Collection[str]) -> str:
    """Return names for a sentence, sorted; of many only the first."""
    shown = sorted(names)[:NAMES_SHOWN]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more else "")
