"""Runs sequences of `BrokerMachine` for minutes, and keeps the shortest one of each broken promise.

::

    round       EXAMPLES sequences of STEPS rules from a seed of its own
    finding     the shortest sequence that hypothesis found for a broken promise; from then on a promise broken in
                the same way ends its sequence, and is counted
"""

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.reporting import with_reporter
from hypothesis.stateful import run_state_machine_as_test

from tests.state_campaign.broken import Broken
from tests.state_campaign.machine import BrokerMachine

__all__ = ["Finding", "StateCampaign", "StateReport"]

EXAMPLES = 25
STEPS = 60


@dataclass
class Finding:
    """A broken promise.

    Attributes:
        kind: Which one; see `Broken`.
        text: What was seen.
        seed: The seed of the round.
        sequence: The shortest sequence of rules that hypothesis found.
        times: How often the promise was broken, as far as it is known.
    """

    kind: str
    text: str
    seed: int
    sequence: str
    times: int = 1


@dataclass
class StateReport:
    """What happened.

    Attributes:
        seed: Of all random choices.
        seconds: How long it took.
        counts: Sequences, requests, kills, requests by name, answers by code.
        memory_mib: Resident memory at the end of each round.
        findings: The broken promises; empty, if all is well.
        slow_steps: Steps that kept all clients waiting for more than 50 ms, with milliseconds; empty, likewise.
    """

    seed: int
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    memory_mib: list[int] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    slow_steps: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> str:
        """Return the report as JSON."""
        return json.dumps(asdict(self), indent=1)


class StateCampaign:
    """Rounds until the time is up.

    Args:
        first_seed: The seed of the first round; each further round has the next number.
        progress: Called with a line of text at the end of each round.
    """

    def __init__(self, first_seed: int, progress: Callable[[str], None] = lambda line: None) -> None:
        self.report = StateReport(first_seed)
        self._progress = progress

    def run(self, seconds: float) -> StateReport:
        """Run rounds for so many seconds; the last one is run to its end."""
        report, began, number = self.report, time.monotonic(), 0
        BrokerMachine.counts.clear()
        BrokerMachine.tolerated.clear()
        BrokerMachine.slow_steps.clear()
        while time.monotonic() < began + seconds:
            self._round(report.seed + number)
            number += 1
            report.memory_mib.append(_resident_mib())
            report.seconds = time.monotonic() - began
            report.counts = Counter(BrokerMachine.counts)
            report.slow_steps = dict(BrokerMachine.slow_steps)
            for finding in report.findings:
                finding.times = 1 + report.counts[f"tolerated: {finding.kind}"]
            self._progress(
                f"{report.seconds / 60:5.1f} min, round {number}: {report.counts['examples']:,} sequences, "
                f"{report.counts['requests']:,} requests, {len(report.findings)} findings, "
                f"{len(report.slow_steps)} slow steps, {report.memory_mib[-1]} MiB"
            )
        return report

    def _round(self, of: int) -> None:
        machine = seed(of)(type("BrokerMachine", (BrokerMachine,), {}))
        lines: list[str] = []
        try:
            with with_reporter(lines.append):
                run_state_machine_as_test(
                    machine,
                    settings=settings(
                        max_examples=EXAMPLES,
                        stateful_step_count=STEPS,
                        deadline=None,
                        database=None,
                        phases=(Phase.generate, Phase.shrink),
                        suppress_health_check=list(HealthCheck),
                        verbosity=Verbosity.normal,
                        report_multiple_bugs=False,
                    ),
                )
        except Exception as error:  # whatever it is: it is reported, and the next round begins
            self._note(error, of, lines)

    def _note(self, error: Exception, of: int, lines: list[str]) -> None:
        broken = _broken(error)
        kind = broken.kind if broken is not None else f"{type(error).__name__}"
        sequence = "\n".join([*lines, *getattr(error, "__notes__", [])])
        self.report.findings.append(Finding(kind, str(broken or error), of, sequence))
        BrokerMachine.tolerated.add(kind)
        self._progress(f"FOUND {kind} (seed {of}, {type(error).__name__}): {broken or error}\n{sequence}")


def _broken(error: BaseException) -> Broken | None:
    """Return the broken promise in an error of hypothesis; None if there is none."""
    if isinstance(error, Broken):
        return error
    inner = getattr(error, "exceptions", ())
    causes = [cause for cause in (*inner, error.__cause__, error.__context__) if cause is not None]
    return next((found for cause in causes if (found := _broken(cause)) is not None), None)


def _resident_mib() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) // 1024
    return 0
