"""Spark's driver as a process of its own, so that it can be killed, and its workers too."""

import asyncio
import os
import random
import sys
from pathlib import Path

from samples.pipeline.cluster import PYTHON, SparkCluster
from samples.pipeline.process_tree import descendants, kill
from samples.pipeline.progress import BATCH, FAILED, STARTED, BatchProgress

CHECKPOINT = "SAMPLES_PIPELINE_CHECKPOINT"
"""The environment variable with the directory of the query's checkpoint."""

MASTER = "SAMPLES_PIPELINE_MASTER"
"""The environment variable with the address of a cluster's master. Without it, Spark runs in the driver's process."""

STOP_SECONDS = 60.0


class DriverProcess:
    """Runs the query from the checkpoint in a directory, and reads its output.

    Args:
        name_server: The address of the broker's name server.
        directory: For the checkpoint and the log.
        cluster: Where executors run; None: in the driver's process.

    Attributes:
        started: Is set when the query runs: from then on, if it fails the driver starts it again.
        batches: The progress of each batch, by its number.
        read: The number of messages that it has read.
        failures: The reason of each failure of the query.
    """

    def __init__(self, name_server: str, directory: Path, cluster: SparkCluster | None = None) -> None:
        self._name_server = name_server
        self._directory = directory
        self._cluster = cluster
        self._process: asyncio.subprocess.Process | None = None
        self._listening: set[asyncio.Task[None]] = set()
        self._told = asyncio.Condition()
        self._is_killed = False
        self.started = asyncio.Event()
        self.batches: dict[int, BatchProgress] = {}
        self.read = 0
        self.failures: list[str] = []

    @property
    def log(self) -> Path:
        """The file with the driver's error output."""
        return self._directory / "driver.log"

    @property
    def has_ended(self) -> bool:
        """Whether the driver ended by itself, as it does if the query cannot be started."""
        return self._process is not None and self._process.returncode is not None and not self._is_killed

    async def start(self) -> None:
        """Start the driver. Spark takes some seconds until it reads."""
        with self.log.open("ab") as log:
            self.started.clear()
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "samples.pipeline.driver", self._name_server),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=self._environment(),
                start_new_session=True,  # Ctrl-C is for the demo alone, which stops its driver
            )
        self._is_killed = False
        listening = asyncio.create_task(self._listen(self._process))
        self._listening.add(listening)  # until its process ends
        listening.add_done_callback(self._listening.discard)

    def _environment(self) -> dict[str, str]:
        environment = {**os.environ, CHECKPOINT: str(self._directory / "checkpoint")}
        if self._cluster is not None:
            environment |= {MASTER: self._cluster.url, **self._cluster.session_environment()}
        return environment

    async def wait_until_read(self, messages: int) -> None:
        """Wait until the query has read a number of messages."""
        async with self._told:
            await self._told.wait_for(lambda: self.read >= messages)

    async def kill(self) -> None:
        """Kill the driver and its descendants, as `kill -9` does."""
        if self._process is None or self._process.returncode is not None:
            return
        self._is_killed = True
        for process in (self._process.pid, *await descendants(self._process.pid)):
            kill(process)
        await self._process.wait()

    async def kill_worker(self) -> None:
        """Kill one of Spark's Python workers, or the process that forks them, as `kill -9` does."""
        assert self._process is not None
        if self._cluster is not None:
            await self._cluster.kill_python()
            return
        found: list[int] = []
        while not found:  # there is none while no task of the query runs
            await asyncio.sleep(0.1)
            started = await descendants(self._process.pid)
            found = [process for process, command in started.items() if PYTHON in command]
        kill(random.choice(found))

    async def stop(self) -> None:
        """Stop the query and Spark in order."""
        if self._process is None or self._process.stdin is None:
            return
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), STOP_SECONDS)
        except TimeoutError:
            await self.kill()

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            text = line.decode()
            if text.startswith(BATCH):
                progress = BatchProgress.from_line(text)
                self.batches[progress.batch] = progress
                self.read = max(self.read, progress.read)
                async with self._told:
                    self._told.notify_all()
            elif text.startswith(STARTED):
                self.started.set()
            elif text.startswith(FAILED):
                self.failures.append(text.removeprefix(FAILED).strip())
