"""Fairness: a client with many requests does not delay others by more than one loop iteration."""

import asyncio
from time import perf_counter

import pytest

from rocket_remoting.session.connection import Connection
from rocket_remoting.session.limits import Limits
from rocket_remoting.session.turns import TURN_SECONDS, Turns
from rocket_remoting.transports.tcp import TcpTransport
from rocket_remoting.transports.transport import Server
from rocket_remoting.wire.command import RemotingCommand

WORK_SECONDS = TURN_SECONDS / 8
ASKED = 80
WORK, QUICK = 1, 2


class Stage:
    """A server whose requests take an eighth of a time slice, and clients at different addresses."""

    def __init__(self) -> None:
        self.handled: list[tuple[str, int]] = []
        self.begun = asyncio.Event()
        self.clients: list[Connection] = []
        self._ended: asyncio.Queue[Connection] = asyncio.Queue()
        self.server: Server

    async def start(self) -> None:
        """Start to serve."""
        self.server = await TcpTransport().serve("127.0.0.1", 0, self._handle, on_close=self._ended.put_nowait)

    async def connect(self, host: str) -> Connection:
        """Return a connection from an address."""
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(None, Limits(), remote_address=self.server.address),
            self.server.host,
            self.server.port,
            local_addr=(host, 0),
        )
        self.clients.append(connection)
        return connection

    async def end(self) -> None:
        """Close the clients, then the server once it has read what they sent."""
        for client in self.clients:
            await client.close()
        async with asyncio.timeout(60):
            for _ in self.clients:
                await self._ended.get()
        await self.server.close()

    def flood(self, connection: Connection, count: int = ASKED) -> "asyncio.Future[list[RemotingCommand]]":
        """Send many requests to be read together; return a future of the answers."""
        return asyncio.gather(*(connection.invoke_async(WORK, body=b"%d" % n, timeout=60) for n in range(count)))

    def _handle(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        until = perf_counter() + (WORK_SECONDS if request.code == WORK else 0)
        while perf_counter() < until:
            pass
        self.begun.set()
        self.handled.append((connection.remote_address, request.code))
        return RemotingCommand.response(request, body=bytes(request.body))


@pytest.mark.parametrize("hosts", [["127.0.0.2"], [f"127.0.0.{n}" for n in range(2, 12)], ["127.0.0.1"]])
def test_client_beside_a_flood_waits_for_few_requests(hosts: list[str]) -> None:
    """Twenty flooding connections from one address, from ten, or from the server's own machine, where each
    counts separately."""

    async def main() -> None:
        stage = Stage()
        await stage.start()
        quick = await stage.connect("127.0.0.99")
        others = [await stage.connect(hosts[n % len(hosts)]) for n in range(20)]
        floods = [stage.flood(other, 5 * ASKED) for other in others]
        await stage.begun.wait()
        await quick.invoke(QUICK, timeout=60)  # until then each address may have a turn of its own
        for _ in range(10):
            before = len(stage.handled)
            await quick.invoke(QUICK, timeout=60)
            # Its four steps, from writing the request to reading the answer, take a turn each: of eight requests here.
            assert len(stage.handled) - before < 80
        for answers in await asyncio.gather(*floods):
            assert [answer.body for answer in answers] == [b"%d" % n for n in range(5 * ASKED)]
        await stage.end()

    asyncio.run(main())


def test_connections_of_an_address_take_turns() -> None:
    """None waits until another has finished."""

    async def main() -> None:
        stage = Stage()
        await stage.start()
        clients = [await stage.connect("127.0.0.2") for _ in range(5)]
        # Only when all are connected: a connection that opens while another floods waits for turns of its own.
        await asyncio.gather(*[stage.flood(client) for client in clients])
        first_half = [peer for peer, _ in stage.handled[: 5 * ASKED // 2]]
        assert {first_half.count(peer) > ASKED // 10 for peer in first_half} == {True}
        assert len(set(first_half)) == 5
        await stage.end()

    asyncio.run(main())


def test_requests_before_a_close_are_handled_after_their_turn() -> None:
    """One-way requests and the close may arrive together, as with a consumer's last commits."""

    async def main() -> None:
        stage = Stage()
        await stage.start()
        leaving = await stage.connect("127.0.0.2")
        for _ in range(ASKED):
            leaving.invoke_oneway(WORK)
        await stage.end()
        assert len(stage.handled) == ASKED

    asyncio.run(main())


class _Waiting:
    """A connection that notes its turns, and may use all of their time."""

    def __init__(self, name: str, taken: asyncio.Queue[str], *, is_busy: bool = False) -> None:
        self._name = name
        self._taken = taken
        self._is_busy = is_busy

    def take_turn(self, seconds: float) -> None:
        self._taken.put_nowait(self._name)
        until = perf_counter() + seconds
        while self._is_busy and perf_counter() < until:
            pass


def test_a_party_whose_connections_wait_has_no_time_for_its_others() -> None:
    """Not even in a round in which it has used none yet: otherwise these would go first."""

    async def main() -> None:
        turns, taken = Turns(asyncio.get_running_loop()), asyncio.Queue[str]()
        for name in ("first", "second"):  # each takes a whole round
            turns.wait("10.0.0.1", _Waiting(name, taken, is_busy=True))
        for name in ("first", "second"):
            assert turns.left("10.0.0.1") <= 0
            assert turns.left("10.0.0.2") > 0
            assert await taken.get() == name
        assert turns.left("10.0.0.1") > 0

    asyncio.run(main())


def test_each_party_has_a_turn_before_any_has_a_second_one() -> None:
    """However many connections of one of them came first."""

    async def main() -> None:
        turns, taken = Turns(asyncio.get_running_loop()), asyncio.Queue[str]()
        for party, name in (("10.0.0.1", "a"), ("10.0.0.1", "b"), ("10.0.0.2", "c"), ("10.0.0.1", "d")):
            turns.wait(party, _Waiting(name, taken))
        assert [await taken.get() for _ in range(4)] == ["a", "c", "b", "d"]

    asyncio.run(main())


def test_the_time_of_few_parties_is_remembered() -> None:
    """Clients may come from any number of addresses in a round, which may last for ever."""

    async def main() -> None:
        turns = Turns(asyncio.get_running_loop())
        turns.use("10.0.0.1", TURN_SECONDS)
        for number in range(999):
            turns.use(f"10.0.1.{number}", 0.0)
        assert turns.left("10.0.0.1") == 0
        turns.use("10.0.2.1", 0.0)
        assert turns.left("10.0.0.1") == TURN_SECONDS

    asyncio.run(main())
