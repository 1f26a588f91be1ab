"""Two queries that copy a topic, one of them with `deduplicated`, whose processes and whose broker are killed."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from rocket_client.blocking import UNREACHABLE_ERRORS, BlockingClient, ProducerSettings, ResponseError
from samples.flights.broker_process import Registration
from samples.pipeline.cluster import DRIVER_HOST, EXECUTOR, HOST, WORKERS, SparkCluster, spark_home
from samples.pipeline.process_tree import descendants, kill
from tests.end_to_end.broker_process import ROOT, ServerProcess, running
from tests.ports import free_ports
from tests.spark.stand import BUNDLED, Stand

SECONDS = 600.0
POLL_SECONDS = 0.1
"""Seconds between two requests for the number of stored rows, which take processor time of the broker as well."""

PYTHON = "-m pyspark."
"""A part of the command lines of Spark's Python processes: workers, those that fork them, and planners. The scripts
that start a driver's JVM do not have it: without a JVM the driver would end."""

LOCAL_CLUSTER = "local-cluster[2,1,1024]"
"""A cluster whose master and two workers are in the driver's process; its executors are processes of their own."""


class Copies:
    """Broker and driver as processes, restarted after each kill.

    Args:
        directory: For the broker's store, the checkpoints and the logs.
        stack: Ends the processes.
        cluster: Where executors run; None: on `LOCAL_CLUSTER`.
        registration: For a broker that other machines reach; None: broker and name server are on loopback.

    Attributes:
        stand: The broker.
        once: The topic of the query with `deduplicated`.
        at_least_once: The topic of the other query.
        kills: What can be killed, by its name.
    """

    def __init__(
        self,
        directory: Path,
        stack: ExitStack,
        cluster: SparkCluster | None = None,
        registration: Registration | None = None,
    ) -> None:
        self._directory = directory
        self._stack = stack
        self._cluster = cluster
        if registration is None:
            name_server_port, port = map(str, free_ports())
            name_server = f"127.0.0.1:{name_server_port}"
            ports = ("-p", port, "--name-server-port", name_server_port)
            self._broker_arguments: tuple[str, ...] = (*ports, "--store", str(directory / "store"))
        else:
            name_server = registration.name_server
            self._broker_arguments = ("-c", str(registration.config))
        self._broker = self._start_broker()
        self.stand = Stand(BUNDLED, name_server)
        stack.enter_context(self.stand.client)
        self._source = self.stand.topic(queues=WORKERS)  # a batch is a task for each of them
        self.once, self.at_least_once = self.stand.topic(), self.stand.topic()
        self._driver: subprocess.Popen[bytes] | None = None
        stack.callback(self.end_driver)
        self.kills: Mapping[str, Callable[[], None]] = {
            "driver": self._kill_driver,
            "worker": self._kill_python,
            "executor": self._kill_executor,
            "broker": self._kill_broker,
        }
        if cluster is not None:
            self.kills = {**self.kills, "machine": cluster.replace_worker}

    def run(self, rows: int, victims: list[str], chance: random.Random) -> list[str]:
        """Copy so many rows while these are killed, one after the other; return which promises were broken."""
        self.stand.fill(self._source, rows)
        self._start_driver()
        reached = 0
        for victim in victims:
            reached += chance.randrange(1, rows // len(victims))
            self._await_rows(reached)
            self.kills[victim]()
        expected = [f"seen-{number}" for number in range(rows)]
        self._await_all(set(expected))
        self.end_driver()
        broken = []
        if Counter(self.stand.bodies(self.once)) != Counter(expected):
            broken.append("rows are missing or stored twice with delivery=deduplicated")
        if set(self.stand.bodies(self.at_least_once)) != set(expected):
            broken.append("rows are missing, or nobody sent them, with delivery=at-least-once")
        return broken

    def end_driver(self) -> None:
        """Kill the driver with all its processes: an orphaned JVM would run for a while."""
        driver = self._driver
        if driver is None:
            return
        for process in (driver.pid, *asyncio.run(descendants(driver.pid))):
            kill(process)
        driver.wait()
        self._driver = None

    # What is killed

    def _start_driver(self) -> None:
        log = self._stack.enter_context((self._directory / "driver.log").open("ab"))
        environment = os.environ | {"PYTHONPATH": str(ROOT), DRIVER_HOST: HOST}
        if self._cluster is None:
            master = LOCAL_CLUSTER
            environment["SPARK_HOME"] = str(_linked_spark(self._directory / "pyspark"))
        else:
            master = self._cluster.url
            environment |= self._cluster.session_environment()
        topics = [self._source, self.once, self.at_least_once]
        self._driver = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.spark.pipeline",
                master,
                self.stand.name_server,
                str(self._directory),
                *topics,
            ],
            stdout=log,
            stderr=log,
            cwd=ROOT,
            env=environment,
        )

    def _kill_driver(self) -> None:
        self.end_driver()
        self._start_driver()

    def _kill_python(self) -> None:
        """Kill one of Spark's Python processes: a worker, their daemon, or a planner."""
        self._kill_one_of(lambda command: PYTHON in command)

    def _kill_executor(self) -> None:
        self._kill_one_of(lambda command: EXECUTOR in command)

    def _kill_one_of(self, is_meant: Callable[[str], bool]) -> None:
        deadline = time.monotonic() + SECONDS
        while not (found := [process for process, command in self._started().items() if is_meant(command)]):
            self._expect_running(deadline)
            time.sleep(POLL_SECONDS)
        kill(random.choice(found))

    def _started(self) -> dict[int, str]:
        assert self._driver is not None
        found = asyncio.run(descendants(self._driver.pid))
        return found if self._cluster is None else found | asyncio.run(self._cluster.started())

    def _kill_broker(self) -> None:
        """Kill the broker, and restart it on its ports with its store."""
        self._broker.signal(signal.SIGKILL)
        self._broker = self._start_broker()

    def _start_broker(self) -> ServerProcess:
        broker = self._stack.enter_context(running("broker", *self._broker_arguments, cwd=self._directory))
        broker.address()
        return broker

    # How far it is

    def _stored(self) -> int:
        """Return the number of rows in the target that has fewer."""
        settings = ProducerSettings(name_servers=self.stand.name_server)
        try:
            with BlockingClient("count", settings) as client:
                return min(
                    sum(client.max_offsets(client.queues(topic)).values()) for topic in (self.once, self.at_least_once)
                )
        except (*UNREACHABLE_ERRORS, ResponseError):
            return 0

    def _await_rows(self, count: int) -> None:
        """Wait until so many rows have arrived."""
        deadline = time.monotonic() + SECONDS
        while self._stored() < count:
            self._expect_running(deadline)
            time.sleep(POLL_SECONDS)

    def _await_all(self, expected: set[str]) -> None:
        """Wait until each of these bodies has arrived in both targets."""
        self._await_rows(len(expected))
        deadline = time.monotonic() + SECONDS
        for topic in (self.once, self.at_least_once):
            while missing := expected - set(self.stand.bodies(topic)):
                self._expect_running(deadline, f"{len(missing)} rows are missing")
                time.sleep(POLL_SECONDS)

    def _expect_running(self, deadline: float, missing: str = "what is waited for did not come") -> None:
        """Fail if driver or broker has ended by itself, which nothing would start again, or if it is too late."""
        assert self._driver is not None
        assert self._driver.poll() is None, f"the driver has ended\n{self.log()}"
        assert not self._broker.has_ended, f"the broker has ended\n{self.log()}"
        assert time.monotonic() < deadline, f"{missing}\n{self.log()}"

    def log(self) -> str:
        """Return the last output of driver and broker."""
        driver = (self._directory / "driver.log").read_text(errors="replace")
        return driver[-4000:] + "".join(self._broker.log[-20:])


def _linked_spark(directory: Path) -> Path:
    """Return a directory that has Spark as links: the workers of `LOCAL_CLUSTER` write into Spark's own one."""
    if not directory.exists():
        directory.mkdir()
        for name in ("bin", "jars", "python"):
            (directory / name).symlink_to(spark_home() / name)
    return directory
