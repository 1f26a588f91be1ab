"""Wall-clock time, injectable.

The clock only stamps messages. Waiting uses the loop's time (`asyncio.sleep`, `loop.call_at`); tests with virtual time
move the clock and the loop together.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class Clock(Protocol):
    """Returns the wall-clock time."""

    def now_ms(self) -> int:
        """Return the milliseconds since 1970-01-01 UTC."""
        ...


class SystemClock:
    """The machine's clock."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Return the milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    def __repr__(self) -> str:
        return "SystemClock()"


_SYSTEM_CLOCK: Clock = SystemClock()
_clock: ContextVar[Clock] = ContextVar("streamkit_clock", default=_SYSTEM_CLOCK)


def current_clock() -> Clock:
    """Return the clock of the running application; the machine's clock if none was set."""
    return _clock.get()


@contextmanager
def use_clock(clock: Clock) -> Iterator[Clock]:
    """Stamp messages by `clock` inside the block and in the tasks that are started in it."""
    token = _clock.set(clock)
    try:
        yield clock
    finally:
        _clock.reset(token)
