"""A master and its slave, of which one is Apache's, with a name server of ours that outlives the master."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

from click.testing import CliRunner

from rocket_broker.broker import Broker
from rocket_broker.namesrv.server import NameServer
from rocket_broker.namesrv.settings import NameServerSettings
from rocket_broker.process.promote import promote
from rocket_broker.settings.broker_settings import SMALL_STORE, BrokerSettings
from rocket_broker.settings.properties_file import entries_of, read_properties
from rocket_client import Admin, ClientSettings, Message, Producer, ProducerSettings, SendStatus
from rocket_remoting import TcpTransport
from rocket_remoting.clock import SystemClock
from rocket_remoting.wire.bodies import ConsumerOffsetSerializeWrapper, decode_body
from tests.end_to_end.client_stage import until
from tests.peer.apache import ApacheBroker
from tests.peer.stage import ANSWER_TIMEOUT, SEND_TIMEOUT
from tests.ports import free_ports

TOPIC = "orders"
LOG_FILE = "65536"
"""Bytes of a file of both logs."""
LEVELS = "1s 1s 1h"
"""Level 3, which the first redelivery has, waits until the promotion."""
LEVELS_OF_PROMOTED = "1s 1s 1s"
"""Apache's brokers and ours deliver at once what is due later than its level allows."""
PATIENT = {"slaveTimeout": "60000", "syncFlushTimeout": "60000"}
"""How many milliseconds senders wait for a slave: the first key is that of our brokers, 4.9.7 reads both."""
SECONDS = 120.0
"""A test that waits for this long has failed."""
SLAVE = {"brokerRole": "SLAVE", "brokerId": "1"}


class Pair(ABC):
    """A SYNC_MASTER and its slave, from the start of both to the promotion of the slave.

    Attributes:
        master_address: Address of the master.
        slave_address: Address of the slave.
        name_servers: What clients get as ``namesrvAddr``.
    """

    master_address: str
    slave_address: str
    name_servers: str

    def __init__(self, version: str, start_apache: Callable[..., ApacheBroker], directory: Path) -> None:
        self.version = version
        self._start_apache = start_apache
        self._directory = directory
        # Apache's name server and its broker are started and stopped together.
        self._apaches_ports = free_ports()
        self._running = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Start our name server, the master and the slave."""
        keys = {"listenPort": "0", "kvConfigPath": str(self._directory / "kvConfig.json")}
        settings = NameServerSettings.from_entries(entries_of(keys, "test"))
        self.name_server = NameServer(settings, transport=TcpTransport())
        await self.name_server.start()
        self._running.push_async_callback(self.name_server.stop)
        try:
            await self._start()
        except BaseException:
            await self._running.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop what is ours; the fixture that starts Apache's brokers stops them."""
        await self._running.aclose()

    @abstractmethod
    async def _start(self) -> None:
        """Start both, and return when the slave follows the master."""

    @abstractmethod
    async def until_copied(self, offsets: Mapping[str, int]) -> None:
        """Wait until the slave has these offsets of groups in the topic's only queue, and all that they have passed."""

    @abstractmethod
    async def lose_master(self) -> None:
        """End the master, and return when the name server has only the slave."""

    @abstractmethod
    async def promote(self) -> None:
        """Make the slave the master."""

    async def send(self, *messages: Message) -> set[SendStatus]:
        """Send messages one after the other, and return what the answers say."""
        settings = ProducerSettings(name_servers=self.name_servers, send_timeout=SEND_TIMEOUT)
        async with Producer("producers", settings) as producer:
            return {(await producer.send(message)).status for message in messages}

    async def addresses(self) -> dict[int, str]:
        """Return the addresses of the brokers that our name server has, by their ids."""
        settings = ClientSettings(name_servers=self.name_server.address, request_timeout=ANSWER_TIMEOUT)
        async with Admin(settings) as admin:
            brokers = (await admin.cluster_info()).broker_addr_table.get("broker-a")
            return brokers.broker_addrs if brokers is not None else {}

    async def _until_registered(self, expected: dict[int, str]) -> None:
        async with asyncio.timeout(SECONDS):
            while await self.addresses() != expected:  # noqa: ASYNC110  # foreign state sets no event
                await asyncio.sleep(0.05)

    async def _until_followed(self) -> None:
        async with asyncio.timeout(SECONDS):
            while await self.send(Message("before", b"x" * 1000)) != {SendStatus.SEND_OK}:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        await self._until_registered({0: self.master_address, 1: self.slave_address})

    async def _run_apache(self, store: str, **settings: str) -> ApacheBroker:
        """Start Apache's broker, which registers with its own name server and ours."""
        name_servers = f"127.0.0.1:{self._apaches_ports[0]};{self.name_server.address}"
        return await asyncio.to_thread(
            self._start_apache,
            self.version,
            store=self._directory / store,
            ports=self._apaches_ports,
            settings={"namesrvAddr": name_servers, "mappedFileSizeCommitLog": LOG_FILE, **settings},
        )

    async def _run_ours(self, store: str, **settings: str) -> Broker:
        """Start our broker by a settings file, and return it with its file."""
        keys = SMALL_STORE | {
            "brokerIP1": "127.0.0.1",
            "storePathRootDir": str(self._directory / store),
            "mappedFileSizeCommitLog": LOG_FILE,
            "messageDelayLevel": LEVELS,
        }
        conf = self._directory / f"{store}.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in (keys | settings).items()))
        return await self._run(conf)

    async def _run(self, conf: Path) -> Broker:
        settings = BrokerSettings.from_entries(read_properties(conf))
        broker = Broker(settings, transport=TcpTransport(), clock=SystemClock())
        self._running.push_async_callback(broker.stop)
        await broker.start()
        return broker


class OurMaster(Pair):
    """Our master with Apache's slave: the steps of the page that moves applications to Apache's cluster."""

    async def _start(self) -> None:
        apaches = f"127.0.0.1:{self._apaches_ports[0]}"
        self.name_servers = f"{self.name_server.address};{apaches}"
        port = free_ports()[1]
        self.master_address = f"127.0.0.1:{port}"
        # 5.x loses the address in haMasterAddress, and refuses to be read from without slaveReadEnable.
        is_new = self.version.startswith("5.")
        own = {"slaveReadEnable": "true"} if is_new else {"haMasterAddress": f"127.0.0.1:{port + 1}"}
        async with asyncio.TaskGroup() as starting:
            slave = starting.create_task(self._run_apache("slave", messageDelayLevel=LEVELS, **SLAVE, **own))
            # Apache's name server serves before the slave, so that both name servers know the master.
            await _until_served(self._apaches_ports[0])
            self._master = await self._run_ours(
                "master", brokerRole="SYNC_MASTER", listenPort=str(port), namesrvAddr=self.name_servers, **PATIENT
            )
        self._apache = slave.result()
        self.slave_address = self._apache.address
        await asyncio.to_thread(self._apache.copy_tables)  # 5.x learns the master's address when it registers
        await self._until_followed()
        assert await self.send(*(Message("before", b"x" * 1000) for _ in range(300))) == {SendStatus.SEND_OK}

    async def until_copied(self, offsets: Mapping[str, int]) -> None:
        wanted = {f"{TOPIC}@{group}": {0: offset} for group, offset in offsets.items()}
        file = self._directory / "slave" / "config" / "consumerOffset.json"
        async with asyncio.timeout(SECONDS):
            while True:
                await asyncio.to_thread(self._apache.copy_tables)
                try:
                    content = file.read_bytes()
                except FileNotFoundError:  # Apache's broker deletes the file before it renames the next one
                    continue
                if wanted.items() <= decode_body(content, ConsumerOffsetSerializeWrapper).offset_table.items():
                    break
        masters, slaves = self._log("master"), self._log("slave")
        assert len(masters) > 4
        assert slaves.items() >= masters.items()  # Apache's makes the next file ahead

    def _log(self, store: str) -> dict[str, bytes]:
        files = (self._directory / store / "commitlog").glob("[0-9]*")
        return {file.name: file.read_bytes() for file in files}

    async def lose_master(self) -> None:
        await self._master.stop()
        await self._until_registered({1: self.slave_address})

    async def promote(self) -> None:
        await asyncio.to_thread(self._apache.stop)
        promoted = await self._run_apache("slave", messageDelayLevel=LEVELS_OF_PROMOTED, brokerRole="ASYNC_MASTER")
        await self._until_registered({0: promoted.address})
        await self.name_server.stop()


class ApachesMaster(Pair):
    """Apache's master with our slave."""

    async def _start(self) -> None:
        self.name_servers = self.name_server.address
        self._apache = await self._run_apache("master", brokerRole="SYNC_MASTER", messageDelayLevel=LEVELS, **PATIENT)
        self.master_address = self._apache.address
        self._slave = await self._run_ours(
            "slave", listenPort=str(free_ports()[1]), namesrvAddr=self.name_servers, **SLAVE
        )
        self.slave_address = self._slave.address
        await self._until_followed()

    async def until_copied(self, offsets: Mapping[str, int]) -> None:
        def stored() -> dict[str, int | None]:
            return {group: self._slave.offsets.get(group, TOPIC, 0) for group in offsets}

        await until(lambda: stored() == offsets)

    async def lose_master(self) -> None:
        await asyncio.to_thread(self._apache.kill)
        await self._until_registered({1: self.slave_address})
        slave = self._slave.slave
        await until(lambda: slave is not None and not slave.connected_to)

    async def promote(self) -> None:
        conf = self._directory / "slave.conf"
        found = await asyncio.to_thread(CliRunner().invoke, promote, [str(conf), "--role", "ASYNC_MASTER"])
        assert found.exit_code == 0, found.output
        await self._slave.stop()
        conf.write_text(f"{conf.read_text()}messageDelayLevel={LEVELS_OF_PROMOTED}\n")
        await self._run(conf)
        await self._until_registered({0: self.slave_address})


async def _until_served(port: int) -> None:
    async with asyncio.timeout(90):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                await writer.wait_closed()
                return
