"""Connections that become ready in one loop iteration: their first frames are handled together."""

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Sequence

import pytest
import uvloop

from rocket_remoting.session import turns
from rocket_remoting.session.arrivals import Arrivals, Taken
from rocket_remoting.session.connection import Connection, FramesHandler
from rocket_remoting.transports.tcp import TcpTransport
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.frame_decoder import FrameDecoder
from rocket_remoting.wire.receive_buffer import BUFFER_SIZE, ReceiveBuffer

TAKEN, OTHER = 310, 34
"""Codes of requests: those that are handled without being decoded, and others."""


def request(code: int, opaque: int, body: bytes = b"", *, oneway: bool = False) -> bytes:
    """Return a frame."""
    return b"".join(RemotingCommand(code, opaque, flag=2 if oneway else 0, body=body).encode())


class Stand:
    """A server that takes requests with the code `TAKEN` together, and plain sockets connected to it.

    Attributes:
        taken: How many connections each call of `_take` got requests of.
        handled: The bodies of the requests in the order in which they were handled, those that were taken included.
        decoded: The bodies of the requests that were not taken.
        turns: How many turns have begun and ended.
        is_broken: Whether a request with the body ``defect`` raises an error when it is taken.
        looked_at: The bodies of the requests that `_take_first` got, whether they were taken or not.
        arrivals: What the connections share.
        delay: Seconds that each of its calls takes.
        opened: The connections that were accepted.
        closed: The connections that have ended.
    """

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.handled: list[bytes] = []
        self.decoded: list[bytes] = []
        self.turns = [0, 0]
        self.looked_at: list[bytes] = []
        self.delay = 0.0
        self.arrivals: Arrivals[Connection] | None = None
        self.is_broken = False
        self.opened: asyncio.Queue[Connection] = asyncio.Queue()
        self.closed: asyncio.Queue[Connection] = asyncio.Queue()

    async def open(self, count: int) -> list[socket.socket]:
        """Return sockets that the server has accepted."""
        frames = FramesHandler(
            frozenset({TAKEN}), self._take, self._take_alone, lambda: self._count(0), lambda: self._count(1)
        )
        self.server = await TcpTransport().serve(
            "127.0.0.1",
            0,
            self._handle,
            on_connect=self.opened.put_nowait,
            on_close=self.closed.put_nowait,
            frames_handler=frames,
        )
        sockets = [socket.create_connection(("127.0.0.1", self.server.port)) for _ in range(count)]
        for each in sockets:
            self.arrivals = (await self.opened.get())._arrivals
            each.setblocking(False)
        return sockets

    def _count(self, which: int) -> None:
        self.turns[which] += 1

    def _take(self, received: Sequence[tuple[Connection, memoryview]]) -> list[Taken]:
        self.taken.append(len(received))
        return [self._take_first(frames) for _, frames in received]

    def _take_alone(self, connection: Connection, received: memoryview) -> Taken | None:
        (taken,) = self._take([(connection, received)])
        return taken if taken[0] else None

    def _take_first(self, frames: memoryview) -> Taken:
        size = int.from_bytes(frames[:4], "big") + 4
        (command,) = FrameDecoder().feed(frames[:size])
        self.looked_at.append(bytes(command.body))
        time.sleep(self.delay)
        if command.code != TAKEN or command.body == b"unusual":
            return 0, b"", False
        if self.is_broken and command.body == b"defect":
            raise RuntimeError("defect")
        self.handled.append(bytes(command.body))
        return size, b"".join(RemotingCommand.response(command).encode()), True

    def _handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        if command.body == b"pauses":
            connection.pause_requests(0)
            connection.resume_requests()
        self.decoded.append(bytes(command.body))
        self.handled.append(bytes(command.body))
        return RemotingCommand.response(command)


def with_stand(
    scene: Callable[[Stand, list[socket.socket]], Awaitable[None]],
    connections: int,
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
) -> None:
    """Run a scene with a stand that has this number of connections."""

    async def main() -> None:
        stand = Stand()
        sockets = await stand.open(connections)
        try:
            await scene(stand, sockets)
        finally:
            for each in sockets:
                each.close()
            await stand.server.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


async def answers(own: socket.socket, count: int) -> list[int]:
    """Return the numbers of the next answers."""
    loop, decoder, numbers = asyncio.get_running_loop(), FrameDecoder(), list[int]()
    async with asyncio.timeout(30):
        while len(numbers) < count:
            for command in decoder.feed(await loop.sock_recv(own, 4096)):
                assert command.code == ResponseCode.SUCCESS
                numbers.append(command.opaque)
    return numbers


def test_connections_of_one_iteration_are_handled_together() -> None:
    """Each gets its own answers in order."""

    async def scene(stand: Stand, sockets: list[socket.socket]) -> None:
        for _ in range(2):
            for number, own in enumerate(sockets):
                own.sendall(request(TAKEN, number) + request(OTHER, 100 + number) + request(TAKEN, 200 + number))
            for number, own in enumerate(sockets):
                assert await answers(own, 3) == [number, 100 + number, 200 + number]
        assert max(stand.taken) > 1
        assert len(stand.handled) == 2 * 3 * len(sockets)
        assert stand.turns[0] == stand.turns[1] > 0

    with_stand(scene, 5)


class _Receiver:
    """A connection that notes when its requests are handled."""

    remote_address = "10.0.0.1:5"
    is_handled = False

    def first_frames(self) -> memoryview:
        return memoryview(b"")

    def frames_taken(self, count: int, answers: bytes, seconds: float) -> bool:
        raise AssertionError("nothing is taken")

    def handle_arrived(self, *, may_take: bool) -> None:
        self.is_handled = True

    def handle_alone(self) -> None:
        self.is_handled = True

    def abort(self, reason: str) -> None:
        raise AssertionError(reason)


def new_arrivals(buffer: ReceiveBuffer) -> Arrivals[_Receiver]:
    """Return arrivals that take nothing."""
    return Arrivals(buffer, lambda received: None, lambda *_: None, lambda: None, lambda: None, codes={TAKEN})


@pytest.mark.parametrize(("used", "connections"), [(ReceiveBuffer.MOST_USED, 1), (100, 64)])
def test_requests_are_handled_early_if_the_next_read_would_lack_room(used: int, connections: int) -> None:
    """Or when there are many connections: then their requests are handled at once."""

    async def main() -> None:
        buffer = ReceiveBuffer()
        arrivals = new_arrivals(buffer)
        receivers = [_Receiver() for _ in range(connections)]
        for receiver in receivers:
            assert not any(each.is_handled for each in receivers)
            buffer.used = used if receiver is receivers[-1] else used - 1
            arrivals.add(receiver)
        assert all(each.is_handled for each in receivers)
        assert buffer.used == 0

    asyncio.run(main())


async def read_in_turns(*turns_: list[_Receiver]) -> list[int]:
    """Return how many of the connections that are read in each iteration of the loop are handled at once."""
    arrivals = new_arrivals(ReceiveBuffer())
    at_once = []
    for receivers in turns_:
        at_once.append(0)
        for receiver in receivers:
            if arrivals.is_alone(receiver):
                at_once[-1] += 1
            else:
                arrivals.add(receiver)
        await asyncio.sleep(0)  # the end of the iteration
    return at_once


def test_connection_that_comes_alone_is_handled_at_once() -> None:
    """Unless another connection was read last, or several were read in the iteration before."""

    async def main() -> None:
        first, second, third = (_Receiver() for _ in range(3))
        reads = ([first], [first], [second], [second], [second], [first, second, third], [third], [third])
        assert await read_in_turns(*reads) == [1, 1, 0, 0, 1, 0, 0, 1]

    asyncio.run(main())


def test_connections_that_come_alone_in_turn_are_handled_at_once() -> None:
    """Until two come in one iteration."""

    async def main() -> None:
        first, second, third = (_Receiver() for _ in range(3))
        assert await read_in_turns([first], [second], [third], [first], [second]) == [1] * 5
        assert await read_in_turns([first], [second, third], [first], [second]) == [1, 1, 0, 1]

    asyncio.run(main())


def test_requests_of_a_connection_that_comes_alone_are_handled_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn is counted only if something is left that is not taken."""
    monkeypatch.setattr(turns, "TURN_SECONDS", 60.0)  # they are offered again in a later round

    async def scene(stand: Stand, sockets: list[socket.socket]) -> None:
        (own,) = sockets
        for opaque in range(3):
            own.sendall(request(TAKEN, opaque))
            assert await answers(own, 1) == [opaque]
        assert (stand.turns, stand.taken) == ([0, 0], [1, 1, 1])
        own.sendall(request(TAKEN, 3) + request(TAKEN, 4) + request(OTHER, 5) + request(TAKEN, 6))
        assert await answers(own, 4) == [3, 4, 5, 6]
        assert stand.turns[0] == stand.turns[1] > 0
        taken = len(stand.taken)
        own.sendall(request(OTHER, 7))
        assert await answers(own, 1) == [7]
        assert len(stand.taken) == taken + 1  # asked once, and not again before it is decoded

    with_stand(scene, 1)


@pytest.mark.parametrize("connections", [1, 3])
@pytest.mark.parametrize(
    ("code", "body", "decoded"),
    [(OTHER, b"pull", [b"pull"]), (TAKEN, b"unusual", [b"unusual", b"send", b"send"])],
)
def test_requests_behind_one_of_another_kind_are_taken(
    code: int, body: bytes, decoded: list[bytes], connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But not behind one of their own kind that was not taken: each of them would be read twice."""
    monkeypatch.setattr(turns, "TURN_SECONDS", 60.0)  # they are offered again in a later round

    async def scene(stand: Stand, sockets: list[socket.socket]) -> None:
        for own in sockets:
            own.sendall(request(code, 0, body) + request(TAKEN, 1, b"send") + request(TAKEN, 2, b"send"))
        for own in sockets:
            assert await answers(own, 3) == [0, 1, 2]
        assert sorted(stand.decoded) == sorted(decoded * connections)

    with_stand(scene, connections)


def test_requests_that_are_not_taken_are_handled_individually() -> None:
    """They do not wait for other requests."""

    async def scene(stand: Stand, sockets: list[socket.socket]) -> None:
        for number, own in enumerate(sockets):
            own.sendall(request(OTHER, number))
        for number, own in enumerate(sockets):
            assert await answers(own, 1) == [number]

    with_stand(scene, 3)


def test_requests_before_a_close_are_handled() -> None:
    """A producer may send one-way requests and close."""

    async def scene(stand: Stand, sockets: list[socket.socket]) -> None:
        for number, own in enumerate(sockets):
            own.sendall(request(TAKEN if number % 2 else OTHER, number, b"%d" % number, oneway=True))
            own.close()
        async with asyncio.timeout(30):
            for _ in sockets:
                await stand.closed.get()
        assert sorted(stand.handled) == [b"%d" % number for number in range(len(sockets))]

    with_stand(scene, 6)


def test_error_closes_only_the_connection_that_caused_it(caplog: pytest.LogCaptureFixture) -> None:
    """The others are answered, and the error is logged."""

    async def scene(stand: Stand, sockets: list[socket.socket]) -> None:
        stand.is_broken = True
        for number, own in enumerate(sockets):
            own.sendall(request(TAKEN, number, b"defect" if number == 2 else b""))
        for number, own in enumerate(sockets):
            if number != 2:
                assert await answers(own, 1) == [number]
        assert await asyncio.get_running_loop().sock_recv(sockets[2], 1) == b""

    with caplog.at_level(logging.ERROR):
        with_stand(scene, 4)
    assert "RuntimeError: defect" in caplog.text


@pytest.mark.parametrize("before", [b"", request(OTHER, 1, b"pauses")])
def test_error_closes_a_connection_that_comes_alone(before: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """What was read of it leaves the memory that all connections share, and the error reaches no other code."""

    async def scene(stand: Stand, sockets: list[socket.socket]) -> None:
        loop, errors = asyncio.get_running_loop(), list[object]()
        loop.set_exception_handler(lambda _, context: errors.append(context))
        stand.is_broken = True
        for own in sockets[:2]:
            own.sendall(before + request(TAKEN, 2, b"defect"))
            async with asyncio.timeout(30):
                while await loop.sock_recv(own, 99):
                    pass
        sockets[2].sendall(request(TAKEN, 3))
        assert await answers(sockets[2], 1) == [3]
        assert errors == []
        assert stand.arrivals is not None
        assert stand.arrivals._buffer.used == 0

    with caplog.at_level(logging.ERROR):
        with_stand(scene, 3)
    assert "RuntimeError: defect" in caplog.text


def test_time_of_requests_that_are_not_taken_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a connection that comes alone as for several: looking at requests costs time, too."""
    used: list[float] = []
    monkeypatch.setattr(turns, "TURN_SECONDS", 60.0)
    monkeypatch.setattr(turns.Turns, "use", lambda self, party, seconds: used.append(seconds))

    async def scene(stand: Stand, sockets: list[socket.socket]) -> None:
        stand.delay = 0.001
        for count in (1, 3):
            for own in sockets[:count]:
                own.sendall(request(OTHER, 1))
            for own in sockets[:count]:
                assert await answers(own, 1) == [1]
            assert sum(used) >= 0.001 * count
            used.clear()

    with_stand(scene, 3)


@pytest.mark.parametrize("before", [[], [b""]])
def test_request_that_is_not_taken_is_looked_at_once(before: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it comes alone or with others, first or behind one that was taken; those behind it are not at all."""
    monkeypatch.setattr(turns, "TURN_SECONDS", 60.0)

    async def scene(stand: Stand, sockets: list[socket.socket]) -> None:
        for count in (1, 3):
            for own in sockets[:count]:
                own.sendall(b"".join(request(TAKEN, 1, body) for body in [*before, b"unusual", b"behind"]))
            for own in sockets[:count]:
                await answers(own, len(before) + 2)
            assert sorted(stand.looked_at) == sorted([*before, b"unusual"] * count)
            stand.looked_at.clear()

    with_stand(scene, 3)


@pytest.mark.parametrize("size", [100, BUFFER_SIZE // 3, BUFFER_SIZE - 100, 3 * BUFFER_SIZE])
def test_frames_of_any_size_arrive_complete(size: int) -> None:
    """However the connections' bytes are placed in their shared buffer."""

    async def scene(stand: Stand, sockets: list[socket.socket]) -> None:
        loop = asyncio.get_running_loop()
        bodies = [bytes([number]) * (size + number) for number in range(len(sockets))]
        frames = [request(TAKEN if number % 2 else OTHER, number, body) for number, body in enumerate(bodies)]
        for cut in (len(frames[0]) // 2, 3, 0):
            await asyncio.gather(*(loop.sock_sendall(own, b"") for own in sockets))
            for own, frame in zip(sockets, frames, strict=True):
                if cut:
                    await loop.sock_sendall(own, frame[:cut])
            for own, frame in zip(sockets, frames, strict=True):
                await loop.sock_sendall(own, frame[cut:])
            for number, own in enumerate(sockets):
                assert await answers(own, 1) == [number]
        assert sorted(stand.handled) == sorted(bodies * 3)

    with_stand(scene, 9)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_reading_continues_after_a_full_read(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """uvloop reads up to 32 times per iteration, and crashes if reading is paused while it asks for a buffer."""

    async def scene(stand: Stand, sockets: list[socket.socket]) -> None:
        loop = asyncio.get_running_loop()
        frame = request(OTHER, 0, bytes(50), oneway=True)
        for own in sockets:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * 1024 * 1024)
            own.setblocking(True)
        count = 2 * 1024 * 1024 // len(frame)  # their handling takes several rounds of `Turns`
        sending = [loop.run_in_executor(None, own.sendall, frame * count + request(TAKEN, 7)) for own in sockets]
        await asyncio.gather(*sending)
        for own in sockets:
            own.setblocking(False)
            assert await answers(own, 1) == [7]
        assert len(stand.handled) == len(sockets) * (count + 1)

    with_stand(scene, 2, new_loop)
