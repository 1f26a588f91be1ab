"""A process under a supervisor, on the supervisor's side: its socket, and its runs.

It has one name and one process of the operating system after the other::

    run() ── process starts ── STARTED on the socket ── process ends ── wait_before_restart() ── run() …
                                                            ▲
                     end(), renew(): SIGTERM ───────────────┘
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Sequence
from typing import Final

from streamkit.processes.supervisor_line import PROGRESS, SOCKET_VARIABLE, STARTED
from streamkit.service_manager import NOTIFY_SOCKET, notify_progress

__all__ = ["SupervisedProcess"]

logger = logging.getLogger(__name__)

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
STEADY_SECONDS: Final = 60.0
"""The seconds of life after which a failure counts as the first in a row again."""


class SupervisedProcess:
    """The successive processes with one name.

    Attributes:
        name: The name in the log, such as ``Worker 0``.
        has_started: Whether the present or last process has reported that it has started.
        was_up: Whether any process has.
        report: The text with which the present or last process reported that.
        tried: Set when a process has reported that, or has ended, for the first time.
        failures: The number of processes in a row that ended with an error.
    """

    def __init__(self, name: str, command: Sequence[str]) -> None:
        """Create it without starting a process.

        Args:
            name: The name in the log.
            command: The arguments to Python.
        """
        self.name = name
        self.report = ""
        self.has_started = False
        self.was_up = False
        self.tried = asyncio.Event()
        self.failures = 0
        self._command = command
        self._process: Process | None = None
        self._is_ending = False
        self._awake = asyncio.Event()
        self._renewal: asyncio.Future[bool] | None = None

    async def run(self) -> int:
        """Run a process to its end; return its exit code in a shell's form, 128 plus the number of a signal."""
        ours, theirs = socket.socketpair()
        self.has_started = self._is_ending = False
        self._awake.clear()
        # Taken over by this run: a `renew` during the run makes a new future, which the next run resolves.
        renewal, self._renewal = self._renewal, None
        born = asyncio.get_running_loop().time()
        with ours, theirs:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *self._command,
                env=self._environment(theirs),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
            theirs.close()
            if self._is_ending:  # end() was called while the process was being created
                self.end()
            ours.setblocking(False)
            listening = asyncio.create_task(self._hear(ours, renewal))
            try:
                code = await self._process.wait()
            finally:
                listening.cancel()
        lived = asyncio.get_running_loop().time() - born
        self._process = None
        self._settle(renewal)
        if code == -signal.SIGTERM and self._is_ending and not self.has_started:
            code = 0  # SIGTERM came before the process had installed its handler
        self.failures = 0 if code == 0 else 1 if lived > STEADY_SECONDS else self.failures + 1
        return code if code >= 0 else 128 - code

    async def keep(self, stopping: asyncio.Event) -> int:
        """Run the process, and run it again after failures and restarts, until it ends for good; return its exit code.

        It ends for good with exit code 0, when `stopping` is set, or with an error before any process has started.

        Args:
            stopping: Set before :meth:`end` is called for good.
        """
        while not stopping.is_set():
            code = await self.run()
            # Before the exit code is judged: a process that ends for its restart has code 0, as one that ends for
            # good.
            if self.is_renewed and not stopping.is_set():
                if code:
                    logger.warning("%s ended with exit code %d for its restart", self.name, code)
                continue
            if stopping.is_set() or code == 0:
                return code
            # One that started once is tried again even if a later process cannot start, for instance because the broker
            # of an application is away.
            if not self.was_up:
                logger.error("%s could not start (exit code %d): stopping", self.name, code)
                return code
            logger.error("%s ended with exit code %d: starting it again in %g s", self.name, code, self.pause)
            await self.wait_before_restart()
        return 0

    @staticmethod
    def _environment(line: socket.socket) -> dict[str, str]:
        """Return the environment of the process: with the socket, but without the supervisor's systemd socket."""
        environment = {**os.environ, SOCKET_VARIABLE: str(line.fileno())}
        environment.pop(NOTIFY_SOCKET, None)
        return environment

    async def _hear(self, line: socket.socket, renewal: asyncio.Future[bool] | None) -> None:
        loop, received = asyncio.get_running_loop(), b""
        while data := await loop.sock_recv(line, 1024):
            *lines, received = (received + data).split(b"\n")
            for text in lines:
                word, _, report = text.decode().partition(" ")
                if word == PROGRESS:
                    notify_progress()
                elif word == STARTED:
                    self.has_started = self.was_up = True
                    self.report = report
                    logger.info("%s has started", self.name)
                    self._settle(renewal)

    def _settle(self, renewal: asyncio.Future[bool] | None) -> None:
        self.tried.set()
        if renewal is not None and not renewal.done():
            renewal.set_result(self.has_started)

    def renew(self, command: Sequence[str]) -> asyncio.Future[bool]:
        """Ask the process to end, and have the next one run another command.

        Args:
            command: The arguments to Python for the next process.

        Returns:
            A future that is resolved when the next process has reported that it has started, or has ended: whether it
            has started.
        """
        self._command = command
        self._renewal = asyncio.get_running_loop().create_future()
        self.end()
        return self._renewal

    @property
    def pid(self) -> int | None:
        """The id of the present process; None between two processes."""
        return None if self._process is None else self._process.pid

    @property
    def is_renewed(self) -> bool:
        """Whether a restart was requested that :meth:`run` has not begun yet."""
        return self._renewal is not None

    def end(self) -> None:
        """Ask the process to end with SIGTERM, as soon as it exists."""
        self._is_ending = True
        self._awake.set()
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process."""
        self._send(signal.SIGKILL)

    def wait_for_its_end(self, until: float) -> None:
        """Block until the process has ended, or ``time.monotonic()`` reaches ``until``; this does not need the loop."""
        process = self._process
        while process is not None and process.returncode is None and time.monotonic() < until:
            with contextlib.suppress(ChildProcessError):  # the loop's child watcher has reaped the process
                if os.waitpid(process.pid, os.WNOHANG) == (0, 0):
                    time.sleep(0.005)
                    continue
            return

    def _send(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    @property
    def pause(self) -> float:
        """The seconds to wait before the next process: doubled with each failure in a row."""
        return min(FIRST_PAUSE * 2.0 ** (self.failures - 1), LONGEST_PAUSE)

    async def wait_before_restart(self) -> None:
        """Wait for the pause, or until :meth:`end` or :meth:`renew` is called."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.pause):
                await self._awake.wait()
