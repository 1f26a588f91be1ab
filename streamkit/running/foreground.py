"""An application's loop in the main thread, until a signal."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from time import monotonic
from types import FrameType
from typing import Final

from service_manager import tell_ready, tell_stopping
from streamkit.loop.loops import run_on_new_loop

__all__ = ["on_signals", "run_until_signal"]

logger = logging.getLogger(__name__)

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_SAME: Final = 0.1
"""Seconds within which a second signal is the first one again: `timeout` and others send theirs to the process and
then to its group, a terminal to the group and a supervisor to the process."""

Step = Callable[[], Awaitable[None]]


def run_until_signal(
    start: Step, stop: Step, on_stop_request: Callable[[Callable[[], None] | None], None]
) -> None:
    """Run ``start``, wait for SIGINT, SIGTERM or SIGHUP, run ``stop``; a second signal ends the process at once.

    systemd is told when ``start`` has ended and when ``stop`` begins.

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
        logger.warning("%s: stopping; once more ends at once", number.name)
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
            tell_ready()
            await stopping.wait()
            tell_stopping()
            await stop()
        finally:
            on_stop_request(None)


async def _as_coroutine(step: Step) -> None:
    await step()


def _nothing(number: signal.Signals) -> None:
    """What is to be done before the end at once: nothing."""


@contextlib.contextmanager
def on_signals(
    on_first: Callable[[signal.Signals], object],
    on_second: Callable[[signal.Signals], object] = _nothing,
    on_reload: Callable[[], object] | None = None,
) -> Iterator[None]:
    """Tell ``on_first`` of the first SIGINT or SIGTERM; at the second one tell ``on_second``, and end the process.

    SIGHUP tells ``on_reload``. Where there is none, or the terminal the process was started from is gone, it is a
    first signal, and never a second one: the shell and the system may both send it when a terminal closes. A
    process that was told to ignore it (`nohup`) does, unless there is something to reload.

    Not by `loop.add_signal_handler`: its handlers are called by the loop, so that a listener which blocks the
    loop would keep the process from being stopped. These run between two instructions of whatever Python code
    the main thread is at; so they may do very little. Outside the main thread no signal is handled.
    """
    first: float | None = None
    terminals = _terminals()

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

    def hang_up(number: int, _: FrameType | None) -> None:
        nonlocal first
        if on_reload is not None and _terminals() == terminals:
            on_reload()
        elif first is None:
            first = monotonic()
            on_first(signal.Signals(number))

    handlers: dict[signal.Signals, Callable[[int, FrameType | None], None]] = dict.fromkeys(_SIGNALS, handle)
    if sys.platform != "win32" and (on_reload or signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN):
        handlers[signal.SIGHUP] = hang_up
    former = {}
    try:
        for number, handler in handlers.items():
            with contextlib.suppress(ValueError):  # not in the main thread
                former[number] = signal.signal(number, handler)
        yield
    finally:
        for number, replaced in former.items():
            signal.signal(number, replaced if replaced is not None else signal.SIG_DFL)


def _terminals() -> list[int]:
    """Which of the standard streams are a terminal that is still there."""
    return [stream for stream in (0, 1, 2) if os.isatty(stream)]
