"""The blocking connection, tested against our own server in a thread."""

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
from rocket_remoting.tls.settings import ClientCertificates, ClientTls
from rocket_remoting.transports.tcp import TcpTransport
from rocket_remoting.transports.transport import Server
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.credentials import Credentials
from rocket_remoting.wire.errors import ConnectError, ConnectionLost, RemoteProtocolError, RequestTimeout
from rocket_remoting.wire.headers import GetMaxOffsetRequestHeader, GetMaxOffsetResponseHeader
from tests.certificates import authority


class ServerThread:
    """A server on a loop of its own; the request code selects its behaviour."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self.server = self._run(self._serve)

    async def _serve(self) -> Server:
        limits = Limits(max_frame=64 * 2**20, max_pending_bytes=100_000)
        return await TcpTransport().serve("127.0.0.1", 0, self._handle, limits=limits, tls=authority().server())

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
            case RequestCode.GET_BROKER_CONFIG:
                return RemotingCommand.response(request, ext_fields=request.ext_fields)
            case RequestCode.HEART_BEAT:
                connection.invoke_oneway(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
        return RemotingCommand.response(request, body=request.body)

    def _run(self, make: Callable[[], object]) -> Server:
        return asyncio.run_coroutine_threadsafe(make(), self.loop).result()  # type: ignore[arg-type]

    def drop_connections(self) -> None:
        """Close every connection and wait until all are closed."""

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


@pytest.fixture(params=["plain", "tls"])
def connection(server: ServerThread, request: pytest.FixtureRequest) -> Iterator[BlockingConnection]:
    """A connection to the server, of each kind."""
    tls = authority().client() if request.param == "tls" else None
    with BlockingConnection(server.server.address, tls=tls) as made:
        yield made


FORKS = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


def in_child(work: Callable[[], int]) -> Callable[[], int]:
    """Fork and run the work in the child; return a function that waits for its result."""
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
    """Send a request with typed headers; return its answer."""
    header = GetMaxOffsetRequestHeader(topic="t", queue_id=queue_id)
    response = connection.invoke(RequestCode.GET_MAX_OFFSET, header, timeout=30)
    return response.header(GetMaxOffsetResponseHeader).offset


def test_answer_is_returned(connection: BlockingConnection) -> None:
    """With header and body."""
    assert ask_offset(connection, 7) == 7
    assert connection.invoke(RequestCode.SEND_MESSAGE_V2, body=b"body", timeout=30).body == b"body"


def test_concurrent_requests_get_their_own_answers(connection: BlockingConnection) -> None:
    """Answers are matched by request number; further requests are taken as answers arrive."""
    requests = (Request(RequestCode.SEND_MESSAGE_V2, None, str(number).encode()) for number in range(1000))
    answers = dict(connection.invoke_many(requests, depth=50, timeout=30))
    assert {number: bytes(answer.body) for number, answer in answers.items()} == {
        number: str(number).encode() for number in range(1000)
    }


def test_large_requests_and_answers_do_not_deadlock(connection: BlockingConnection) -> None:
    """Writing continues while the peer waits for its answers to be read."""
    body = bytes(3_000_000)
    requests = [Request(RequestCode.SEND_MESSAGE_V2, None, body)] * 8
    answers = connection.invoke_many(requests, depth=8, timeout=60)
    assert [len(answer.body) for _, answer in answers] == [3_000_000] * 8


def test_a_block_that_ends_with_requests_under_way_closes_the_connection(connection: BlockingConnection) -> None:
    """Their answers may come later, when the connection serves other requests."""
    with connection.pipeline(timeout=30) as pipeline:
        pipeline.submit([(0, Request(RequestCode.PULL_MESSAGE))])
        assert pipeline.in_flight == 1
    with connection.pipeline(timeout=30) as pipeline:
        assert pipeline.in_flight == 0
    assert ask_offset(connection, 7) == 7


def test_abandoned_iterator_leaves_no_answers_behind(connection: BlockingConnection) -> None:
    """The next exchange gets its own answers."""
    requests = [Request(RequestCode.SEND_MESSAGE_V2, None, b"old")] * 100
    answers = connection.invoke_many(requests, depth=10, timeout=30)
    next(answers)
    answers.close()
    assert connection.invoke(RequestCode.SEND_MESSAGE_V2, body=b"new", timeout=30).body == b"new"


def test_error_in_the_request_source_reaches_the_caller(connection: BlockingConnection) -> None:
    """The connection stays usable."""

    def source() -> Iterator[Request]:
        yield Request(RequestCode.PULL_MESSAGE)
        raise LookupError("no more")

    with pytest.raises(LookupError):
        next(connection.invoke_many(source(), timeout=30))
    assert ask_offset(connection, 1) == 1


def test_requests_from_the_server_are_ignored(connection: BlockingConnection) -> None:
    """A pushed request is not taken for an answer."""
    assert connection.invoke(RequestCode.HEART_BEAT, timeout=30).code == ResponseCode.SUCCESS
    assert ask_offset(connection, 2) == 2


def test_oneway_request_gets_no_answer(connection: BlockingConnection) -> None:
    """The next answer belongs to the next request."""
    connection.invoke_oneway(RequestCode.SEND_MESSAGE_V2, body=b"nobody listens")
    assert ask_offset(connection, 3) == 3


def test_missing_answer_is_a_timeout(connection: BlockingConnection) -> None:
    """The error names the request; the connection stays usable."""
    with pytest.raises(RequestTimeout, match="PULL_MESSAGE"):
        connection.invoke(RequestCode.PULL_MESSAGE, timeout=0.02)
    assert ask_offset(connection, 4) == 4


def test_lost_connection_is_replaced(connection: BlockingConnection, server: ServerThread) -> None:
    """A loss during an exchange is an error; a loss between exchanges is not noticed."""
    with pytest.raises(ConnectionLost):
        connection.invoke(RequestCode.UNREGISTER_CLIENT, timeout=30)
    assert ask_offset(connection, 5) == 5
    server.drop_connections()
    assert ask_offset(connection, 6) == 6


def test_closed_connection_refuses_requests(server: ServerThread) -> None:
    """After `close` nothing is sent."""
    connection = BlockingConnection(server.server.address)
    assert "not connected" in repr(connection)
    ask_offset(connection, 0)
    assert "open" in repr(connection)
    connection.close()
    assert "closed" in repr(connection)
    with pytest.raises(ConnectionLost, match="closed on this side"):
        ask_offset(connection, 0)


def test_refused_connection_is_a_connect_error() -> None:
    """The error names the address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    for wrong in (address, "nowhere"):
        with BlockingConnection(wrong) as connection, pytest.raises(ConnectError) as raised:
            ask_offset(connection, 0)
        assert raised.value.address == wrong


def test_garbage_is_a_protocol_error() -> None:
    """It is distinguished from a lost connection."""
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


def test_threads_share_a_connection(connection: BlockingConnection) -> None:
    """Each thread gets its own answers."""
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda number: ask_offset(connection, number), range(200))) == list(range(200))


@FORKS
def test_forked_child_opens_its_own_connection(connection: BlockingConnection) -> None:
    """Parent and child use one object after a fork without disturbing each other."""
    ask_offset(connection, 0)
    result = in_child(lambda: ask_offset(connection, 21))
    assert ask_offset(connection, 20) == 20
    assert result() == 21
    assert ask_offset(connection, 22) == 22


def test_pool_gives_each_thread_a_connection(server: ServerThread) -> None:
    """A long exchange of one thread does not block another; connections are reused."""
    pool, address = ConnectionPool(3.0), server.server.address
    with pool.connection(address) as held, pool.connection(address) as other:
        assert held is not other
        assert ask_offset(other, 1) == ask_offset(held, 1) == 1
    with pool.connection(address) as again:
        assert again in (held, other)
    assert "2 connections" in repr(pool)
    pool.close()


@FORKS
def test_forked_pool_starts_empty(server: ServerThread) -> None:
    """A child inherits neither the parent's connections nor a lock held by another thread of the parent."""
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


def test_server_without_a_trusted_certificate_is_refused(server: ServerThread) -> None:
    """Unless certificates are not verified."""
    refused = pytest.raises(ConnectError, match="the TLS handshake failed: the certificate is not accepted")
    with BlockingConnection(server.server.address, tls=ClientTls()) as connection, refused:
        ask_offset(connection, 1)
    with BlockingConnection(server.server.address, tls=ClientTls(verify=False)) as connection:
        assert ask_offset(connection, 1) == 1


def test_oneway_requests_over_tls_use_one_connection(server: ServerThread) -> None:
    """Although the server sends tickets for new sessions, which nobody reads."""
    with BlockingConnection(server.server.address, tls=authority().client()) as connection:
        for _ in range(3):
            connection.invoke_oneway(RequestCode.UNREGISTER_BROKER)
            opened = connection._socket
        ask_offset(connection, 1)
        connection.invoke_oneway(RequestCode.UNREGISTER_BROKER)
        assert connection._socket is opened


def test_refused_client_certificate_is_named() -> None:
    """With TLS 1.3 the server's refusal comes after the handshake."""

    async def serve() -> Server:
        tls = authority().server(clients=ClientCertificates.REQUIRE)
        return await TcpTransport().serve("127.0.0.1", 0, lambda _, request: None, tls=tls)

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(serve())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        refused = pytest.raises((ConnectError, ConnectionLost), match="certificate required")
        with BlockingConnection(server.address, tls=authority().client()) as connection, refused:
            ask_offset(connection, 1)
    finally:
        asyncio.run_coroutine_threadsafe(server.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_connections_of_a_pool_with_keys_sign_their_requests(server: ServerThread) -> None:
    """Also a connection that is opened again."""
    keys = Credentials("shop", "12345678")
    pool = ConnectionPool(3.0, credentials=keys)
    for _ in range(2):
        with pool.connection(server.server.address) as connection:
            echo = connection.invoke(RequestCode.GET_BROKER_CONFIG, body=b"tea", timeout=5)
            assert echo.ext_fields == keys.signed(RequestCode.GET_BROKER_CONFIG, {}, b"tea")
        server.drop_connections()
    pool.close()
