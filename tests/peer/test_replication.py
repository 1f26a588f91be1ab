"""Our slave of Apache's running masters."""

import asyncio
from pathlib import Path

import pytest

from rocket_broker.broker import Broker
from rocket_broker.settings.broker_settings import SMALL_STORE, BrokerSettings
from rocket_broker.settings.properties_file import entries_of
from rocket_client import Admin, ClientSettings, Message, Producer, ProducerSettings
from rocket_remoting import TcpTransport
from rocket_remoting.clock import SystemClock
from tests.end_to_end.raw_client import RawClient
from tests.peer.conftest import Peers, of_version
from tests.peer.stage import DELAY_LEVELS, SEND_TIMEOUT

pytestmark = [pytest.mark.peer]


@pytest.mark.parametrize("version", [of_version("4.9.7"), of_version("5.3.3")])
def test_our_slave_of_apaches_master(peers: Peers, tmp_path: Path, version: str) -> None:
    """Has the same log, byte for byte, from the last file on, and the topics, and serves what it has."""
    master = peers.broker(version)
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


async def _send(name_server: str, count: int, topic: str) -> None:
    settings = ProducerSettings(name_servers=name_server, send_timeout=SEND_TIMEOUT)
    async with Producer("producers", settings) as producer:
        for _ in range(count):
            await producer.send(Message(topic, b"x" * 1000))


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


def _log(store: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (store / "commitlog").glob("[0-9]*")}
