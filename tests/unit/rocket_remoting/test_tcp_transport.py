"""The TCP transport: hostile peers, malformed and incomplete frames, addresses in use."""

import asyncio
import re
import socket
import struct
from pathlib import Path
from typing import cast

import pytest

from rocket_remoting.session.address import counted_address, format_address, log_peer
from rocket_remoting.session.connection import Connection
from rocket_remoting.session.limits import Limits
from rocket_remoting.transports.tcp import ACCEPTS_PER_TURN, TcpTransport
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import ConnectError


def echo(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """Answer with the request's body."""
    return RemotingCommand.response(request, body=request.body)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (bytes.fromhex("1603010200010001fc0303"), "TLS handshake"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "looks like text"),
        (struct.pack(">ii", 2**31 - 1, 10), "a frame of 2147483647 bytes"),
        (struct.pack(">ii", 6, 2) + b"no", "JSON header"),
    ],
    ids=["tls", "http", "oversize", "json"],
)
def test_garbage_closes_only_its_connection(caplog: pytest.LogCaptureFixture, data: bytes, reason: str) -> None:
    """The log names the peer; requests on other connections are answered."""

    async def main() -> None:
        server = await TcpTransport().serve("127.0.0.1", 0, echo)
        neighbour = await TcpTransport().connect(server.address)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(data)
        assert await asyncio.wait_for(reader.read(), 30) == b""
        writer.close()
        await writer.wait_closed()
        assert (await neighbour.invoke(RequestCode.HEART_BEAT, body=b"on", timeout=30)).body == b"on"
        await server.close()
        await neighbour.close()

    asyncio.run(main())
    (message,) = [record.getMessage() for record in caplog.records if record.name == "rocket_remoting"]
    assert message.startswith("closing the connection to 127.0.0.1:")
    assert reason in message


def test_valid_frames_before_garbage_are_answered() -> None:
    """Before the connection is closed."""

    async def main() -> None:
        server = await TcpTransport().serve("127.0.0.1", 0, echo)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        frame = b"".join(RemotingCommand.request(RequestCode.HEART_BEAT, body=b"heard").encode())
        writer.write(frame + b"\xff" * 20)
        assert (await asyncio.wait_for(reader.read(), 30)).endswith(b"heard")
        writer.close()
        await writer.wait_closed()
        await server.close()

    asyncio.run(main())


def test_incomplete_frame_at_close_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """With the number of received bytes."""

    async def main() -> None:
        gone = asyncio.Event()
        server = await TcpTransport().serve("127.0.0.1", 0, echo, on_close=lambda _: gone.set())
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(struct.pack(">ii", 100, 50) + b"{")
        writer.close()
        await writer.wait_closed()
        await asyncio.wait_for(gone.wait(), 30)
        await server.close()

    asyncio.run(main())
    assert "inside a frame, 9 bytes into it" in caplog.text


def test_answers_of_one_read_are_one_write() -> None:
    """A hundred requests that arrive together are answered by one write."""
    writes: list[int] = []

    class CountingTransport:
        """A transport that counts writes; uvloop's own does not allow to replace `write`."""

        def __init__(self, transport: asyncio.Transport | None) -> None:
            assert transport is not None
            self._transport = transport

        def write(self, data: bytes) -> None:
            writes.append(len(data))
            self._transport.write(data)

        def __getattr__(self, name: str) -> object:
            return getattr(self._transport, name)

    answer = b"".join(RemotingCommand.response(RemotingCommand.request(34), body=b"x").encode())

    async def main() -> None:
        met: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        server = await TcpTransport().serve("127.0.0.1", 0, echo, on_connect=met.set_result)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        peer = await met
        peer._transport = cast(asyncio.Transport, CountingTransport(peer._transport))
        frame = b"".join(RemotingCommand.request(RequestCode.HEART_BEAT, body=b"x").encode())
        writer.write(frame * 100)
        await asyncio.wait_for(reader.readexactly(len(answer) * 100), 30)
        writer.close()
        await writer.wait_closed()
        await server.close()

    asyncio.run(main())
    assert sum(writes) == len(answer) * 100
    assert len(writes) < 20  # one, unless this process had to wait for the processor meanwhile


def test_port_in_use_is_an_os_error() -> None:
    """The second server on a port fails to start."""

    async def main() -> None:
        server = await TcpTransport().serve("127.0.0.1", 0, echo)
        with pytest.raises(OSError, match="in use"):
            await TcpTransport().serve("127.0.0.1", server.port, echo)
        await server.close()

    asyncio.run(main())


def test_simultaneous_connections_are_accepted_in_steps() -> None:
    """Existing connections are served in between, and no connection is refused."""
    count = 200

    async def main() -> None:
        made: list[Connection] = []
        server = await TcpTransport().serve("127.0.0.1", 0, echo, on_connect=made.append)
        clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(count)]
        before, most = 0, 0
        async with asyncio.timeout(30):
            while len(made) < count:
                await asyncio.sleep(0)
                before, most = len(made), max(most, len(made) - before)
        assert 0 < most <= ACCEPTS_PER_TURN
        for client in clients:
            client.close()
        await server.close()

    asyncio.run(main())


def test_connections_leave_file_descriptors_free(caplog: pytest.LogCaptureFixture) -> None:
    """Connections beyond the limit are closed at once with one log line for all; the others are served."""
    resource = pytest.importorskip("resource")

    async def main() -> None:
        server = await TcpTransport().serve("127.0.0.1", 0, echo, limits=Limits(spare_files=60))
        neighbour = await TcpTransport().connect(server.address)
        streams: list[asyncio.StreamWriter] = []
        refused = 0
        while refused < 10:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            streams.append(writer)
            writer.writelines(RemotingCommand.request(RequestCode.HEART_BEAT).encode())
            refused += not await _answered(reader)
        assert (await neighbour.invoke(RequestCode.HEART_BEAT, body=b"on", timeout=30)).body == b"on"
        assert len(server.connections) == len(streams) + 1 - refused
        for writer in streams:
            writer.transport.abort()
        await asyncio.sleep(0)
        await server.close()
        await neighbour.close()

    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Whatever the tests before have open.
    highest = max(int(file.name) for file in Path("/dev/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 200, most))
    try:
        asyncio.run(main())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
    (message,) = [record.getMessage() for record in caplog.records if record.name == "rocket_remoting"]
    assert message.startswith("refusing the connection of 127.0.0.1:")
    assert message.endswith("and this process may not have many more files open (ulimit -n)")


def test_connections_per_address_are_limited(caplog: pytest.LogCaptureFixture) -> None:
    """Except from the server's own machine, which may use the rest."""

    async def main() -> None:
        half = Limits(max_connections=10, max_address_percent=50)
        server = await TcpTransport().serve("127.0.0.1", 0, echo, limits=half)
        opened: dict[str, list[asyncio.StreamWriter]] = {}

        async def is_served(source: str) -> bool:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port, local_addr=(source, 0))
            opened.setdefault(source, []).append(writer)
            writer.writelines(RemotingCommand.request(RequestCode.HEART_BEAT).encode())
            return await _answered(reader)

        assert [await is_served("127.0.0.2") for _ in range(7)] == [True] * 5 + [False] * 2
        assert await is_served("127.0.0.3")
        assert not await is_served("127.0.0.2")
        gone = asyncio.get_running_loop().create_future()
        (first, *_) = (each for each in server.connections if each.remote_address.startswith("127.0.0.2:"))
        first.add_close_callback(gone.set_result)
        first.abort("gone")
        await gone
        assert await is_served("127.0.0.2")
        assert [await is_served("127.0.0.1") for _ in range(5)] == [True] * 4 + [False]
        for writers in opened.values():
            for writer in writers:
                writer.transport.abort()
        await asyncio.sleep(0)
        await server.close()

    asyncio.run(main())
    assert re.search(r"refusing .* of 127.0.0.2:\d+ and further ones: 5 of 127.0.0.2 are open", caplog.text)


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("memory", "memory"),
    ],
)
def test_ipv6_addresses_count_by_their_64_bit_prefix(host: str, address: str) -> None:
    """A host with one IPv6 address has 2⁶⁴ of them."""
    assert counted_address(host) == address
    assert log_peer(format_address((host, 80))) == {"peer": address}


async def _answered(reader: asyncio.StreamReader) -> bool:
    """Return whether the server answers instead of closing the connection."""
    try:
        return bool(await reader.read(1))
    except ConnectionError:
        return False


def test_connect_times_out() -> None:
    """A host that does not answer is a connect error."""

    async def main() -> None:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            address = f"127.0.0.1:{listener.getsockname()[1]}"
            fillers = [socket.socket() for _ in range(4)]  # a full backlog: further ones wait for ever
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(listener.getsockname())
            with pytest.raises(ConnectError, match=r"within 0.05 s"):
                await TcpTransport().connect(address, timeout=0.05)
            for filler in fillers:
                filler.close()

    asyncio.run(main())


def test_close_waits_briefly_for_a_peer_that_does_not_read() -> None:
    """For unwritten data, but not for ever."""

    handled = asyncio.Event()

    def handle(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        handled.set()
        return echo(connection, request)

    async def main() -> None:
        server = await TcpTransport().serve("127.0.0.1", 0, handle, limits=Limits(max_frame=32 * 2**20))
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"".join(RemotingCommand.request(RequestCode.HEART_BEAT, body=bytes(16 * 2**20)).encode()))
        await writer.drain()
        await handled.wait()
        server.CLOSE_TIMEOUT = 0.05
        await asyncio.wait_for(server.close(), 30)
        writer.close()

    asyncio.run(main())


def test_ipv6_address_is_written_with_brackets() -> None:
    """And can be connected to."""

    async def main() -> None:
        try:
            server = await TcpTransport().serve("::1", 0, echo)
        except OSError:
            pytest.skip("no IPv6 on this machine")
        assert server.address == f"[::1]:{server.port}"
        connection = await TcpTransport().connect(server.address)
        assert (await connection.invoke(RequestCode.HEART_BEAT, body=b"6", timeout=30)).body == b"6"
        await server.close()
        await connection.close()

    asyncio.run(main())
