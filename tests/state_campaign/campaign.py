"""Runs sequences of `BrokerMachine` for minutes, and keeps the shortest one of each broken promise.

::

    round       SEQUENCES sequences of STEPS rules from a seed of its own
    finding     a sequence that broke a promise, without the rules that are not needed for that; from then on a promise
                broken in the same way ends its sequence, and is counted
"""

import json
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import ClassVar

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.state_campaign.broken import Broken
from tests.state_campaign.conversation import Step
from tests.state_campaign.machine import BrokerMachine
from tests.state_campaign.shortest import shortest

__all__ = ["Finding", "StateCampaign", "StateReport"]

SEQUENCES = 25
STEPS = 60


@dataclass
class Finding:
    """A broken promise.

    Attributes:
        kind: Which one; see `Broken`.
        text: What was seen.
        seed: The seed of the round.
        sequence: The shortest sequence of rules that was found to break it.
        times: How often the promise was broken.
    """

    kind: str
    text: str
    seed: int
    sequence: str
    times: int = 1

    def __str__(self) -> str:
        return f"{self.text}\n(seed {self.seed}, {self.times} times)\n{self.sequence}"


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
    counts: dict[str, int] = field(default_factory=dict)
    memory_mib: list[int] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    slow_steps: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> str:
        """Return the report as JSON."""
        return json.dumps(asdict(self), indent=1)


class StateCampaign:
    """Rounds of random sequences.

    Args:
        first_seed: The seed of the first round; each further round has the next number.
        sequences: Sequences in a round.
        steps: Most rules in a sequence.
        progress: Called with a text at the end of each round, and at each finding.

    Attributes:
        report: What happened until now.
    """

    def __init__(
        self,
        first_seed: int,
        *,
        sequences: int = SEQUENCES,
        steps: int = STEPS,
        progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.report = StateReport(first_seed)
        self._sequences = sequences
        self._steps = steps
        self._progress = progress
        self._began = time.monotonic()
        BrokerMachine.counts.clear()
        BrokerMachine.tolerated.clear()
        BrokerMachine.slow_steps.clear()

    def run(self, seconds: float) -> StateReport:
        """Run rounds for so many seconds; the last one is run to its end."""
        while time.monotonic() < self._began + seconds:
            self.run_round()
        return self.report

    def run_round(self) -> StateReport:
        """Run the next round."""
        report = self.report
        of = report.seed + len(report.memory_mib)
        machine = seed(of)(type("BrokerMachine", (BrokerMachine,), {}))
        try:
            run_state_machine_as_test(machine, settings=self._settings())
        except Exception as error:  # whatever it is: it is reported, and the next round begins
            self._note(error, of)
        report.memory_mib.append(_resident_mib())
        report.seconds = time.monotonic() - self._began
        report.counts = dict(BrokerMachine.counts)
        report.slow_steps = dict(BrokerMachine.slow_steps)
        for finding in report.findings:
            finding.times = 1 + report.counts.get(f"tolerated: {finding.kind}", 0)
        self._progress(
            f"{report.seconds / 60:5.1f} min, seed {of}: {report.counts['sequences']:,} sequences, "
            f"{report.counts['requests']:,} requests, {len(report.findings)} findings, "
            f"{len(report.slow_steps)} slow steps, {report.memory_mib[-1]} MiB"
        )
        return report

    def _settings(self) -> settings:
        return settings(
            max_examples=self._sequences,
            stateful_step_count=self._steps,
            deadline=None,
            database=None,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
        )

    def _note(self, error: Exception, of: int) -> None:
        broken = _broken(error)
        if broken is None:
            text = "".join(traceback.format_exception(error))
            finding = Finding(type(error).__name__, text, of, "")
        else:
            steps = shortest(broken.steps, lambda part: _breaks(broken.kind, broken.flush, part))
            lines = [f"start(flush={broken.flush!r})"]
            lines += [
                f"{name}({', '.join(f'{key}={value!r}' for key, value in values.items())})" for name, values in steps
            ]
            finding = Finding(broken.kind, str(broken), of, "\n".join(lines))
        BrokerMachine.tolerated.add(finding.kind)
        self.report.findings.append(finding)
        self._progress(f"FOUND {finding}")


class _Replay(BrokerMachine):
    """A sequence once more: nothing is tolerated, and nothing is counted in the report."""

    tolerated: ClassVar[set[str]] = set()
    counts: ClassVar[Counter[str]] = Counter()
    slow_steps: ClassVar[dict[str, int]] = {}


def _breaks(kind: str, flush: str, steps: Sequence[Step]) -> bool:
    """Whether a broker breaks a promise in a sequence, or when the clients leave and the broker stops after it."""
    machine = _Replay()
    try:
        try:
            machine.start(flush)
            for name, values in steps:
                getattr(machine, name)(**values)
        finally:
            machine.teardown()
    except Broken as broken:
        return broken.kind == kind
    except Exception:  # whatever else goes wrong in a part of the sequence
        return False
    return False


def _broken(error: BaseException) -> Broken | None:
    """Return the broken promise in an error of hypothesis; None if there is none."""
    if isinstance(error, Broken):
        return error
    inner = getattr(error, "exceptions", ())
    return next((found for cause in inner if (found := _broken(cause)) is not None), None)


def _resident_mib() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) // 1024
    return 0
