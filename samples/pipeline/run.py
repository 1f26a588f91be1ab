"""One run: the feeder, Spark's driver, and the listener that fills the board."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pandas as pd
from rich.console import Console
from rich.live import Live

from rocket_client import Admin
from rocket_client.settings import ClientSettings
from samples.flights.broker_process import BrokerProcess
from samples.flights.running import Stalled, StallWatch
from samples.pipeline.board import Board, BoardView, describe
from samples.pipeline.cluster import SparkCluster
from samples.pipeline.days import Days
from samples.pipeline.departures import closing, departures
from samples.pipeline.driver_process import DriverProcess
from samples.pipeline.feeder import TOPIC, Feeder, create_topic
from samples.pipeline.totals import DayTotals, Place
from streamkit import StreamApplication, stream_listener

SETTINGS = Path(__file__).with_name("chart.properties")
REFRESH_SECONDS = 0.2
# Seconds without a change after which something is broken. Spark takes ten seconds to start, more on a busy machine.
STALL_SECONDS = 300.0
# So many flights Spark is behind at most: two batches, so that it waits for none. Of few flights it is a quarter, so
# that there are some batches.
LEAD, SMALL_LEAD = 200_000, 500
# What is killed is killed within so long of a batch's end: in the middle of the next one, most often.
KILL_WITHIN_SECONDS = 2.0

Victim = Literal["driver", "worker", "executor", "machine", "broker"]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Receives the totals that the query sends."""

    board: Board

    @stream_listener("chart")
    async def on_day(self, totals: DayTotals) -> None:
        """Put the totals on the board."""
        self.board.add(totals)


class Run:
    """Streams a table. Call `start`, `play`, and always `stop`.

    Attributes:
        board: What has arrived.
        driver: Spark's driver.
        stored: How many messages the query has left in its topic.
    """

    def __init__(
        self, broker: BrokerProcess, directory: Path, console: Console, *, cluster: SparkCluster | None = None
    ) -> None:
        self._broker = broker
        self._cluster = cluster
        self._console = console
        self._started = 0.0
        self.board = Board(0)
        self.driver = DriverProcess(broker.name_server, directory, cluster)
        self.stored = 0

    async def start(self) -> None:
        """Create the topic and start Spark, which takes some ten seconds: the table can be read meanwhile."""
        self._started = asyncio.get_running_loop().time()
        await create_topic(self._broker.name_server)
        await self.driver.start()

    async def stop(self) -> None:
        """Kill Spark's processes."""
        await self.driver.kill()

    async def play(self, table: pd.DataFrame, expected: dict[Place, DayTotals], victims: Sequence[Victim]) -> float:
        """Stream a table, and return the seconds from `start` until all totals were on the board.

        Args:
            table: The flights.
            expected: Their totals.
            victims: Processes that are killed at a random moment, and started again by their parent.

        Raises:
            Stalled: The totals did not arrive.
        """
        self._table = table
        self.board = Board(len(expected))
        self._view = BoardView(self.board, len(table), Days.of(totals.date for totals in expected.values()))
        settings = {"spring.cloud.stream.rocketmq.binder.name-server": self._broker.name_server}
        app = StreamApplication(Arrivals(self.board), config_location=SETTINGS, properties=settings)
        lead = LEAD if len(table) > LEAD else max(SMALL_LEAD, len(table) // 4)
        async with app, Feeder(self._broker.name_server, lead=lead, resends="broker" in victims) as feeder:
            streaming = asyncio.create_task(self._stream(feeder, victims))
            try:
                with Live(self._view, console=self._console, refresh_per_second=5):
                    await self._watch(feeder, streaming, victims)
                seconds = asyncio.get_running_loop().time() - self._started
                await self.driver.stop()
            finally:
                streaming.cancel()
                await asyncio.wait([streaming])
            self.stored = await self._count("days")
        return seconds

    async def _stream(self, feeder: Feeder, victims: Sequence[Victim]) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._kill(victims))
            await feeder.feed(departures(self._table))
        # Some were stored twice if the broker was killed, so it is asked how many there are. Only when Spark has read
        # them all may event time pass.
        await self.driver.wait_until_read(await self._count(TOPIC))
        await feeder.send([closing(int(self._table["minute"].iloc[-1]))])

    async def _kill(self, victims: Sequence[Victim]) -> None:
        flights = len(self._table)
        moments = sorted(random.randrange(flights // 10, flights - flights // 10) for _ in victims)
        for victim, moment in zip(victims, moments, strict=True):
            await self.driver.wait_until_read(moment)
            await self.driver.started.wait()
            await asyncio.sleep(random.uniform(0, KILL_WITHIN_SECONDS))
            self._view.notice(f"{victim} killed when Spark had read {self.driver.read:,} flights")
            match victim:
                case "driver":
                    await self.driver.kill()
                    await self.driver.start()
                case "worker":
                    await self.driver.kill_worker()
                case "executor" | "machine":
                    await self._kill_on_cluster(victim)
                case "broker":
                    await self._broker.kill()
                    await self._broker.start()

    async def _kill_on_cluster(self, victim: Literal["executor", "machine"]) -> None:
        assert self._cluster is not None, "the command line has asked for one"
        if victim == "executor":
            await self._cluster.kill_executor()
        else:
            self._cluster.replace_worker()

    async def _watch(self, feeder: Feeder, streaming: asyncio.Task[None], victims: Sequence[Victim]) -> None:
        stall = StallWatch(STALL_SECONDS)
        while not (self.board.is_complete and streaming.done()):
            await asyncio.sleep(REFRESH_SECONDS)
            self._show(feeder)
            feeder.note_read(self.driver.read)
            if streaming.done() and (error := streaming.exception()):
                raise Stalled(f"the feeder ended: {_cause(error)}") from error
            self._expect_driver(victims)
            stall.look((feeder.sent, self.driver.read, len(self.driver.batches), len(self.board.totals)))
        self._show(feeder)

    def _expect_driver(self, victims: Sequence[Victim]) -> None:
        if self.driver.failures and not victims:
            raise Stalled(f"the query failed: {self.driver.failures[0]}")
        if self.driver.has_ended:
            raise Stalled("Spark's driver ended")

    def _show(self, feeder: Feeder) -> None:
        flights = len(self._table)
        self._view.update(min(feeder.sent, flights), min(self.driver.read, flights))
        if not self.driver.started.is_set():
            self._view.show_progress("Spark starts ...")
        elif not self.driver.batches:
            self._view.show_progress("Spark works on its first batch, which takes longest ...")
        else:
            self._view.show_progress(describe(self.driver.batches[max(self.driver.batches)]))

    async def _count(self, topic: str) -> int:
        async with Admin(ClientSettings(name_servers=self._broker.name_server)) as admin:
            stats = await admin.topic_stats(topic)
        return sum(offsets.max_offset for offsets in stats.values())


def _cause(error: BaseException) -> BaseException:
    """Return the first error: errors of tasks are groups of groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
