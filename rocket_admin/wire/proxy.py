"""A proxy between clients and a cluster, which hands every command to a function.

::

    client ──► proxy of the name server ──► name server
           │     └── the brokers' addresses in its answers are replaced by those of the proxies below
           ├──► proxy of broker-a ──► broker-a
           └──► proxy of broker-b ──► broker-b

All other bytes pass as they are. What cannot be read, such as TLS, passes too, and is reported once.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from types import TracebackType
from typing import Final, Self

from rocket_admin.wire.conversation import Conversation, ExplainedCommand, Unreadable
from rocket_remoting.session.address import parse_address
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import ConnectError, RemoteProtocolError
from rocket_remoting.wire.frame_decoder import DEFAULT_MAX_FRAME, FrameDecoder

__all__ = ["WireProxy"]

CHUNK: Final = 64 * 1024
PREFIX: Final = 4
"""Bytes of the length at the beginning of a frame."""
MOST_BROKERS: Final = 100
"""Brokers that get a proxy; addresses beyond stay as they are."""

_ROUTES: Final = frozenset({RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO})
# As in "brokerAddrs":{0:"10.0.0.7:10911"}; Apache's servers write the number without quotes.
_BROKER: Final = re.compile(rb'(\d+"?\s*:\s*")([^"\s]{1,255}:\d{1,5})(")')


class WireProxy:
    """Proxies of a name server and of the brokers that it names.

    Args:
        name_server: The address of the name server.
        report: Gets each command, after it was sent on.
        host: The address to listen on.
        port: The port of the name server's proxy; 0 takes a free port.
        shows_bodies: Whether the explanations show bodies.

    Attributes:
        address: Where clients find the name server's proxy; set by `start`.
    """

    address: str

    def __init__(
        self,
        name_server: str,
        report: Callable[[ExplainedCommand | Unreadable], None],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        shows_bodies: bool = False,
    ) -> None:
        self._name_server = name_server
        self._report = report
        self._host = host
        self._port = port
        self._shows_bodies = shows_bodies
        self._servers: list[asyncio.Server] = []
        self._proxies: dict[str, str] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self._numbers = count(1)
        self._adding = asyncio.Lock()

    async def start(self) -> None:
        """Listen.

        Raises:
            ConnectError: The address of the name server has not the form host:port.
            OSError: The port is in use, or the address is not this machine's.
        """
        parse_address(self._name_server)
        self.address = await self._listen(self._name_server, self._port)

    async def stop(self) -> None:
        """Close all connections, and listen no more."""
        for server in self._servers:
            server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        self._servers.clear()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    async def _listen(self, server_address: str, port: int) -> str:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.ensure_future(self._carry(server_address, reader, writer))
            self._connections.add(task)

            def ended(task: asyncio.Task[None]) -> None:
                self._connections.discard(task)
                writer.close()  # a task that `stop` cancels before its first step has not

            task.add_done_callback(ended)

        server = await asyncio.start_server(accept, self._host, port)
        self._servers.append(server)
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{server.sockets[0].getsockname()[1]}"

    async def _carry(self, address: str, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """Carry the bytes of one connection both ways until one end closes."""
        number = next(self._numbers)
        host, port = parse_address(address)
        try:
            server, to_server = await asyncio.open_connection(host, port)
        except OSError as error:
            self._report(_unreadable(number, address, by_client=True, reason=f"cannot connect: {error}"))
            to_client.close()
            return
        conversation = Conversation(number, address, shows_bodies=self._shows_bodies)
        ways = (
            _Way(conversation, number, address, self._report, self._with_proxies, by_client=True),
            _Way(conversation, number, address, self._report, self._with_proxies, by_client=False),
        )
        pumps = [
            asyncio.ensure_future(ways[0].pump(client, to_server)),
            asyncio.ensure_future(ways[1].pump(server, to_client)),
        ]
        try:
            # What one end has sent before it closed reaches the other end: `pump` ends after that.
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Before anything is awaited: `stop` may cancel this task here.
            for writer in (to_server, to_client):
                writer.close()
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _with_proxies(self, body: bytes) -> bytes:
        """Return a name server's answer with the addresses of the brokers' proxies."""
        for _, address, _ in _BROKER.findall(body):
            await self._proxy_of(address.decode("latin-1"))

        def replaced(found: re.Match[bytes]) -> bytes:
            address = found[2].decode("latin-1")
            return found[1] + self._proxies.get(address, address).encode("latin-1") + found[3]

        return _BROKER.sub(replaced, body)

    async def _proxy_of(self, broker: str) -> None:
        async with self._adding:
            if broker not in self._proxies and len(self._proxies) < MOST_BROKERS:
                with suppress(OSError, ConnectError):
                    parse_address(broker)
                    self._proxies[broker] = await self._listen(broker, 0)


class _Way:
    """One direction of a connection."""

    def __init__(
        self,
        conversation: Conversation,
        number: int,
        server: str,
        report: Callable[[ExplainedCommand | Unreadable], None],
        with_proxies: Callable[[bytes], Awaitable[bytes]],
        *,
        by_client: bool,
    ) -> None:
        self._conversation = conversation
        self._number = number
        self._server = server
        self._report = report
        self._with_proxies = with_proxies
        self._by_client = by_client
        self._decoder = FrameDecoder()
        self._is_readable = True

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry frames until the end closes."""
        waiting = bytearray()
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                waiting += data
                while (frame := self._next_frame(waiting)) is not None:
                    writer.write(await self._passed(frame))
                    await writer.drain()

    def _next_frame(self, waiting: bytearray) -> bytes | None:
        """Take out the next whole frame; bytes that are not frames at once."""
        if not waiting:
            return None
        size = len(waiting)
        if self._is_readable:
            if size < PREFIX:
                return None
            size = int.from_bytes(waiting[:PREFIX]) + PREFIX
            if size > DEFAULT_MAX_FRAME:
                self._give_up("TLS" if waiting[0] == 0x16 else f"a frame of {size} bytes")
                size = len(waiting)
            elif size > len(waiting):
                return None
        frame = bytes(waiting[:size])
        del waiting[:size]
        return frame

    async def _passed(self, frame: bytes) -> bytes:
        """Report the command of a frame, and return the frame to send on."""
        if not self._is_readable:
            return frame
        at = datetime.now(UTC)
        try:
            (command,) = self._decoder.feed(frame)
        except RemoteProtocolError as error:
            self._give_up(str(error))
            return frame
        passed = frame
        if command.is_response and self._conversation.request_code(command, by_client=self._by_client) in _ROUTES:
            passed = await self._rewritten(command, frame)
        self._report(self._conversation.explain(command, at, by_client=self._by_client))
        return passed

    async def _rewritten(self, command: RemotingCommand, frame: bytes) -> bytes:
        """Return the frame of a route with the addresses of the proxies; the frame itself if nothing changes."""
        body = bytes(command.body)
        changed = await self._with_proxies(body)
        if changed == body:
            return frame
        command.body = changed
        return b"".join(command.encode())

    def _give_up(self, reason: str) -> None:
        """Read no more commands in this direction."""
        self._is_readable = False
        self._report(_unreadable(self._number, self._server, by_client=self._by_client, reason=reason))


def _unreadable(number: int, server: str, *, by_client: bool, reason: str) -> Unreadable:
    return Unreadable(time=datetime.now(UTC), connection=number, server=server, by_client=by_client, reason=reason)
