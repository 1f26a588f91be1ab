"""The event loop an application runs on when it makes its own, and how that loop ends."""

import asyncio
import logging
from collections.abc import Collection, Coroutine
from typing import Any, Final

from streamkit.loop.code_location import line_of_task

__all__ = ["cancel", "new_loop", "run_on_new_loop"]

logger = logging.getLogger(__name__)

_CANCEL_PATIENCE: Final = 2.0
_END_PATIENCE: Final = 10.0


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop: uvloop's where that is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def run_on_new_loop(main: Coroutine[object, None, None], *, patience: float = _CANCEL_PATIENCE) -> None:
    """Run ``main``, cancel what it left running, and close the loop.

    As `asyncio.run`, but a task that goes on although it was cancelled does not keep this from returning.

    Args:
        main: What to run.
        patience: Seconds that tasks get to end once they are cancelled.
    """
    loop = new_loop()
    try:
        loop.run_until_complete(main)
    finally:
        try:
            loop.run_until_complete(_cancel_tasks(patience))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            loop.close()


async def cancel(
    tasks: Collection["asyncio.Task[Any]"], patience: float = _END_PATIENCE
) -> "set[asyncio.Task[Any]]":
    """Cancel tasks and wait until they have ended; those that go on for longer than ``patience`` are left behind.

    Returns:
        Those that have ended.
    """
    for task in tasks:
        task.cancel()
    if not tasks:
        return set()
    ended, stubborn = await asyncio.wait(tasks, timeout=patience)
    for task in stubborn:
        logger.error(
            "Task %r was cancelled and goes on: it is left behind, at %s", task.get_name(), line_of_task(task)
        )
    return ended


async def _cancel_tasks(patience: float) -> None:
    for task in await cancel(asyncio.all_tasks() - {asyncio.current_task()}, patience):
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("Task %r failed while the loop was ending", task.get_name(), exc_info=error)
