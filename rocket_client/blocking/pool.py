"""Connections to several peers, each used by one thread at a time."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rocket_client.blocking.connection import BlockingConnection
from rocket_remoting.tls.settings import ClientTls
from rocket_remoting.wire.credentials import Credentials


class ConnectionPool:
    """Lends connections; a thread that finds none free gets a new one.

    Args:
        connect_timeout: Seconds within which a connection must be open.
        tls: How to encrypt connections; None for plain ones.
        credentials: Sign all requests; None for requests without a signature.
    """

    def __init__(
        self, connect_timeout: float, tls: ClientTls | None = None, credentials: Credentials | None = None
    ) -> None:
        self._connect_timeout = connect_timeout
        self._tls = tls
        self._credentials = credentials
        self._start()

    @contextmanager
    def connection(self, address: str) -> Iterator[BlockingConnection]:
        """Lend a connection to the address for the ``with`` block; no other thread uses it meanwhile."""
        if self._pid != os.getpid():
            # This is a forked child: the sockets belong to the parent, and a thread of the parent may hold the lock.
            inherited = self._all
            self._start()
            for connection in inherited:
                connection.close()
        with self._lock:
            idle = self._idle.setdefault(address, [])
            connection = idle.pop() if idle else self._new(address)
        try:
            yield connection
        finally:
            with self._lock:
                idle.append(connection)

    def close(self) -> None:
        """Close all connections; requests under way in other threads fail."""
        for connection in self._all:
            connection.close()
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._idle: dict[str, list[BlockingConnection]] = {}
        self._all: list[BlockingConnection] = []

    def _new(self, address: str) -> BlockingConnection:
        connection = BlockingConnection(
            address, connect_timeout=self._connect_timeout, tls=self._tls, credentials=self._credentials
        )
        self._all.append(connection)
        return connection

    def __repr__(self) -> str:
        return f"<ConnectionPool: {len(self._all)} connections>"
