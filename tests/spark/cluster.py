"""A cluster of two brokers behind one name server, bundled or Apache's, which can be killed and restarted."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rocket_client import Admin, TopicNotFoundError
from rocket_client.settings import ClientSettings
from tests.end_to_end.broker_process import PATIENT, ServerProcess, running
from tests.peer.apache import ApacheBroker
from tests.peer.stage import ANSWER_TIMEOUT
from tests.ports import free_ports
from tests.spark.stand import BUNDLED, Stand

SECONDS = 60.0
NAMES = ("broker-a", "broker-b")


class Cluster(Stand):
    """Two brokers. Apache's first one has the name server in its process, so only the second may be killed.

    Attributes:
        directory: Where their stores are.
    """

    def __init__(self, kind: str, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        self._stack = stack
        self._brokers: dict[str, ServerProcess | ApacheBroker] = {}
        self._ports = {name: free_ports()[1] for name in NAMES}
        if kind == BUNDLED:
            server = stack.enter_context(running("namesrv", "-p", "0", cwd=directory))
            name_server = f"127.0.0.1:{server.address().rpartition(':')[2]}"
        else:
            name_server = self._start_apache(kind, NAMES[0]).name_server
        super().__init__(kind, name_server)
        for name in NAMES:
            if name not in self._brokers:
                self.start(name)
        self._await_registered()

    def start(self, name: str) -> None:
        """Start a broker on its port with its store."""
        if self.kind != BUNDLED:
            self._start_apache(self.kind, name, self.name_server)
        else:
            config = self.directory / f"{name}.conf"
            lines = {
                "brokerName": name,
                "brokerIP1": "127.0.0.1",
                "namesrvAddr": self.name_server,
                "listenPort": str(self._ports[name]),
                "storePathRootDir": str(self.directory / name),
                **PATIENT,
            }
            config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
            broker = self._stack.enter_context(running("broker", "-c", str(config), cwd=self.directory))
            broker.address()
            self._brokers[name] = broker

    def kill(self, name: str) -> None:
        """Kill a broker."""
        broker = self._brokers.pop(name)
        if isinstance(broker, ApacheBroker):
            broker.kill()
        else:
            broker.end()

    def await_brokers(self, topic: str, *names: str) -> None:
        """Wait until the topic's route has the queues of these brokers and of no other."""
        deadline = time.monotonic() + SECONDS
        while (brokers := self._brokers_of(topic)) != set(names):
            assert time.monotonic() < deadline, f"{topic} is on {brokers}"
            time.sleep(0.1)

    def _brokers_of(self, topic: str) -> set[str]:
        """Return the brokers in the topic's route; none while the only one has not registered again."""
        try:
            return {queue.broker_name for queue in self.queues(topic)}
        except TopicNotFoundError:
            return set()

    def _await_registered(self) -> None:
        """Wait until the name server knows both: Apache's second broker says that it is ready before."""

        async def known() -> set[str]:
            async with Admin(ClientSettings(name_servers=self.name_server, request_timeout=ANSWER_TIMEOUT)) as admin:
                return set((await admin.cluster_info()).broker_addr_table)

        deadline = time.monotonic() + SECONDS
        while not asyncio.run(known()) >= set(NAMES):
            assert time.monotonic() < deadline, f"{self.name_server} does not know both of {NAMES}"
            time.sleep(0.1)

    def _start_apache(self, version: str, name: str, *name_servers: str) -> ApacheBroker:
        """Start a broker, registered at its own name server, for which it waits, and at the others."""
        ports = (free_ports()[0], self._ports[name])
        addresses = ";".join((f"127.0.0.1:{ports[0]}", *name_servers))
        settings = {"brokerName": name, "namesrvAddr": addresses}
        broker = ApacheBroker(version, settings=settings, store=self.directory / name, ports=ports)
        self._brokers[name] = self._stack.enter_context(_killed_at_the_end(broker))
        return broker


@contextmanager
def _killed_at_the_end(broker: ApacheBroker) -> Iterator[ApacheBroker]:
    """Kill it at the end, since its store is not used afterwards."""
    try:
        yield broker
    finally:
        broker.kill()


@contextmanager
def two_brokers(kind: str, directory: Path) -> Iterator[Cluster]:
    """Run a cluster."""
    with ExitStack() as stack:
        cluster = Cluster(kind, directory, stack)
        stack.enter_context(cluster.client)
        yield cluster
