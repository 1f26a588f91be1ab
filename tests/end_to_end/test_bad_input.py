"""Whatever is sent to a broker and its name server, another application is not disturbed."""

import asyncio
import signal
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rocket_broker.threaded_broker import ThreadedBroker
from rocket_remoting import RequestCode, TcpTransport
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.ext_fields import Header
from rocket_remoting.wire.headers import GetRouteInfoRequestHeader
from tests.end_to_end.broker_process import PATIENT, running
from tests.end_to_end.honest_shop import HonestShop
from tests.end_to_end.raw_client import RawClient, pull_header, send_header

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Act = Callable[[str, int], Awaitable[object]]


@pytest.fixture(scope="module")
def broker() -> Iterator[ThreadedBroker]:
    """One broker for all hostile clients."""
    with ThreadedBroker() as started:
        yield started


def frame_of(code: int, header: Header | None = None) -> bytes:
    """Return a request's bytes."""
    return b"".join(bytes(piece) for piece in RemotingCommand.request(code, header).encode())


@asynccontextmanager
async def connections(host: str, port: int, count: int = 1) -> AsyncIterator[list[Streams]]:
    """Open so many connections; reset them at the end."""
    streams: list[Streams] = []
    try:
        for _ in range(count):
            streams.append(await asyncio.open_connection(host, port))
        yield streams
    finally:
        for _, writer in streams:
            writer.transport.abort()
        await asyncio.sleep(0)


async def send_and_leave(host: str, port: int, data: bytes) -> None:
    """Write bytes on a new connection, and read until the other side closes it or stops answering."""
    async with connections(host, port) as [(reader, writer)]:
        try:
            writer.write(data)
            writer.write_eof()
            async with asyncio.timeout(60):
                await reader.read()
        except ConnectionError:
            pass  # closed with bytes of ours unread


@asynccontextmanager
async def raw_client(host: str, port: int) -> AsyncIterator[RawClient]:
    """Return a client that sends single requests."""
    client = await RawClient.connect(TcpTransport(), f"{host}:{port}")
    try:
        yield client
    finally:
        await client.connection.close()


async def garbage(host: str, port: int) -> None:
    """Send data without frames."""
    for data in (
        b"\x00" * 99,
        b"\xff" * 99,
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01" + bytes(99),
        b"{}" * 99,
    ):
        await send_and_leave(host, port, data)
    for length in range(0, 12, 3):
        for header_length in (-(2**31), -1, 0, 5, 2**24 - 1, 2**31 - 1):
            await send_and_leave(host, port, struct.pack(">ii", length, header_length) + bytes(16))


async def oversized_frames(host: str, port: int) -> None:
    """Send absurd lengths, and a real frame of 17 MiB."""
    for length in (2**31 - 1, 2**24 + 1, -1, -(2**31)):
        await send_and_leave(host, port, struct.pack(">ii", length, 10) + bytes(64))
    size = 17 * 1024 * 1024
    await send_and_leave(host, port, struct.pack(">ii", size, 10) + bytes(size - 4))


async def truncated_frames(host: str, port: int) -> None:
    """Send every prefix of a valid request; keep some of the connections open."""
    good = frame_of(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic="orders"))
    for length in range(1, len(good), 7):
        await send_and_leave(host, port, good[:length])
    async with connections(host, port, 20) as half_open:
        for _, writer in half_open:
            writer.write(good[:-1])
        await asyncio.sleep(0.05)


async def unknown_requests(host: str, port: int) -> None:
    """Send five thousand at once: each is answered with its number."""
    async with raw_client(host, port) as client:
        answers = await asyncio.gather(*(client.ask(50_000 + number) for number in range(5_000)))
    assert {answer.code for answer in answers} == {ResponseCode.REQUEST_CODE_NOT_SUPPORTED}
    assert "50007" in (answers[7].remark or "")


async def answers_nobody_asked_for(host: str, port: int) -> None:
    """Send responses to requests that were never made."""
    asked = RemotingCommand.request(RequestCode.HEART_BEAT)
    data = bytearray()
    for number in range(1_000):
        asked.opaque = number
        for piece in RemotingCommand.response(asked, ResponseCode.SUCCESS).encode():
            data += piece
    await send_and_leave(host, port, bytes(data))


async def illegal_names(host: str, port: int) -> None:
    """Send illegal topics and groups: each request is refused with a reason."""
    async with raw_client(host, port) as client:
        for name in ("", " ", "no good", "a" * 300, "../../etc", "\x00", "订单"):
            headers: dict[RequestCode, Header] = {
                RequestCode.SEND_MESSAGE_V2: send_header(name),
                RequestCode.PULL_MESSAGE: pull_header(name, 0),
                RequestCode.GET_ROUTEINFO_BY_TOPIC: GetRouteInfoRequestHeader(topic=name),
            }
            for code, header in headers.items():
                answer = await client.ask(code, header, b"x")
                assert (answer.code != ResponseCode.SUCCESS, bool(answer.remark)) == (True, True), (
                    name,
                    code,
                )


async def too_large_bodies(host: str, port: int) -> None:
    """Send bodies over maxMessageSize; each is refused."""
    async with raw_client(host, port) as client:
        for _ in range(5):
            answer = await client.try_send(body=bytes(5 * 1024 * 1024))
            assert answer.code != ResponseCode.SUCCESS


async def a_client_that_reads_nothing(host: str, port: int) -> None:
    """Request megabytes thousands of times without reading."""
    pull = frame_of(RequestCode.PULL_MESSAGE, pull_header("orders", 0, max_msg_nums=4096))
    route = frame_of(RequestCode.GET_BROKER_CLUSTER_INFO)
    async with connections(host, port) as [(_, writer)]:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write((pull + route) * 5_000)
        await asyncio.sleep(0.2)


async def slow_senders(host: str, port: int) -> None:
    """Send requests byte by byte on three hundred connections; all are answered."""
    good = frame_of(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic="orders"))
    async with connections(host, port, 300) as streams:
        for at in range(0, len(good), 16):
            for _, writer in streams:
                writer.write(good[at : at + 16])
            await asyncio.sleep(0.005)
        async with asyncio.timeout(60):
            for reader, _ in streams:
                assert len(await reader.readexactly(8)) == 8


async def connections_that_come_and_go(host: str, port: int) -> None:
    """Open and reset a thousand connections."""
    for _ in range(1_000):
        with socket.create_connection((host, port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await asyncio.sleep(0)


ACTS: list[Act] = [
    garbage,
    oversized_frames,
    truncated_frames,
    unknown_requests,
    answers_nobody_asked_for,
    illegal_names,
    too_large_bodies,
    a_client_that_reads_nothing,
    slow_senders,
    connections_that_come_and_go,
]


@pytest.mark.parametrize("door", ["broker", "name server"])
@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
def test_honest_application_is_not_disturbed(act: Act, door: str, broker: ThreadedBroker) -> None:
    """It loses no message, receives none twice, and retries nothing."""

    async def main() -> None:
        host, _, port = (broker.address if door == "broker" else broker.name_server).rpartition(":")
        async with HonestShop(broker.name_server) as shop:
            await act(host, int(port))
            await shop.goes_on()

    asyncio.run(main())


@pytest.mark.slow
def test_thousands_of_connections_disturb_no_client(broker: ThreadedBroker) -> None:
    """Four thousand stay open, and half of them send a request now and then."""

    async def main() -> None:
        host, _, port = broker.address.rpartition(":")
        ask = frame_of(RequestCode.GET_BROKER_RUNTIME_INFO)
        # The application shares a loop with all of them: an answer may be there and read too late.
        async with HonestShop(broker.name_server, may_warn="no answer within") as shop:
            async with connections(host, int(port), 4_000) as streams:
                for _, writer in streams[::2]:
                    writer.write(ask)
                for reader, _ in streams[::2]:
                    await reader.readexactly(8)
                await shop.goes_on()
            await shop.goes_on()

    asyncio.run(main())


@pytest.mark.slow
def test_flood_of_connections_leaves_the_broker_its_files(tmp_path: Path) -> None:
    """A broker limited to 300 open files still creates and flushes those of its store."""
    resource = pytest.importorskip("resource")

    async def main(name_server: str, host: str, port: str) -> None:
        async with HonestShop(name_server) as shop, connections(host, int(port), 600):
            await shop.goes_on(500)

    with running("namesrv", "-p", "0", cwd=tmp_path) as name_server:
        config = tmp_path / "broker.conf"
        lines = {
            "brokerIP1": "127.0.0.1",
            "listenPort": "0",
            "namesrvAddr": name_server.address(),
            "storePathRootDir": str(tmp_path / "store"),
            "mappedFileSizeCommitLog": "65536",
            "mappedFileSizeConsumeQueue": "2000",
            **PATIENT,
        }
        config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        with running("broker", "-c", str(config), cwd=tmp_path) as broker:
            host, _, port = broker.address().rpartition(":")
            resource.prlimit(broker.process_id, resource.RLIMIT_NOFILE, (300, 300))
            asyncio.run(main(name_server.address(), host, port))
            assert broker.signal(signal.SIGTERM) == 0
    # At most one a second, for 300 connections that are too many.
    assert 1 <= sum("refusing the connection" in line for line in broker.log) < 100
