"""Requests handled in steps: other clients are served in between, the same client's later requests wait."""

import asyncio
from collections.abc import Callable, Generator

import pytest

from rocket_broker.limits.refusal import Refusal
from rocket_broker.loop.step_line import SLICE_SECONDS
from rocket_broker.loop.watchdog import Watchdog
from rocket_broker.requests.serving import MAX_HEADER, Dispatcher, RequestHandler, limits
from rocket_remoting import MemoryTransport
from rocket_remoting.session.buffers import BufferBudget
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import ConnectionLost
from tests.unit.rocket_broker.memory_peers import NEVER_IDLE, run_virtually

LONG, SHORT, STORES = 1, 2, 3


def busy() -> None:
    """Work for one time slice."""
    until = Watchdog.clock() + SLICE_SECONDS
    while Watchdog.clock() < until:
        pass


def in_steps(number: int, end: Callable[[], None] = lambda: None) -> RequestHandler:
    """Return a handler that works for some slices; its answer's remark counts the requests begun since."""

    def handle(connection: Connection, command: RemotingCommand) -> Generator[None, None, RemotingCommand | None]:
        for _ in range(number):
            busy()
            yield
        end()
        return RemotingCommand.response(command, remark="long")

    return handle


def short(connection: Connection, command: RemotingCommand) -> RemotingCommand:
    """Answer at once."""
    return RemotingCommand.response(command, remark="short")


class Stage:
    """A server with handlers, and the order in which its clients got answers."""

    def __init__(self, handlers: dict[int, RequestHandler]) -> None:
        self.dispatcher = Dispatcher("server", handlers, storing=[STORES])
        self.answered: list[str] = []
        self._transport = MemoryTransport()

    async def start(self) -> None:
        """Serve."""
        budget = BufferBudget(1024 * 1024)
        server_limits = limits(0, address_percent=100, buffers=budget)
        self.server = await self._transport.serve("server", 1, self.dispatcher, limits=server_limits)

    async def connect(self) -> Connection:
        """Return the client's end of a new connection."""
        return await self._transport.connect("server:1", limits=NEVER_IDLE)

    async def under_way(self, number: int) -> None:
        """Wait until so many requests are being handled in steps."""
        while len(self.dispatcher) != number:  # noqa: ASYNC110 - a broker tells nobody
            await asyncio.sleep(0)

    async def ask(self, client: Connection, name: str, code: int, body: bytes = b"") -> RemotingCommand:
        """Return the answer to a request and record the request's name."""
        answer = await client.invoke(code, body=body, timeout=1000)
        self.answered.append(name)
        return answer


def test_other_clients_are_served_between_steps() -> None:
    """A request of ten slices is answered after another client's request and before its own client's next one."""

    async def main() -> None:
        stage = Stage({LONG: in_steps(10), SHORT: short})
        await stage.start()
        first, second = await stage.connect(), await stage.connect()
        asked = [
            asyncio.ensure_future(stage.ask(first, "long", LONG)),
            asyncio.ensure_future(stage.ask(first, "own", SHORT)),
        ]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for _ in range(3):
            await stage.ask(second, "other", SHORT)
        await asyncio.gather(*asked)
        assert stage.answered == ["other", "other", "other", "long", "own"]
        assert len(stage.dispatcher) == 0

    run_virtually(main)


def test_requests_in_steps_share_the_time() -> None:
    """A short request that came later finishes before a long one."""

    async def main() -> None:
        stage = Stage({LONG: in_steps(20), SHORT: in_steps(2)})
        await stage.start()
        first, second = await stage.connect(), await stage.connect()
        await asyncio.gather(stage.ask(first, "twenty", LONG), stage.ask(second, "two", SHORT))
        assert stage.answered == ["two", "twenty"]

    run_virtually(main)


@pytest.mark.parametrize("error", [Refusal(ResponseCode.NO_PERMISSION, "no"), ValueError("no")])
@pytest.mark.parametrize("slices", [0, 5])
def test_error_in_a_step_becomes_the_answer(error: Exception, slices: int) -> None:
    """In the first slice and in later ones; the connection stays open."""

    def fail() -> None:
        raise error

    async def main() -> None:
        stage = Stage({LONG: in_steps(slices, fail), SHORT: short})
        await stage.start()
        client = await stage.connect()
        answer = await stage.ask(client, "long", LONG)
        expected = ResponseCode.NO_PERMISSION if isinstance(error, Refusal) else ResponseCode.SYSTEM_ERROR
        assert (answer.code, "no" in (answer.remark or "")) == (expected, True)
        assert (await stage.ask(client, "short", SHORT)).code == ResponseCode.SUCCESS

    run_virtually(main)


@pytest.mark.parametrize(("code", "ended"), [(LONG, 0), (STORES, 1)])
def test_request_of_a_closed_connection_is_dropped_unless_it_stores(code: int, ended: int) -> None:
    """The client disconnects while its request is in progress."""
    ends: list[int] = []

    async def main() -> None:
        handler = in_steps(5, lambda: ends.append(1))
        stage = Stage({LONG: handler, STORES: handler})
        await stage.start()
        client = await stage.connect()
        asked = asyncio.ensure_future(stage.ask(client, "gone", code))
        await stage.under_way(1)
        client.abort("gone")
        with pytest.raises(ConnectionLost):
            await asked
        await stage.under_way(0)

    run_virtually(main)
    assert len(ends) == ended


def test_shutdown_completes_storing_requests_and_drops_others() -> None:
    """Requests that store messages are answered."""

    async def main() -> None:
        stage = Stage({LONG: in_steps(100), STORES: in_steps(100)})
        await stage.start()
        reader, writer = await stage.connect(), await stage.connect()
        reads = asyncio.ensure_future(stage.ask(reader, "read", LONG))
        stored = asyncio.ensure_future(stage.ask(writer, "stored", STORES))
        await stage.under_way(2)
        stage.dispatcher.stop()
        await stage.server.close()
        assert (await stored).remark == "long"
        with pytest.raises(ConnectionLost):
            await reads

    run_virtually(main)


def test_stepped_request_counts_towards_the_buffer_limit_until_answered() -> None:
    """So do the requests of the same client that wait behind it."""

    async def main() -> None:
        stage = Stage({LONG: in_steps(5), SHORT: short})
        await stage.start()
        client = await stage.connect()
        asked = [
            asyncio.ensure_future(stage.ask(client, "long", LONG, bytes(1000))),
            asyncio.ensure_future(stage.ask(client, "own", SHORT, bytes(500))),
        ]
        await stage.under_way(1)
        (connection,) = stage.server.connections
        assert 1500 <= connection._reported_size < 1700  # with the header of what has not been decoded
        await asyncio.gather(*asked)
        await asyncio.sleep(1)
        assert connection._reported_size == 0

    run_virtually(main)


def test_oversized_header_closes_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is not parsed; the log has its size."""

    async def main() -> None:
        stage = Stage({SHORT: short})
        await stage.start()
        client = await stage.connect()
        fields = {f"field{n}": "" for n in range(MAX_HEADER // 10)}
        with pytest.raises(ConnectionLost):
            await client.invoke(SHORT, ext_fields=fields, timeout=1000)

    run_virtually(main)
    assert f"at most {MAX_HEADER} are allowed" in caplog.text


def test_many_small_requests_of_one_client_yield_to_others() -> None:
    """Of a hundred requests of half a slice, the last is answered after another client's first."""

    def handle(connection: Connection, command: RemotingCommand) -> RemotingCommand:
        busy()
        return RemotingCommand.response(command)

    async def main() -> None:
        stage = Stage({SHORT: handle})
        await stage.start()
        greedy, modest = await stage.connect(), await stage.connect()
        many = [stage.ask(greedy, f"greedy {n}", SHORT) for n in range(100)]
        await asyncio.gather(*many, stage.ask(modest, "modest", SHORT))
        greedy_answers = [name for name in stage.answered if name != "modest"]
        assert greedy_answers == [f"greedy {n}" for n in range(100)]
        assert stage.answered.index("modest") < 50

    run_virtually(main)
