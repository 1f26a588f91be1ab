"""The steps of "Move a running application to Apache's cluster" in docs/how-to.md, while the application runs."""

import asyncio
import signal
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import pytest

from streamkit import StreamApplication
from tests.cluster_campaign.application import FAILING, INSTANCES, KEYS, QUEUES, TOPICS, Senders, application
from tests.cluster_campaign.ledger import KINDS, Kind, Ledger
from tests.end_to_end.broker_process import PATIENT, ServerProcess
from tests.peer.apache_cluster import SETTINGS, ControllerPair, admin
from tests.peer.conftest import of_version, require
from tests.ports import free_ports

PATIENCE = 200.0
MOMENT = 0.05
SLOWER = 4.0
"""The application sends more slowly than that of the campaign."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", [of_version(ControllerPair.version)])
def test_running_application_moves_with_store_and_offsets(version: str, tmp_path: Path) -> None:
    """Nothing acknowledged is lost, and keys keep their order, also when the new cluster loses its master."""
    require(version)
    move = Move(tmp_path)
    asyncio.run(move.play())
    move.ledger.audit()
    assert not move.ledger.problems
    assert all(tally.acknowledged for tally in move.ledger.tallies.values())


class Move:
    """The bundled broker with its name server, Apache's cluster, and an application whose instances move.

    Attributes:
        ledger: What the application has sent and received.
    """

    def __init__(self, directory: Path) -> None:
        self.ledger = Ledger()
        self._directory = directory
        self._store = directory / "store"
        self._broker_port = free_ports()[1]
        self._cluster = ControllerPair(directory, topics={})
        self._processes = AsyncExitStack()
        self._instances = [AsyncExitStack() for _ in range(INSTANCES)]

    async def play(self) -> None:
        """Run the application on the bundled broker, move it, and kill its new master; then end all."""
        try:
            await self._move()
        finally:
            for instance in self._instances:
                await instance.aclose()
            self._cluster.stop()
            await self._processes.aclose()

    async def _move(self) -> None:
        names = self._start("namesrv", "-p", "0")
        former = await asyncio.to_thread(names.address)
        broker = await self._start_broker(former)
        async with admin(former) as asking:
            for topic in TOPICS:
                await asking.create_topic(topic, QUEUES)
                await asking.await_topic(topic, queues=QUEUES, timeout=PATIENCE)
        apps = [await self._start_instance(number, former) for number in range(INSTANCES)]
        senders = Senders(apps[0], self.ledger, Random(), PATIENCE, slower=SLOWER)
        async with senders.running():
            await self._flow()
            early = {kind: set(tally.received) for kind, tally in self.ledger.tallies.items()}

            # 1. Apache's name server with the controller.
            await asyncio.to_thread(self._cluster.names.start)
            # 2. The bundled broker registers with both name servers.
            assert await asyncio.to_thread(broker.signal, signal.SIGTERM) == 0
            broker = await self._start_broker(f"{former};{self._cluster.name_server}")
            # 3. The instances use Apache's name server, one after the other.
            for number in reversed(range(INSTANCES)):
                await self._instances[number].aclose()
                senders.use(await self._start_instance(number, self._cluster.name_server))
                await self._flow()
            # 4. The settings of both replicas: `ControllerPair` has written them.
            times = self._times(early)
            # 5. The bundled broker and its name server stop.
            assert await asyncio.to_thread(broker.signal, signal.SIGTERM) == 0
            assert await asyncio.to_thread(names.signal, signal.SIGTERM) == 0
            # 6. Both replicas get the store.
            for replica in self._cluster.replicas:
                command = ("cp", "-a", "--sparse=always", self._store, replica.store)
                assert await (await asyncio.create_subprocess_exec(*command)).wait() == 0
            # 7. The first replica becomes the master, then the other one follows it.
            await self._cluster.start_replicas_in_turn()
            await self._flow()
            assert self._times(early) == times, "with the offsets, nothing that was committed is delivered again"

            await self._cluster.kill_master(Random())
            await self._flow()
        await _until(lambda: not any(tally.missing for tally in self.ledger.tallies.values()))

    async def _start_instance(self, number: int, name_server: str) -> StreamApplication:
        """Start an instance of the application anew, in place of the one that was closed."""
        return await self._instances[number].enter_async_context(application(name_server, self.ledger, number))

    async def _start_broker(self, name_servers: str) -> ServerProcess:
        """Start the bundled broker, at its port and with its store."""
        settings = {
            **SETTINGS,
            **PATIENT,
            "listenPort": str(self._broker_port),
            "namesrvAddr": name_servers,
            "storePathRootDir": str(self._store),
            "diskSpaceWarningLevelRatio": "100",
            "cleanFileForciblyEnable": "false",
        }
        conf = self._directory / "broker.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        broker = self._start("broker", "-c", str(conf))
        await asyncio.to_thread(broker.address)
        return broker

    def _start(self, command: str, *arguments: str) -> ServerProcess:
        process = ServerProcess(command, *arguments, cwd=self._directory)
        self._processes.callback(process.end)
        return process

    async def _flow(self) -> None:
        """Wait until messages of each kind, and of each key, are received whose send began after this call."""
        since = time.monotonic()
        lanes = [kind for kind in KINDS if kind != "ordered"] + [f"key k{key}" for key in range(KEYS)]
        await _until(lambda: all(self.ledger.latest.get(lane, 0.0) > since for lane in lanes))

    def _times(self, names: dict[Kind, set[str]]) -> dict[Kind, dict[str, int]]:
        """Return how often these messages were received, without those that fail at their first delivery."""
        return {
            kind: {
                name: self.ledger.tallies[kind].received[name]
                for name in some
                if kind != "plain" or int(name) % FAILING
            }
            for kind, some in names.items()
        }


async def _until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not is_true():  # noqa: ASYNC110  # the ledger sets no event
            await asyncio.sleep(MOMENT)
