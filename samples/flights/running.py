"""The frame of a demo: it stops all processes however it ends, and gives up if there is no progress."""

import asyncio
import signal
from collections.abc import Coroutine, Mapping

import click
from rich.table import Table
from rich.text import Text

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end the demo in order; a second one ends it at once."""


class Stalled(Exception):  # noqa: N818 - a state, not a mistake
    """The demo makes no progress."""


class StallWatch:
    """Notices when a value has not changed for too long."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._seen: object = None
        self._since = self._loop.time()

    def look(self, seen: object) -> None:
        """Compare with the last value.

        Raises:
            Stalled: The value has not changed for the time limit.
        """
        now = self._loop.time()
        if seen != self._seen:
            self._seen, self._since = seen, now
        elif now - self._since > self._seconds:
            raise Stalled(f"no flight arrived for {self._seconds:.0f} s; the machine may be too busy")


def next_steps(steps: Mapping[str, str]) -> Table:
    """Return what to try after a demo, and what to look at in it."""
    table = Table("\nNext:", "", box=None, pad_edge=False, header_style="bold")
    table.columns[0].no_wrap = True
    for step, what in steps.items():
        table.add_row(Text(f"  {step}"), what)
    return table


def run_demo(main: Coroutine[object, object, int]) -> int:
    """Run `main`, on uvloop if it is installed, and return its exit code.

    Raises:
        click.Abort: A signal ended the run.
        click.ClickException: It stalled.
    """
    try:
        import uvloop
    except ImportError:
        run = asyncio.run
    else:
        run = uvloop.run
    try:
        return run(_ended_in_order(main))
    except asyncio.CancelledError as error:
        raise click.Abort from error
    except Stalled as error:
        raise click.ClickException(str(error)) from error


async def _ended_in_order(main: Coroutine[object, object, int]) -> int:
    task = asyncio.create_task(main)
    loop = asyncio.get_running_loop()

    def end() -> None:
        for each in ENDINGS:
            loop.remove_signal_handler(each)
        task.cancel()

    for each in ENDINGS:
        loop.add_signal_handler(each, end)
    return await task
