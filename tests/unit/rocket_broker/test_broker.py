"""The broker as a whole: its services, its addresses, and the reasons for which it refuses to start."""

import asyncio
import logging
import shutil
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from rocket_broker.broker import Broker
from rocket_broker.clients.queue_locks import LOCK_SECONDS
from rocket_broker.embedded import EmbeddedBroker
from rocket_broker.errors import AddressInUse, AddressUnreachable, SettingError
from rocket_broker.namesrv.server import NameServer
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.settings.properties_file import entries_of
from rocket_broker.store.errors import StoreLocked
from rocket_broker.store.messages import StoreMessage
from rocket_broker.threaded_broker import ThreadedBroker
from rocket_remoting.clock import SystemClock
from rocket_remoting.session.connection import Connection
from rocket_remoting.transports.memory import MemoryTransport
from rocket_remoting.transports.tcp import TcpTransport
from rocket_remoting.transports.transport import Transport
from rocket_remoting.wire.bodies import LockBatchRequestBody, TopicRouteData, decode_body, encode_body
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.errors import ConnectError
from rocket_remoting.wire.headers import (
    GetRouteInfoRequestHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    SendMessageRequestHeaderV2,
)
from rocket_remoting.wire.message import MessageQueue
from rocket_remoting.wire.record import decode_records
from streamkit.service_manager import notify_progress
from streamkit.testing.virtual_time import VirtualTime


def free_port() -> int:
    """Return a free port whose VIP port, two below, is free too."""
    while True:
        with closing(socket.socket()) as high, closing(socket.socket()) as low:
            high.bind(("127.0.0.1", 0))
            port = int(high.getsockname()[1])
            try:
                low.bind(("127.0.0.1", port - 2))
            except OSError:
                continue
            return port


def tcp_broker(root: Path, **keys: str) -> Broker:
    keys = {"brokerName": "broker-a", "storePathRootDir": str(root), "listenPort": "0"} | keys
    settings = BrokerSettings.from_entries(entries_of(keys, "test"))
    return Broker(settings, transport=TcpTransport(), clock=SystemClock())


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[Connection]:
    connection = await TcpTransport().connect(address)
    try:
        yield connection
    finally:
        await connection.close()


async def send(connection: Connection, topic: str, body: bytes) -> int:
    header = SendMessageRequestHeaderV2(
        producer_group="producers",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=0,
        flag=0,
    )
    return (await connection.invoke(RequestCode.SEND_MESSAGE_V2, header, body, timeout=30)).code


async def pull(connection: Connection, topic: str, *, suspend_ms: int = 0) -> list[bytes]:
    header = PullMessageRequestHeader(
        consumer_group="consumers",
        topic=topic,
        queue_id=0,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=4 | (2 if suspend_ms else 0),
        commit_offset=0,
        suspend_timeout_millis=suspend_ms,
        subscription="*",
        sub_version=0,
    )
    answer = await connection.invoke(RequestCode.PULL_MESSAGE, header, timeout=60)
    if answer.code != ResponseCode.SUCCESS:
        return []
    answer.header(PullMessageResponseHeader)
    return [bytes(message.body) for message in decode_records(answer.body)]


def test_message_can_be_sent_and_pulled(tmp_path: Path) -> None:
    """A send creates the topic, registers its route with the name server, and the message can be pulled."""

    async def main() -> None:
        async with (
            EmbeddedBroker(tmp_path) as embedded,
            connected(embedded.broker_address) as client,
            connected(embedded.name_server_address) as routes,
        ):
            assert await send(client, "orders", b"one") == ResponseCode.SUCCESS
            header = GetRouteInfoRequestHeader(topic="orders")
            answer = await routes.invoke(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, timeout=30)
            (data,) = decode_body(answer.body, TopicRouteData).broker_datas
            assert data.broker_addrs == {0: embedded.broker_address}
            assert await pull(client, "orders") == [b"one"]

    asyncio.run(main())


def test_messages_topics_and_offsets_survive_a_restart(tmp_path: Path) -> None:
    """After an orderly stop, a broker on the same store has all of them."""

    async def main() -> None:
        async with EmbeddedBroker(tmp_path) as embedded, connected(embedded.broker_address) as client:
            await send(client, "orders", b"one")
            embedded.broker.offsets.commit("consumers", "orders", 0, 1)
            embedded.broker.groups.find("consumers")
        async with EmbeddedBroker(tmp_path) as embedded, connected(embedded.broker_address) as client:
            assert embedded.broker.recovery.ended_in_order
            assert embedded.broker.offsets.get("consumers", "orders", 0) == 1
            assert "consumers" in embedded.broker.groups
            assert await pull(client, "orders") == [b"one"]

    asyncio.run(main())


def test_temporary_store_is_removed_at_stop() -> None:
    """The directory, connections, tasks and threads are gone."""

    async def main() -> None:
        threads = set(threading.enumerate())
        async with EmbeddedBroker() as embedded, connected(embedded.broker_address) as client:
            await send(client, "orders", b"one")
            path = embedded.store_path
            assert path.is_dir()
        await asyncio.sleep(0)
        assert not path.exists()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert threads.issuperset(threading.enumerate())

    asyncio.run(main())


def test_broker_runs_in_virtual_time() -> None:
    """Over the in-memory transport, holding a pull for an hour takes no real time and no thread."""

    async def main(time: VirtualTime) -> None:
        transport = MemoryTransport()
        async with EmbeddedBroker(transport=transport, clock=time.clock) as embedded:
            client = await transport.connect(embedded.broker_address)
            assert await send(client, "orders", b"one") == ResponseCode.SUCCESS
            assert await pull(client, "orders") == [b"one"]
            began = time.loop.time()
            assert await pull(client, "empty", suspend_ms=15_000) == []
            waiting = asyncio.create_task(pull(client, "%RETRY%x", suspend_ms=15_000))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await asyncio.sleep(3600)
            assert time.loop.time() - began >= 3600
            await client.close()

    with VirtualTime() as time:
        time.run(main(time))


def test_vip_port_serves_the_same_requests(tmp_path: Path) -> None:
    """Old clients send to the listening port minus two."""

    async def main() -> None:
        port = free_port()
        broker = tcp_broker(tmp_path, listenPort=str(port))
        await broker.start()
        async with connected(f"127.0.0.1:{port - 2}") as vip, connected(broker.address) as client:
            assert await send(vip, "orders", b"one") == ResponseCode.SUCCESS
            assert await pull(client, "orders") == [b"one"]
        await broker.stop()

    asyncio.run(main())


@pytest.mark.parametrize("transport", [TcpTransport(), MemoryTransport()], ids=["tcp", "memory"])
def test_broker_on_any_free_port_has_a_vip_port(transport: Transport) -> None:
    """Two brokers find four free ports even when other ports are taken meanwhile."""

    async def main() -> None:
        async with (
            EmbeddedBroker(transport=transport) as first,
            EmbeddedBroker(transport=transport) as second,
        ):
            for embedded in (first, second):
                host, _, port = embedded.broker_address.rpartition(":")
                for number in (int(port), int(port) - 2):
                    client = await transport.connect(f"{host}:{number}")
                    assert await send(client, "orders", b"one") == ResponseCode.SUCCESS
                    await client.close()

    asyncio.run(main())


def test_vip_port_can_be_disabled() -> None:
    """``vipChannelEnable=false`` opens no second port."""

    async def main() -> None:
        transport = MemoryTransport()
        settings = {"vipChannelEnable": "false"}
        async with EmbeddedBroker(transport=transport, broker_port=10911, settings=settings) as embedded:
            assert embedded.broker_address == "127.0.0.1:10911"
            with pytest.raises(ConnectError):
                await transport.connect("127.0.0.1:10909")
        async with EmbeddedBroker(transport=transport, settings=settings) as embedded:
            port = int(embedded.broker_address.rpartition(":")[2])
            with pytest.raises(ConnectError):
                await transport.connect(f"127.0.0.1:{port - 2}")

    asyncio.run(main())


def test_vip_port_in_use_is_only_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The broker starts without its VIP port, since current clients do not use it."""

    async def main() -> None:
        port = free_port()
        with closing(socket.socket()) as taken:
            taken.bind(("127.0.0.1", port - 2))
            taken.listen()
            broker = tcp_broker(tmp_path, listenPort=str(port))
            await broker.start()
            await broker.stop()

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert "VIP channel will not reach this broker" in caplog.text


def test_port_in_use_fails_the_start_and_releases_the_store(tmp_path: Path) -> None:
    """The error names the address and the setting; another broker can open the store at once."""

    async def main() -> None:
        first = tcp_broker(tmp_path / "first")
        await first.start()
        port = first.address.rpartition(":")[2]
        second = tcp_broker(tmp_path / "second", listenPort=port)
        with pytest.raises(AddressInUse, match=f"127.0.0.1:{port} is in use.*listenPort"):
            await second.start()
        third = tcp_broker(tmp_path / "second")
        await third.start()
        await third.stop()
        await first.stop()

    asyncio.run(main())


def test_second_broker_on_a_store_is_refused(tmp_path: Path) -> None:
    """The error names the directory; the first broker is not affected."""

    async def main() -> None:
        async with EmbeddedBroker(tmp_path) as embedded, connected(embedded.broker_address) as client:
            with pytest.raises(StoreLocked, match=str(tmp_path)):
                await EmbeddedBroker(tmp_path).start()
            assert await send(client, "orders", b"one") == ResponseCode.SUCCESS

    asyncio.run(main())


def test_recovery_extends_the_systemd_start_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recovery after a kill may exceed TimeoutStartSec, so the broker sends EXTEND_TIMEOUT_USEC as it progresses."""

    class SlowMachine(SystemClock):
        looks = 0

        def now_ms(self) -> int:
            self.looks += 1
            return super().now_ms() + 5_000 * self.looks

    before = tcp_broker(tmp_path / "store")
    before.store.load()
    for _ in range(1_000):
        before.store.put(StoreMessage("orders", 0, b"a", b""))
    shutil.copytree(tmp_path / "store", tmp_path / "killed")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        settings = tcp_broker(tmp_path / "killed").settings
        after = Broker(settings, transport=TcpTransport(), clock=SlowMachine(), on_progress=notify_progress)

        async def main() -> None:
            await after.start()
            await after.stop()
            await before.store.stop()

        asyncio.run(main())
        assert after.recovery.records == 1_000
        assert systemd.recv(1000) == b"EXTEND_TIMEOUT_USEC=60000000"


def test_unreachable_advertised_address_fails_the_start(tmp_path: Path) -> None:
    """The error names the settings to change, instead of letting every client time out."""

    async def main() -> None:
        broker = tcp_broker(tmp_path, bindAddress="127.0.0.1", brokerIP1="127.0.0.2")
        with pytest.raises(AddressUnreachable, match=r"127\.0\.0\.2:\d+.*Set brokerIP1"):
            await broker.start()

    asyncio.run(main())


def test_unknown_request_code_is_answered_as_not_supported(tmp_path: Path) -> None:
    """The answer has code 3, and the connection stays open."""

    async def main() -> None:
        async with EmbeddedBroker(tmp_path) as embedded, connected(embedded.broker_address) as client:
            answer = await client.invoke(9_999, timeout=30)
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert await send(client, "orders", b"one") == ResponseCode.SUCCESS

    asyncio.run(main())


def test_settings_are_read_and_changed_by_requests(tmp_path: Path) -> None:
    """UPDATE_BROKER_CONFIG changes the settings that may change while the broker runs."""

    async def main() -> None:
        async with EmbeddedBroker(tmp_path) as embedded, connected(embedded.broker_address) as client:
            code = RequestCode.UPDATE_BROKER_CONFIG
            changed = await client.invoke(code, body=b"autoCreateTopicEnable=false", timeout=30)
            assert changed.code == ResponseCode.SUCCESS
            assert await send(client, "orders", b"one") == ResponseCode.TOPIC_NOT_EXIST
            shown = await client.invoke(RequestCode.GET_BROKER_CONFIG, timeout=30)
            assert b"autoCreateTopicEnable=false\n" in bytes(shown.body)
            refused = await client.invoke(code, body=b"storePathRootDir=/tmp", timeout=30)
            assert refused.code == ResponseCode.SYSTEM_ERROR

    asyncio.run(main())


def test_broker_permission_change_is_registered_at_once(tmp_path: Path) -> None:
    """After brokerPermission=4 the routes are read-only before the next registration period."""

    async def main(time: VirtualTime) -> None:
        transport = MemoryTransport()
        async with EmbeddedBroker(tmp_path, transport=transport, clock=time.clock) as embedded:
            client = await transport.connect(embedded.broker_address)
            await send(client, "orders", b"one")
            for text, perm in ((b"brokerPermission=4", 4), (b"brokerPermission=6", 6)):
                await client.invoke(RequestCode.UPDATE_BROKER_CONFIG, body=text, timeout=30)
                await asyncio.sleep(0.1)
                route = embedded.name_server.routes.route("orders")
                assert route is not None
                assert route.queue_datas[0].perm == perm
            await client.close()

    with VirtualTime() as time:
        time.run(main(time))


def test_malformed_frames_affect_only_their_sender(tmp_path: Path) -> None:
    """Garbage, an oversized frame, half a frame and a closed socket disturb no other client."""

    async def main() -> None:
        async with EmbeddedBroker(tmp_path) as embedded, connected(embedded.broker_address) as client:
            host, port = embedded.broker_address.split(":")
            for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\x7f\xff\xff\xff" * 4, b"\x00\x00\x00\x40\x00", b""):
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(garbage)
                if garbage:
                    await writer.drain()
                writer.write_eof()
                await reader.read()
                writer.close()
            assert await send(client, "orders", b"one") == ResponseCode.SUCCESS

    asyncio.run(main())


def test_connection_without_heartbeats_is_closed(tmp_path: Path) -> None:
    """After two minutes."""

    async def main(time: VirtualTime) -> None:
        transport = MemoryTransport()
        async with EmbeddedBroker(tmp_path, transport=transport, clock=time.clock) as embedded:
            client = await transport.connect(embedded.broker_address)
            body = b'{"clientID":"c","producerDataSet":[{"groupName":"p"}],"consumerDataSet":[]}'
            answer = await client.invoke(RequestCode.HEART_BEAT, body=body, timeout=30)
            assert answer.code == ResponseCode.SUCCESS
            assert len(embedded.broker.producers.members("p")) == 1
            for _ in range(12):
                await client.invoke(9_999, timeout=30)
                await asyncio.sleep(10)
            assert not client.is_closed
            await asyncio.sleep(20)
            assert embedded.broker.producers.members("p") == []
            assert client.is_closed

    with VirtualTime() as time:
        time.run(main(time))


def test_expired_queue_locks_are_removed(tmp_path: Path) -> None:
    """The broker forgets a lock soon after it expired."""

    async def main(time: VirtualTime) -> None:
        transport = MemoryTransport()
        async with EmbeddedBroker(tmp_path, transport=transport, clock=time.clock) as embedded:
            client = await transport.connect(embedded.broker_address)
            embedded.broker.topics.create_by_send_back("orders", 100, 6)
            queues = {MessageQueue("orders", "broker-a", number) for number in range(100)}
            asked = LockBatchRequestBody(consumer_group="g", client_id="c", mq_set=queues)
            await client.invoke(RequestCode.LOCK_BATCH_MQ, body=encode_body(asked), timeout=30)
            assert len(embedded.broker.locks) == 100
            await asyncio.sleep(2 * LOCK_SECONDS)
            assert len(embedded.broker.locks) == 0

    with VirtualTime() as time:
        time.run(main(time))


def test_stop_answers_sends_that_wait_for_the_flush(tmp_path: Path) -> None:
    """Without an answer the producer would send the stored message again; later sends are stored or refused."""

    async def main() -> None:
        broker = tcp_broker(tmp_path, flushDiskType="SYNC_FLUSH")
        await broker.start()
        async with connected(broker.address) as client:
            arrived = asyncio.Event()
            broker.store.arrival_listeners.append(lambda *_: arrived.set())
            first = asyncio.create_task(send(client, "orders", b"one"))
            await arrived.wait()
            stopping = asyncio.create_task(broker.stop())
            second = asyncio.create_task(send(client, "orders", b"two"))
            assert await first == ResponseCode.SUCCESS
            await stopping
            (late,) = await asyncio.gather(second, return_exceptions=True)
            stored = broker.store.max_offset("orders", 0)
            assert stored == (2 if late == ResponseCode.SUCCESS else 1)

    asyncio.run(main())


def test_committed_offsets_are_limited_to_the_queue_after_a_crash(tmp_path: Path) -> None:
    """A crash may lose messages that were consumed already; new messages at those offsets are not skipped."""

    async def main() -> None:
        async with EmbeddedBroker(tmp_path) as embedded, connected(embedded.broker_address) as client:
            assert await send(client, "orders", b"one") == ResponseCode.SUCCESS
            embedded.broker.offsets.commit("consumers", "orders", 0, 7)
            embedded.broker.offsets.commit("others", "orders", 0, 1)
        async with EmbeddedBroker(tmp_path) as embedded:
            assert embedded.broker.offsets.get("consumers", "orders", 0) == 1
            assert embedded.broker.offsets.get("others", "orders", 0) == 1

    asyncio.run(main())


def test_invalid_setting_of_an_embedded_broker_names_the_argument() -> None:
    """The error's origin is the keyword argument."""

    async def main() -> None:
        with pytest.raises(SettingError, match="embedded broker's setting brokerPermission"):
            await EmbeddedBroker(settings={"brokerPermission": "9"}).start()

    asyncio.run(main())


def test_threaded_broker_serves_programs_without_a_loop(tmp_path: Path) -> None:
    """Blocking sockets reach it; a second stop is no error, and the port is free afterwards."""
    with ThreadedBroker(tmp_path) as running:
        host, port = running.address.split(":")
        with closing(socket.create_connection((host, int(port)), timeout=30)):
            pass
        running.stop()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), timeout=30)


def test_threaded_broker_that_fails_to_start_leaves_no_thread(tmp_path: Path) -> None:
    """The caller gets the broker's own error."""
    threads = set(threading.enumerate())
    with ThreadedBroker(tmp_path), pytest.raises(StoreLocked):
        ThreadedBroker(tmp_path).start()
    assert threads.issuperset(threading.enumerate())


def test_broker_registers_with_every_name_server(tmp_path: Path) -> None:
    """namesrvAddr may list several."""

    async def main() -> None:
        async with EmbeddedBroker(tmp_path / "one") as one, EmbeddedBroker(tmp_path / "two") as two:
            both = f"{one.name_server_address};{two.name_server_address}"
            broker = tcp_broker(tmp_path / "three", brokerName="broker-c", namesrvAddr=both)
            await broker.start()
            servers: list[NameServer] = [one.name_server, two.name_server]
            assert all(server.routes.route("broker-c") is not None for server in servers)
            await broker.stop()
            assert not any(server.routes.route("broker-c") is not None for server in servers)

    asyncio.run(main())
