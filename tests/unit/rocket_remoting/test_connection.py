"""Connections, over sockets and in memory: behaviour of both ends."""

import asyncio
import logging

import pytest

from rocket_remoting.session.connection import Connection
from rocket_remoting.session.limits import Limits
from rocket_remoting.transports.transport import Server, Transport
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import (
    ConnectError,
    ConnectionLost,
    LocalProtocolError,
    RemoteProtocolError,
    RequestTimeout,
    TooManyRequests,
)
from rocket_remoting.wire.headers import GetMaxOffsetRequestHeader, GetMaxOffsetResponseHeader

ASK = GetMaxOffsetRequestHeader(topic="orders", queue_id=3)


def echo(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """Answer with the request's body."""
    return RemotingCommand.response(request, body=request.body)


def silent(connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
    """Answer heartbeats only."""
    return RemotingCommand.response(request) if request.code == RequestCode.HEART_BEAT else None


async def peer_of(connection: Connection, server: Server) -> Connection:
    """Return the server's end of the only connection, once it exists."""
    await connection.invoke(RequestCode.HEART_BEAT, timeout=30)
    (peer,) = server.connections
    return peer


def test_request_is_answered_by_the_handler(transport: Transport) -> None:
    """Fields and body included."""

    def handle(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = request.header(GetMaxOffsetRequestHeader)
        return RemotingCommand.response(request, header=GetMaxOffsetResponseHeader(offset=header.queue_id), body=b"b")

    async def main() -> None:
        server = await transport.serve("127.0.0.1", 0, handle)
        connection = await transport.connect(server.address)
        answer = await connection.invoke(RequestCode.GET_MAX_OFFSET, ASK, timeout=30)
        assert (answer.code, answer.header(GetMaxOffsetResponseHeader).offset, answer.body) == (0, 3, b"b")
        await server.close()
        await connection.close()

    asyncio.run(main())


def test_concurrent_requests_get_their_own_answers(transport: Transport) -> None:
    """In whatever order the answers arrive."""
    held: list[RemotingCommand] = []

    def handle(connection: Connection, request: RemotingCommand) -> None:
        held.append(request)
        if len(held) == 500:
            for one in reversed(held):
                connection.respond(RemotingCommand.response(one, body=one.body))

    async def main() -> None:
        server = await transport.serve("127.0.0.1", 0, handle)
        connection = await transport.connect(server.address)
        bodies = [str(number).encode() for number in range(500)]
        asked = [connection.invoke(RequestCode.SEND_MESSAGE_V2, body=body, timeout=30) for body in bodies]
        assert [answer.body for answer in await asyncio.gather(*asked)] == bodies
        await server.close()
        await connection.close()

    asyncio.run(main())


def test_large_bodies_are_transferred(transport: Transport) -> None:
    """Frames far beyond the receive buffer arrive complete in both directions."""

    async def main() -> None:
        server = await transport.serve("127.0.0.1", 0, echo)
        connection = await transport.connect(server.address)
        body = bytes(range(256)) * 20_000
        assert (await connection.invoke(RequestCode.SEND_MESSAGE_V2, body=body, timeout=30)).body == body
        await server.close()
        await connection.close()

    asyncio.run(main())


def test_server_sends_requests_to_its_client(transport: Transport) -> None:
    """Over the client's own connection, one-way requests included."""
    pushed: list[int] = []

    def at_client(connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        pushed.append(request.code)
        return RemotingCommand.response(request, body=b"from the client")

    async def main() -> None:
        server = await transport.serve("127.0.0.1", 0, echo)
        connection = await transport.connect(server.address, handler=at_client)
        peer = await peer_of(connection, server)
        peer.invoke_oneway(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
        answer = await peer.invoke(RequestCode.GET_CONSUMER_RUNNING_INFO, timeout=30)
        assert answer.body == b"from the client"
        assert pushed == [RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, RequestCode.GET_CONSUMER_RUNNING_INFO]
        await server.close()
        await connection.close()

    asyncio.run(main())


def test_oneway_request_gets_no_answer(transport: Transport) -> None:
    """Whatever the handler returns."""
    answers: list[RemotingCommand] = []

    def handle(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        if request.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            assert request.is_oneway
            raise ValueError("nobody is told")
        return RemotingCommand.response(request)

    async def main() -> None:
        server = await transport.serve("127.0.0.1", 0, handle)
        connection = await transport.connect(server.address)
        connection.invoke_oneway(RequestCode.UPDATE_CONSUMER_OFFSET)
        connection.invoke_oneway(RequestCode.HEART_BEAT)
        answers.append(await connection.invoke(RequestCode.HEART_BEAT, timeout=30))
        assert [answer.opaque for answer in answers] == [2]
        await server.close()
        await connection.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("error", "remark", "level"),
    [
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero", logging.ERROR),
        (RemoteProtocolError("queueId is missing"), "queueId is missing", logging.WARNING),
    ],
)
def test_handler_error_is_answered_with_system_error(
    transport: Transport, caplog: pytest.LogCaptureFixture, error: Exception, remark: str, level: int
) -> None:
    """The exception is logged once, and the connection stays open."""

    def handle(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        if request.code == RequestCode.PULL_MESSAGE:
            raise error
        return RemotingCommand.response(request)

    async def main() -> None:
        server = await transport.serve("127.0.0.1", 0, handle)
        connection = await transport.connect(server.address)
        answer = await connection.invoke(RequestCode.PULL_MESSAGE, timeout=30)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
        assert (await connection.invoke(RequestCode.HEART_BEAT, timeout=30)).code == ResponseCode.SUCCESS
        await server.close()
        await connection.close()

    asyncio.run(main())
    (record,) = [record for record in caplog.records if record.name == "rocket_remoting"]
    assert record.levelno == level
    assert "PULL_MESSAGE (11) from 127.0.0.1:" in record.getMessage()


def test_unencodable_answer_is_a_system_error(transport: Transport) -> None:
    """As any other error of a handler."""

    def handle(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        return RemotingCommand.response(request, ext_fields={"a": "x" * 2**24})

    async def main() -> None:
        server = await transport.serve("127.0.0.1", 0, handle)
        connection = await transport.connect(server.address)
        answer = await connection.invoke(RequestCode.HEART_BEAT, timeout=30)
        assert (answer.code, "16777215" in str(answer.remark)) == (ResponseCode.SYSTEM_ERROR, True)
        with pytest.raises(LocalProtocolError):
            await connection.invoke(RequestCode.HEART_BEAT, ext_fields={"a": "x" * 2**24}, timeout=30)
        await server.close()
        await connection.close()

    asyncio.run(main())


def test_client_without_a_handler_refuses_requests(transport: Transport) -> None:
    """With code 3."""

    async def main() -> None:
        server = await transport.serve("127.0.0.1", 0, echo)
        connection = await transport.connect(server.address)
        peer = await peer_of(connection, server)
        answer = await peer.invoke(RequestCode.CHECK_TRANSACTION_STATE, timeout=30)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        await server.close()
        await connection.close()

    asyncio.run(main())


def test_missing_answer_is_a_timeout(transport: Transport) -> None:
    """It fails only its own request, and names the request and the peer."""

    async def main() -> None:
        server = await transport.serve("127.0.0.1", 0, silent)
        connection = await transport.connect(server.address)
        patient = connection.invoke_async(RequestCode.PULL_MESSAGE, timeout=30)
        with pytest.raises(RequestTimeout, match="PULL_MESSAGE") as raised:
            await connection.invoke(RequestCode.PULL_MESSAGE, timeout=0.02)
        assert (raised.value.address, raised.value.timeout) == (server.address, 0.02)
        assert not patient.done()
        await server.close()
        with pytest.raises(ConnectionLost):
            await patient
        await connection.close()

    asyncio.run(main())


def test_pending_requests_are_limited(transport: Transport) -> None:
    """Further ones are accepted when some are answered."""

    async def main() -> None:
        server = await transport.serve("127.0.0.1", 0, echo)
        connection = await transport.connect(server.address, limits=Limits(max_pending_requests=2))
        first = [connection.invoke_async(RequestCode.HEART_BEAT, timeout=30) for _ in range(2)]
        with pytest.raises(TooManyRequests, match="2 requests to"):
            await connection.invoke(RequestCode.HEART_BEAT, timeout=30)
        await asyncio.gather(*first)
        await connection.invoke(RequestCode.HEART_BEAT, timeout=30)
        await server.close()
        await connection.close()

    asyncio.run(main())


def test_cancelled_request_disturbs_no_other(transport: Transport) -> None:
    """Its late answer is dropped."""

    async def main() -> None:
        server = await transport.serve("127.0.0.1", 0, echo)
        connection = await transport.connect(server.address)
        given_up = asyncio.ensure_future(connection.invoke(RequestCode.HEART_BEAT, timeout=30))
        await asyncio.sleep(0)
        given_up.cancel()
        answer = await connection.invoke(RequestCode.HEART_BEAT, body=b"mine", timeout=30)
        assert answer.body == b"mine"
        await server.close()
        await connection.close()

    asyncio.run(main())


def test_close_fails_pending_requests(transport: Transport) -> None:
    """Afterwards nothing can be sent."""

    async def main() -> None:
        server = await transport.serve("127.0.0.1", 0, silent)
        connection = await transport.connect(server.address)
        await peer_of(connection, server)
        waiting = connection.invoke_async(RequestCode.PULL_MESSAGE, timeout=30)
        await server.close()
        with pytest.raises(ConnectionLost, match=f"connection to {server.address} lost: .* peer"):
            await waiting
        assert connection.is_closed
        for send in (connection.invoke_async, connection.invoke_oneway):
            with pytest.raises(ConnectionLost):
                send(RequestCode.HEART_BEAT, **({"timeout": 3} if send == connection.invoke_async else {}))
        connection.respond(RemotingCommand.response(RemotingCommand.request(RequestCode.HEART_BEAT)))
        await connection.close()
        await connection.drain()

    asyncio.run(main())


def test_data_sent_before_a_close_arrives(transport: Transport) -> None:
    """Close flushes what was sent in the same loop iteration."""
    arrived: list[bytes | memoryview] = []

    def handle(connection: Connection, request: RemotingCommand) -> None:
        arrived.append(request.body)

    async def main() -> None:
        gone = asyncio.Event()
        server = await transport.serve("127.0.0.1", 0, handle, on_close=lambda _: gone.set())
        connection = await transport.connect(server.address)
        connection.invoke_oneway(RequestCode.UPDATE_CONSUMER_OFFSET, body=b"last words")
        await connection.close()
        await gone.wait()
        assert arrived == [b"last words"]
        await server.close()

    asyncio.run(main())


def test_close_callbacks_run_once_at_both_ends(transport: Transport) -> None:
    """A callback added after the end runs too."""
    reported: list[str] = []

    async def main() -> None:
        server = await transport.serve(
            "127.0.0.1",
            0,
            echo,
            on_connect=lambda connection: reported.append("made"),
            on_close=lambda connection: reported.append("lost"),
        )
        connection = await transport.connect(server.address)
        connection.add_close_callback(lambda _: reported.append("client"))
        await connection.invoke(RequestCode.HEART_BEAT, timeout=30)
        await server.close()
        await connection.close()
        connection.add_close_callback(lambda _: reported.append("late"))
        assert sorted(reported) == ["client", "late", "lost", "made"]

    asyncio.run(main())


def test_server_stops_reading_from_a_slow_reader(transport: Transport) -> None:
    """Its requests wait, and are answered when it reads again."""
    handled = 0
    answer = bytes(100_000)

    def handle(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        nonlocal handled
        handled += 1
        return RemotingCommand.response(request, body=answer)

    async def main() -> None:
        limits = Limits(max_pending_bytes=200_000)
        server = await transport.serve("127.0.0.1", 0, handle, limits=limits)
        connection = await transport.connect(server.address)
        pipe = connection._transport
        assert pipe is not None
        pipe.pause_reading()
        asked = [connection.invoke_async(RequestCode.PULL_MESSAGE, timeout=30) for _ in range(1000)]
        for _ in range(200):
            await asyncio.sleep(0)
        await asyncio.sleep(0.02)
        assert 0 < handled < 500
        pipe.resume_reading()
        assert {len(got.body) for got in await asyncio.gather(*asked)} == {100_000}
        await server.close()
        await connection.close()

    asyncio.run(main())


def test_peer_that_never_reads_is_disconnected(transport: Transport, caplog: pytest.LogCaptureFixture) -> None:
    """What a server pushes to it is bounded."""

    async def main() -> None:
        limits = Limits(max_pending_bytes=100_000, max_unread_bytes=1_000_000)
        server = await transport.serve("127.0.0.1", 0, silent, limits=limits)
        connection = await transport.connect(server.address)
        peer = await peer_of(connection, server)
        assert connection._transport is not None
        connection._transport.pause_reading()
        pushed = 0
        while not peer.is_closed and pushed < 1000:
            peer.invoke_oneway(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, body=bytes(100_000))
            pushed += 1
            await asyncio.sleep(0)
        assert peer.is_closed
        await server.close()
        connection.abort("the test is over")
        await connection.close()

    asyncio.run(main())
    assert "bytes unread" in caplog.text


def test_drain_waits_for_the_peer(transport: Transport) -> None:
    """While the write buffer is full, until the peer has read."""

    async def main() -> None:
        server = await transport.serve("127.0.0.1", 0, silent)
        connection = await transport.connect(server.address, limits=Limits(max_pending_bytes=100_000))
        await connection.drain()
        peer = await peer_of(connection, server)
        assert peer._transport is not None
        peer._transport.pause_reading()
        for _ in range(200):
            connection.invoke_oneway(RequestCode.SEND_MESSAGE_V2, body=bytes(100_000))
        await asyncio.sleep(0)
        draining = asyncio.ensure_future(connection.drain())
        await asyncio.sleep(0.01)
        assert not draining.done()
        peer._transport.resume_reading()
        await asyncio.wait_for(draining, 5)
        await server.close()
        await connection.close()

    asyncio.run(main())


def test_a_client_gets_answers_while_its_own_bytes_wait(transport: Transport) -> None:
    """Only a server leaves requests for later; an answer that has come must not run into its timeout."""
    asked: list[RemotingCommand] = []

    def handle(connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        asked.append(request)
        return silent(connection, request)

    async def main() -> None:
        server = await transport.serve("127.0.0.1", 0, handle)
        connection = await transport.connect(server.address, limits=Limits(max_pending_bytes=100_000))
        answer = connection.invoke_async(RequestCode.PULL_MESSAGE, timeout=5)
        peer = await peer_of(connection, server)
        assert peer._transport is not None
        peer._transport.pause_reading()
        for _ in range(200):
            connection.invoke_oneway(RequestCode.SEND_MESSAGE_V2, body=bytes(100_000))
        await asyncio.sleep(0)
        peer.respond(RemotingCommand.response(asked[0], body=b"found"))
        assert (await answer).body == b"found"
        assert connection.is_stalled
        peer._transport.resume_reading()
        await connection.close()
        await server.close()

    asyncio.run(main())


def test_task_that_goes_on_with_its_answer_sees_that_its_bytes_wait(transport: Transport) -> None:
    """It goes on within the step that reads the answer, and may send any number of messages before the step ends."""

    async def main() -> None:
        server = await transport.serve("127.0.0.1", 0, silent)
        connection = await transport.connect(server.address, limits=Limits(max_pending_bytes=100_000))
        await connection.invoke(RequestCode.HEART_BEAT, timeout=30)
        for _ in range(200):
            connection.invoke_oneway(RequestCode.SEND_MESSAGE_V2, body=bytes(100_000))
        assert connection.is_stalled
        await connection.close()
        await server.close()

    asyncio.run(main())


def test_drain_ends_with_its_connection(transport: Transport) -> None:
    """Waiters do not wait for a closed connection."""

    async def main() -> None:
        server = await transport.serve("127.0.0.1", 0, silent)
        connection = await transport.connect(server.address, limits=Limits(max_pending_bytes=100_000))
        peer = await peer_of(connection, server)
        assert peer._transport is not None
        peer._transport.pause_reading()
        for _ in range(200):
            connection.invoke_oneway(RequestCode.SEND_MESSAGE_V2, body=bytes(100_000))
        await asyncio.sleep(0)
        draining = asyncio.ensure_future(connection.drain())
        await asyncio.sleep(0)
        connection.abort("enough")
        await asyncio.wait_for(draining, 5)
        await server.close()

    asyncio.run(main())


def test_connections_beyond_the_limit_are_closed(transport: Transport, caplog: pytest.LogCaptureFixture) -> None:
    """Each is logged; the others are not affected."""

    async def main() -> None:
        server = await transport.serve("127.0.0.1", 0, echo, limits=Limits(max_connections=1))
        kept = await transport.connect(server.address)
        await kept.invoke(RequestCode.HEART_BEAT, timeout=30)
        refused = await transport.connect(server.address)
        with pytest.raises(ConnectionLost):
            await refused.invoke(RequestCode.HEART_BEAT, timeout=30)
        await kept.invoke(RequestCode.HEART_BEAT, timeout=30)
        await server.close()
        await kept.close()
        await refused.close()

    asyncio.run(main())
    assert "refusing the connection of 127.0.0.1:" in caplog.text


def test_refused_connection_is_a_connect_error(transport: Transport) -> None:
    """It names the address; a closed server refuses too."""

    async def main() -> None:
        server = await transport.serve("127.0.0.1", 0, echo)
        await server.close()
        with pytest.raises(ConnectError) as raised:
            await transport.connect(server.address)
        assert raised.value.address == server.address
        for text in ("", "host", ":1", "host:", "host:port", "host:70000", "host:-1"):
            with pytest.raises(ConnectError, match="host:port"):
                await transport.connect(text)

    asyncio.run(main())


def test_both_ends_know_their_addresses(transport: Transport) -> None:
    """And the server its port."""

    async def main() -> None:
        server = await transport.serve("127.0.0.1", 0, echo)
        connection = await transport.connect(server.address)
        peer = await peer_of(connection, server)
        assert server.port > 0
        assert server.address == f"127.0.0.1:{server.port}" == connection.remote_address == peer.local_address
        assert peer.remote_address == connection.local_address
        assert server.address in repr(server)
        assert server.address in repr(connection)
        await server.close()
        await connection.close()
        assert "closed" in repr(connection)

    asyncio.run(main())


def test_request_that_is_sent_last_leaves_behind_those_of_the_next_callbacks(transport: Transport) -> None:
    """In one write with them."""
    asked: list[tuple[int, float]] = []

    def handle(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        asked.append((request.code, connection.waiting_since))
        return RemotingCommand.response(request)

    async def main() -> None:
        server = await transport.serve("127.0.0.1", 0, handle)
        connection = await transport.connect(server.address)
        later = asyncio.create_task(connection.invoke(RequestCode.SEND_MESSAGE_V2, timeout=30))
        pulled = connection.invoke_async(RequestCode.PULL_MESSAGE, timeout=30, last=True)
        await asyncio.gather(later, pulled)
        assert [code for code, _ in asked] == [RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE]
        assert len({read_at for _, read_at in asked}) == 1
        await server.close()
        await connection.close()

    asyncio.run(main())


def test_request_that_is_sent_last_leaves_before_the_connection_closes(transport: Transport) -> None:
    asked: list[int] = []

    def handle(connection: Connection, request: RemotingCommand) -> None:
        asked.append(request.code)

    async def main() -> None:
        server = await transport.serve("127.0.0.1", 0, handle)
        connection = await transport.connect(server.address)
        pulled = connection.invoke_async(RequestCode.PULL_MESSAGE, timeout=30, last=True)
        connection.start_close("closed on this side")
        with pytest.raises(ConnectionLost):
            await pulled
        await server.close()

    asyncio.run(main())
    assert asked == [RequestCode.PULL_MESSAGE]
