"""Clusters of Apache's brokers, whose processes are killed and started again.

::

    ControllerPair   5.x: a name server that is the controller as well, and two replicas of one broker. If the master
                     is gone, the controller makes the other replica the master. SEND_OK: all replicas in sync have it
    TwoMasters       4.9: a name server, two SYNC_MASTERs with a slave each. If a master is gone, its slave serves
                     reads until the master is back. SEND_OK: the slave has it as well

Each program runs in a JVM of its own that ends when the pipe to it closes.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Protocol

from rocket_client import Admin, ClientSettings
from rocket_remoting import TcpTransport
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.errors import RemotingError
from rocket_remoting.wire.sys_flag import PERM_READ, PERM_WRITE
from tests.peer.apache import BROKER_CONF
from tests.peer.artifacts import class_path, program
from tests.peer.child_process import ChildProcess
from tests.peer.jvm import SMALL, java_options, write_logback
from tests.peer.stage import ANSWER_TIMEOUT, DELAY_LEVELS
from tests.ports import free_ports

START_SECONDS = 240.0
MOMENT = 0.1
"""Seconds between two looks at the cluster."""

SETTINGS = {
    **BROKER_CONF,
    "messageDelayLevel": DELAY_LEVELS,
    "transactionTimeOut": "3000",
    "transactionCheckInterval": "3000",
    "transactionCheckMax": "10000",
}


class ApacheProcess:
    """One of Apache's programs, with a directory and a port of its own, that can be killed and started again.

    Attributes:
        address: Its `host:port`.
    """

    def __init__(self, version: str, main: str, home: Path, port: int, settings: Mapping[str, str]) -> None:
        """Write its settings, and start nothing yet.

        Args:
            version: Apache's version.
            main: The program's main class.
            home: The directory of its settings, logs and store.
            port: The port that it listens on.
            settings: Further lines of its settings file.
        """
        self.address = f"127.0.0.1:{port}"
        self._home = home
        self._main = main
        self._version = version
        self._process: ChildProcess | None = None
        write_logback(home, version, level="WARN")
        self._conf = home / "program.conf"
        lines = {"listenPort": str(port), **settings}
        self._conf.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))

    def __repr__(self) -> str:
        return f"<ApacheProcess {self._home.name} at {self.address}>"

    @property
    def store(self) -> Path:
        """A broker's store directory."""
        return self._home / "store"

    def start(self) -> None:
        """Start it, and return once it says that it runs."""
        self._process = ChildProcess(
            [
                program("java"),
                *java_options(self._home, "512m", SMALL),
                "-XX:MaxDirectMemorySize=512m",
                f"-Drmq.logback.configurationFile={self._home}/conf/rmq.broker.logback.xml",
                "-cp",
                f"{self._home}/conf:{class_path(self._version)}",
                "streamkit.peer.ApacheProgram",
                self._main,
                "-c",
                str(self._conf),
            ],
            log=self._home / "program.log",
        )
        self._process.await_line("READY", START_SECONDS)

    def kill(self) -> None:
        """End it at once, as `kill -9` does; do nothing if it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def log(self, lines: int = 40) -> str:
        """Return the last lines that it logged, warnings and worse."""
        file = self._home / "rocketmq.log"
        logged = file.read_text(errors="replace").splitlines()[-lines:] if file.exists() else []
        return "\n".join([*logged, self._process.tail() if self._process is not None else ""])


class Cluster(Protocol):
    """A cluster of Apache's brokers.

    Attributes:
        name_server: The name server's `host:port`.
        order_conf: The queues of a topic that is to be consumed in order, for its order configuration; empty if the
            topic needs none.
        processes: All its processes.
    """

    name_server: str
    order_conf: str
    processes: list[ApacheProcess]

    async def start(self) -> None:
        """Start all processes, and return when all brokers are registered, and followed by their slaves."""

    def stop(self) -> None:
        """Kill all processes."""

    async def kill_master(self, chance: Random) -> ApacheProcess:
        """Kill a master, a random one if there are several, and return it."""

    async def wait_whole(self) -> None:
        """Wait until every master is registered, and its slave follows it."""


class ControllerPair:
    """Two replicas of one broker, one of which the controller makes the master.

    Attributes:
        names: The name server, which is the controller as well.
        replicas: The brokers.
    """

    version = "5.3.3"
    order_conf = ""

    def __init__(self, home: Path, topics: Mapping[str, int]) -> None:
        """Write the settings, and start nothing yet.

        Args:
            home: For all that the processes write.
            topics: Topics that all brokers have from the start, with their numbers of queues. Topics that are created
                later reach a slave some seconds later. Without any, the replicas have no store yet.
        """
        name_server, _ = free_ports()
        controller, _ = free_ports()
        self.name_server = f"127.0.0.1:{name_server}"
        self._controller = f"127.0.0.1:{controller}"
        peers = {
            "orderMessageEnable": "true",
            "kvConfigPath": str(home / "kvConfig.json"),
            "enableControllerInNamesrv": "true",
            "controllerDLegerGroup": "group1",
            "controllerDLegerPeers": f"n0-{self._controller}",
            "controllerDLegerSelfId": "n0",
            "controllerStorePath": str(home / "controller"),
            "mappedFileSize": str(8 * 1024 * 1024),
        }
        main = "org.apache.rocketmq.namesrv.NamesrvStartup"
        self.names = ApacheProcess(self.version, main, _directory(home, "names"), name_server, peers)
        self.replicas = [self._replica(_directory(home, f"replica-{number}"), topics) for number in (1, 2)]
        self.processes = [self.names, *self.replicas]

    def _replica(self, home: Path, topics: Mapping[str, int]) -> ApacheProcess:
        settings = {
            **SETTINGS,
            "brokerId": "-1",
            "brokerRole": "SLAVE",
            "enableControllerMode": "true",
            "controllerAddr": self._controller,
            "allAckInSyncStateSet": "true",
            "namesrvAddr": self.name_server,
        }
        return _broker(self.version, home, settings, topics)

    async def start(self) -> None:
        """Start the controller, then the replicas."""
        await asyncio.to_thread(self.names.start)
        await asyncio.gather(*(asyncio.to_thread(replica.start) for replica in self.replicas))
        await self.wait_whole()

    async def start_replicas_in_turn(self) -> None:
        """Start the first replica as the master, then the other one; the controller runs already."""
        first, second = self.replicas
        await asyncio.to_thread(first.start)
        await _until(self._has_first_master)
        await asyncio.to_thread(second.start)
        await self.wait_whole()

    def stop(self) -> None:
        """Kill all processes."""
        for process in self.processes:
            process.kill()

    async def kill_master(self, chance: Random) -> ApacheProcess:
        """Kill the replica that is the master now, and return it."""
        address = (await _masters(self.name_server))["broker-a"]
        master = next(replica for replica in self.replicas if replica.address == address)
        await asyncio.to_thread(master.kill)
        return master

    async def wait_whole(self) -> None:
        """Wait until the name server has a master and a slave, and the controller says that both are in sync."""
        await _until(self._is_whole)

    async def _has_first_master(self) -> bool:
        return (await _masters(self.name_server)).get("broker-a") == self.replicas[0].address

    async def _is_whole(self) -> bool:
        return await self._in_sync() == 2 and await _are_registered(self.name_server, ["broker-a"])

    async def _in_sync(self) -> int:
        """Return how many replicas the controller knows to be in sync."""
        try:
            connection = await TcpTransport().connect(self._controller, timeout=5)
            try:
                body = b'["broker-a"]'
                answer = await connection.invoke(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, None, body, timeout=5)
            finally:
                await connection.close()
        except RemotingError:
            return 0
        if not answer.body:
            return 0
        known = json.loads(bytes(answer.body))["replicasInfoTable"].get("broker-a", {})
        return len(known.get("inSyncReplicas", ()))


class TwoMasters:
    """Two masters, each with a slave."""

    version = "4.9.7"
    order_conf = "broker-a:4;broker-b:4"

    def __init__(self, home: Path, topics: Mapping[str, int]) -> None:
        """Write the settings, and start nothing yet.

        Args:
            home: For all that the processes write.
            topics: Topics that all brokers have from the start, with their numbers of queues. Topics that are created
                later reach a slave some seconds later.
        """
        name_server, _ = free_ports()
        self.name_server = f"127.0.0.1:{name_server}"
        main = "org.apache.rocketmq.namesrv.NamesrvStartup"
        settings = {"orderMessageEnable": "true", "kvConfigPath": str(home / "kvConfig.json")}
        self._names = ApacheProcess(self.version, main, _directory(home, "names"), name_server, settings)
        self._masters: dict[str, ApacheProcess] = {}
        slaves: list[ApacheProcess] = []
        for name in ("broker-a", "broker-b"):
            own = {**SETTINGS, "brokerName": name, "namesrvAddr": self.name_server}
            for role, id_ in (("SYNC_MASTER", "0"), ("SLAVE", "1")):
                directory = _directory(home, f"{name}-{id_}")
                process = _broker(self.version, directory, {**own, "brokerRole": role, "brokerId": id_}, topics)
                if id_ == "0":
                    self._masters[name] = process
                else:
                    slaves.append(process)
        self.processes = [self._names, *self._masters.values(), *slaves]

    async def start(self) -> None:
        """Start the name server, then all brokers."""
        await asyncio.to_thread(self._names.start)
        await asyncio.gather(*(asyncio.to_thread(broker.start) for broker in self.processes[1:]))
        await self.wait_whole()

    def stop(self) -> None:
        """Kill all processes."""
        for process in self.processes:
            process.kill()

    async def kill_master(self, chance: Random) -> ApacheProcess:
        """Kill one of the masters, and return it."""
        master = chance.choice(list(self._masters.values()))
        await asyncio.to_thread(master.kill)
        return master

    async def wait_whole(self) -> None:
        """Wait until the name server has both masters and both slaves."""
        await _until(partial(_are_registered, self.name_server, list(self._masters)))


async def _until(is_true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(START_SECONDS):
        while True:
            with suppress(RemotingError):  # a server that has much to do may be late
                if await is_true():
                    return
            await asyncio.sleep(MOMENT)


def _directory(home: Path, name: str) -> Path:
    directory = home / name
    directory.mkdir(parents=True)
    return directory


def _broker(version: str, home: Path, settings: Mapping[str, str], topics: Mapping[str, int]) -> ApacheProcess:
    store = home / "store"
    if topics:
        _write_topics(store, topics)
    paths = {"storePathRootDir": str(store), "storePathCommitLog": str(store / "commitlog")}
    main = "org.apache.rocketmq.broker.BrokerStartup"
    return ApacheProcess(version, main, home, free_ports()[1], {**settings, **paths})


def _write_topics(store: Path, topics: Mapping[str, int]) -> None:
    """Write the file from which a broker reads its topics when it starts."""
    table = {
        name: {"topicName": name, "readQueueNums": queues, "writeQueueNums": queues, "perm": PERM_READ | PERM_WRITE}
        for name, queues in topics.items()
    }
    file = store / "config" / "topics.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"topicConfigTable": table, "dataVersion": {"timestamp": 0, "counter": 1}}))


async def _masters(name_server: str) -> dict[str, str]:
    """Return the addresses of the masters that the name server knows, by their brokers' names."""
    async with admin(name_server) as asking:
        brokers = (await asking.cluster_info()).broker_addr_table
    return {name: broker.broker_addrs[0] for name, broker in brokers.items() if 0 in broker.broker_addrs}


async def _are_registered(name_server: str, names: list[str]) -> bool:
    """Return whether the name server knows a master and a slave of each name."""
    async with admin(name_server) as asking:
        brokers = (await asking.cluster_info()).broker_addr_table
    return all(name in brokers and 0 in (known := brokers[name].broker_addrs) and len(known) == 2 for name in names)


def admin(name_server: str) -> Admin:
    """Return an admin client that waits long for connections and answers."""
    return Admin(
        ClientSettings(name_servers=name_server, connect_timeout=ANSWER_TIMEOUT, request_timeout=ANSWER_TIMEOUT)
    )
