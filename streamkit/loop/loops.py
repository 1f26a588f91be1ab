"""The event loop of an application that creates its own, and the end of that loop."""

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
    """Return a new event loop: uvloop's if uvloop is installed, else asyncio's."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def run_on_new_loop(main: Coroutine[object, None, None], *, patience: float = _CANCEL_PATIENCE) -> None:
    """Run ``main`` on a new loop, cancel the tasks that are left, and close the loop.

    Unlike `asyncio.run`, this returns even if a task ignores its cancellation.

    Args:
        main: The coroutine to run.
        patience: Seconds that cancelled tasks have to end.
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


async def cancel(tasks: Collection["asyncio.Task[Any]"], patience: float = _END_PATIENCE) -> "set[asyncio.Task[Any]]":
    """Cancel tasks and wait until they have ended; log and abandon those that take longer than ``patience``.

    Args:
        tasks: The tasks.
        patience: Seconds that the tasks have to end.

    Returns:
        The tasks that have ended.
    """
    for task in tasks:
        task.cancel()
    if not tasks:
        return set()
    ended, stubborn = await asyncio.wait(tasks, timeout=patience)
    for task in stubborn:
        logger.error(
            "Task %r was cancelled and is still running; it is abandoned at %s",
            task.get_name(),
            line_of_task(task),
        )
    return ended


async def _cancel_tasks(patience: float) -> None:
    for task in await cancel(asyncio.all_tasks() - {asyncio.current_task()}, patience):
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("Task %r failed while the loop was ending", task.get_name(), exc_info=error)
