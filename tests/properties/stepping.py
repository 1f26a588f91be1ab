"""A loop that does something at its n-th step, and what may not be left when an application has stopped."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import Context
from typing import Any, TypeVarTuple

from streamkit.testing.virtual_time import VirtualTimeLoop

Ts = TypeVarTuple("Ts")


class SteppingLoop(VirtualTimeLoop):
    """A virtual-time loop that counts what is scheduled on it: each step of a task, each callback of a future."""

    def __init__(self) -> None:
        self.steps = 0
        self.has_acted = False
        self._counts = False
        self._wanted = -1
        self._action: Callable[[], object] = lambda: None
        super().__init__()

    def count(self) -> None:
        """Count from now on."""
        self.steps, self._counts = 0, True

    def at_step(self, number: int, action: Callable[[], object]) -> None:
        """Count from now on, and run `action` right before what is scheduled as the `number`-th."""
        self._wanted, self._action = number, action
        self.count()

    def stop_counting(self) -> None:
        """Count no more, and run no action any more."""
        self._counts = False

    def _act(self) -> None:
        self.has_acted = True
        self._action()

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Schedule, as asyncio does, and count."""
        if self._counts:
            self.steps += 1
            if self.steps == self._wanted:
                super().call_soon(self._act)
        return super().call_soon(callback, *args, context=context)


class Complaints(logging.Handler):
    """What was logged as an error, and what asyncio says of tasks and exceptions that nobody looked at."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(self.format(record))

    def unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """As the loop's exception handler."""
        self.told.append(f"{context['message']}: {context.get('exception')!r} {context.get('task') or ''}")


@contextmanager
def no_complaints(loop: asyncio.AbstractEventLoop, but: str | None = None) -> Iterator[None]:
    """Fail at the end of the block if something was logged as an error, or not looked at, `but` what has this text."""
    complaints = Complaints()
    root = logging.getLogger()
    root.addHandler(complaints)
    loop.set_exception_handler(complaints.unhandled)
    gc.collect()
    gc.freeze()
    try:
        yield
        gc.collect()
    finally:
        gc.unfreeze()
        loop.set_exception_handler(None)
        root.removeHandler(complaints)
    unexpected = [told for told in complaints.told if but is None or but not in told]
    assert not unexpected, unexpected


@asynccontextmanager
async def no_tasks_left() -> AsyncIterator[None]:
    """Fail at the end of the block if tasks that were started in it go on."""
    before = asyncio.all_tasks()
    yield
    await asyncio.sleep(0.01)  # brokers see that connections are closed
    left = [f"{task.get_name()}: {task.get_coro()!r}" for task in asyncio.all_tasks() - before]
    assert not left, f"left behind: {left}"
