"""Masters and slaves of Apache's and ours, in pairs."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocket_broker.broker import Broker
from rocket_broker.settings.broker_settings import SMALL_STORE, BrokerSettings
from rocket_broker.settings.properties_file import entries_of
from rocket_broker.threaded_broker import ThreadedBroker
from rocket_client import Admin, ClientSettings, Message, Producer, ProducerSettings, SendStatus
from rocket_remoting import TcpTransport
from rocket_remoting.clock import SystemClock
from tests.end_to_end.raw_client import RawClient
from tests.peer.apache import ApacheBroker
from tests.peer.conftest import Peers
from tests.peer.stage import DELAY_LEVELS, SEND_TIMEOUT, eventually
from tests.ports import free_ports

VERSION = "4.9.7"
LOG_FILE = "65536"
SLAVE = {"brokerRole": "SLAVE", "brokerId": "1", "mappedFileSizeCommitLog": LOG_FILE}

pytestmark = [pytest.mark.peer]


@pytest.fixture
def our_master(tmp_path: Path) -> Iterator[ThreadedBroker]:
    """A SYNC_MASTER of ours, whose name server both brokers register with."""
    name_server, broker = free_ports()
    settings = {"brokerRole": "SYNC_MASTER", "slaveTimeout": "60000", "mappedFileSizeCommitLog": LOG_FILE}
    with ThreadedBroker(
        tmp_path / "master", name_server_port=name_server, broker_port=broker, settings=settings
    ) as master:
        yield master


def test_apaches_slave_of_our_master(
    our_master: ThreadedBroker, apache_broker_factory: Callable[..., ApacheBroker], tmp_path: Path
) -> None:
    """Has the same log, byte for byte, and our topics, stands in the cluster, and serves reads without the master."""
    assert asyncio.run(_send(our_master.name_server, 1)) == {SendStatus.SLAVE_NOT_AVAILABLE}
    slave = apache_broker_factory(
        VERSION,
        store=tmp_path / "slave",
        settings={**SLAVE, "namesrvAddr": our_master.name_server, "haMasterAddress": _ha_address(our_master)},
    )
    eventually(lambda: asyncio.run(_send(our_master.name_server, 1)), lambda sent: sent == {SendStatus.SEND_OK})
    assert asyncio.run(_send(our_master.name_server, 300)) == {SendStatus.SEND_OK}

    assert _log(tmp_path / "slave").items() >= _log(tmp_path / "master").items()  # Apache's makes the next file ahead
    assert len(_log(tmp_path / "master")) > 4
    assert asyncio.run(_addresses(our_master.name_server)) == {0: our_master.address, 1: slave.address}
    topics = tmp_path / "slave" / "config" / "topics.json"
    assert "orders" in eventually(lambda: _text(topics), lambda text: "orders" in text)
    our_master.stop()
    assert set(asyncio.run(_bodies(slave.address, "orders"))) == {b"x" * 1000}


def test_our_slave_of_apaches_master(peers: Peers, tmp_path: Path) -> None:
    """Has the same log, byte for byte, from the last file on, and the topics, and serves what it has."""
    master = peers.broker(VERSION)
    asyncio.run(_send(master.name_server, 20, "copied"))

    async def copy() -> tuple[int, int, list[bytes]]:
        keys = SMALL_STORE | {
            "brokerRole": "SLAVE", "brokerId": "1", "brokerIP1": "127.0.0.1", "listenPort": "0",
            "namesrvAddr": master.name_server, "storePathRootDir": str(tmp_path / "slave"),
            "messageDelayLevel": DELAY_LEVELS,
        }  # fmt: skip
        settings = BrokerSettings.from_entries(entries_of(keys, "test"))
        slave = Broker(settings, transport=TcpTransport(), clock=SystemClock())
        await slave.start()
        try:
            await _send(master.name_server, 20, "copied")
            found: list[bytes] = []
            async with asyncio.timeout(60):
                while len(found) < 40 or "copied" not in slave.topics:
                    await asyncio.sleep(0.05)
                    found = await _bodies(slave.address, "copied")
            assert await _addresses(master.name_server) == {0: master.address, 1: slave.address}
            return slave.store.min_commit_log_offset, slave.store.max_commit_log_offset, found
        finally:
            await slave.stop()

    start, end, found = asyncio.run(copy())
    assert start <= end - 20 * 1000
    assert set(found) == {b"x" * 1000}
    name = f"{start:020d}"
    assert _log(tmp_path / "slave")[name][: end - start] == _log(master.store)[name][: end - start]


async def _send(name_server: str, count: int, topic: str = "orders") -> set[SendStatus]:
    settings = ProducerSettings(name_servers=name_server, send_timeout=SEND_TIMEOUT)
    async with Producer("producers", settings) as producer:
        return {(await producer.send(Message(topic, b"x" * 1000))).status for _ in range(count)}


async def _addresses(name_server: str) -> dict[int, str]:
    async with Admin(ClientSettings(name_servers=name_server)) as admin:
        return (await admin.cluster_info()).broker_addr_table["broker-a"].broker_addrs


async def _bodies(address: str, topic: str) -> list[bytes]:
    client = await RawClient.connect(TcpTransport(), address)
    try:
        return [
            bytes(message.body) for queue in range(8) for message in (await client.pull(topic, queue_id=queue)).messages
        ]
    finally:
        await client.connection.close()


def _ha_address(master: ThreadedBroker) -> str:
    host, _, port = master.address.rpartition(":")
    return f"{host}:{int(port) + 1}"


def _log(store: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (store / "commitlog").glob("[0-9]*")}


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
