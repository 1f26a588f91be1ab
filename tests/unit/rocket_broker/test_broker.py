"""The broker as a whole: what it serves, where, and how it refuses to start."""

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
from service_manager import notify_progress
from streamkit.testing.virtual_time import VirtualTime


def free_port() -> int:
    """A port that was free a moment ago, with a free one two below it."""
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


def test_a_message_goes_through(tmp_path: Path) -> None:
    """Sent to a new topic, its route is at the name server and the message can be pulled."""

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


def test_messages_topics_and_offsets_outlive_the_broker(tmp_path: Path) -> None:
    """Stopped in order and started again on the same store, nothing is missing."""

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


def test_a_temporary_store_leaves_no_trace() -> None:
    """Directory, connections, tasks and threads are gone."""

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


def test_time_can_be_virtual() -> None:
    """Over the in-memory transport an hour of a held pull's broker passes in no time, and needs no thread."""

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


def test_the_vip_port_serves_the_same_requests(tmp_path: Path) -> None:
    """Clients of the seeds' age send to the listening port minus two."""

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
def test_a_broker_on_any_free_port_has_a_vip_port_too(transport: Transport) -> None:
    """Whatever ports are taken meanwhile: two brokers find four."""

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


def test_the_vip_port_can_be_turned_off() -> None:
    """``vipChannelEnable=false`` leaves the port to others."""

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


def test_a_taken_vip_port_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """New clients do not need it, so the broker starts without."""

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


def test_a_taken_port_is_a_clear_error_and_nothing_stays_open(tmp_path: Path) -> None:
    """The error names address and setting; the store can be opened at once by another broker."""

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


def test_a_store_has_one_broker(tmp_path: Path) -> None:
    """The second one is told which directory is in use, and the first one does not notice."""

    async def main() -> None:
        async with EmbeddedBroker(tmp_path) as embedded, connected(embedded.broker_address) as client:
            with pytest.raises(StoreLocked, match=str(tmp_path)):
                await EmbeddedBroker(tmp_path).start()
            assert await send(client, "orders", b"one") == ResponseCode.SUCCESS

    asyncio.run(main())


def test_systemd_waits_while_a_broker_reads_a_long_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a kill it may take longer than units may take to start: the broker asks for more time as it comes on."""

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


def test_an_address_that_nobody_could_reach_stops_the_broker(tmp_path: Path) -> None:
    """Better now than as timeouts of every client: the error says which settings to change."""

    async def main() -> None:
        broker = tcp_broker(tmp_path, bindAddress="127.0.0.1", brokerIP1="127.0.0.2")
        with pytest.raises(AddressUnreachable, match=r"127\.0\.0\.2:\d+.*Set brokerIP1"):
            await broker.start()

    asyncio.run(main())


def test_an_unknown_request_is_answered_as_such(tmp_path: Path) -> None:
    """Code 3, at once; the connection serves on."""

    async def main() -> None:
        async with EmbeddedBroker(tmp_path) as embedded, connected(embedded.broker_address) as client:
            answer = await client.invoke(9_999, timeout=30)
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert await send(client, "orders", b"one") == ResponseCode.SUCCESS

    asyncio.run(main())


def test_settings_are_shown_and_changed_from_afar(tmp_path: Path) -> None:
    """UPDATE_BROKER_CONFIG changes what may change while the broker runs."""

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


def test_a_broker_closed_to_producers_is_known_as_such_at_once(tmp_path: Path) -> None:
    """brokerPermission=4 from afar: its topics' routes say read-only long before the next period."""

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


def test_one_bad_client_disturbs_no_other(tmp_path: Path) -> None:
    """Garbage, an absurd frame, half a frame and a closed socket: only their senders notice."""

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


def test_a_client_that_fell_silent_is_forgotten(tmp_path: Path) -> None:
    """Without a heartbeat for two minutes its connection is closed."""

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


def test_locks_that_nobody_renews_are_forgotten(tmp_path: Path) -> None:
    """Whatever queues a client named, a broker does not remember them for longer than it must."""

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


def test_a_send_that_waits_for_the_disk_is_answered_before_the_broker_ends(tmp_path: Path) -> None:
    """Its sender would send again what is stored; so is what came meanwhile, unless it was refused."""

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


def test_a_group_is_never_ahead_of_its_queue(tmp_path: Path) -> None:
    """A crash may take messages whose consumption was noted already: those that get their numbers are not missed."""

    async def main() -> None:
        async with EmbeddedBroker(tmp_path) as embedded, connected(embedded.broker_address) as client:
            assert await send(client, "orders", b"one") == ResponseCode.SUCCESS
            embedded.broker.offsets.commit("consumers", "orders", 0, 7)
            embedded.broker.offsets.commit("others", "orders", 0, 1)
        async with EmbeddedBroker(tmp_path) as embedded:
            assert embedded.broker.offsets.get("consumers", "orders", 0) == 1
            assert embedded.broker.offsets.get("others", "orders", 0) == 1

    asyncio.run(main())


def test_a_wrong_setting_of_an_embedded_broker_is_told_by_its_name() -> None:
    """The origin is the argument it came from."""

    async def main() -> None:
        with pytest.raises(SettingError, match="embedded broker's setting brokerPermission"):
            await EmbeddedBroker(settings={"brokerPermission": "9"}).start()

    asyncio.run(main())


def test_a_broker_in_a_thread_serves_programs_without_a_loop(tmp_path: Path) -> None:
    """Plain sockets reach it; stopping twice is no error, and the port is free again."""
    with ThreadedBroker(tmp_path) as running:
        host, port = running.address.split(":")
        with closing(socket.create_connection((host, int(port)), timeout=30)):
            pass
        running.stop()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), timeout=30)


def test_a_broker_in_a_thread_that_cannot_start_leaves_no_thread(tmp_path: Path) -> None:
    """The error is the broker's own, raised where it was started."""
    threads = set(threading.enumerate())
    with ThreadedBroker(tmp_path), pytest.raises(StoreLocked):
        ThreadedBroker(tmp_path).start()
    assert threads.issuperset(threading.enumerate())


def test_every_name_server_learns_of_the_broker(tmp_path: Path) -> None:
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
