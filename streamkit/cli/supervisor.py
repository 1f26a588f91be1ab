"""The supervisor of `streamkit run --workers N` and `--reload`: starts, watches, restarts and stops worker processes.

::

    supervisor ──┬── worker 0    whole applications, each with its instance index; each in a session of its own, so
                 ├── worker 1    that Ctrl-C reaches only the supervisor, which passes it on once
                 └── embedded broker, if one is to be there: in the supervisor, so that it outlives any worker

A worker that ends with an error is started again after a pause that grows with each failure in a row. One that never
started is a mistake in the application or its settings: everything stops, with its exit code. A worker that ends well
is not started again; when none is left the supervisor ends too. On the first signal every worker is asked to stop; the
second one ends everything at once.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from streamkit.cli.worker import LINE, STARTED
from streamkit.foreground import on_signals

__all__ = ["Plan", "Supervisor"]

log = logging.getLogger(__name__)

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
STEADY: Final = 60.0
"""Seconds after which a worker's failure is no longer in a row with the one before."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run.

    Attributes:
        commands: The arguments to Python of each worker.
        changes: The files that changed, group after group, each a reason to start again; None when nobody looks.
    """

    commands: Sequence[Sequence[str]]
    changes: AsyncIterator[Sequence[str]] | None = None


class _WorkerProcess:
    """One worker, through all its lives."""

    def __init__(self, number: int, command: Sequence[str]) -> None:
        self.number = number
        self.has_started = False
        self.failures = 0
        self.is_ending = False
        self._command = command
        self._process: Process | None = None

    async def live(self) -> int:
        """Run the process to its end; return its exit code, as a shell would tell it."""
        ours, theirs = socket.socketpair()
        self.has_started = False
        born = asyncio.get_running_loop().time()
        with ours, theirs:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *self._command,
                env={**os.environ, LINE: str(theirs.fileno())},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
            theirs.close()
            if self.is_ending:  # asked while the process was being made
                self.end()
            ours.setblocking(False)
            listening = asyncio.create_task(self._hear(ours))
            try:
                code = await self._process.wait()
            finally:
                listening.cancel()
        lived = asyncio.get_running_loop().time() - born
        self._process = None
        if code == -signal.SIGTERM and self.is_ending and not self.has_started:
            code = 0  # asked to end before it could hear
        self.failures = 0 if code == 0 else 1 if lived > STEADY else self.failures + 1
        return code if code >= 0 else 128 - code

    async def _hear(self, line: socket.socket) -> None:
        if await asyncio.get_running_loop().sock_recv(line, len(STARTED)):
            self.has_started = True
            log.info("Worker %d has started", self.number)

    def end(self) -> None:
        """Ask the process to end, now or as soon as it is there."""
        self.is_ending = True
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End the process at once."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    @property
    def pause(self) -> float:
        """Seconds before its next life."""
        return min(FIRST_PAUSE * 2.0 ** (self.failures - 1), LONGEST_PAUSE)


class Supervisor:
    """Runs a plan until a signal, or until no worker is left."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._workers = [_WorkerProcess(number, command) for number, command in enumerate(plan.commands)]
        self._stopping = asyncio.Event()
        self._codes: list[int] = []

    async def run(self) -> int:
        """Return the exit code: 0, or that of the first worker that failed for good."""
        loop = asyncio.get_running_loop()
        with on_signals(lambda number: loop.call_soon_threadsafe(self._on_signal, number), self._end_at_once):
            if self._plan.changes is None:
                await asyncio.gather(*map(self._keep, self._workers))
            else:
                await self._run_and_reload(self._plan.changes)
        return next((code for code in self._codes if code), 0)

    def _on_signal(self, number: signal.Signals) -> None:
        log.warning("%s: stopping; once more ends at once", number.name)
        self._stop()

    def _stop(self) -> None:
        self._stopping.set()
        for worker in self._workers:
            worker.end()

    def _end_at_once(self, number: signal.Signals) -> None:
        """End every worker, without the loop: it may be what hangs."""
        for worker in self._workers:
            worker.kill()

    async def _keep(self, worker: _WorkerProcess) -> None:
        """Have the worker live until it ends well, or for good."""
        while not self._stopping.is_set():
            code = await worker.live()
            if self._stopping.is_set() or code == 0:
                self._codes.append(code)
                return
            if not worker.has_started and worker.failures == 1:
                log.error("Worker %d could not start (exit code %d): stopping", worker.number, code)
                self._codes.insert(0, code)
                self._stop()
                return
            log.error(
                "Worker %d ended with exit code %d: it is started again in %g s",
                worker.number,
                code,
                worker.pause,
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(worker.pause):
                    await self._stopping.wait()

    async def _run_and_reload(self, changes: AsyncIterator[Sequence[str]]) -> None:
        """Run the workers, and again after each change of the files; one that ends waits for a change."""
        stopping = asyncio.create_task(self._stopping.wait())
        changed = asyncio.ensure_future(anext(changes))
        try:
            while not self._stopping.is_set():
                lives = asyncio.gather(*(worker.live() for worker in self._workers))
                waited: list[asyncio.Future[Any]] = [lives, changed, stopping]
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
                if lives.done():
                    log.warning("No worker is left: waiting for a change of the files")
                    await asyncio.wait(waited[1:], return_when=asyncio.FIRST_COMPLETED)
                for worker in self._workers:
                    worker.end()
                self._codes = await lives
                if changed.done():
                    names = ", ".join(sorted({Path(each).name for each in changed.result()}))
                    log.info("%s changed: starting again", names)
                    changed = asyncio.ensure_future(anext(changes))
                    for worker in self._workers:
                        worker.is_ending = self._stopping.is_set()
        finally:
            stopping.cancel()
            changed.cancel()
            await asyncio.gather(stopping, changed, return_exceptions=True)
