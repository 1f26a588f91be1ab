"""A standalone cluster of Spark on this machine: a master, and workers that start the executors of applications.

::

    master
    ├── worker ── executor ── Python        a group of processes each, which is killed together as a machine would be;
    └── worker ── executor ── Python        a directory each, and nothing shared but the checkpoint's

`pyspark` has the programs: ``pip`` installs all of Spark.
"""

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from samples.flights.running import Stalled
from samples.pipeline.process_tree import descendants, kill
from streamkit.spark import java_home
from streamkit.spark.python import wrapped

HOST = "127.0.0.1"
WORKERS = 2
EXECUTOR_MEMORY = "512m"
"""The memory of an executor, all that a worker has."""

PROGRAMS = "programs"
"""The directory, below the cluster's, of the program that runs Python."""

# Spark's code runs a few times each here: compiling it well takes longer than it saves. Its released classes are
# well-formed, and verifying them takes a tenth of Spark's start.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"

DRIVER_HOST = "SPARK_LOCAL_IP"
"""The environment variable with the address of the driver, a variable of Spark's."""

START_SECONDS = 120.0
POLL_SECONDS = 0.1
EXECUTOR = "CoarseGrainedExecutorBackend"
"""A part of the command lines of executors."""

PYTHON = "pyspark.daemon"
"""A part of the command lines of Spark's Python workers, and of the process that forks them."""

_LEADER = "I have been elected leader"
_ADDRESS = re.compile(r"Starting Spark master at (spark://\S+)")


@dataclass(frozen=True, slots=True)
class Machine:
    """Where a process runs.

    Attributes:
        host: Its address there, at which the others reach it.
        enter: The command that starts a program there, without the program; empty on this machine.
    """

    host: str = HOST
    enter: Sequence[str] = ()


class SparkCluster:
    """Runs a master and workers of one core each, on ports that are free.

    Args:
        directory: For logs, and for the files of each worker.
        host: The address of the master and of drivers.
        workers: The machine of each worker.
    """

    def __init__(self, directory: Path, host: str = HOST, workers: Sequence[Machine] = (Machine(),) * WORKERS) -> None:
        self._directory = directory
        self._host = host
        self._machines = {f"worker-{number}": machine for number, machine in enumerate(workers)}
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: dict[str, subprocess.Popen[bytes]] = {}
        self.url = ""

    def session_environment(self) -> dict[str, str]:
        """Return the environment variables for a driver.

        Python processes import PySpark as it is installed, in a fifth of the time that an import from Spark's zip file
        takes. Spark waits ten seconds for a process, which is too short for the zip file on a busy machine.
        """
        return {
            "PYSPARK_PYTHON": str(wrapped(sys.executable, self._directory / PROGRAMS)),
            DRIVER_HOST: self._host,
        }

    async def start(self) -> None:
        """Start all processes, and wait until the master takes applications; workers join it when they are ready.

        Raises:
            Stalled: The master did not start; the text has the end of its log.
        """
        self._master = self._launch("master", Machine(self._host), "master.Master")
        self.url = await self._await_master(self._master)
        for name in self._machines:
            self._start_worker(name)

    def stop(self) -> None:
        """Kill all processes, those of the executors too."""
        for process in (*self._workers.values(), self._master):
            if process is not None:
                _kill_group(process)
        self._workers.clear()
        self._master = None

    def replace_worker(self) -> None:
        """Kill a worker with all that it has started, as if its machine was lost, and start it again."""
        name = random.choice(list(self._workers))
        _kill_group(self._workers.pop(name))
        self._start_worker(name)

    async def kill_executor(self) -> None:
        """Kill an executor, when there is one; its worker starts another one."""
        found: list[int] = []
        while not found:  # there is none while no application runs
            await asyncio.sleep(POLL_SECONDS)
            found = [process for process, command in (await self.started()).items() if EXECUTOR in command]
        kill(random.choice(found))

    async def kill_python(self) -> None:
        """Kill one of the executors' Python workers, the process that forks them, or an executor that has none yet."""
        started = [process for process, command in (await self.started()).items() if PYTHON in command]
        if started:
            kill(random.choice(started))
        else:  # there may be no more tasks that start one
            await self.kill_executor()

    async def started(self) -> dict[int, str]:
        """Return all processes that the workers have started, with their command lines."""
        found: dict[int, str] = {}
        for worker in list(self._workers.values()):
            found |= await descendants(worker.pid)
        return found

    def _start_worker(self, name: str) -> None:
        arguments = ["--cores", "1", "--memory", EXECUTOR_MEMORY, "--work-dir", str(self._directory / name / "work")]
        self._workers[name] = self._launch(name, self._machines[name], "worker.Worker", *arguments, self.url)

    def _launch(self, name: str, machine: Machine, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        own = self._directory / name
        own.mkdir(parents=True, exist_ok=True)
        spark = spark_home()
        command = [*machine.enter, str(spark / "bin" / "spark-class"), f"org.apache.spark.deploy.{program}"]
        with self._log(name).open("ab") as log:
            return subprocess.Popen(
                [*command, "--host", machine.host, "--port", "0", "--webui-port", "0", *arguments],
                cwd=own,
                env=os.environ | _environment(machine.host, own, spark),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a group of processes that is killed together, and not by Ctrl-C
            )

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    async def _await_master(self, master: subprocess.Popen[bytes]) -> str:
        """Return the master's address. A worker that asks it earlier would try again after seconds only."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            text = self._log("master").read_text(errors="replace")
            address = _ADDRESS.search(text)
            if address and _LEADER in text:
                return address[1]
            if master.poll() is not None or time.monotonic() > deadline:
                raise Stalled(f"Spark's master did not start:\n{text[-2000:]}")
            await asyncio.sleep(POLL_SECONDS)


def settings(host: str) -> Mapping[str, str]:
    """Return the settings of a session on a cluster, whose driver has this address."""
    return {
        "spark.driver.host": host,
        "spark.executor.memory": EXECUTOR_MEMORY,
        "spark.executor.extraJavaOptions": SHORT_LIVED,
    }


def spark_home() -> Path:
    """Return where PySpark is installed, with all of Spark."""
    spec = find_spec("pyspark")
    assert spec is not None, "the demo has looked for it"
    assert spec.origin is not None
    return Path(spec.origin).parent


def _environment(host: str, own: Path, spark: Path) -> dict[str, str]:
    home = java_home()
    return {
        **({} if home is None else {"JAVA_HOME": str(home)}),
        "SPARK_HOME": str(spark),
        "SPARK_CONF_DIR": str(own),  # not the settings of another cluster
        "SPARK_LOCAL_DIRS": str(own / "local"),
        "SPARK_LOCAL_IP": host,
        "SPARK_DAEMON_MEMORY": "256m",
        # A master gives an application up after ten executors that ended; here they are killed on purpose.
        "SPARK_DAEMON_JAVA_OPTS": f"{SHORT_LIVED} -Dspark.deploy.maxExecutorRetries=-1",
    }


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that leads a group, and the group; wait for the process."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # all have ended
    process.wait()
