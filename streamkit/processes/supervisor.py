"""A supervisor: it starts, watches, restarts and stops the processes of one command.

::

    streamkit run --workers 2                             streamkit broker --processes 2

    supervisor ──┬── worker 0, a whole application        supervisor ──┬── broker-a-0, a whole broker
                 ├── worker 1                                          ├── broker-a-1
                 └── embedded broker, if they share one                └── name server, if none is named

Each process is in a session of its own: Ctrl-C reaches only the supervisor, which passes the signal on once. What the
processes share runs in the supervisor's own process, so that it outlives any of them.

- A process that ends with an error is started again after a pause; the pause grows with each failure in a row.
- A process that never started shows a mistake in the program or its settings: everything stops, with its exit code.
- A process that ends with exit code 0 is not started again. When none is left, the supervisor ends too.
- The first SIGINT or SIGTERM asks every process to stop; the second one kills them at once.
- SIGHUP restarts the processes one by one, each when the one before has started, with the present settings and code.
"""

import asyncio
import logging
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from streamkit.processes.signals import on_signals
from streamkit.processes.supervised_process import SupervisedProcess
from streamkit.service_manager import notify_ready, notify_reloading, notify_stopping

__all__ = ["Plan", "Supervisor"]

logger = logging.getLogger(__name__)

KILL_TIMEOUT: Final = 5.0
"""The seconds to wait for killed processes: one that is blocked by a dead disk never ends."""


def _nothing(processes: Sequence[SupervisedProcess]) -> None:
    """Do nothing when all processes have started."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The processes to run.

    Attributes:
        commands: Returns the arguments to Python for each process by its name, made of the present settings. The names
            are always the same.
        setting_errors: The errors that `commands` raises if the settings are wrong.
        changes: Yields the files that changed, each group a reason to restart the processes; None if no files are
            watched.
        on_started: Called with the processes when all have started for the first time.
        stop_timeout: Seconds for which a process may take to stop before it is killed; None for no limit.
    """

    commands: Callable[[], Mapping[str, Sequence[str]]]
    setting_errors: type[Exception]
    changes: AsyncIterator[Sequence[str]] | None = None
    on_started: Callable[[Sequence[SupervisedProcess]], object] = _nothing
    stop_timeout: float | None = None


class Supervisor:
    """Runs a plan until a signal, or until no process is left."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._processes = [SupervisedProcess(name, command) for name, command in plan.commands().items()]
        self._stopping = asyncio.Event()
        self._reloading = asyncio.Event()
        self._codes: list[int] = []

    async def run(self) -> int:
        """Run the processes; return 0, or the exit code of the first one that failed for good."""
        loop = asyncio.get_running_loop()
        with on_signals(
            lambda number: loop.call_soon_threadsafe(self._on_signal, number),
            self._end_at_once,
            None if self._plan.changes else lambda: loop.call_soon_threadsafe(self._reloading.set),
        ):
            starting = asyncio.create_task(self._notify_when_started())
            try:
                if self._plan.changes is None:
                    await self._run_and_renew()
                else:
                    await self._run_and_reload(self._plan.changes)
            finally:
                await _cancelled(starting)
        return next((code for code in self._codes if code), 0)

    async def _notify_when_started(self) -> None:
        for process in self._processes:
            await process.tried.wait()
        if not self._stopping.is_set() and all(process.was_up for process in self._processes):
            self._plan.on_started(self._processes)
            notify_ready()

    def _on_signal(self, number: signal.Signals) -> None:
        logger.warning("%s: stopping; a second signal ends the process at once", number.name)
        self._stop()

    def _stop(self) -> None:
        notify_stopping()
        self._stopping.set()
        for process in self._processes:
            process.end()
        if self._plan.stop_timeout is not None:
            asyncio.get_running_loop().call_later(self._plan.stop_timeout, self._kill_late, self._plan.stop_timeout)

    def _kill_late(self, seconds: float) -> None:
        for process in self._processes:
            if process.pid is not None:
                logger.error("%s did not stop within %g s: killing it", process.name, seconds)
                process.kill()

    def _end_at_once(self, number: signal.Signals) -> None:
        """Kill every process, and wait until they have ended, without the loop, which may be blocked.

        A killed process exists until the system has released its memory and ports. A command that is started
        again after this process has ended must not collide with its former processes.
        """
        for process in self._processes:
            process.kill()
        until = time.monotonic() + KILL_TIMEOUT
        for process in self._processes:
            process.wait_for_its_end(until)

    async def _run_and_renew(self) -> None:
        """Run the processes, and restart them one by one at each SIGHUP."""
        lives = [asyncio.create_task(self._keep(process)) for process in self._processes]
        renewing = asyncio.create_task(self._renew_when_asked(lives))
        try:
            await asyncio.gather(*lives)
        finally:
            await _cancelled(renewing)

    async def _keep(self, process: SupervisedProcess) -> None:
        """Keep a process running until it ends for good; stop all if it could not start."""
        code = await process.keep(self._stopping)
        self._codes.append(code)
        if code and not process.was_up and not self._stopping.is_set():
            self._stop()

    async def _renew_when_asked(self, lives: "Sequence[asyncio.Task[None]]") -> None:
        while await self._reloading.wait():
            self._reloading.clear()
            notify_reloading()
            try:
                await self._renew(lives)
            except Exception:
                logger.exception("SIGHUP: could not read the settings; the processes keep running with the old ones")
            notify_ready()

    async def _renew(self, lives: "Sequence[asyncio.Task[None]]") -> None:
        """Restart the running processes one by one; if one cannot start, leave the following ones as they are."""
        try:
            commands = self._plan.commands()
        except self._plan.setting_errors as error:
            logger.error("SIGHUP: invalid settings; the processes keep running with the old ones: %s", error)
            return
        for process, life in zip(self._processes, lives, strict=True):
            if life.done():
                continue
            logger.info("SIGHUP: restarting %s", process.name)
            has_started = await process.renew(commands[process.name])
            if self._stopping.is_set():  # a signal to stop has ended the process before it could start
                return
            if not has_started:
                logger.error(
                    "%s does not start with the new settings and is being started again; the processes after it "
                    "keep running with the old ones. Correct what its log reports, and send SIGHUP again",
                    process.name,
                )
                return
        logger.info("SIGHUP: every process was restarted")

    async def _run_and_reload(self, changes: AsyncIterator[Sequence[str]]) -> None:
        """Run the processes, and restart them after each change of files; if none is left, wait for a change."""
        stopping = asyncio.create_task(self._stopping.wait())
        changed = asyncio.ensure_future(anext(changes))
        try:
            while not self._stopping.is_set():
                lives = asyncio.gather(*(process.run() for process in self._processes))
                waited: list[asyncio.Future[Any]] = [lives, changed, stopping]
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
                if lives.done():
                    logger.warning("No process is left: waiting for a change of the files")
                    await asyncio.wait(waited[1:], return_when=asyncio.FIRST_COMPLETED)
                for process in self._processes:
                    process.end()
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
