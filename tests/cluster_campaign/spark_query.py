"""A query of Spark that reads a topic of the cluster while masters are killed (`spark_program`).

In the end it must have counted each message that the topic has, once.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Final, Self

from samples.pipeline.process_tree import descendants, kill
from tests.end_to_end.broker_process import ROOT
from tests.spark.stand import Stand

TOPIC: Final = "cluster-ordered"
TOTALS: Final = "totals.json"
"""The file of the totals: of each key how many messages there are, and the sum of their numbers."""
RESTARTED: Final = "the query ended, and is started again"
MOMENT: Final = 0.2
PATIENCE: Final = 900.0
"""Seconds within which the query must count what is there: on a busy machine Spark takes minutes to start."""

Totals = dict[str, tuple[int, int]]
"""Of each key, how many messages it has, and the sum of their numbers."""


class SparkQuery:
    """The process of the query, while the context lasts."""

    def __init__(self, directory: Path, name_server: str) -> None:
        """Start nothing yet.

        Args:
            directory: For its totals, its checkpoint and its log.
            name_server: The cluster's.
        """
        self._directory = directory / "spark"
        self._name_server = name_server
        self._driver: subprocess.Popen[bytes] | None = None

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._start)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._driver is not None:
            for process in (self._driver.pid, *await descendants(self._driver.pid)):
                kill(process)
            await asyncio.to_thread(self._driver.wait)

    def _start(self) -> None:
        self._directory.mkdir()
        command = [sys.executable, "-m", "tests.cluster_campaign.spark_program"]
        with self._log.open("wb") as log:
            self._driver = subprocess.Popen(
                [*command, self._name_server, str(self._directory)],
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
            )

    @property
    def counted(self) -> int:
        """How many messages the query has counted."""
        return sum(messages for messages, _ in self._totals().values())

    @property
    def restarts(self) -> int:
        """How often the query has ended, and was started again."""
        return self._log.read_text(errors="replace").count(RESTARTED)

    async def reach(self, messages: int) -> str | None:
        """Wait until the query has counted so many messages; return what is wrong if it does not."""
        deadline = time.monotonic() + PATIENCE
        while self.counted < messages:
            if time.monotonic() > deadline:
                last = self._log.read_text(errors="replace")[-1000:]
                return f"Spark has counted {self.counted} of {messages} messages in {PATIENCE:.0f} s: {last}"
            await asyncio.sleep(MOMENT)
        return None

    async def audit(self) -> list[str]:
        """Return the broken promises, once nothing is sent any more."""
        stored = await asyncio.to_thread(self._stored)
        if late := await self.reach(sum(messages for messages, _ in stored.values())):
            return [late]
        counted = self._totals()
        return [
            f"Spark has counted {counted.get(key)} of {key}, and the topic has {stored.get(key)}, as messages and sum"
            for key in sorted(stored.keys() | counted.keys())
            if stored.get(key) != counted.get(key)
        ]

    def _totals(self) -> Totals:
        file = self._directory / TOTALS
        if not file.exists():
            return {}
        return {key: (messages, total) for key, (messages, total) in json.loads(file.read_text()).items()}

    def _stored(self) -> Totals:
        """Return the totals of what the topic has."""
        numbers = defaultdict[str, list[int]](list)
        stand = Stand("apache", self._name_server)
        with stand.client:
            for body in stand.bodies(TOPIC):
                key, _, number = body.partition(":")
                numbers[key].append(int(number))
        return {key: (len(each), sum(each)) for key, each in numbers.items()}

    @property
    def _log(self) -> Path:
        return self._directory / "driver.log"
