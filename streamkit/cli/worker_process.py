"""The supervisor's side of a worker: the process, its line, and its lives one after the other."""

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

from service_manager import NOTIFY_SOCKET
from streamkit.cli.worker import LINE, STARTED

__all__ = ["WorkerProcess"]

logger = logging.getLogger(__name__)

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
STEADY: Final = 60.0
"""Seconds after which a worker's failure is no longer in a row with the one before."""


class WorkerProcess:
    """One worker, through all its lives.

    Attributes:
        number: Its number.
        has_started: Whether its present or last life has begun to work.
        was_up: Whether any of its lives has.
        tried: Set when its first life has started or ended.
        failures: How many lives in a row ended with an error.
    """

    def __init__(self, number: int, command: Sequence[str]) -> None:
        self.number = number
        self.has_started = False
        self.was_up = False
        self.tried = asyncio.Event()
        self.failures = 0
        self._command = command
        self._process: Process | None = None
        self._is_ending = False
        self._awake = asyncio.Event()
        self._renewal: asyncio.Future[bool] | None = None

    async def live(self) -> int:
        """Run the process to its end; return its exit code, as a shell would tell it."""
        ours, theirs = socket.socketpair()
        self.has_started = self._is_ending = False
        self._awake.clear()
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
            if self._is_ending:  # asked while the process was being made
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
            code = 0  # asked to end before it could hear
        self.failures = 0 if code == 0 else 1 if lived > STEADY else self.failures + 1
        return code if code >= 0 else 128 - code

    @staticmethod
    def _environment(line: socket.socket) -> dict[str, str]:
        """What the process finds: its line, and nothing to tell systemd by, which watches the supervisor."""
        environment = {**os.environ, LINE: str(line.fileno())}
        environment.pop(NOTIFY_SOCKET, None)
        return environment

    async def _hear(self, line: socket.socket, renewal: asyncio.Future[bool] | None) -> None:
        if await asyncio.get_running_loop().sock_recv(line, len(STARTED)):
            self.has_started = self.was_up = True
            logger.info("Worker %d has started", self.number)
            self._settle(renewal)

    def _settle(self, renewal: asyncio.Future[bool] | None) -> None:
        self.tried.set()
        if renewal is not None and not renewal.done():
            renewal.set_result(self.has_started)

    def renew(self, command: Sequence[str]) -> asyncio.Future[bool]:
        """Ask the process to end and to live again, with another command.

        Returns:
            Whether that next life has started, once it has or has ended.
        """
        self._command = command
        self._renewal = asyncio.get_running_loop().create_future()
        self.end()
        return self._renewal

    @property
    def is_renewed(self) -> bool:
        """Whether its next life is asked for."""
        return self._renewal is not None

    def end(self) -> None:
        """Ask the process to end, now or as soon as it is there."""
        self._is_ending = True
        self._awake.set()
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End the process at once."""
        self._send(signal.SIGKILL)

    def wait_for_its_end(self, until: float) -> None:
        """Block until the process has ended, or ``time.monotonic()`` is ``until``; the loop need not run."""
        process = self._process
        while process is not None and process.returncode is None and time.monotonic() < until:
            with contextlib.suppress(ChildProcessError):  # the loop's own watcher was first
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
        """Seconds before its next life."""
        return min(FIRST_PAUSE * 2.0 ** (self.failures - 1), LONGEST_PAUSE)

    async def rest(self) -> None:
        """Wait for the pause to pass, or for somebody to ask something of it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.pause):
                await self._awake.wait()
