"""A master and a slave of ours in one loop, with clients of both."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from rocket_broker.broker import Broker
from rocket_broker.embedded import EmbeddedBroker
from rocket_broker.replication.promotion import examine
from rocket_broker.settings.broker_settings import SMALL_STORE, BrokerSettings
from rocket_broker.settings.properties_file import entries_of
from rocket_remoting import MemoryTransport
from rocket_remoting.clock import Clock, SystemClock
from rocket_remoting.session.address import parse_address
from rocket_remoting.transports.transport import Transport
from tests.end_to_end.client_stage import until
from tests.end_to_end.raw_client import RawClient

LOG_FILE = "8192"
"""Bytes of a file of both logs."""

MASTER = {"brokerRole": "SYNC_MASTER", "slaveTimeout": "60000", "mappedFileSizeCommitLog": LOG_FILE}
SLAVE = {"brokerRole": "SLAVE", "brokerId": "1"}


class BrokerPair:
    """A master with its name server, and a slave that is started when it is needed.

    Attributes:
        master: The master with its name server.
        client: A client of the master.
        slave: The slave; set by `start_slave`.
        reader: A client of the slave; set by `start_slave`.
        transport: The transport of clients.
    """

    slave: Broker
    reader: RawClient

    def __init__(self, root: Path, transport: Transport, master: EmbeddedBroker, client: RawClient) -> None:
        self.master = master
        self.client = client
        self._root = root
        self.transport = transport
        self._clients = [client]
        self._brokers: list[Broker] = []

    async def start(self, store: str, *, clock: Clock | None = None, **settings: str) -> tuple[Broker, RawClient]:
        """Start a broker with the name server of the master, in a directory; return it with a client."""
        keys = SMALL_STORE | {
            "brokerIP1": "127.0.0.1",
            "listenPort": "0",
            "storePathRootDir": str(self._root / store),
            "namesrvAddr": self.master.name_server_address,
            "mappedFileSizeCommitLog": LOG_FILE,
        }
        given = BrokerSettings.from_entries(entries_of(keys | settings, "test"))
        broker = Broker(given, transport=self.transport, clock=clock or SystemClock())
        self._brokers.append(broker)
        await broker.start()
        client = await RawClient.connect(self.transport, broker.address)
        self._clients.append(client)
        return broker, client

    async def start_slave(self, **settings: str) -> None:
        """Start the slave, and return when it has the log and the tables of the master."""
        await self.begin_slave(**settings)
        await self.until_equal()
        await until(lambda: self.slave.metadata is not None and self.slave.metadata.copies > 0)

    async def start_again(self, **settings: str) -> None:
        """Stop the slave, and start it again in its directory."""
        await self.slave.stop()
        await self.start_slave(**settings)

    async def begin_slave(self, **settings: str) -> None:
        """Start the slave."""
        self.slave, self.reader = await self.start("slave", **(SLAVE | settings))

    async def until_copied(self) -> None:
        """Wait until the slave has all tables as the master has them now."""
        await self.until_equal()
        metadata = self.slave.metadata
        assert metadata is not None
        copies = metadata.copies + 2  # the next one may have begun already
        await until(lambda: metadata.copies >= copies)

    async def promote(self, *, clock: Clock | None = None, **settings: str) -> tuple[Broker, RawClient]:
        """Stop the master, and make the slave the master, as ``streamkit broker promote`` does it."""
        await self.master.broker.stop()
        slave = self.slave.slave
        await until(lambda: slave is not None and not slave.connected_to)
        port = parse_address(self.slave.address)[1]
        found = await examine(replace(self.slave.settings, listen_port=port), self.transport)
        assert found.obstacles == []
        await self.slave.stop()
        return await self.start("slave", clock=clock, brokerRole="ASYNC_MASTER", **settings)

    async def until_equal(self) -> None:
        """Wait until the slave's log ends where the master's does."""
        await until(lambda: self.slave.store.max_commit_log_offset == self.master.broker.store.max_commit_log_offset)

    def log(self, store: str) -> list[bytes]:
        """Return the files of the log in a directory."""
        return [file.read_bytes() for file in sorted((self._root / store / "commitlog").glob("[0-9]*"))]

    async def close(self) -> None:
        """Stop the brokers that were started, and close the clients."""
        for client in self._clients:
            await client.connection.close()
        for broker in self._brokers:
            await broker.stop()


def with_pair(
    root: Path, scene: Callable[[BrokerPair], Awaitable[None]], *, transport: Transport | None = None, **settings: str
) -> None:
    """Run a scene with a SYNC_MASTER, whose clients use a transport in memory by default."""

    async def run() -> None:
        transport = MemoryTransport() if given is None else given
        async with EmbeddedBroker(root / "master", transport=transport, settings=MASTER | settings) as master:
            pair = BrokerPair(root, transport, master, await RawClient.connect(transport, master.broker_address))
            try:
                await scene(pair)
            finally:
                await pair.close()

    given = transport
    asyncio.run(run())
