"""A slave that sends single reports and reads single slices, and a master for it."""

import asyncio
import logging
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from rocket_broker.embedded import EmbeddedBroker
from rocket_broker.replication.master import SlaveServer
from rocket_remoting import MemoryTransport
from rocket_remoting.transports.transport import Transport
from tests.end_to_end.raw_client import RawClient
from tests.ports import free_ports

SECONDS = 60.0
"""A test that waits for this long has failed."""


class Slice(NamedTuple):
    """A frame of the master."""

    offset: int
    data: bytes


class RawSlave:
    """One connection to the port for slaves."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, port: int, *, receive_buffer: int = 0, host: str = "127.0.0.1") -> "RawSlave":
        """Return a connection from a host; a receive buffer bounds the bytes that it takes before they are read."""
        connection = socket.socket()
        connection.bind((host, 0))
        if receive_buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
        return cls(*await asyncio.open_connection(sock=connection, limit=receive_buffer or 2**16))

    def report(self, *offsets: int) -> None:
        """Report one or several offsets."""
        for offset in offsets:
            self.write(struct.pack(">q", offset))

    def write(self, data: bytes) -> None:
        """Send bytes."""
        self._writer.write(data)

    async def frame(self) -> Slice:
        """Return the next frame, which may be a heartbeat."""
        async with asyncio.timeout(SECONDS):
            offset, size = struct.unpack(">qi", await self._reader.readexactly(12))
            return Slice(offset, await self._reader.readexactly(size))

    async def log(self, start: int, end: int) -> bytes:
        """Return the bytes of the log between two offsets, from slices that follow each other."""
        parts: list[bytes] = []
        while start < end:
            offset, data = await self.frame()
            assert offset == start
            parts.append(data)
            start += len(data)
        return b"".join(parts)

    async def until_closed(self) -> None:
        """Wait until the master has closed the connection."""
        async with asyncio.timeout(SECONDS):
            try:
                while await self._reader.read(2**16):
                    pass
            except ConnectionError:
                pass

    async def close(self) -> None:
        """Close the connection."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            pass


class MasterStage:
    """A master with a client and slaves.

    Attributes:
        embedded: The master with its name server.
        client: A client of the master.
        slaves: The server of the slaves.
        transport: The transport of clients.
    """

    def __init__(self, embedded: EmbeddedBroker, client: RawClient, transport: Transport) -> None:
        assert embedded.broker.slaves is not None
        self.embedded = embedded
        self.client = client
        self.transport = transport
        self.slaves: SlaveServer = embedded.broker.slaves
        self._opened: list[RawSlave] = []

    @property
    def end(self) -> int:
        """The end of the master's log."""
        return self.embedded.broker.store.max_commit_log_offset

    async def slave(self, *reports: int, receive_buffer: int = 0, host: str = "127.0.0.1") -> RawSlave:
        """Return a new slave that has sent these reports."""
        slave = await RawSlave.connect(self.slaves.port, receive_buffer=receive_buffer, host=host)
        self._opened.append(slave)
        slave.report(*reports)
        return slave

    async def following(self, host: str = "127.0.0.1") -> RawSlave:
        """Return a slave that has the whole log, and whose report the master has read."""
        slave = await self.slave(self.end, host=host)
        assert await slave.frame() == (self.end, b"")
        return slave

    async def close(self) -> None:
        """Close the connections of slaves."""
        for slave in self._opened:
            await slave.close()


def with_master(scene: Callable[[MasterStage], Awaitable[None]], store: Path | None = None, **settings: str) -> None:
    """Run a scene with a master whose heartbeats come soon, and whose log has small files."""
    keys = {"haListenPort": str(free_ports()[0]), "haSendHeartbeatInterval": "20", "mappedFileSizeCommitLog": "8192"}

    async def run() -> None:
        transport = MemoryTransport()
        async with EmbeddedBroker(store, transport=transport, settings=keys | settings) as embedded:
            client = await RawClient.connect(transport, embedded.broker_address)
            stage = MasterStage(embedded, client, transport)
            try:
                await scene(stage)
            finally:
                await stage.close()
                await client.connection.close()

    asyncio.run(run())


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the errors that were logged."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
