"""The limit on the buffers of all connections, and which connections are closed when it is exceeded."""

import asyncio
import logging

import pytest

from rocket_remoting.session.buffers import BufferBudget
from rocket_remoting.session.connection import Connection
from rocket_remoting.session.limits import Limits
from rocket_remoting.transports.transport import Transport
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.command import RemotingCommand
from streamkit.testing.virtual_time import VirtualTime

MiB = 1024 * 1024


class Holder:
    """A connection that reports what it buffers and records when it is closed."""

    def __init__(self, budget: BufferBudget, name: str) -> None:
        self.remote_address = name
        self.is_closed = False
        self._budget = budget

    def hold(self, size: int) -> None:
        self._budget.update(self, size)

    def abort(self, reason: str) -> None:
        self.is_closed = True
        self.hold(0)


def test_long_time_holders_of_much_memory_are_closed_first() -> None:
    """Not the latest ones, and not more than necessary."""

    async def main() -> None:
        budget = BufferBudget(100)
        old, large, new = (Holder(budget, name) for name in ("old", "large", "new"))
        old.hold(30)
        await asyncio.sleep(60)
        large.hold(60)
        assert [old.is_closed, large.is_closed] == [False, False]
        new.hold(20)
        assert [holder.is_closed for holder in (old, large, new)] == [True, False, False]
        assert (budget.used, budget.closed) == (80, 1)
        large.hold(0)
        new.hold(0)
        assert budget.used == 0

    with VirtualTime() as time:
        time.run(main())


def test_closings_are_logged_once_a_second(caplog: pytest.LogCaptureFixture) -> None:
    """Many closed connections do not flood the log."""

    async def main() -> None:
        budget = BufferBudget(100)
        for number in range(1000):
            Holder(budget, f"10.0.0.7:{number}").hold(10)
        assert (budget.used, budget.closed) == (100, 990)

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert [getattr(record, "peer", "") for record in caplog.records] == ["10.0.0.7"]


def echo(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    return RemotingCommand.response(request, body=bytes(request.body))


def head_of_frame(size: int, sent: int) -> bytes:
    """Return the first bytes of a frame."""
    command = RemotingCommand.request(RequestCode.SEND_MESSAGE, body=bytes(size))
    return b"".join(bytes(piece) for piece in command.encode())[:sent]


def test_incomplete_frames_are_bounded_in_memory(transport: Transport) -> None:
    """Their connections are closed, and one with a complete frame is served."""

    async def main() -> None:
        budget = BufferBudget(8 * MiB)
        closed = asyncio.Event()
        server = await transport.serve(
            "127.0.0.1", 0, echo, limits=Limits(buffers=budget), on_close=lambda _: closed.set()
        )
        hostile = [await transport.connect(server.address) for _ in range(6)]
        honest = await transport.connect(server.address)
        for connection in hostile:
            assert connection._transport is not None
            connection._transport.write(head_of_frame(10 * MiB, 3 * MiB))
        await asyncio.wait_for(closed.wait(), 60)
        answer = await honest.invoke(RequestCode.SEND_MESSAGE, body=bytes(MiB), timeout=30)
        assert len(answer.body) == MiB
        assert 0 < budget.used <= 8 * MiB
        for connection in hostile:
            connection.abort("enough")
        await server.close()
        await honest.close()
        assert budget.used == 0

    asyncio.run(main())


def test_unread_answers_are_bounded_in_memory(transport: Transport) -> None:
    """Each connection is within its own limits, but not all together. One that reads is served."""

    async def main() -> None:
        budget, closed = BufferBudget(8 * MiB), asyncio.Event()
        server = await transport.serve(
            "127.0.0.1", 0, lambda _, request: RemotingCommand.response(request, body=bytes(MiB)),
            limits=Limits(buffers=budget), on_close=lambda _: closed.set(),
        )  # fmt: skip
        hostile = [await transport.connect(server.address) for _ in range(8)]
        honest = await transport.connect(server.address)
        for connection in hostile:
            assert connection._transport is not None
            connection._transport.pause_reading()
            for _ in range(8):
                connection.invoke_async(RequestCode.PULL_MESSAGE, timeout=30).add_done_callback(
                    lambda asked: asked.exception()
                )
        await asyncio.wait_for(closed.wait(), 60)
        for _ in range(20):
            assert len((await honest.invoke(RequestCode.PULL_MESSAGE, timeout=30)).body) == MiB
        assert budget.used <= 8 * MiB
        for connection in hostile:
            connection.abort("enough")
        await server.close()
        await honest.close()
        assert budget.used == 0

    asyncio.run(main())


def test_small_waiting_request_is_not_closed_for_memory(transport: Transport) -> None:
    """It may wait because many others of its sender were handled first."""

    async def main() -> None:
        budget, found = BufferBudget(2 * MiB), list[tuple[bool, bool]]()

        def handle(connection: Connection, request: RemotingCommand) -> RemotingCommand:
            connection.pause_requests(len(request.body))
            found.append((budget.is_scarce, connection.exhausts_buffers))
            connection.resume_requests()
            return RemotingCommand.response(request)

        server = await transport.serve("127.0.0.1", 0, handle, limits=Limits(buffers=budget))
        honest = await transport.connect(server.address)
        for size in (100, 600 * 1024, 100):
            await honest.invoke(RequestCode.PULL_MESSAGE, body=bytes(size), timeout=30)
        greedy = await transport.connect(server.address)
        assert greedy._transport is not None
        greedy._transport.write(head_of_frame(1600 * 1024, 1300 * 1024))
        async with asyncio.timeout(30):
            while not found[-1][0]:
                await honest.invoke(RequestCode.PULL_MESSAGE, body=bytes(100), timeout=30)
        assert found[:3] == [(False, False), (True, True), (False, False)]
        assert found[-1] == (True, False)
        for connection in (honest, greedy):
            connection.abort("enough")
        await server.close()

    asyncio.run(main())


def test_connection_with_complete_frames_holds_no_memory(transport: Transport) -> None:
    """However much it transfers."""

    async def main() -> None:
        budget = BufferBudget(64 * MiB)
        server = await transport.serve("127.0.0.1", 0, echo, limits=Limits(buffers=budget))
        connection = await transport.connect(server.address)
        for _ in range(5):
            await connection.invoke(RequestCode.SEND_MESSAGE, body=bytes(3 * MiB), timeout=30)
        await asyncio.sleep(0)  # the step that reads the response ends, and with it the server's write
        assert budget.used == 0
        assert not budget.is_scarce
        await connection.close()
        await server.close()

    asyncio.run(main())
