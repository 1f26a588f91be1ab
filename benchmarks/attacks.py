"""`python -m benchmarks.attacks`: latencies of a healthy client while another client attacks the broker.

::

    broker        `streamkit broker`, a process with a store of its own for each attack
    bystander     a process at 127.0.0.1 that sends and pulls every 10 ms
    attacker      a process at 127.0.0.2 and 127.0.0.3: prepares, waits, attacks

    quiet         QUIET_SECONDS after the attack is prepared
    under attack  from its begin until it is over, and SETTLING_SECONDS longer

Rates move with the load of the machine, so each attack is compared with the quiet time before it. Nothing leaves the
machine, and every attack ends by itself.
"""

import json
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from rich.console import Console

from benchmarks.attackers import ATTACKS
from benchmarks.brokers import bundled_broker_of
from benchmarks.bystander import TOPIC, Record
from benchmarks.process import resident_mib, resident_peak_mib

QUIET_SECONDS = 5.0
SETTLING_SECONDS = 6.0
"""The broker writes its offsets every 5 seconds: what an attack left in its tables shows by then."""
PREPARING_SECONDS = 300.0
GOAL = 5.0
"""Times that the latency may grow to: the p99 of sends under attack, divided by the quiet p99."""
_STEP = re.compile(r"all clients waited for (\d+) ms while (.*)")


@dataclass(frozen=True, slots=True)
class Latency:
    """Latencies of requests in milliseconds, from the moment at which each was due to its answer."""

    p50: float
    p99: float
    longest: float

    @classmethod
    def of(cls, times: list[tuple[float, float]], begin: float, end: float) -> "Latency":
        """Return the latencies of the requests that were due between two times."""
        found = [latency * 1000 for due, latency in times if begin <= due < end] or [0.0, 0.0]
        quantiles = statistics.quantiles(found, n=100, method="inclusive")
        return cls(quantiles[49], quantiles[98], max(found))

    def __str__(self) -> str:
        return f"{self.p50:.1f} / {self.p99:.1f} / {self.longest:,.0f}"


@dataclass(frozen=True, slots=True)
class Result:
    """The measurements of one attack.

    Attributes:
        name: Which one.
        what: What it is, in words.
        quiet_sends: The bystander's sends before it.
        sends: The bystander's sends under attack.
        quiet_pulls: The bystander's pulls before it.
        pulls: The bystander's pulls under attack.
        refused: Sends of the bystander that were refused.
        missing: Messages acknowledged to the bystander that are not in the store afterwards.
        longest_step_ms: The longest step that the broker's watchdog logged; 0: none over 50 ms.
        memory_before_mib: Resident memory of the broker before the attack.
        memory_peak_mib: The most it was.
        memory_after_mib: After the attack, with the attacker gone.
        stop_seconds: From SIGTERM to the end of the process.
        is_sound: Whether `streamkit store verify` found nothing wrong.
    """

    name: str
    what: str
    quiet_sends: Latency
    sends: Latency
    quiet_pulls: Latency
    pulls: Latency
    refused: int
    missing: int
    longest_step_ms: int
    memory_before_mib: float
    memory_peak_mib: float
    memory_after_mib: float
    stop_seconds: float
    is_sound: bool

    @property
    def ratio(self) -> float:
        """The p99 under attack divided by the p99 without an attack."""
        return self.sends.p99 / self.quiet_sends.p99


@click.command()
@click.option("--only", multiple=True, type=click.Choice(sorted(ATTACKS)), help="Only these attacks.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def main(*, only: tuple[str, ...], as_json: bool) -> None:
    """Attack a broker in all known ways, one after the other, and measure a healthy client's latencies."""
    console = Console(stderr=True)
    results = []
    for name in only or ATTACKS:
        with console.status(f"{name} ..."):
            result = measure(name)
        console.print(f"{name}: p99 {result.ratio:.1f} times that without an attack", style="dim")
        results.append(result)
    if as_json:
        print(json.dumps([asdict(result) | {"ratio": result.ratio} for result in results], indent=1))
    else:
        print(markdown(results))


def measure(name: str) -> Result:
    """Run one attack on a broker of its own."""
    home = Path(tempfile.mkdtemp(prefix="streamkit-attack-"))
    try:
        with ExitStack() as processes:
            log = processes.enter_context((home / "log").open("wb"))
            broker = processes.enter_context(bundled_broker_of(home / "store", log=log))
            attacker = _start(processes, "benchmarks.attackers", name, broker.address, broker.name_server)
            _await_line(attacker)
            bystander = _start(processes, "benchmarks.bystander", broker.address)
            time.sleep(1.0)
            before = resident_mib(broker.pid)
            quiet = time.monotonic(), time.monotonic() + QUIET_SECONDS
            time.sleep(QUIET_SECONDS)
            begin = time.monotonic()
            _send_line(attacker)
            _await_line(attacker)
            time.sleep(SETTLING_SECONDS)
            end = time.monotonic()
            _send_line(attacker)
            attacker.wait()
            time.sleep(1.0)
            record = _record(bystander)
            after, peak = resident_mib(broker.pid), resident_peak_mib(broker.pid)
            stopping = time.monotonic()
        stopped = time.monotonic() - stopping
        steps = _STEP.findall((home / "log").read_text(errors="replace"))
        return Result(
            name=name,
            what=(ATTACKS[name].__doc__ or name).strip(),
            quiet_sends=Latency.of(record.sends, *quiet),
            sends=Latency.of(record.sends, begin, end),
            quiet_pulls=Latency.of(record.pulls, *quiet),
            pulls=Latency.of(record.pulls, begin, end),
            refused=record.refused,
            missing=record.acknowledged - _stored(home / "store"),
            longest_step_ms=max((int(milliseconds) for milliseconds, _ in steps), default=0),
            memory_before_mib=before,
            memory_peak_mib=peak,
            memory_after_mib=after,
            stop_seconds=stopped,
            is_sound=_store_command("verify", home / "store").returncode == 0,
        )
    finally:
        shutil.rmtree(home, ignore_errors=True)


def markdown(results: list[Result]) -> str:
    """Return the figures as a table of the documentation."""
    columns = "attack", "sends, quiet", "sends under attack", "p99 grows", "memory before, peak, after"
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for r in results:
        cells = (
            r.what,
            r.quiet_sends,
            r.sends,
            f"{r.ratio:.1f} times" if r.ratio < GOAL else f"**{r.ratio:.1f} times**",
            f"{r.memory_before_mib:.0f}, {r.memory_peak_mib:.0f}, {r.memory_after_mib:.0f} MiB",
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    steps = ", ".join(f"{r.longest_step_ms} ms ({r.what})" for r in results if r.longest_step_ms) or "none"
    damaged = ", ".join(r.what for r in results if not r.is_sound) or "none"
    facts = (
        "Latencies in ms: p50 / p99 / longest",
        f"steps over 50 ms: {steps}",
        f"acknowledged messages that are missing: {sum(r.missing for r in results)}",
        f"sends refused: {sum(r.refused for r in results)}",
        f"damaged stores: {damaged}",
        f"longest stop: {max(r.stop_seconds for r in results):.1f} s",
        f"Python {platform.python_version()}",
    )
    return "\n".join([*lines, "", f"{'; '.join(facts)}."])


def _start(processes: ExitStack, module: str, *arguments: str) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    processes.callback(_end, process)
    return process


def _end(process: "subprocess.Popen[str]") -> None:
    if process.poll() is None:
        process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        assert stream is not None
        stream.close()


def _await_line(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    if not process.stdout.readline():
        raise click.ClickException(f"{process.args!r} ended with code {process.wait()}")


def _send_line(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def _record(bystander: "subprocess.Popen[str]") -> Record:
    _send_line(bystander)
    assert bystander.stdout is not None
    return Record(**json.loads(bystander.stdout.readline()))


def _stored(store: Path) -> int:
    """Return the number of the healthy client's messages in the store."""
    return len(_store_command("dump", store, "--topic", TOPIC).stdout.splitlines())


def _store_command(name: str, store: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "streamkit.cli", "store", name, str(store), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    main()
