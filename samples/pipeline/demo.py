"""The demo from end to end: a broker for it, a run, the chart and the verdict."""

import asyncio
import logging
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.console import Console

from samples.flights.broker_process import BrokerProcess
from samples.flights.running import Stalled, next_steps
from samples.pipeline.board import zones_table
from samples.pipeline.cluster import WORKERS, SparkCluster
from samples.pipeline.departures import read_table
from samples.pipeline.picture import draw_picture
from samples.pipeline.run import Run, Victim
from samples.pipeline.sums import sum_of
from samples.pipeline.totals import DayTotals, Place, totals_of

LONGEST_LOG = 2000


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line."""

    flights: int | None
    victims: tuple[Victim, ...]
    picture: Path
    on_cluster: bool = False


async def demo(options: Options) -> int:
    """Run the demo; return the exit code, 0 if every total is right."""
    console = Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="streamkit-pipeline-", ignore_cleanup_errors=True) as directory:
        return await _play(options, Path(directory), console)


async def _play(options: Options, directory: Path, console: Console) -> int:
    # Warnings of clients while a broker is away would be written over the bars.
    logging.basicConfig(filename=directory / "demo.log", format="%(name)s: %(message)s")
    broker = BrokerProcess(directory / "store")
    cluster = SparkCluster(directory / "cluster") if options.on_cluster else None
    run = Run(broker, directory, console, cluster=cluster)
    try:
        await broker.start()
        if cluster is not None:
            with console.status("Spark's master starts ..."):
                await cluster.start()
            console.print(f"Spark runs on {cluster.url}, with {WORKERS} workers of one core each.\n", markup=False)
        await run.start()
        with console.status("Spark starts, and pandas adds up the table, to compare with ..."):
            table = await asyncio.to_thread(read_table, options.flights)
            expected = await asyncio.to_thread(totals_of, table)
        console.print(f"[bold]{len(table):,} flights → broker → Spark → broker → chart[/bold]\n")
        seconds = await run.play(table, expected, options.victims)
    except Stalled as error:
        console.print(f"\n[red]✗[/red] {run.board.describe()}: {error}")
        _show_logs(directory, console)
        return 1
    finally:
        await run.stop()
        if cluster is not None:
            cluster.stop()
        await broker.stop()
    wrong = verdict(run, expected)
    for line in wrong:
        console.print(f"[red]✗[/red] {line}")
    if not wrong:
        await asyncio.to_thread(draw_picture, run.board.totals.values(), options.picture)
        _show_figures(run.board.totals.values(), console)
        _tell_success(run, len(table), seconds, options, console)
        _say_what_next(options, console)
    return 1 if wrong else 0


def verdict(run: Run, expected: dict[Place, DayTotals]) -> list[str]:
    """Return what is wrong with the totals."""
    wrong = []
    if run.board.totals != expected:
        wrong.append(_first_difference(run.board.totals, expected))
    if run.board.different:
        wrong.append(f"totals came again with other values, first {run.board.different[0]}")
    if run.stored != len(expected):
        wrong.append(f"the query left {run.stored:,} messages in its topic, for {len(expected):,} totals")
    return wrong


def _first_difference(arrived: dict[Place, DayTotals], expected: dict[Place, DayTotals]) -> str:
    places = sorted(place for place in arrived.keys() | expected if arrived.get(place) != expected.get(place))
    first = places[0]
    return (
        f"{len(places):,} totals are not those of the table. The first: {arrived.get(first)} came, "
        f"{expected.get(first)} is right"
    )


def _show_figures(totals: Collection[DayTotals], console: Console) -> None:
    console.print()
    console.print(zones_table(totals))
    everything = sum_of(totals)
    share = everything.inherited / everything.late if everything.late else 0.0
    rain = f", in hours of rain or snow {everything.mean_late_in_rain:.1f}" if everything.in_rain else ""
    console.print(f"\nA flight left {everything.mean_late:.1f} minutes late on average{rain}.")
    console.print(f"Aircraft had brought along {share:.0%} of all delay from their flights before.")


def _tell_success(run: Run, flights: int, seconds: float, options: Options, console: Console) -> None:
    batches = run.driver.batches.values()
    middle = median(batch.seconds for batch in batches)
    console.print(
        f"\n[green]✓[/green] {flights:,} flights in {seconds:.0f} s with Spark's start; {len(batches)} batches, "
        f"{middle:.1f} s as a median.\n"
        f"  {len(run.board.totals):,} totals by day, airport and time zone:\n"
        "  each is what pandas computes, and stored once."
    )
    if options.victims:
        console.print(f"  Killed on the way: {', '.join(options.victims)}.")
    console.print(f"  The chart as a picture: {options.picture}", soft_wrap=True)


def _show_logs(directory: Path, console: Console) -> None:
    for log in (directory / "demo.log", directory / "driver.log"):
        text = log.read_text() if log.exists() else ""
        if text:
            console.print(f"\n{log.name}:", style="bold")
            console.print(text[-LONGEST_LOG:], markup=False)


def _say_what_next(options: Options, console: Console) -> None:
    kill = {"make demo ARGS='--kill driver --kill broker'": "kill them; the totals stay"}
    cluster = {"make demo ARGS='--cluster'": "on a Spark cluster of two workers"}
    console.print(
        next_steps(
            ({} if options.victims else kill)
            | ({} if options.on_cluster else cluster)
            | {
                "make demo-listeners": "the same flights, without Spark",
                "samples/pipeline/query.py": "the query; see docs/spark.md",
            }
        )
    )
