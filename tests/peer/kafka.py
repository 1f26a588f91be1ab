"""A real Apache Kafka, broker and controller, on free loopback ports with a data directory of its own.

Both run in one JVM (`kafka_server/streamkit/peer/KafkaServer.java`) that ends when the pipe to it closes, so
nothing survives the test run, however that ends.
"""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType

from tests.peer.apache import START_ATTEMPTS
from tests.peer.artifacts import KAFKA_VERSION, class_path, program
from tests.peer.child_process import ChildProcess
from tests.peer.jvm import java_options
from tests.ports import free_ports

HERE = Path(__file__).parent

# One node, small internal topics, no waiting for further members of a group.
SERVER_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "num.partitions": "4",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    # Long enough that the controller does not take a slow broker for dead.
    "broker.session.timeout.ms": "60000",
    "broker.heartbeat.interval.ms": "300",
    # By default the cleaner takes a quarter of the heap, and the indexes of each partition take 20 MiB of disk.
    "log.cleaner.dedupe.buffer.size": "2097152",
    "log.index.size.max.bytes": "1048576",
}
SOON_BACK = {"broker.session.timeout.ms": "4000"}
"""For a broker that is killed: the next one waits until its former self is taken for dead."""


@dataclass(frozen=True, slots=True)
class KafkaRequest:
    """A request as the broker logged it after its answer.

    Attributes:
        kind: The name of its API, such as `PRODUCE`.
        client: The client's id.
        fields: The fields of the request, by their names in Kafka's protocol.
    """

    kind: str
    client: str
    fields: Mapping[str, Any]


class KafkaServer:
    """Apache Kafka, running after construction until `stop`, and again after `start`.

    Attributes:
        address: Where it listens, `host:port`: a client's bootstrap servers; the same after a restart.
        addresses: The same, by protocol.
    """

    def __init__(
        self,
        *,
        settings: Mapping[str, str] | None = None,
        ports: tuple[int, int] | None = None,
        protocols: Sequence[str] = (),
        java: Sequence[str] = (),
    ) -> None:
        """Start it and return when it serves.

        Args:
            settings: Further lines of `server.properties`.
            ports: The controller's port and the broker's; by default free ones.
            protocols: Up to two further protocols it listens for, such as `SSL`, each on a port of its own.
            java: Further options of the JVM, which is small and compiles quickly rather than well.
        """
        self._settings = {**SERVER_PROPERTIES, **(settings or {})}
        self._protocols = protocols
        self._java = java
        self._home = Path(tempfile.mkdtemp(prefix="kafka-"))
        self._process: ChildProcess | None = None
        try:
            self._start_first(ports)
        except BaseException:
            shutil.rmtree(self._home, ignore_errors=True)
            raise

    def __repr__(self) -> str:
        """Name the version and the address."""
        return f"KafkaServer({KAFKA_VERSION}, address={self.address!r})"

    def __enter__(self) -> Self:
        """Return itself, already running."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kill it and forget its data."""
        self.kill()
        shutil.rmtree(self._home, ignore_errors=True)

    @property
    def pid(self) -> int:
        """The operating system's id of the JVM."""
        assert self._process is not None, "Kafka is stopped"
        return self._process.pid

    def log(self) -> str:
        """Return the last lines that it logged, warnings and worse."""
        return self._process.tail() if self._process else "(stopped)"

    def segment(self, topic: str, partition: int = 0) -> Path:
        """Return the file that holds a partition's first records, as they came."""
        return self._home / "data" / f"{topic}-{partition}" / f"{0:020}.log"

    @contextmanager
    def logged_requests(self) -> Iterator[Callable[[], Sequence[KafkaRequest]]]:
        """Turn the broker's log of requests on; yield a function that returns the requests logged since then."""
        log = self._home / "server.log"
        begin = log.stat().st_size
        self._log_requests("DEBUG")

        def read() -> Sequence[KafkaRequest]:
            lines = log.read_bytes()[begin:].decode().splitlines(keepends=True)
            return [_request(line) for line in lines if "Completed request:" in line and line.endswith("\n")]

        try:
            yield read
        finally:
            self._log_requests("WARN")

    def _log_requests(self, level: str) -> None:
        with KafkaAdminClient(bootstrap_servers=self.address) as admin:
            loggers = {"kafka.request.logger": level}
            admin.alter_configs([ConfigResource(ConfigResourceType.BROKER_LOGGER, "1", loggers)])

    def start(self) -> None:
        """Start it again, on the same ports and data, and return when it serves."""
        self._process = self._launch()
        try:
            self._process.await_line("READY", timeout=90)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Shut it down in order; it hands its groups over and flushes its logs. The data stays."""
        if self._process is not None:
            self._process.stop(timeout=60)
            self._process = None

    def kill(self) -> None:
        """Kill it at once, as `kill -9` does. The data stays as it is."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def _start_first(self, ports: tuple[int, int] | None) -> None:
        attempts = START_ATTEMPTS
        while True:
            self._write_settings(*(ports or free_ports()))
            try:
                return self.start()
            except (TimeoutError, subprocess.SubprocessError):
                attempts -= 1
                # Another process may have taken a port since it was found free.
                if not attempts:
                    raise
                shutil.rmtree(self._home / "data", ignore_errors=True)

    def _write_settings(self, controller_port: int, port: int) -> None:
        ports = zip(("PLAINTEXT", *self._protocols), (port, port + 1, port - 2), strict=False)
        self.addresses = {protocol: f"127.0.0.1:{each}" for protocol, each in ports}
        self.address = self.addresses["PLAINTEXT"]
        controller = f"127.0.0.1:{controller_port}"
        listeners = ",".join(f"{protocol}://{address}" for protocol, address in self.addresses.items())
        settings = {
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"{listeners},CONTROLLER://{controller}",
            "listener.security.protocol.map": ",".join(f"{each}:{each}" for each in self.addresses)
            + ",CONTROLLER:PLAINTEXT",
            "advertised.listeners": listeners,
            "log.dirs": str(self._home / "data"),
            **self._settings,
        }
        lines = "".join(f"{key}={value}\n" for key, value in settings.items())
        (self._home / "server.properties").write_text(lines)

    def _launch(self) -> ChildProcess:
        return ChildProcess(
            [
                program("java"),
                *java_options(self._home, heap="384m"),
                *self._java,
                f"-Dlog4j2.configurationFile={HERE}/kafka_server/log4j2.properties",
                "-cp",
                class_path(KAFKA_VERSION),
                "streamkit.peer.KafkaServer",
                str(self._home / "server.properties"),
            ],
            log=self._home / "server.log",
        )


def _request(line: str) -> KafkaRequest:
    logged = json.loads(line.partition("Completed request:")[2])
    header = logged["requestHeader"]
    return KafkaRequest(header["requestApiKeyName"], header["clientId"], logged["request"] or {})
