"""How a demo runs: it stops what it has started however it is ended, and gives up when nothing moves."""

import asyncio
import signal
from collections.abc import Coroutine, Mapping

import click
from rich.table import Table
from rich.text import Text

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end the demo in order; a second one ends it at once."""


class Stalled(Exception):  # noqa: N818 - a state, not a mistake
    """The demo will not come to its end."""


class StallWatch:
    """Tells when something has stayed as it is for too long."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._seen: object = None
        self._since = self._loop.time()

    def look(self, seen: object) -> None:
        """Compare with what was seen before.

        Raises:
            Stalled: It is the same as so many seconds ago.
        """
        now = self._loop.time()
        if seen != self._seen:
            self._seen, self._since = seen, now
        elif now - self._since > self._seconds:
            raise Stalled(f"nothing moved for {self._seconds:.0f} s; the machine may be too busy")


def next_steps(steps: Mapping[str, str]) -> Table:
    """What to try after a demo, and what there is to see in it."""
    table = Table("\nNext:", "", box=None, pad_edge=False, header_style="bold")
    table.columns[0].no_wrap = True
    for step, what in steps.items():
        table.add_row(Text(f"  {step}"), what)
    return table


def run_demo(main: Coroutine[object, object, int]) -> int:
    """The exit code of `main`, on uvloop where it is installed: a fifth less CPU per message.

    Raises:
        click.Abort: A signal ended it.
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
    except asyncio.CancelledError as cancelled:
        raise click.Abort from cancelled
    except Stalled as stalled:
        raise click.ClickException(str(stalled)) from stalled


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
