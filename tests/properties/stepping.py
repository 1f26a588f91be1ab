"""A loop that runs an action at its n-th step, and checks for errors and tasks left by a stopped application."""

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
    """A virtual-time loop that counts scheduled callbacks: each step of a task, each callback of a future."""

    def __init__(self) -> None:
        self.steps = 0
        self.has_acted = False
        self._counts = False
        self._wanted = -1
        self._action: Callable[[], object] = lambda: None
        super().__init__()

    def count(self) -> None:
        """Start counting."""
        self.steps, self._counts = 0, True

    def at_step(self, number: int, action: Callable[[], object]) -> None:
        """Start counting, and run `action` right before the `number`-th scheduled callback."""
        self._wanted, self._action = number, action
        self.count()

    def stop_counting(self) -> None:
        """Stop counting, and run no action any more."""
        self._counts = False

    def _act(self) -> None:
        self.has_acted = True
        self._action()

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Schedule as asyncio does, and count."""
        if self._counts:
            self.steps += 1
            if self.steps == self._wanted:
                super().call_soon(self._act)
        return super().call_soon(callback, *args, context=context)


class UnhandledErrors(logging.Handler):
    """Records logged errors, and asyncio's reports of tasks and exceptions that nobody retrieved."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.reported: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.reported.append(self.format(record))

    def unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Record a report, as the loop's exception handler."""
        self.reported.append(f"{context['message']}: {context.get('exception')!r} {context.get('task') or ''}")


def exempt_from_collections() -> None:
    """Collect garbage, then exclude all existing objects from later collections."""
    gc.collect()
    gc.freeze()


@contextmanager
def no_unhandled_errors(loop: asyncio.AbstractEventLoop, but: str | None = None) -> Iterator[None]:
    """Fail at the end of the block if errors were logged or reported, except those with the text `but`."""
    complaints = UnhandledErrors()
    root = logging.getLogger()
    root.addHandler(complaints)
    loop.set_exception_handler(complaints.unhandled)
    gc.collect()
    try:
        yield
        gc.collect()
    finally:
        loop.set_exception_handler(None)
        root.removeHandler(complaints)
    unexpected = [reported for reported in complaints.reported if but is None or but not in reported]
    assert not unexpected, unexpected


@asynccontextmanager
async def no_tasks_left() -> AsyncIterator[None]:
    """Fail at the end of the block if tasks that were started in it are still running."""
    before = asyncio.all_tasks()
    yield
    await asyncio.sleep(0.01)  # brokers see that connections are closed
    left = [f"{task.get_name()}: {task.get_coro()!r}" for task in asyncio.all_tasks() - before]
    assert not left, f"left behind: {left}"
