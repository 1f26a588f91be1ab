"""A pipeline whose driver, workers and broker are killed at random loses nothing and repeats nothing."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rocket_client.blocking import UNREACHABLE_ERRORS, BlockingClient, ProducerSettings, ResponseError
from samples.pipeline.process_tree import descendants
from tests.end_to_end.broker_process import ROOT, ServerProcess, running
from tests.ports import free_ports
from tests.spark.stand import BUNDLED, Stand

SECONDS = 240.0
POLL_SECONDS = 0.02
ROWS = 3600
KILLS = ["driver"] * 2 + ["python"] * 6 + ["broker"] * 4


class Pipeline:
    """Broker and driver as processes, restarted after each kill."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self._ports = free_ports()
        self._broker = self._start_broker()
        self.stand = Stand(BUNDLED, f"127.0.0.1:{self._ports[0]}")
        stack.enter_context(self.stand.client)
        self.source, self.once, self.at_least_once = (self.stand.topic() for _ in range(3))
        self._driver: subprocess.Popen[bytes] | None = None

    def start_driver(self) -> None:
        """Run the queries."""
        log = self._stack.enter_context((self._directory / "driver.log").open("ab"))
        topics = [self.source, self.once, self.at_least_once]
        self._driver = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.spark.pipeline",
                self.stand.name_server,
                *topics,
                str(self._directory),
            ],
            stdout=log,
            stderr=log,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )

    def kill_driver(self) -> None:
        """Kill the driver with all its processes, and restart it."""
        self.end_driver()
        self.start_driver()

    def end_driver(self) -> None:
        """Kill the driver with all its processes: an orphaned JVM would run for a while."""
        driver = self._driver
        if driver is None:
            return
        for process in (driver.pid, *asyncio.run(descendants(driver.pid))):
            _kill(process)
        driver.wait()
        self._driver = None

    def kill_python(self) -> None:
        """Kill one of Spark's Python processes: a worker, their daemon, or a planner."""
        assert self._driver is not None
        started = asyncio.run(descendants(self._driver.pid))
        pythons = [process for process, command in started.items() if "pyspark" in command and "java" not in command]
        if pythons:
            _kill(random.choice(pythons))

    def kill_broker(self) -> None:
        """Kill the broker, and restart it on its ports with its store."""
        self._broker.signal(signal.SIGKILL)
        self._broker = self._start_broker()

    def stored(self) -> int:
        """Return the number of rows in the target that has fewer."""
        settings = ProducerSettings(name_servers=self.stand.name_server)
        try:
            with BlockingClient("count", settings) as client:
                return min(
                    sum(client.max_offsets(client.queues(topic)).values()) for topic in (self.once, self.at_least_once)
                )
        except (*UNREACHABLE_ERRORS, ResponseError):
            return 0

    def await_rows(self, count: int) -> None:
        """Wait until so many rows have arrived."""
        deadline = time.monotonic() + SECONDS
        while self.stored() < count:
            assert time.monotonic() < deadline, self.log()
            time.sleep(POLL_SECONDS)

    def await_all(self, expected: set[str]) -> None:
        """Wait until each of these bodies has arrived in both targets."""
        self.await_rows(len(expected))
        deadline = time.monotonic() + SECONDS
        for topic in (self.once, self.at_least_once):
            while missing := expected - set(self.stand.bodies(topic)):
                assert time.monotonic() < deadline, f"{len(missing)} rows missing\n{self.log()}"
                time.sleep(POLL_SECONDS * 10)

    def log(self) -> str:
        """Return the last output of driver and broker."""
        driver = (self._directory / "driver.log").read_text(errors="replace")
        return driver[-4000:] + "".join(self._broker.log[-20:])

    def _start_broker(self) -> ServerProcess:
        name_server_port, port = map(str, self._ports)
        store = str(self._directory / "store")
        broker = self._stack.enter_context(
            running(
                "broker", "-p", port, "--name-server-port", name_server_port, "--store", store,
                cwd=self._directory,
            )
        )  # fmt: skip
        broker.address()
        return broker


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    """A broker and its topics; the driver is not started yet."""
    with ExitStack() as stack:
        made = Pipeline(tmp_path, stack)
        stack.callback(made.end_driver)
        yield made


@pytest.mark.promise
@pytest.mark.timeout(600)
def test_kills_at_random_points_lose_nothing(pipeline: Pipeline) -> None:
    """The output equals a batch computation: each row once with `deduplicated`, at least once without."""
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    kinds = list(KILLS)
    chance.shuffle(kinds)
    pipeline.stand.fill(pipeline.source, ROWS)
    pipeline.start_driver()
    kills: dict[str, Callable[[], None]] = {
        "driver": pipeline.kill_driver,
        "python": pipeline.kill_python,
        "broker": pipeline.kill_broker,
    }
    rows = 0
    for kind in kinds:
        rows += chance.randrange(1, ROWS // len(kinds))
        pipeline.await_rows(rows)
        kills[kind]()
    expected = [f"seen-{number}" for number in range(ROWS)]
    pipeline.await_all(set(expected))
    pipeline.end_driver()
    once = Counter(pipeline.stand.bodies(pipeline.once))
    assert once == Counter(expected), f"seed {seed}: {kinds}"
    at_least_once = Counter(pipeline.stand.bodies(pipeline.at_least_once))
    assert set(at_least_once) == set(expected), f"seed {seed}: {kinds}"


def _kill(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has ended
