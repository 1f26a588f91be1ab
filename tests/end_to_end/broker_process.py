"""``streamkit broker`` and ``streamkit namesrv`` as separate processes."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

_PROGRAM = "from tests import step_clock; step_clock.install(); from rocket_broker.process.cli import {0}; {0}()"

_NOT_INHERITED = ("NAMESRV_ADDR", "ROCKETMQ_HOME")
"""Variables that the servers would take for settings."""

START_SECONDS = 110.0
STOP_SECONDS = 90.0

PATIENT = {"brokerFastFailureEnable": "false"}
"""For brokers with a settings file. Tests run beside each other on few processors, so what is sent may well wait for
longer than 0.2 s until the broker comes to it: not to be refused for that, where a test is not about it."""

_BROKER = re.compile(r"The broker\[(?P<name>[^,]+), (?P<address>[^\]]+)\] boot success")
_NAME_SERVER = re.compile(r"The Name Server boot success.*address (?P<address>\S+)")


class ServerProcess:
    """A server process, whose output is read by threads so that no full pipe blocks it.

    Attributes:
        command: ``broker`` or ``namesrv``.
        output: What it wrote to standard output, line by line.
        log: What it wrote to standard error.
    """

    def __init__(self, command: str, *arguments: str, cwd: Path) -> None:
        self.command = command
        self.output: list[str] = []
        self.log: list[str] = []
        environment = {key: value for key, value in os.environ.items() if key not in _NOT_INHERITED}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM.format(command), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
            env=environment | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        )
        self._changed = threading.Condition()
        self._readers = [
            threading.Thread(target=self._read, args=(stream, lines), daemon=True)
            for stream, lines in ((self._process.stdout, self.output), (self._process.stderr, self.log))
        ]
        for reader in self._readers:
            reader.start()

    @property
    def process_id(self) -> int:
        """Return the process's id."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def address(self) -> str:
        """Wait until it serves; return its address."""
        pattern = _BROKER if self.command == "broker" else _NAME_SERVER
        with self._changed:
            self._changed.wait_for(lambda: self._match(pattern) or not self._is_reading(), START_SECONDS)
        match = self._match(pattern)
        assert match is not None, f"{self.command} did not start:\n" + "".join(self.output + self.log)
        return match["address"]

    def cluster(self) -> dict[str, Any]:
        """Wait until all brokers of ``--processes`` serve; return what ``--json`` prints."""
        with self._changed:
            self._changed.wait_for(lambda: self.output or not self._is_reading(), START_SECONDS)
        assert self.output, "the brokers did not start:\n" + "".join(self.log)
        printed: dict[str, Any] = json.loads(self.output[0])
        return printed

    def wait_for_output(self, text: str) -> str:
        """Wait until a line of the output has the text; return the line."""
        with self._changed:
            self._changed.wait_for(lambda: self._line(text) is not None or not self._is_reading(), START_SECONDS)
        line = self._line(text)
        assert line is not None, "".join(self.output + self.log)
        return line

    def wait_for_log(self, text: str, times: int = 1) -> None:
        """Wait until so many lines of the log have the text."""
        with self._changed:
            assert self._changed.wait_for(lambda: sum(text in line for line in self.log) >= times, START_SECONDS), (
                "".join(self.log)
            )

    def signal(self, number: signal.Signals) -> int:
        """Send the signal, wait for the end and return the exit code."""
        self._process.send_signal(number)
        return self.wait()

    def pause(self) -> None:
        """Stop it as SIGSTOP does: its connections stay, and nothing is read."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue the process, which `pause` has stopped, with SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def wait(self) -> int:
        """Wait for the end and return the exit code; everything it wrote is in `output` and `log` then."""
        code = self._process.wait(STOP_SECONDS)
        for reader in self._readers:
            reader.join()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        return code

    def end(self) -> None:
        """Kill it if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
        self.wait()

    def _line(self, text: str) -> str | None:
        return next((line for line in self.output if text in line), None)

    def _is_reading(self) -> bool:
        return any(reader.is_alive() for reader in self._readers)

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        return next((match for line in self.output if (match := pattern.search(line))), None)

    def _read(self, stream: "Iterator[str] | None", lines: list[str]) -> None:
        assert stream is not None
        for line in stream:
            with self._changed:
                lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()


@contextmanager
def running(command: str, *arguments: str, cwd: Path) -> Iterator[ServerProcess]:
    """Start a process and kill it at the end if it still runs. Fail if a step of it took over 50 ms."""
    process = ServerProcess(command, *arguments, cwd=cwd)
    try:
        yield process
    finally:
        process.end()
    assert not [line for line in process.log if "all clients waited for" in line]
