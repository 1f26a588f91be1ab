"""The transport in memory: without sockets, so that tests can drive both ends by virtual time.

Frames are encoded and decoded as on a socket, and both ends are ordinary `Connection` objects. Bytes arrive one turn of
the loop after they were written.
"""

import asyncio
from collections import deque
from itertools import count
from typing import Any, cast

from rocket_remoting.session.address import parse_address
from rocket_remoting.session.connection import Connection, FramesHandler, Handler
from rocket_remoting.session.limits import Limits
from rocket_remoting.tls.settings import ClientTls, ServerTls
from rocket_remoting.transports.opening import Opening
from rocket_remoting.transports.transport import ConnectionCallback, Server
from rocket_remoting.wire.errors import ConnectError, seconds_text

_FIRST_FREE_PORT = 20_000


class MemoryTransport:
    """A network of its own: clients reach exactly the servers that use the same object.

    Connections come from 127.0.0.1; those made with `at` come from another address.
    """

    __slots__ = ("_host", "_ports", "_servers")

    def __init__(self) -> None:
        self._servers: dict[str, _MemoryServer] = {}
        self._ports = count(_FIRST_FREE_PORT + 1)
        self._host = "127.0.0.1"

    def at(self, host: str) -> "MemoryTransport":
        """Return a transport of the same network whose connections come from the address `host`."""
        there = MemoryTransport()
        there._servers, there._ports, there._host = self._servers, self._ports, host
        return there

    async def connect(
        self,
        address: str,
        *,
        handler: Handler | None = None,
        timeout: float = 3.0,
        limits: Limits | None = None,
        tls: ClientTls | None = None,
    ) -> Connection:
        """Open a connection to ``host:port``; see `Transport.connect`."""
        parse_address(address)
        await asyncio.sleep(0)
        server = self._servers.get(address)
        if server is None:
            raise ConnectError(address, "no server has this address in this memory transport")
        local = (self._host, next(self._ports))
        opening = Opening(address, handler, limits or Limits(), tls)
        near, far = opening.protocol(), server.accept()
        near_pipe, far_pipe = _Pipe(near, local, server.socket_name), _Pipe(far, server.socket_name, local)
        near_pipe.peer, far_pipe.peer = far_pipe, near_pipe
        far.connection_made(far_pipe)
        near.connection_made(near_pipe)
        try:
            async with asyncio.timeout(timeout):
                return await opening.opened()
        except TimeoutError:
            raise ConnectError(address, f"no connection within {seconds_text(timeout)} s") from None

    async def serve(
        self,
        host: str,
        port: int,
        handler: Handler,
        *,
        on_connect: ConnectionCallback | None = None,
        on_close: ConnectionCallback | None = None,
        limits: Limits | None = None,
        frames_handler: FramesHandler | None = None,
        tls: ServerTls | None = None,
    ) -> Server:
        """Start a server; see `Transport.serve`."""
        port = port or next(self._ports)
        server = _MemoryServer(
            handler, on_connect, on_close, limits or Limits(), frames_handler, tls=tls, servers=self._servers
        )
        server.host, server.port = host, port
        if server.address in self._servers:
            raise OSError(f"{server.address} is served already in this memory transport")
        self._servers[server.address] = server
        return server

    def __repr__(self) -> str:
        return f"<MemoryTransport: {', '.join(self._servers) or 'no servers'}>"


class _MemoryServer(Server):
    def __init__(
        self,
        handler: Handler,
        on_connect: ConnectionCallback | None,
        on_close: ConnectionCallback | None,
        limits: Limits,
        frames_handler: FramesHandler | None,
        *,
        tls: ServerTls | None,
        servers: dict[str, "_MemoryServer"],
    ) -> None:
        super().__init__(handler, on_connect, on_close, limits, frames_handler, tls=tls)
        self._servers = servers

    @property
    def socket_name(self) -> tuple[str, int]:
        return self.host, self.port

    def _stop_listening(self) -> None:
        self._servers.pop(self.address, None)


class _Pipe(asyncio.Transport):
    """One end of a pipe; bytes written here arrive at the protocol of `peer`."""

    peer: "_Pipe"

    def __init__(self, protocol: asyncio.BufferedProtocol, local: tuple[str, int], remote: tuple[str, int]) -> None:
        super().__init__({"sockname": local, "peername": remote})
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._chunks: deque[memoryview] = deque()  # written here, not yet delivered to the peer
        self._size = 0
        self._high = 64 * 1024
        self._low = 16 * 1024
        self._scheduled = False
        self._writing_paused = False
        self._reading_paused = False
        self._closing = False
        self._lost = False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = cast(asyncio.BufferedProtocol, protocol)

    # ---- writing -------------------------------------------------------------------------------------

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 64 * 1024 if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return self._size

    def write(self, data: "bytes | bytearray | memoryview[Any]") -> None:
        if not self._closing and data:
            self._chunks.append(memoryview(bytes(data)))
            self._size += len(data)
            self._schedule()
            if self._size > self._high and not self._writing_paused:
                self._writing_paused = True
                self._protocol.pause_writing()

    def _schedule(self) -> None:
        if not self._scheduled and not self.peer._reading_paused:
            self._scheduled = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._scheduled = False
        receiver = self.peer
        while self._chunks and not receiver._reading_paused:
            chunk = self._chunks.popleft()
            self._size -= len(chunk)
            while chunk and not (receiver._closing or receiver._reading_paused):
                room = memoryview(receiver._protocol.get_buffer(-1))
                count = min(len(room), len(chunk))
                room[:count] = chunk[:count]
                chunk = chunk[count:]
                receiver._protocol.buffer_updated(count)
            # The receiver has paused in the middle of a chunk, as a socket leaves bytes in the kernel's buffer.
            if chunk and not receiver._closing:  # a closing end reads nothing more
                self._chunks.appendleft(chunk)
                self._size += len(chunk)
        if self._writing_paused and self._size <= self._low and not self._lost:
            self._writing_paused = False
            self._protocol.resume_writing()
        if self._closing and (not (self._chunks or receiver._reading_paused) or receiver._lost):
            self._end(None)

    # ---- reading -------------------------------------------------------------------------------------

    def is_reading(self) -> bool:
        return not self._reading_paused and not self._closing

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        self._reading_paused = False
        self.peer._schedule()

    # ---- end -----------------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._schedule()

    def abort(self) -> None:
        self._closing = True
        self._chunks.clear()
        self._size = 0
        self._loop.call_soon(self._end, None)

    def _end(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._lost = self._closing = True
        self._protocol.connection_lost(error)
        peer = self.peer
        if not peer._lost:
            peer._protocol.eof_received()
            peer._chunks.clear()
            peer._closing = True
            self._loop.call_soon(peer._end, None)
