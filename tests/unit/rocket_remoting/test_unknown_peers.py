"""Connections whose peers have sent no request yet: a server keeps few of them, so that users still get in."""

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from rocket_remoting.session import turns
from rocket_remoting.session.connection import Connection
from rocket_remoting.session.limits import Limits
from rocket_remoting.transports.memory import MemoryTransport
from rocket_remoting.transports.transport import Server
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.command import RemotingCommand
from streamkit.testing.virtual_time import VirtualTime

Scene = Callable[[MemoryTransport, Server], Coroutine[Any, Any, None]]

LIMITS = Limits(max_connections=100, max_unknown_percent=20, max_address_unknown_percent=10)
PIN = 8
"""The code of the request that makes a client known where the handler decides that."""


def handle(connection: Connection, request: RemotingCommand) -> RemotingCommand:
    """Answer, and let the peer be known if it has sent the right request."""
    if request.code == PIN:
        connection.mark_known()
    return RemotingCommand.response(request)


def with_server(scene: Scene, limits: Limits = LIMITS) -> None:
    """Run a scene with a server in memory, in virtual time."""

    async def main() -> None:
        transport = MemoryTransport()
        server = await transport.serve("10.0.0.1", 1, handle, limits=limits)
        await scene(transport, server)
        await server.close()

    with VirtualTime() as time:
        time.run(main())


async def open_from(transport: MemoryTransport, host: str, number: int) -> list[Connection]:
    """Return new connections from an address, once the server has decided about them."""
    opened = [await transport.at(host).connect("10.0.0.1:1") for _ in range(number)]
    await asyncio.sleep(0.1)
    return opened


def alive(connections: list[Connection]) -> list[bool]:
    """Return which connections are open."""
    return [not connection.is_closed for connection in connections]


async def ask(connection: Connection, code: int = RequestCode.HEART_BEAT) -> None:
    """Send a request and wait for the answer."""
    await connection.invoke(code, timeout=10)


def test_peer_is_known_whose_first_request_had_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the other requests of its address, which took all of the time that an address has at once."""
    monkeypatch.setattr(turns, "TURN_SECONDS", 1e-7)

    async def scene(transport: MemoryTransport, server: Server) -> None:
        opened = await open_from(transport, "10.0.0.7", 10)
        await asyncio.gather(*map(ask, opened))
        assert [connection.is_known for connection in server.connections] == [True] * 10
        assert alive(await open_from(transport, "10.0.0.7", 5)) == [True] * 5

    with_server(scene)


def test_unknown_peers_of_an_address_are_few(caplog: pytest.LogCaptureFixture) -> None:
    """Those of other addresses get in, and so do further ones once a request was handled."""

    async def scene(transport: MemoryTransport, server: Server) -> None:
        opened = await open_from(transport, "10.0.0.7", 12)
        assert alive(opened) == [True] * 10 + [False] * 2
        (other,) = await open_from(transport, "10.0.0.8", 1)
        assert alive([other]) == [True]
        await ask(opened[0])
        await opened[1].close()
        assert alive(await open_from(transport, "10.0.0.7", 3)) == [True] * 2 + [False]

    with_server(scene)
    expected = r"refusing .* of 10.0.0.7:\d+ and further ones: 10 of 10.0.0.7 are open whose peers are unknown"
    assert re.search(expected, caplog.text)


def test_many_unknown_peers_give_way_to_new_ones(caplog: pytest.LogCaptureFixture) -> None:
    """The oldest of the address with the most is closed; known peers stay, and users get in."""

    async def scene(transport: MemoryTransport, server: Server) -> None:
        (user,) = await open_from(transport, "10.0.0.2", 1)
        await ask(user)
        crowd = [await open_from(transport, host, 10) for host in ("10.0.0.7", "10.0.0.8")]
        newcomers = await open_from(transport, "10.0.0.9", 3)
        assert alive([user, *newcomers]) == [True] * 4
        for newcomer in newcomers:
            await ask(newcomer)
        assert [alive(each).count(False) for each in crowd] == [2, 1]
        assert alive(crowd[0])[:3] == [False, False, True]
        assert len(server.connections) == 1 + 17 + 3

    with_server(scene)
    assert re.search(r"of 10.0.0.7:\d+ and further ones: 21 connections of unknown peers are open", caplog.text)


def test_unknown_peers_at_the_servers_address_have_no_limit_of_their_own() -> None:
    """They share the limit of all: the oldest give way."""

    async def scene(transport: MemoryTransport, server: Server) -> None:
        assert alive(await open_from(transport, "10.0.0.1", 22)) == [False] * 2 + [True] * 20

    with_server(scene)


def test_handler_can_say_when_a_peer_is_known() -> None:
    """Then a request alone is not enough: a peer may repeat one that is refused."""
    limits = Limits(max_connections=100, max_address_unknown_percent=2, knows_by_handler=True)

    async def scene(transport: MemoryTransport, server: Server) -> None:
        first, second = await open_from(transport, "10.0.0.7", 2)
        await ask(first)
        assert alive(await open_from(transport, "10.0.0.7", 1)) == [False]
        await ask(first, PIN)
        await ask(first, PIN)
        assert alive([first, second, *await open_from(transport, "10.0.0.7", 2)]) == [True, True, True, False]

    with_server(scene, limits)


def test_first_request_has_a_deadline_whatever_arrives_of_it() -> None:
    """A peer that sends its first request byte by byte leaves; later requests have no deadline."""

    async def scene(transport: MemoryTransport, server: Server) -> None:
        slow, usual = await open_from(transport, "10.0.0.7", 2)
        await ask(usual)
        (frame,) = RemotingCommand.request(RequestCode.HEART_BEAT).encode()
        for connection in (slow, usual):
            assert connection._transport is not None
        for at in range(len(frame)):
            for connection in (slow, usual):
                if connection._transport is not None and not connection.is_closed:
                    connection._transport.write(bytes(frame[at : at + 1]))
            await asyncio.sleep(1)
        assert len(frame) > 60
        assert alive([slow, usual]) == [False, True]

    with_server(scene)
