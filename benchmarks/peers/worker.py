"""A child process that does what it is told by lines of JSON on its standard input, and answers each by a line."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from benchmarks.peers.environment import other_python
from tests.peer.artifacts import class_path
from tests.peer.jvm import OPTIMIZING, java_options

__all__ = ["Worker", "java_worker", "python_worker"]

ROOT = Path(__file__).parents[2]
_TAIL = 3000


class Worker:
    """A running child process.

    Attributes:
        pid: Its process id.
    """

    def __init__(self, process: "subprocess.Popen[str]", log: IO[str]) -> None:
        """Take over a process that answers on pipes, and logs to a file."""
        self._process, self._log = process, log
        self.pid = process.pid

    def read(self) -> dict[str, Any]:
        """Return what the process prints next.

        Raises:
            RuntimeError: It ended.
        """
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        self._log.seek(0)
        raise RuntimeError(f"{self._process.args!r} ended:\n{self._log.read()[-_TAIL:]}")

    def begin(self, task: str, **fields: object) -> None:
        """Send a command, whose answer `read` returns."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": task, **fields}) + "\n")
        self._process.stdin.flush()

    def do(self, task: str, **fields: object) -> dict[str, Any]:
        """Send a command and return its answer."""
        self.begin(task, **fields)
        return self.read()


@contextmanager
def python_worker(module: str, *arguments: str, own: bool) -> Iterator[Worker]:
    """Run a module of this package, with this interpreter (``own``) or the one that has the other systems' packages."""
    python = sys.executable if own else other_python()
    with _worker([python, "-m", f"benchmarks.peers.{module}", *arguments], ROOT) as worker:
        yield worker


@contextmanager
def java_worker(version: str, address: str) -> Iterator[Worker]:
    """Run Apache's Java client of a version on a name server."""
    home = Path(tempfile.mkdtemp(prefix="java-bench-"))
    source = Path(__file__).parent / "clients" / "JavaClient.java"
    command = ["java", *java_options(home, "512m", OPTIMIZING), "-cp", class_path(version), str(source), address]
    try:
        with _worker(command, home) as worker:
            yield worker
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def _worker(command: Sequence[str], directory: Path) -> Iterator[Worker]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=directory,
            env=environment,
        ) as process,
    ):
        try:
            worker = Worker(process, log)
            worker.read()
            yield worker
        finally:
            process.kill()
