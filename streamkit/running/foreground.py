"""An application's loop in the main thread, until a signal."""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable

from streamkit.loop.loops import run_on_new_loop
from streamkit.processes.signals import on_signals
from streamkit.service_manager import notify_ready, notify_stopping

__all__ = ["run_until_signal"]

logger = logging.getLogger(__name__)

Step = Callable[[], Awaitable[None]]


def run_until_signal(start: Step, stop: Step, on_stop_request: Callable[[Callable[[], None] | None], None]) -> None:
    """Run ``start``, wait for SIGINT, SIGTERM or SIGHUP, run ``stop``; a second signal ends the process at once.

    systemd is notified when ``start`` has returned and when ``stop`` begins.

    Args:
        start: Starts the application.
        stop: Stops the application.
        on_stop_request: Called while the loop runs with a function that stops the application from any thread, and
            with None at the end.
    """
    run_on_new_loop(_main(start, stop, on_stop_request))


async def _main(start: Step, stop: Step, on_stop_request: Callable[[Callable[[], None] | None], None]) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    starting = asyncio.ensure_future(_as_coroutine(start))

    def on_signal(number: signal.Signals) -> None:
        logger.warning("%s: stopping; a second signal ends the process at once", number.name)
        stopping.set()
        starting.cancel()

    def request_stop() -> None:
        loop.call_soon_threadsafe(stopping.set)

    with on_signals(lambda number: loop.call_soon_threadsafe(on_signal, number)):
        on_stop_request(request_stop)
        try:
            try:
                await starting
            except asyncio.CancelledError:
                if not stopping.is_set():
                    raise
                return
            notify_ready()
            await stopping.wait()
            notify_stopping()
            await stop()
        finally:
            on_stop_request(None)


async def _as_coroutine(step: Step) -> None:
    await step()
