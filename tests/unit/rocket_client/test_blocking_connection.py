"""The blocking connection, against a server of our own in a thread."""

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from rocket_client.blocking.connection import BlockingConnection, Request
from rocket_client.blocking.pool import ConnectionPool
from rocket_remoting.session.connection import Connection
from rocket_remoting.session.limits import Limits
from rocket_remoting.transports.tcp import TcpTransport
from rocket_remoting.transports.transport import Server
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import ConnectError, ConnectionLost, RemoteProtocolError, RequestTimeout
from rocket_remoting.wire.headers import GetMaxOffsetRequestHeader, GetMaxOffsetResponseHeader


class ServerThread:
    """A server on a loop of its own; the request code says how it behaves."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self.server = self._run(self._serve)

    async def _serve(self) -> Server:
        limits = Limits(max_frame=64 * 2**20, max_pending_bytes=100_000)
        return await TcpTransport().serve("127.0.0.1", 0, self._handle, limits=limits)

    def _handle(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        match request.code:
            case RequestCode.GET_MAX_OFFSET:
                offset = request.header(GetMaxOffsetRequestHeader).queue_id
                return RemotingCommand.response(request, header=GetMaxOffsetResponseHeader(offset=offset))
            case RequestCode.PULL_MESSAGE:
                return None
            case RequestCode.UNREGISTER_CLIENT:
                connection.abort("as asked")
                return None
            case RequestCode.HEART_BEAT:
                connection.invoke_oneway(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
        return RemotingCommand.response(request, body=request.body)

    def _run(self, make: Callable[[], object]) -> Server:
        return asyncio.run_coroutine_threadsafe(make(), self.loop).result()  # type: ignore[arg-type]

    def drop_connections(self) -> None:
        """Close every connection, and return when that is done."""

        async def drop() -> None:
            await asyncio.gather(*(connection.close() for connection in self.server.connections))

        asyncio.run_coroutine_threadsafe(drop(), self.loop).result()

    def close(self) -> None:
        """End the server and its thread."""
        asyncio.run_coroutine_threadsafe(self.server.close(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    """A server in a thread."""
    thread = ServerThread()
    yield thread
    thread.close()


@pytest.fixture
def connection(server: ServerThread) -> Iterator[BlockingConnection]:
    """A connection to it."""
    with BlockingConnection(server.server.address) as made:
        yield made


FORKS = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


def in_child(work: Callable[[], int]) -> Callable[[], int]:
    """Fork; the child does the work and ends. What is returned waits for it and gives its result."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, str(work()).encode())
        finally:
            os._exit(0)
    os.close(writer)

    def result() -> int:
        with open(reader) as pipe:  # noqa: PTH123 - a file descriptor
            text = pipe.read()
        os.waitpid(child, 0)
        return int(text)

    return result


def ask_offset(connection: BlockingConnection, queue_id: int) -> int:
    """One request with typed headers."""
    header = GetMaxOffsetRequestHeader(topic="t", queue_id=queue_id)
    response = connection.invoke(RequestCode.GET_MAX_OFFSET, header, timeout=30)
    return response.header(GetMaxOffsetResponseHeader).offset


def test_answer_comes_back(connection: BlockingConnection) -> None:
    """A request gets its answer, header and body."""
    assert ask_offset(connection, 7) == 7
    assert connection.invoke(RequestCode.SEND_MESSAGE_V2, body=b"body", timeout=30).body == b"body"


def test_many_under_way_at_once(connection: BlockingConnection) -> None:
    """Each answer comes with its request's number; requests are taken as answers come."""
    requests = (Request(RequestCode.SEND_MESSAGE_V2, None, str(number).encode()) for number in range(1000))
    answers = dict(connection.invoke_many(requests, depth=50, timeout=30))
    assert {number: bytes(answer.body) for number, answer in answers.items()} == {
        number: str(number).encode() for number in range(1000)
    }


def test_large_requests_and_answers_at_once(connection: BlockingConnection) -> None:
    """Writing does not wait for a peer that waits for its answers to be read."""
    body = bytes(3_000_000)
    requests = [Request(RequestCode.SEND_MESSAGE_V2, None, body)] * 8
    answers = connection.invoke_many(requests, depth=8, timeout=60)
    assert [len(answer.body) for _, answer in answers] == [3_000_000] * 8


def test_an_abandoned_iterator_does_no_harm(connection: BlockingConnection) -> None:
    """Who stops early leaves no answers behind for the next exchange."""
    requests = [Request(RequestCode.SEND_MESSAGE_V2, None, b"old")] * 100
    answers = connection.invoke_many(requests, depth=10, timeout=30)
    next(answers)
    answers.close()
    assert connection.invoke(RequestCode.SEND_MESSAGE_V2, body=b"new", timeout=30).body == b"new"


def test_a_failing_source_of_requests_does_no_harm(connection: BlockingConnection) -> None:
    """An error while requests are made reaches the caller; the connection goes on."""

    def source() -> Iterator[Request]:
        yield Request(RequestCode.PULL_MESSAGE)
        raise LookupError("no more")

    with pytest.raises(LookupError):
        next(connection.invoke_many(source(), timeout=30))
    assert ask_offset(connection, 1) == 1


def test_pushes_are_passed_over(connection: BlockingConnection) -> None:
    """What the peer asks of us is no answer."""
    assert connection.invoke(RequestCode.HEART_BEAT, timeout=30).code == ResponseCode.SUCCESS
    assert ask_offset(connection, 2) == 2


def test_oneway_requests_do_not_wait(connection: BlockingConnection) -> None:
    """A one-way request is sent, and the next answer belongs to the next request."""
    connection.invoke_oneway(RequestCode.SEND_MESSAGE_V2, body=b"nobody listens")
    assert ask_offset(connection, 3) == 3


def test_a_silent_peer_times_out(connection: BlockingConnection) -> None:
    """No answer in time is an error that names the request; the connection is good for the next one."""
    with pytest.raises(RequestTimeout, match="PULL_MESSAGE"):
        connection.invoke(RequestCode.PULL_MESSAGE, timeout=0.02)
    assert ask_offset(connection, 4) == 4


def test_a_lost_connection_is_made_anew(connection: BlockingConnection, server: ServerThread) -> None:
    """A connection that ends inside an exchange is an error; one that ended before is not even noticed."""
    with pytest.raises(ConnectionLost):
        connection.invoke(RequestCode.UNREGISTER_CLIENT, timeout=30)
    assert ask_offset(connection, 5) == 5
    server.drop_connections()
    assert ask_offset(connection, 6) == 6


def test_a_closed_connection_stays_closed(server: ServerThread) -> None:
    """After `close` nothing is sent any more."""
    connection = BlockingConnection(server.server.address)
    assert "not connected" in repr(connection)
    ask_offset(connection, 0)
    assert "open" in repr(connection)
    connection.close()
    assert "closed" in repr(connection)
    with pytest.raises(ConnectionLost, match="closed on this side"):
        ask_offset(connection, 0)


def test_nobody_there() -> None:
    """A peer that does not listen is a connect error that names it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    for wrong in (address, "nowhere"):
        with BlockingConnection(wrong) as connection, pytest.raises(ConnectError) as raised:
            ask_offset(connection, 0)
        assert raised.value.address == wrong


def test_garbage_is_a_protocol_error() -> None:
    """A peer that does not speak the protocol is told apart from one that is gone."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"

        def answer() -> None:
            with listener.accept()[0] as accepted:
                accepted.sendall(b"SSH-2.0-OpenSSH\r\n")

        answering = threading.Thread(target=answer)
        answering.start()
        with BlockingConnection(address) as connection, pytest.raises((RemoteProtocolError, ConnectionLost)):
            ask_offset(connection, 0)
        answering.join()


def test_threads_take_turns(connection: BlockingConnection) -> None:
    """Threads that share a connection get their own answers."""
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda number: ask_offset(connection, number), range(200))) == list(range(200))


@FORKS
def test_a_forked_child_has_its_own_connection(connection: BlockingConnection) -> None:
    """Parent and child use one object after a fork, and neither disturbs the other."""
    ask_offset(connection, 0)
    result = in_child(lambda: ask_offset(connection, 21))
    assert ask_offset(connection, 20) == 20
    assert result() == 21
    assert ask_offset(connection, 22) == 22


def test_a_pool_lends_each_thread_a_connection(server: ServerThread) -> None:
    """A long exchange of one thread does not hold another; connections are used again."""
    pool, address = ConnectionPool(3.0), server.server.address
    with pool.connection(address) as held, pool.connection(address) as other:
        assert held is not other
        assert ask_offset(other, 1) == ask_offset(held, 1) == 1
    with pool.connection(address) as again:
        assert again in (held, other)
    assert "2 connections" in repr(pool)
    pool.close()


@FORKS
def test_a_forked_pool_begins_anew(server: ServerThread) -> None:
    """A child does not inherit its parent's connections, nor a lock that another thread of the parent held."""
    pool = ConnectionPool(3.0)

    def ask(queue_id: int) -> int:
        with pool.connection(server.server.address) as connection:
            return ask_offset(connection, queue_id)

    ask(0)
    with pool._lock:
        result = in_child(lambda: ask(31))
    assert result() == 31
    assert ask(30) == 30
    pool.close()
