"""The supervisor of `streamkit run --workers N` and `--reload`: starts, watches, restarts and stops worker processes.

::

    supervisor ──┬── worker 0    whole applications, each with its instance index; each in a session of its own, so
                 ├── worker 1    that Ctrl-C reaches only the supervisor, which passes it on once
                 └── embedded broker, if one is to be there: in the supervisor, so that it outlives any worker

A worker that ends with an error is started again after a pause that grows with each failure in a row. One that never
started is a mistake in the application or its settings: everything stops, with its exit code. A worker that ends well
is not started again; when none is left the supervisor ends too. On the first signal every worker is asked to stop; the
second one ends everything at once. SIGHUP restarts the workers one by one, each when the one before has started, with
the settings and the code as they are then.
"""

import asyncio
import logging
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from service_manager import tell_ready, tell_reloading, tell_stopping
from streamkit.cli.worker_process import WorkerProcess
from streamkit.errors import StreamkitError
from streamkit.running.foreground import on_signals

__all__ = ["Plan", "Supervisor"]

logger = logging.getLogger(__name__)

LONGEST_DEATH: Final = 5.0
"""Seconds the system has to end killed workers: one that waits for a dead disk cannot be waited for."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run.

    Attributes:
        commands: Returns the arguments to Python of each worker, from the settings as they are now.
        changes: The files that changed, group after group, each a reason to start again; None when nobody looks.
    """

    commands: Callable[[], Sequence[Sequence[str]]]
    changes: AsyncIterator[Sequence[str]] | None = None


class Supervisor:
    """Runs a plan until a signal, or until no worker is left."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._workers = [WorkerProcess(number, command) for number, command in enumerate(plan.commands())]
        self._stopping = asyncio.Event()
        self._reloading = asyncio.Event()
        self._codes: list[int] = []

    async def run(self) -> int:
        """Return the exit code: 0, or that of the first worker that failed for good."""
        loop = asyncio.get_running_loop()
        with on_signals(
            lambda number: loop.call_soon_threadsafe(self._on_signal, number),
            self._end_at_once,
            None if self._plan.changes else lambda: loop.call_soon_threadsafe(self._reloading.set),
        ):
            telling = asyncio.create_task(self._tell_when_up())
            try:
                if self._plan.changes is None:
                    await self._run_and_renew()
                else:
                    await self._run_and_reload(self._plan.changes)
            finally:
                await _cancelled(telling)
        return next((code for code in self._codes if code), 0)

    async def _tell_when_up(self) -> None:
        for worker in self._workers:
            await worker.tried.wait()
        tell_ready()

    def _on_signal(self, number: signal.Signals) -> None:
        logger.warning("%s: stopping; once more ends at once", number.name)
        self._stop()

    def _stop(self) -> None:
        tell_stopping()
        self._stopping.set()
        for worker in self._workers:
            worker.end()

    def _end_at_once(self, number: signal.Signals) -> None:
        """End every worker, and return when they are gone, without the loop: it may be what hangs.

        A killed process is there until the system has taken its memory and ports back; who starts the application
        again when this process has ended must not meet its former workers.
        """
        for worker in self._workers:
            worker.kill()
        until = time.monotonic() + LONGEST_DEATH
        for worker in self._workers:
            worker.wait_for_its_end(until)

    async def _run_and_renew(self) -> None:
        """Run the workers, and restart them one by one whenever SIGHUP asks for it."""
        lives = [asyncio.create_task(self._keep(worker)) for worker in self._workers]
        renewing = asyncio.create_task(self._renew_when_asked(lives))
        try:
            await asyncio.gather(*lives)
        finally:
            await _cancelled(renewing)

    async def _keep(self, worker: WorkerProcess) -> None:
        """Have the worker live until it ends well, or for good."""
        while not self._stopping.is_set():
            code = await worker.live()
            if worker.is_renewed and not self._stopping.is_set():
                if code:
                    logger.warning("Worker %d ended with exit code %d for its restart", worker.number, code)
                continue
            if self._stopping.is_set() or code == 0:
                self._codes.append(code)
                return
            if not worker.was_up:
                logger.error("Worker %d could not start (exit code %d): stopping", worker.number, code)
                self._codes.append(code)
                self._stop()
                return
            logger.error(
                "Worker %d ended with exit code %d: it is started again in %g s",
                worker.number,
                code,
                worker.pause,
            )
            await worker.rest()

    async def _renew_when_asked(self, lives: "Sequence[asyncio.Task[None]]") -> None:
        while await self._reloading.wait():
            self._reloading.clear()
            tell_reloading()
            try:
                await self._renew(lives)
            except Exception:
                logger.exception("SIGHUP: the workers go on as they are, for the settings cannot be read")
            tell_ready()

    async def _renew(self, lives: "Sequence[asyncio.Task[None]]") -> None:
        """Restart each worker that lives, one by one; leave the others as they are when one cannot start."""
        try:
            commands = self._plan.commands()
        except StreamkitError as error:
            logger.error("SIGHUP: the workers go on as they are, for the settings are wrong: %s", error)
            return
        for worker, life, command in zip(self._workers, lives, commands, strict=True):
            if life.done():
                continue
            logger.info("SIGHUP: restarting worker %d", worker.number)
            if not await worker.renew(command):
                logger.error(
                    "Worker %d does not start any more: it is tried again, those after it go on as they are. Mend "
                    "what it tells, and send SIGHUP again",
                    worker.number,
                )
                return
        logger.info("SIGHUP: every worker was restarted")

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
                    logger.warning("No worker is left: waiting for a change of the files")
                    await asyncio.wait(waited[1:], return_when=asyncio.FIRST_COMPLETED)
                for worker in self._workers:
                    worker.end()
                self._codes = await lives
                if changed.done():
                    names = ", ".join(sorted({Path(each).name for each in changed.result()}))
                    logger.info("%s changed: starting again", names)
                    changed = asyncio.ensure_future(anext(changes))
        finally:
            await _cancelled(stopping, changed)


async def _cancelled(*waiting: asyncio.Future[Any]) -> None:
    """Cancel what waits, and wait until it has ended."""
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
