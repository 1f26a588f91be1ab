"""The end of a server's process: in order at the first signal, at once at the second."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from types import FrameType
from typing import Final

__all__ = ["stop_on_signal"]

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_SAME: Final = 0.1
"""Seconds within which a second signal counts as the first one: `timeout`, for instance, sends a signal to the process
and then to its process group."""


@contextmanager
def stop_on_signal(on_first: Callable[[], object]) -> Iterator[None]:
    """Call ``on_first`` at the first SIGTERM or SIGINT, and end the process at the second.

    The handlers run in the main thread between two Python instructions and not as callbacks of the loop. So a blocked
    loop cannot keep the second signal from ending the process. Acknowledged messages are safe then, as after any kill.
    """
    first: float | None = None

    def handle(number: int, _: FrameType | None) -> None:
        nonlocal first
        now = monotonic()
        if first is None:
            first = now
            on_first()
        elif now - first >= _SAME:
            with suppress(OSError):
                os.write(2, f"{signal.Signals(number).name} again: ending at once\n".encode())
            os._exit(128 + number)

    former = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
