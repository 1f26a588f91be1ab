"""An application's loop in the main thread, until a signal."""

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Final

from streamkit.loops import new_loop

__all__ = ["run_until_signal"]

log = logging.getLogger(__name__)

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

Step = Callable[[], Awaitable[None]]


def run_until_signal(
    start: Step, stop: Step, on_stop_request: Callable[[Callable[[], None] | None], None]
) -> None:
    """Run ``start``, wait for SIGINT or SIGTERM, run ``stop``; a second signal ends the process at once.

    Args:
        start: What to begin with.
        stop: What to end with.
        on_stop_request: Told, while the loop runs, what ends it from any thread.
    """
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_main(start, stop, on_stop_request))


async def _main(
    start: Step, stop: Step, on_stop_request: Callable[[Callable[[], None] | None], None]
) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    starting = asyncio.ensure_future(_as_coroutine(start))
    installed = _install(loop, stopping, starting)

    def request_stop() -> None:
        loop.call_soon_threadsafe(stopping.set)

    on_stop_request(request_stop)
    try:
        try:
            await starting
        except asyncio.CancelledError:
            if not stopping.is_set():
                raise
            return
        await stopping.wait()
        await stop()
    finally:
        on_stop_request(None)
        for number in installed:
            loop.remove_signal_handler(number)


async def _as_coroutine(step: Step) -> None:
    await step()


def _install(
    loop: asyncio.AbstractEventLoop, stopping: asyncio.Event, starting: asyncio.Future[None]
) -> list[signal.Signals]:
    """Handle the signals, where this loop can: not on Windows, not outside the main thread."""

    def handle(number: signal.Signals) -> None:
        if stopping.is_set():
            log.error("%s again: ending at once", number.name)
            os._exit(128 + number)
        log.warning("%s: stopping; once more ends at once", number.name)
        stopping.set()
        starting.cancel()

    installed: list[signal.Signals] = []
    for number in _SIGNALS:
        try:
            loop.add_signal_handler(number, handle, number)
        except (NotImplementedError, RuntimeError, ValueError):
            return installed
        installed.append(number)
    return installed
