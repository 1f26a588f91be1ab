"""The in-memory transport: separate networks and virtual time."""

import asyncio

import pytest

from rocket_remoting.session.connection import Connection, FramesHandler
from rocket_remoting.session.limits import Limits
from rocket_remoting.transports.memory import MemoryTransport
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import ConnectError, RequestTimeout
from streamkit.testing.virtual_time import VirtualTime


def echo(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """Answer with the request's body."""
    return RemotingCommand.response(request, body=request.body)


def silent(connection: Connection, request: RemotingCommand) -> None:
    """Send no answer."""


def test_alternating_refusals_do_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Only the first refusal of a series is logged, and at most one series per second."""

    async def main() -> None:
        transport = MemoryTransport()
        server = await transport.serve("broker", 10911, echo, limits=Limits(max_connections=1))
        for pause in (0.001, 0.001, 2.0, 0.001):
            kept, *refused = [await transport.connect(server.address) for _ in range(3)]
            await asyncio.sleep(pause)
            assert [connection.is_closed for connection in refused] == [True, True]
            await kept.close()
            await asyncio.sleep(0.001)
        await server.close()

    with VirtualTime() as time:
        time.run(main())
    assert len(caplog.records) == 2


def test_networks_are_separate() -> None:
    """Ends can connect only over the same transport object; it serves an address once."""

    async def main() -> None:
        one, other = MemoryTransport(), MemoryTransport()
        server = await one.serve("broker", 10911, echo)
        assert server.address == "broker:10911"
        with pytest.raises(ConnectError, match="no server"):
            await other.connect("broker:10911")
        with pytest.raises(OSError, match="served already"):
            await one.serve("broker", 10911, echo)
        await server.close()
        again = await one.serve("broker", 10911, echo)
        await again.close()

    asyncio.run(main())


def test_timeouts_follow_virtual_time() -> None:
    """Requests time out in order, without real time passing."""
    failed: list[tuple[float, float]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        transport = MemoryTransport()
        patient = Limits(idle_timeout=None)
        server = await transport.serve("broker", 10911, silent, limits=patient)
        connection = await transport.connect(server.address, limits=patient)

        async def ask(after: float, timeout: float) -> None:
            await asyncio.sleep(after)
            with pytest.raises(RequestTimeout):
                await connection.invoke(RequestCode.PULL_MESSAGE, timeout=timeout)
            failed.append((after + timeout, loop.time()))

        await asyncio.gather(ask(0, 3000), ask(0, 30), ask(10, 5), ask(100, 1))
        await server.close()
        await connection.close()

    with VirtualTime() as time:
        time.run(main())
    assert failed == [(15, 15), (30, 30), (101, 101), (3000, 3000)]


def test_idle_connections_are_closed() -> None:
    """After the idle time without traffic in either direction."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        transport = MemoryTransport()
        server = await transport.serve("broker", 10911, echo)
        connection = await transport.connect(server.address, limits=Limits(idle_timeout=None))
        closed = asyncio.Event()
        connection.add_close_callback(lambda _: closed.set())
        for _ in range(5):
            await connection.invoke(RequestCode.HEART_BEAT, timeout=3)
            await asyncio.sleep(100)
        await closed.wait()
        assert loop.time() == 520
        await server.close()

    with VirtualTime() as time:
        time.run(main())


def test_frames_are_encoded() -> None:
    """The receiver decodes bytes; no objects are passed."""
    sent = RemotingCommand.request(RequestCode.HEART_BEAT, body=memoryview(b"bytes"))

    async def main() -> None:
        transport = MemoryTransport()
        server = await transport.serve("broker", 10911, echo)
        connection = await transport.connect(server.address)
        answer = await connection.invoke(sent.code, body=sent.body, timeout=3)
        assert (type(answer.body), answer.body) == (bytes, b"bytes")
        await server.close()
        await connection.close()
        assert "no servers" in repr(transport)

    asyncio.run(main())


def test_a_connection_that_is_read_twice_in_a_turn_keeps_what_it_has() -> None:
    """What was read first waits for the turn's end, with the requests of others, and in the memory that all share."""
    handled: list[bytes] = []

    def handle(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        handled.append(bytes(request.body))
        return RemotingCommand.response(request)

    async def main() -> None:
        transport = MemoryTransport()
        frames = FramesHandler(frozenset(), lambda received: None, lambda *_: None, lambda: None, lambda: None)
        server = await transport.serve("broker", 10911, handle, frames_handler=frames)
        write_at_once = Limits(max_pending_bytes=1)
        first, second = [await transport.connect(server.address, limits=write_at_once) for _ in range(2)]
        asked = [first.invoke_async(RequestCode.HEART_BEAT, body=b"a", timeout=30)]
        for body in (b"b", b"c" * 99, b"d"):
            asked.append(second.invoke_async(RequestCode.HEART_BEAT, body=body, timeout=30))
        await asyncio.gather(*asked)
        assert handled == [b"a", b"b", b"c" * 99, b"d"]
        await first.close()
        await second.close()
        await server.close()

    with VirtualTime() as time:
        time.run(main())
