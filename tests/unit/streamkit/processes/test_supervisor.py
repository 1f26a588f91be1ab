"""Processes that start, fail and end, and how their supervisor reacts."""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from streamkit.processes.supervised_process import SupervisedProcess
from streamkit.processes.supervisor import Plan, Supervisor

# Each life takes the first word of a file: `start`, `wait` for the end, and exit codes, joined by `+`.
PROGRAM = """
import os, pathlib, signal, socket, sys
lives = pathlib.Path(sys.argv[1])
life, _, rest = lives.read_text().partition(" ")
left = lives.with_name(lives.name + ".left")
left.write_text(rest)
os.replace(left, lives)  # in one step, since a signal may end it at any time
line = socket.socket(fileno=int(os.environ["STREAMKIT_SUPERVISOR_LINE"]))
for step in life.split("+"):
    if step == "start":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        line.sendall(b"started\\n")
    elif step == "wait":
        line.recv(1)
    elif step == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    else:
        sys.exit(int(step))
"""


def command(lives: Path) -> Sequence[str]:
    """Return Python's arguments for a worker with this behaviour."""
    return "-S", "-c", PROGRAM, str(lives)


def supervised(directory: Path, *workers: str) -> tuple[int, list[str]]:
    """Return the supervisor's exit code and each worker's remaining runs."""
    files = [directory / f"worker-{number}" for number in range(len(workers))]
    for file, lives in zip(files, workers, strict=True):
        file.write_text(lives)

    plan = Plan(lambda: {file.name: command(file) for file in files}, ValueError)

    async def main() -> int:
        return await Supervisor(plan).run()

    return asyncio.run(main()), [file.read_text() for file in files]


def test_worker_that_exits_normally_is_not_restarted(tmp_path: Path) -> None:
    """When none is left, the supervisor exits normally too."""
    assert supervised(tmp_path, "start+0 start+1", "start+0 start+1") == (0, ["start+1", "start+1"])


def test_failed_worker_is_restarted(tmp_path: Path) -> None:
    """After a pause, whatever the cause, if it had started; the exit code of its last run counts."""
    began = time.monotonic()
    assert supervised(tmp_path, "start+7 start+0 start+1", "start+kill start+0") == (0, ["start+1", ""])
    assert time.monotonic() - began >= 0.5


def test_worker_that_fails_to_start_ends_all(tmp_path: Path) -> None:
    """With its exit code; the others are stopped and not restarted."""
    code, (first, second) = supervised(tmp_path, "start+wait start+9", "3 start+0")
    assert (code, second) == (3, "start+0")
    assert first in {"start+9", "start+wait start+9"}  # asked to stop before it had begun


def test_stop_during_a_restart_is_no_failure_of_the_worker(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The signal ends the worker before its application has started; nothing says that the new settings are wrong."""
    lives = tmp_path / "lives"
    lives.write_text("start+wait wait")
    supervisor = Supervisor(Plan(lambda: {"Worker 0": command(lives)}, ValueError))

    caplog.set_level(logging.INFO)

    async def main() -> int:
        running = asyncio.create_task(supervisor.run())
        await asyncio.to_thread(_wait_until, lambda: "Worker 0 has started" in caplog.text)
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.to_thread(_wait_until, lambda: not lives.read_text())
        os.kill(os.getpid(), signal.SIGINT)
        return await running

    assert asyncio.run(main()) == 0
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


def _wait_until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.01)


def test_pauses_grow_with_consecutive_failures(tmp_path: Path) -> None:
    """Up to half a minute; a run that ended normally resets them."""
    lives = tmp_path / "lives"
    lives.write_text("3 start+kill 4 0 5")
    worker = SupervisedProcess("Worker 0", command(lives))

    async def main() -> None:
        reported = []
        for _ in range(5):
            reported.append((await worker.run(), worker.has_started, worker.was_up, worker.failures, worker.pause))
        assert reported == [
            (3, False, False, 1, 0.5),
            (137, True, True, 2, 1.0),
            (4, False, True, 3, 2.0),
            (0, False, True, 0, 0.25),
            (5, False, True, 1, 0.5),
        ]

    asyncio.run(main())
    worker.failures = 30
    assert worker.pause == 30


@pytest.mark.parametrize("life", ["wait", "start+wait"])
def test_stopped_worker_counts_as_a_normal_exit(tmp_path: Path, life: str) -> None:
    """Also if the signal kills it before its handler is installed."""
    lives = tmp_path / "lives"
    lives.write_text(life)
    worker = SupervisedProcess("Worker 0", command(lives))

    async def main() -> None:
        living = asyncio.create_task(worker.run())
        await (worker.tried.wait() if "start" in life else asyncio.sleep(0))
        worker.end()
        assert await living == 0
        assert worker.failures == 0

    asyncio.run(main())
