"""What `streamkit bench` prints: how far the load has come, and the verdict."""

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Self

import click
from rich.console import Console
from rich.status import Status
from rich.table import Table
from rich.text import Text

from streamkit.cli.load.latencies import PERCENTILES
from streamkit.cli.load.ledger import Ledger
from streamkit.cli.load.run import Load, put_load
from streamkit.cli.load.verdict import Verdict
from streamkit.cli.terminal_log import log_to_terminal
from streamkit.errors import StreamkitError
from streamkit.loop.loops import new_loop

__all__ = ["run_and_print"]


def run_and_print(load: Load, settings: Sequence[str], *, as_json: bool) -> Verdict:
    """Put the load, show its progress on standard error, and print the verdict.

    Args:
        load: What is sent.
        settings: Settings as arguments.
        as_json: Whether to print one JSON object instead of tables.

    Raises:
        click.ClickException: A setting is wrong, or the messaging system cannot be used.
    """
    log_to_terminal("warning", own_settings="given in code: ")
    logging.getLogger("kafka").setLevel(logging.ERROR)  # it warns of each pause of the loop, which the load shows
    with _Progress() as progress, asyncio.Runner(loop_factory=new_loop) as runner:
        try:
            verdict = runner.run(put_load(load, settings, progress.show))
        except StreamkitError as error:
            raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(json.dumps(asdict(verdict) | {"complaints": verdict.complaints}))
    else:
        _print(Console(), load, verdict)
    return verdict


class _Progress:
    """Shows how far a load has come on standard error: in place on a terminal, else a line for each phase."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._status = Status("", console=self._console)
        self._phase = ""

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()

    def show(self, phase: str, ledger: Ledger) -> None:
        """Show the phase and how many messages were acknowledged and received."""
        text = f"{phase}: {ledger.acknowledged:,} acknowledged, {ledger.received:,} received"
        if self._console.is_terminal:
            self._status.update(text)
        elif phase != self._phase:
            self._console.print(text)
        self._phase = phase


def _print(console: Console, load: Load, verdict: Verdict) -> None:
    counts = Table(title=f"{load.destination}, group {load.group}", title_justify="left", show_header=False)
    counts.add_column()
    counts.add_column(justify="right")
    for name, value in _counts(verdict):
        counts.add_row(name, value)
    console.print(counts)
    latencies = Table(title="Milliseconds since a message was due", title_justify="left")
    latencies.add_column()
    for name in PERCENTILES:
        latencies.add_column(name, justify="right")
    latencies.add_row("acknowledged", *_milliseconds(verdict.send_us))
    latencies.add_row("received", *_milliseconds(verdict.trip_us))
    console.print(latencies)
    for text, times in sorted(verdict.failures.items(), key=lambda item: -item[1])[:3]:
        console.print(Text(f"{times:,} × {text}", "red"))
    if verdict.foreign:
        others = f"{verdict.foreign:,} message(s) of another load arrived."
        console.print(Text(f"{others} If one is running, give each load a --group of its own.", "yellow"))
    if verdict.was_interrupted:
        console.print("Ctrl-C ended the sending.")
    if verdict.complaints:
        console.print(Text(f"Failed: {'; '.join(verdict.complaints)}.", "bold red"))
    else:
        console.print(Text("Every acknowledged message was received.", "bold green"))


def _counts(verdict: Verdict) -> list[tuple[str, str]]:
    rows = [
        ("sent", f"{verdict.sent:,}"),
        ("acknowledged", f"{verdict.acknowledged:,}"),
        ("received", f"{verdict.received:,}"),
        ("lost", f"{verdict.lost:,}"),
        ("delivered again", f"{verdict.duplicates:,}"),
    ]
    if verdict.disordered is not None:
        rows.append(("out of order", f"{verdict.disordered:,}"))
    return [
        *rows,
        ("acknowledged a second", f"{verdict.sent_per_second:,.0f}"),
        ("CPU of this process, µs a message", f"{verdict.cpu_us:,.0f}"),
    ]


def _milliseconds(microseconds: Mapping[str, int | None]) -> list[str]:
    return ["-" if value is None else f"{value / 1000:.2f}" for value in microseconds.values()]
