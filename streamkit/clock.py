"""Wall-clock time, injectable.

Only stamps come from here. Inside a loop, waiting is the loop's business (`asyncio.sleep`,
`loop.call_at`), so that virtual time can move both together.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class Clock(Protocol):
    """Tells the time of day."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        ...


class SystemClock:
    """The machine's clock."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    def __repr__(self) -> str:
        return "SystemClock()"


_SYSTEM_CLOCK: Clock = SystemClock()
_clock: ContextVar[Clock] = ContextVar("streamkit_clock", default=_SYSTEM_CLOCK)


def current_clock() -> Clock:
    """The clock of the running application, or the machine's where none was set."""
    return _clock.get()


@contextmanager
def use_clock(clock: Clock) -> Iterator[Clock]:
    """Inside the block, and in the tasks started in it, `clock` stamps the messages."""
    token = _clock.set(clock)
    try:
        yield clock
    finally:
        _clock.reset(token)
