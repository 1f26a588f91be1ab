"""A real Apache RocketMQ, name server and broker, on free loopback ports with a store of its own.

Both run in one JVM (`java/streamkit/peer/ApacheServer.java`) that ends when the pipe to it closes, so
nothing survives the test run, however that ends.
"""

import itertools
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.peer.artifacts import class_path, program
from tests.peer.child_process import ChildProcess
from tests.peer.jvm import OPTIMIZING, SMALL, java_options, write_logback
from tests.ports import free_ports

START_ATTEMPTS = 3

# Small files, no pauses because of a slow disk, names that the tests rely on.
BROKER_CONF = {
    "brokerClusterName": "DefaultCluster",
    "brokerName": "broker-a",
    "brokerId": "0",
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
    "autoCreateTopicEnable": "true",
    "autoCreateSubscriptionGroup": "true",
    "enablePropertyFilter": "true",
    "mappedFileSizeCommitLog": "67108864",
    "maxHashSlotNum": "50000",
    "maxIndexNum": "200000",
    "waitTimeMillsInSendQueue": "10000",
    "osPageCacheBusyTimeOutMills": "10000",
    "brokerFastFailureEnable": "false",
    # If two topics are created at once, the name server may learn of one only when the broker registers again.
    "registerNameServerPeriod": "10000",
    # 5.x records the end of a transaction up to 3 s later, and checks the transaction until then.
    "transactionOpBatchInterval": "100",
    # At this interval, by default each second, 5.x compares all 39 MB of its timer wheel with the file, byte by byte.
    "timerFlushIntervalMs": "3600000",
}
TIMERS_IN_FILES = {"timerFlushIntervalMs": "1000"}
"""For a broker whose timers another one finds in the store."""


class ApacheBroker:
    """Apache's name server and broker, running after construction until `stop`.

    Attributes:
        version: Apache's version, "4.9.7" or "5.3.3".
        name_server: The name server's `host:port`.
        address: The broker's `host:port`; it listens two ports below as well (VIP channel).
        store: The broker's store directory (`storePathRootDir`).
    """

    def __init__(
        self,
        version: str,
        *,
        settings: Mapping[str, str] | None = None,
        store: Path | None = None,
        ports: tuple[int, int] | None = None,
        optimizing: bool = False,
        system_properties: Mapping[str, str] | None = None,
        accounts: str = "",
    ) -> None:
        """Start both and return when the broker is registered.

        Args:
            settings: Further `broker.conf` lines.
            store: A store directory that outlives the broker; by default a temporary one.
            ports: The name server's port and the broker's, to come back on them; by default free ones.
            system_properties: Further system properties of the JVM, such as those of TLS.
            optimizing: Whether the JVM is one for measurements, with all compilers and a heap of 1 GiB.
            accounts: The contents of `plain_acl.yml`, for a broker with `aclEnable=true`.
        """
        self.version = version
        self._copies = itertools.count(1)
        self._java = ("1g", OPTIMIZING) if optimizing else ("512m", SMALL)
        self._system_properties = dict(system_properties or {})
        self._settings = {**BROKER_CONF, **(settings or {})}
        self._home = Path(tempfile.mkdtemp(prefix=f"apache-{version}-"))
        self.store = store or self._home / "store"
        if accounts:
            (self._home / "conf").mkdir()
            (self._home / "conf" / "plain_acl.yml").write_text(accounts)
        try:
            self._process = self._start(ports)
        except BaseException:
            shutil.rmtree(self._home, ignore_errors=True)
            raise

    def __repr__(self) -> str:
        """Name the version and the addresses."""
        return f"ApacheBroker({self.version!r}, name_server={self.name_server!r}, address={self.address!r})"

    def __enter__(self) -> Self:
        """Return itself, already running."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it: in order when its store stays, at once when nobody will read it."""
        if self.store.is_relative_to(self._home):
            self.kill()
        else:
            self.stop()

    @property
    def pid(self) -> int:
        """The operating system's id of the JVM."""
        return self._process.pid

    def log(self, lines: int = 40) -> str:
        """Return the last lines that both logged, warnings and worse."""
        file = self._home / "rocketmq.log"
        logged = file.read_text(errors="replace").splitlines() if file.exists() else []
        return "\n".join([*logged[-lines:], self._process.tail()])

    def stop_name_server(self) -> None:
        """Stop the name server; the broker goes on without it."""
        self._process.write("stop namesrv")
        self._process.await_line("STOPPED namesrv", timeout=60)

    def copy_tables(self) -> None:
        """Make a slave copy topics, groups, offsets and delays of its master now, if the master can be reached."""
        number = next(self._copies)
        self._process.write(f"copy tables {number}")
        self._process.await_line(f"COPIED tables {number}", timeout=60)

    def stop(self) -> None:
        """Shut both down in order, as their scripts do; takes Apache some seconds."""
        self._process.stop(timeout=60)
        shutil.rmtree(self._home, ignore_errors=True)

    def kill(self) -> None:
        """Kill both at once, as `kill -9` does; a store given by the caller stays as it is."""
        self._process.kill()
        shutil.rmtree(self._home, ignore_errors=True)

    def _start(self, ports: tuple[int, int] | None) -> ChildProcess:
        attempts = START_ATTEMPTS
        while True:
            process = self._launch(*(ports or free_ports()))
            try:
                process.await_line("READY", timeout=90)
            except (TimeoutError, subprocess.SubprocessError):
                process.kill()
                attempts -= 1
                # Another process may have taken a port since it was found free.
                if not attempts:
                    raise
            else:
                return process

    def _launch(self, name_server_port: int, broker_port: int) -> ChildProcess:
        self.name_server = f"127.0.0.1:{name_server_port}"
        self.address = f"127.0.0.1:{broker_port}"
        name_server_conf = {
            "listenPort": str(name_server_port),
            "kvConfigPath": str(self._home / "kvConfig.json"),
            "orderMessageEnable": "true",
        }
        broker_conf = {
            "listenPort": str(broker_port),
            "namesrvAddr": self.name_server,
            "storePathRootDir": str(self.store),
            "storePathCommitLog": str(self.store / "commitlog"),
            **self._settings,
        }
        write_logback(self._home, self.version, level="WARN")
        return ChildProcess(
            [
                program("java"),
                *java_options(self._home, *self._java),
                f"-Drmq.logback.configurationFile={self._home}/conf/rmq.broker.logback.xml",
                "-XX:MaxDirectMemorySize=512m",
                *(f"-D{key}={value}" for key, value in self._system_properties.items()),
                "-cp",
                f"{self._home}/conf:{class_path(self.version)}",
                "streamkit.peer.ApacheServer",
                _write_conf(self._home / "namesrv.conf", name_server_conf),
                _write_conf(self._home / "broker.conf", broker_conf),
            ],
            log=self._home / "server.log",
        )


def _write_conf(path: Path, lines: Mapping[str, str]) -> str:
    path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    return str(path)
