"""An application on a cluster of Apache's brokers of which a master is killed again and again.

::

    cluster          `ControllerPair` or `TwoMasters`
    application      two instances; senders and listeners of all kinds of `ledger`
    beside it        a shop with an outbox (`orders`), the console (`console`), if asked for a query of Spark
    kill -9          of a master, after a random while in which all kinds are received
    comes back       after a random while, with its store
    next kill        when the cluster is whole again, and messages of each kind that were sent since then are received

In the end all that was acknowledged is received, and no promise of `ledger` is broken, also if the campaign ends early,
because it is interrupted, its time is over, or the cluster does not come back.
"""

import asyncio
import logging
import subprocess
import time
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Final

from rocket_remoting.wire.errors import RemotingError
from tests.cluster_campaign import orders
from tests.cluster_campaign.application import KEYS, QUEUES, TOPICS, Senders, instances
from tests.cluster_campaign.console import Console
from tests.cluster_campaign.ledger import KINDS, Kind, Ledger
from tests.cluster_campaign.orders import Orders
from tests.cluster_campaign.report import Layout, Report
from tests.cluster_campaign.spark_query import SparkQuery
from tests.peer.apache_cluster import Cluster, ControllerPair, TwoMasters, admin

logger = logging.getLogger(__name__)

LAYOUTS: Final[dict[Layout, type[ControllerPair] | type[TwoMasters]]] = {
    "controller": ControllerPair,
    "masters": TwoMasters,
}
TOPICS_OF_ALL: Final = (*TOPICS, *orders.TOPICS)
PATIENCE: Final = 240.0
"""Seconds within which messages of each kind must be received again after a kill; a loaded machine is slow."""
MOMENT: Final = 0.05
LONGEST_QUIET: Final = 3.0
"""Seconds at most before a kill, with the cluster whole."""
LONGEST_ABSENCE: Final = 10.0
"""Seconds at most until a killed master is started again."""
FIRST_SECONDS: Final = 120.0
"""How long the first kill is expected to last, with all that is waited for after it; others as long as the longest."""
END_SECONDS: Final = 120.0
"""How long the end is expected to last, until all is received."""


class Campaign:
    """One cluster, many kills."""

    def __init__(
        self,
        directory: Path,
        layout: Layout,
        seed: int,
        *,
        has_spark: bool = False,
        longest_absence: float = LONGEST_ABSENCE,
    ) -> None:
        """Start nothing yet.

        Args:
            directory: For all that the campaign writes.
            layout: The cluster's kind.
            seed: Of all random choices.
            has_spark: Whether a query of Spark reads a topic, too.
            longest_absence: Seconds at most until a killed master is started again.
        """
        self._directory = directory
        self._chance = Random(seed)
        self._longest_absence = longest_absence
        self._cluster: Cluster = LAYOUTS[layout](directory, dict.fromkeys(TOPICS_OF_ALL, QUEUES))
        self._ledger = Ledger()
        self._until: datetime | None = None
        self._is_interrupted = False
        self._kill_seconds = 0.0
        self._query = SparkQuery(directory, self._cluster.name_server) if has_spark else None
        self.report = Report(layout, LAYOUTS[layout].version, seed)

    async def run(self, kills: int, until: datetime | None = None) -> Report:
        """Kill a master so often, and return what was found.

        Args:
            kills: How often.
            until: Make no kill if the campaign would end after this time; None for any time.
        """
        begun = time.monotonic()
        self._until = until
        try:
            await self._cluster.start()
            await self._await_topics()
            await self._run_all(kills)
        except BaseException:
            logger.exception("the campaign ended without a report; the brokers logged:\n%s", self._logs())
            raise
        finally:
            self._cluster.stop()
        report = self.report
        report.count(self._ledger)
        if report.problems:
            logger.error("the brokers logged:\n%s", self._logs())
        report.seconds = round(time.monotonic() - begun, 1)
        return report

    def end_soon(self) -> None:
        """Make no further kill: `run` finishes the present one, and returns once all is received."""
        self._is_interrupted = True

    async def _run_all(self, kills: int) -> None:
        """Run the application, and what is beside it, while masters are killed."""
        name_server, report = self._cluster.name_server, self.report
        shop = Orders(self._directory, name_server)
        console = Console(self._directory, name_server)
        async with AsyncExitStack() as stack:
            stack.callback(shop.close)
            app = await stack.enter_async_context(instances(name_server, self._ledger))
            await stack.enter_async_context(shop.running())
            if self._query is not None:
                await stack.enter_async_context(self._query)
            async with console.running(), Senders(app, self._ledger, self._chance, PATIENCE).running():
                await self._flow("the start", time.monotonic())
                await self._kill_all(kills)
            logger.info("waiting until all is received")
            await shop.end()
            await self._await_rest(shop)
            report.problems += shop.audit() + console.problems
            if self._query is not None:
                report.problems += await self._query.audit()
                report.counted, report.query_restarts = self._query.counted, self._query.restarts
            report.orders, report.orders_pause = shop.taken, round(shop.longest_pause, 1)
            report.pages, report.page_errors, report.slowest_page = (
                console.pages,
                console.errors,
                round(console.longest, 1),
            )

    async def _kill_all(self, kills: int) -> None:
        """Kill a master so often, unless there is a reason to end before."""
        report = self.report
        while report.kills < kills and not report.problems:
            await asyncio.sleep(self._chance.uniform(0.0, LONGEST_QUIET))
            if self._is_interrupted or self._is_time_over():
                report.ended = "interrupted" if self._is_interrupted else "out of time"
                return
            begun = time.monotonic()
            try:
                await self._kill()
            except (OSError, RemotingError, subprocess.SubprocessError):
                report.ended = "cluster lost"
                logger.exception("the cluster did not come back; the brokers logged:\n%s", self._logs())
                return
            report.kills += 1
            self._kill_seconds = max(self._kill_seconds, time.monotonic() - begun)
            logger.info("kill %d of %d: %s", report.kills, kills, self._summary())

    def _is_time_over(self) -> bool:
        seconds = (self._kill_seconds or FIRST_SECONDS) + END_SECONDS
        return self._until is not None and datetime.now(UTC) + timedelta(seconds=seconds) > self._until

    async def _await_topics(self) -> None:
        """Wait until clients find the topics, and have routes list the queues that are consumed in order."""
        async with admin(self._cluster.name_server) as asking:
            for topic in TOPICS_OF_ALL:
                await asking.await_topic(topic, queues=QUEUES, timeout=PATIENCE)
            if self._cluster.order_conf:
                await asking.set_order_conf("cluster-ordered", self._cluster.order_conf)

    async def _kill(self) -> None:
        """Kill a master, start it again, and wait until all is as before."""
        killed_at = time.monotonic()
        master = await self._cluster.kill_master(self._chance)
        flowing = asyncio.create_task(self._flow(f"the kill of {master}", killed_at))
        try:
            await asyncio.sleep(self._chance.uniform(0.0, self._longest_absence))
            await asyncio.to_thread(master.start)
            await self._cluster.wait_whole()
            await flowing
            await self._flow(f"the return of {master}", time.monotonic())
        finally:
            flowing.cancel()

    async def _flow(self, since_what: str, since: float) -> None:
        """Wait until messages of each kind, and of each key, are received that were sent since then."""
        waiting: dict[str, Kind] = {kind: kind for kind in KINDS if kind != "ordered"}
        waiting |= {f"key k{key}": "ordered" for key in range(KEYS)}
        pauses: dict[Kind, float] = {}
        sent = max(1, len(self._ledger.tallies["ordered"].acknowledged))  # the first kill comes when the query runs
        while waiting:
            now = time.monotonic()
            for lane, kind in list(waiting.items()):
                if self._ledger.latest.get(lane, 0.0) > since:
                    pauses[kind] = now - since
                    del waiting[lane]
            if waiting and now - since > PATIENCE:
                self.report.problems.append(f"{sorted(waiting)} are not received {PATIENCE:.0f} s after {since_what}")
                return
            await asyncio.sleep(MOMENT)
        if self._query is not None and (late := await self._query.reach(sent)):
            self.report.problems.append(f"since {since_what}: {late}")
        if "kill" in since_what:
            for kind, seconds in pauses.items():
                self.report.pauses[kind].append(round(seconds, 2))

    async def _await_rest(self, shop: Orders) -> None:
        """Wait until all that was acknowledged is received, and all that was ordered is confirmed."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if not any(tally.missing for tally in self._ledger.tallies.values()) and shop.is_done:
                return
            await asyncio.sleep(MOMENT)

    def _summary(self) -> str:
        last = ", ".join(f"{kind} {pauses[-1]:.1f} s" for kind, pauses in self.report.pauses.items() if pauses)
        found = len(self._ledger.problems) + len(self.report.problems)
        counts = ", ".join(f"{len(tally.acknowledged)} {kind}" for kind, tally in self._ledger.tallies.items())
        return f"received again after {last}; acknowledged {counts}; {found} problems"

    def _logs(self) -> str:
        return "\n".join(f"{process}:\n{process.log()}" for process in self._cluster.processes)
