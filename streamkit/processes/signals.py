"""The signals that end or reload a process: the first one in order, the second one at once."""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from time import monotonic
from types import FrameType
from typing import Final

__all__ = ["on_signals"]

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_SAME: Final = 0.1
"""The seconds within which a second signal counts as a repetition of the first. `timeout` and others send a signal to
the process and then to its group; a terminal signals the group, and a supervisor also the process.
"""


def _nothing(number: signal.Signals) -> None:
    """Do nothing before the process ends at once."""


@contextlib.contextmanager
def on_signals(
    on_first: Callable[[signal.Signals], object],
    on_second: Callable[[signal.Signals], object] = _nothing,
    on_reload: Callable[[], object] | None = None,
) -> Iterator[None]:
    """Call ``on_first`` at the first SIGINT or SIGTERM; at the second one call ``on_second`` and end the process.

    SIGHUP calls ``on_reload``. If there is no ``on_reload``, or the terminal that the process was started from is
    gone, SIGHUP counts as a first signal, but never as a second one: both the shell and the system may send SIGHUP
    when a terminal closes. A process that ignores SIGHUP (`nohup`) keeps ignoring it, unless ``on_reload`` is given.

    `loop.add_signal_handler` does not fit: its handlers run on the loop, so that a listener that blocks the loop would
    keep the process from being stopped. These handlers run in the main thread between two instructions of Python code;
    so they may do very little. Outside the main thread no signal is handled.

    Args:
        on_first: Called with the first signal.
        on_second: Called with the second signal, before the process ends.
        on_reload: Called at SIGHUP, or None.
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
                # Not with `logging`: a handler that interrupts a write to a buffered stream cannot write to the same
                # stream.
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
            with contextlib.suppress(ValueError):  # signal.signal() raises it outside the main thread
                former[number] = signal.signal(number, handler)
        yield
    finally:
        for number, replaced in former.items():
            signal.signal(number, replaced if replaced is not None else signal.SIG_DFL)


def _terminals() -> list[int]:
    """Return the standard streams that are a terminal that still exists."""
    return [stream for stream in (0, 1, 2) if os.isatty(stream)]
