"""`python -m samples.flights`: send the table through the broker, show the board, check the totals."""

import asyncio
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.live import Live

from samples.flights.board import Board, BoardView
from samples.flights.broker_process import BrokerProcess
from samples.flights.feeder import Feeder
from samples.flights.listeners import Airport, FlightListeners
from samples.flights.running import Stalled, StallWatch, next_steps, run_demo
from samples.flights.table import Flight, Totals, read_flights, totals_of
from streamkit import StreamApplication

HERE = Path(__file__).parent
REFRESH_SECONDS = 0.1
# A board that stays as it is for so long will never be complete: something is broken.
STALL_SECONDS = 60.0
# So many flights are under way at most: the feeder waits for the board, and both bars move together.
LEAD = 4096


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line."""

    limit: int | None
    binder: str
    name_server: str | None
    kill_broker: bool
    store: Path | None


class Run:
    """One run: the feeder, the application, and the board."""

    def __init__(self, options: Options, expected: Totals, broker: BrokerProcess | None, console: Console) -> None:
        self._options = options
        self._broker = broker
        self._console = console
        self._broker_was_killed = False
        self.board = Board(expected.flights)
        self._view = BoardView(self.board)

    async def play(self) -> float:
        """Send every flight; return the seconds until the last one was on the board.

        Raises:
            Stalled: The board did not fill.
        """
        loop = asyncio.get_running_loop()
        app = StreamApplication(Airport, FlightListeners(self.board), config_location=HERE, properties=self._settings())
        async with app:
            channel = app.bound(Airport).departures
            feeder = Feeder[Flight](channel.asend, lead=LEAD, resends=self._options.kill_broker)
            started = loop.time()
            feeding = asyncio.create_task(feeder.feed(read_flights(self._options.limit)))
            try:
                with Live(self._view, console=self._console, refresh_per_second=10):
                    await self._watch(feeder, started)
                await feeding
            finally:
                feeding.cancel()
            return loop.time() - started

    def _settings(self) -> dict[str, str]:
        settings = {"spring.cloud.stream.default-binder": self._options.binder}
        name_server = self._options.name_server or (self._broker.name_server if self._broker else None)
        if name_server is not None:
            settings["spring.cloud.stream.rocketmq.binder.name-server"] = name_server
        return settings

    async def _watch(self, feeder: Feeder[Flight], started: float) -> None:
        loop = asyncio.get_running_loop()
        stall = StallWatch(STALL_SECONDS)
        while not self.board.is_complete:
            await asyncio.sleep(REFRESH_SECONDS)
            self._view.update(feeder.sent, loop.time() - started)
            feeder.note_read(self.board.seen)
            stall.look(self.board.seen)
            await self._kill_broker_in_the_middle()
        self._view.update(feeder.sent, loop.time() - started)

    async def _kill_broker_in_the_middle(self) -> None:
        if not self._options.kill_broker or self._broker_was_killed or self._broker is None:
            return
        if self.board.seen * 2 >= self.board.expected:
            self._broker_was_killed = True
            await self._broker.kill()
            self._view.notice(f"broker killed at flight {self.board.seen:,}, and started again")
            await self._broker.start()


@asynccontextmanager
async def _broker(options: Options) -> AsyncIterator[BrokerProcess | None]:
    """Start a broker process if one is needed; its store is removed at the end unless a directory was given."""
    if options.binder != "rocketmq" or options.name_server is not None:
        yield None
        return
    store = options.store or Path(tempfile.mkdtemp(prefix="streamkit-flights-"))
    broker = BrokerProcess(store)
    try:
        await broker.start()
        yield broker
    finally:
        await broker.stop()
        if options.store is None:
            shutil.rmtree(store, ignore_errors=True)


def _verdict(board: Board, expected: Totals, *, undisturbed: bool) -> list[str]:
    """Return what is wrong with the totals."""
    wrong = []
    if board.totals != expected:
        wrong.append("the board's totals differ from the table's")
    if undisturbed and board.duplicates:
        wrong.append(f"{board.duplicates:,} flights arrived more than once")
    if undisturbed and board.out_of_order:
        wrong.append(f"{board.out_of_order:,} flights arrived after a later one of their aircraft")
    return wrong


async def _main(options: Options, console: Console) -> int:
    with console.status("Adding up the table ..."):
        expected = totals_of(read_flights(options.limit))
    async with _broker(options) as broker:
        run = Run(options, expected, broker, console)
        try:
            seconds = await run.play()
        except Stalled as error:
            raise Stalled(f"{run.board.seen:,} of {run.board.expected:,} flights arrived: {error}") from error
    board = run.board
    wrong = _verdict(board, expected, undisturbed=not options.kill_broker)
    for line in wrong:
        console.print(f"[red]✗[/red] {line}")
    if wrong:
        return 1
    console.print(
        f"\n[green]✓[/green] {board.expected:,} flights through two topics in {seconds:.1f} s "
        f"({board.expected / seconds:,.0f}/s).\n"
        f"  Every total equals the table's; {board.duplicates:,} repeated deliveries were left out."
    )
    _say_what_next(options, console)
    return 0


def _say_what_next(options: Options, console: Console) -> None:
    steps = {}
    if not options.kill_broker and options.binder == "rocketmq":
        steps["make demo-listeners ARGS=--kill-broker"] = "kill the broker; the totals stay"
    if options.binder == "rocketmq":
        steps["make demo-listeners ARGS='--binder inmemory'"] = "the same without a broker"
    steps["samples/flights/listeners.py"] = "the two functions that did it"
    steps["docs/tutorial.md"] = "an application of your own"
    console.print(next_steps(steps))


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--limit", type=click.IntRange(min=1), help="Only the table's first rows.")
@click.option("--binder", type=click.Choice(["rocketmq", "inmemory"]), default="rocketmq", show_default=True)
@click.option("--name-server", help="Use the RocketMQ behind this name server instead of starting one.")
@click.option("--kill-broker", is_flag=True, help="Kill the broker in the middle, and start it again.")
@click.option("--store", type=click.Path(path_type=Path), help="Keep the broker's store here.")
def main(*, limit: int | None, binder: str, name_server: str | None, kill_broker: bool, store: Path | None) -> None:
    """Stream a year of New York flights through the broker and check the totals."""
    if kill_broker and (binder != "rocketmq" or name_server is not None):
        raise click.UsageError("--kill-broker kills the broker that the demo starts itself")
    options = Options(limit, binder, name_server, kill_broker, store)
    sys.exit(run_demo(_main(options, Console())))


if __name__ == "__main__":
    main()
