"""An application's loop in the main thread, until a signal."""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from time import monotonic
from types import FrameType
from typing import Final

from streamkit.loops import run_on_new_loop

__all__ = ["on_signals", "run_until_signal"]

log = logging.getLogger(__name__)

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_SAME: Final = 0.1
"""Seconds within which a second signal is the first one again: `timeout` and others send theirs to the process and
then to its group, a terminal to the group and a supervisor to the process."""

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
    run_on_new_loop(_main(start, stop, on_stop_request))


async def _main(
    start: Step, stop: Step, on_stop_request: Callable[[Callable[[], None] | None], None]
) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    starting = asyncio.ensure_future(_as_coroutine(start))

    def on_signal(number: signal.Signals) -> None:
        log.warning("%s: stopping; once more ends at once", number.name)
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
            await stopping.wait()
            await stop()
        finally:
            on_stop_request(None)


async def _as_coroutine(step: Step) -> None:
    await step()


def _nothing(number: signal.Signals) -> None:
    """What is to be done before the end at once: nothing."""


@contextlib.contextmanager
def on_signals(
    on_first: Callable[[signal.Signals], object], on_second: Callable[[signal.Signals], object] = _nothing
) -> Iterator[None]:
    """Tell ``on_first`` of the first SIGINT or SIGTERM; at the second one tell ``on_second``, and end the process.

    Not by `loop.add_signal_handler`: its handlers are called by the loop, so that a listener which blocks the
    loop would keep the process from being stopped. These run between two instructions of whatever Python code
    the main thread is at; so they may do very little. Outside the main thread no signal is handled.
    """
    first: float | None = None

    def handle(number: int, _: FrameType | None) -> None:
        nonlocal first
        received, now = signal.Signals(number), monotonic()
        if first is not None:
            if now - first < _SAME:
                return
            with contextlib.suppress(OSError):
                os.write(2, f"{received.name} again: ending at once\n".encode())
            on_second(received)
            os._exit(128 + number)
        first = now
        on_first(received)

    former = {}
    try:
        for number in _SIGNALS:
            with contextlib.suppress(ValueError):  # not in the main thread
                former[number] = signal.signal(number, handle)
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
