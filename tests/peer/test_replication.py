"""Masters and slaves of Apache's and ours, in pairs."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocket_broker.threaded_broker import ThreadedBroker
from rocket_client import Admin, ClientSettings, Message, Producer, ProducerSettings, SendStatus
from rocket_remoting import TcpTransport
from tests.end_to_end.raw_client import RawClient
from tests.peer.apache import ApacheBroker
from tests.peer.stage import SEND_TIMEOUT, eventually
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
    assert asyncio.run(_first_body(slave.address)) == b"x" * 1000


async def _send(name_server: str, count: int) -> set[SendStatus]:
    settings = ProducerSettings(name_servers=name_server, send_timeout=SEND_TIMEOUT)
    async with Producer("producers", settings) as producer:
        return {(await producer.send(Message("orders", b"x" * 1000))).status for _ in range(count)}


async def _addresses(name_server: str) -> dict[int, str]:
    async with Admin(ClientSettings(name_servers=name_server)) as admin:
        return (await admin.cluster_info()).broker_addr_table["broker-a"].broker_addrs


async def _first_body(address: str) -> bytes:
    client = await RawClient.connect(TcpTransport(), address)
    try:
        for queue in range(8):
            pulled = await client.pull("orders", queue_id=queue)
            if pulled.messages:
                return bytes(pulled.messages[0].body)
        return b""
    finally:
        await client.connection.close()


def _ha_address(master: ThreadedBroker) -> str:
    host, _, port = master.address.rpartition(":")
    return f"{host}:{int(port) + 1}"


def _log(store: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (store / "commitlog").glob("[0-9]*")}


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
