"""The supervisor of `streamkit run --workers N` and `--reload`: it starts, watches, restarts and stops workers.

::

    supervisor ──┬── worker 0    each a whole application with its own instance index, in a session of its own:
                 ├── worker 1    Ctrl-C reaches only the supervisor, which passes the signal on once
                 └── embedded broker, if the workers share one: in the supervisor, so that it outlives any worker

- A worker that ends with an error is started again after a pause; the pause grows with each failure in a row.
- A worker that never started its application shows a mistake in the application or its settings: everything
  stops, with the worker's exit code.
- A worker that ends with exit code 0 is not started again. When no worker is left, the supervisor ends too.
- The first SIGINT or SIGTERM asks every worker to stop; the second one kills them at once.
- SIGHUP restarts the workers one by one, each when the one before has started, with the present settings and code.
"""

import asyncio
import logging
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from streamkit.cli.worker_process import WorkerProcess
from streamkit.errors import StreamkitError
from streamkit.running.foreground import on_signals
from streamkit.service_manager import notify_ready, notify_reloading, notify_stopping

__all__ = ["Plan", "Supervisor"]

logger = logging.getLogger(__name__)

KILL_TIMEOUT: Final = 5.0
"""The seconds to wait for killed workers: one that is blocked by a dead disk never ends."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The workers to run.

    Attributes:
        commands: Returns the arguments to Python for each worker, made of the present settings.
        changes: Yields the files that changed, each group a reason to restart the workers; None if no files are
            watched.
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
        """Run the workers; return 0, or the exit code of the first worker that failed for good."""
        loop = asyncio.get_running_loop()
        with on_signals(
            lambda number: loop.call_soon_threadsafe(self._on_signal, number),
            self._end_at_once,
            None if self._plan.changes else lambda: loop.call_soon_threadsafe(self._reloading.set),
        ):
            telling = asyncio.create_task(self._notify_when_started())
            try:
                if self._plan.changes is None:
                    await self._run_and_renew()
                else:
                    await self._run_and_reload(self._plan.changes)
            finally:
                await _cancelled(telling)
        return next((code for code in self._codes if code), 0)

    async def _notify_when_started(self) -> None:
        for worker in self._workers:
            await worker.tried.wait()
        notify_ready()

    def _on_signal(self, number: signal.Signals) -> None:
        logger.warning("%s: stopping; a second signal ends the process at once", number.name)
        self._stop()

    def _stop(self) -> None:
        notify_stopping()
        self._stopping.set()
        for worker in self._workers:
            worker.end()

    def _end_at_once(self, number: signal.Signals) -> None:
        """Kill every worker, and wait until they have ended, without the loop, which may be blocked.

        A killed process exists until the system has released its memory and ports. An application that is started
        again after this process has ended must not collide with its former workers.
        """
        for worker in self._workers:
            worker.kill()
        until = time.monotonic() + KILL_TIMEOUT
        for worker in self._workers:
            worker.wait_for_its_end(until)

    async def _run_and_renew(self) -> None:
        """Run the workers, and restart them one by one at each SIGHUP."""
        lives = [asyncio.create_task(self._keep(worker)) for worker in self._workers]
        renewing = asyncio.create_task(self._renew_when_asked(lives))
        try:
            await asyncio.gather(*lives)
        finally:
            await _cancelled(renewing)

    async def _keep(self, worker: WorkerProcess) -> None:
        """Run a worker, and run it again after failures and restarts, until it ends for good."""
        while not self._stopping.is_set():
            code = await worker.run()
            # Before the exit code is judged: a worker that ends for its restart has code 0, as one that ends for
            # good.
            if worker.is_renewed and not self._stopping.is_set():
                if code:
                    logger.warning("Worker %d ended with exit code %d for its restart", worker.number, code)
                continue
            if self._stopping.is_set() or code == 0:
                self._codes.append(code)
                return
            # `was_up` is true of a worker that started once in any process. It is tried again even if a later process
            # cannot start, for instance because its broker is away.
            if not worker.was_up:
                logger.error("Worker %d could not start (exit code %d): stopping", worker.number, code)
                self._codes.append(code)
                self._stop()
                return
            logger.error(
                "Worker %d ended with exit code %d: starting it again in %g s",
                worker.number,
                code,
                worker.pause,
            )
            await worker.wait_before_restart()

    async def _renew_when_asked(self, lives: "Sequence[asyncio.Task[None]]") -> None:
        while await self._reloading.wait():
            self._reloading.clear()
            notify_reloading()
            try:
                await self._renew(lives)
            except Exception:
                logger.exception("SIGHUP: could not read the settings; the workers keep running with the old ones")
            notify_ready()

    async def _renew(self, lives: "Sequence[asyncio.Task[None]]") -> None:
        """Restart the running workers one by one; if one cannot start, leave the following ones as they are."""
        try:
            commands = self._plan.commands()
        except StreamkitError as error:
            logger.error("SIGHUP: invalid settings; the workers keep running with the old ones: %s", error)
            return
        for worker, life, command in zip(self._workers, lives, commands, strict=True):
            if life.done():
                continue
            logger.info("SIGHUP: restarting worker %d", worker.number)
            has_started = await worker.renew(command)
            if self._stopping.is_set():  # a signal to stop has ended the worker before it could start
                return
            if not has_started:
                logger.error(
                    "Worker %d does not start with the new settings and is being started again; the workers after it "
                    "keep running with the old ones. Correct what its log reports, and send SIGHUP again",
                    worker.number,
                )
                return
        logger.info("SIGHUP: every worker was restarted")

    async def _run_and_reload(self, changes: AsyncIterator[Sequence[str]]) -> None:
        """Run the workers, and restart them after each change of files; if none is left, wait for a change."""
        stopping = asyncio.create_task(self._stopping.wait())
        changed = asyncio.ensure_future(anext(changes))
        try:
            while not self._stopping.is_set():
                lives = asyncio.gather(*(worker.run() for worker in self._workers))
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
    """Cancel the futures, and wait until they have ended."""
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
