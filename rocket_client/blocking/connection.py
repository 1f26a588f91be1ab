"""A blocking connection to one peer, with one or many requests under way."""

import os
import socket
import threading
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from typing import Self

from rocket_client.blocking.pipeline import READ, Pipeline, Request, Socket, wait_for
from rocket_remoting.session.address import host_of, parse_address
from rocket_remoting.session.session import MAX_OPAQUE, Session
from rocket_remoting.tls.settings import ClientTls
from rocket_remoting.wire.command import Buffer, RemotingCommand
from rocket_remoting.wire.credentials import Credentials
from rocket_remoting.wire.errors import ConnectError, ConnectionLost, seconds_text
from rocket_remoting.wire.ext_fields import Header
from rocket_remoting.wire.frame_decoder import DEFAULT_MAX_FRAME, FrameDecoder


class BlockingConnection:
    """A connection that is opened at its first use, and opened again after a failure or a fork.

    Several threads may use the connection; each waits until the exchange of the other has ended.

    Args:
        address: ``host:port`` of the peer.
        connect_timeout: Seconds within which the connection must be open.
        max_frame: Maximum number of bytes of a response.
        tls: How to encrypt the connection; None for a plain one.
        credentials: Sign all requests; None for requests without a signature.
    """

    # Invariant: between two exchanges there is nothing to read. If the socket is readable then, the peer has closed it.

    def __init__(
        self,
        address: str,
        *,
        connect_timeout: float = 3.0,
        max_frame: int = DEFAULT_MAX_FRAME,
        tls: ClientTls | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self.address = address
        self._connect_timeout = connect_timeout
        self._max_frame = max_frame
        self._tls = tls
        self._credentials = credentials
        self._socket: Socket | None = None
        self._session = self._begin_session()
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._is_closed = False

    def invoke(self, code: int, header: Header | None = None, body: Buffer = b"", *, timeout: float) -> RemotingCommand:
        """Send a request and return its response, whatever the response's code.

        Raises:
            ConnectError: The peer cannot be reached.
            ConnectionLost: The connection ended before the response came.
            RequestTimeout: No response came within `timeout` seconds.
        """
        with closing(self.invoke_many([Request(code, header, body)], timeout=timeout)) as answers:
            _, response = next(answers)
        return response

    def invoke_oneway(
        self, code: int, header: Header | None = None, body: Buffer = b"", *, timeout: float = 3.0
    ) -> None:
        """Send a request that gets no response; return when the operating system has taken all bytes.

        Raises:
            ConnectError: The peer cannot be reached.
            ConnectionLost: The connection ended before all bytes were sent.
            RequestTimeout: The request could not be sent within `timeout` seconds.
        """
        with self._exclusively():
            pipeline = self._open(timeout)
            try:
                pipeline.submit_oneway(Request(code, header, body))
            except BaseException:
                self._drop()
                raise

    def invoke_many(
        self, requests: Iterable[Request], *, depth: int = 64, timeout: float
    ) -> Generator[tuple[int, RemotingCommand]]:
        """Yield the responses in the order of arrival, each with its request's number from 0.

        `requests` is read as responses arrive, so it may depend on them. If it has no more requests, it is asked again
        after the next response. Other threads cannot use the connection until the generator has ended or is closed.

        Args:
            requests: The requests.
            depth: Maximum number of requests under way at once.
            timeout: Seconds within which the next response must come.

        Raises:
            ConnectError: The peer cannot be reached.
            ConnectionLost: The connection ended before all responses came.
            RequestTimeout: No answer came within `timeout` seconds.
        """
        source = enumerate(requests)
        with self.pipeline(timeout=timeout) as pipeline:
            while True:
                free = depth - pipeline.in_flight
                pipeline.submit(list(islice(source, max(free, 0))))
                if not pipeline.in_flight:
                    return
                yield from pipeline.read()

    @contextmanager
    def pipeline(self, *, timeout: float) -> Iterator[Pipeline]:
        """Return a context manager of a pipeline; other threads cannot use the connection meanwhile.

        If the block ends before all responses came, the connection is closed; its next use opens it again.

        Args:
            timeout: Seconds within which the next response must come.

        Raises:
            ConnectError: The peer cannot be reached.
        """
        with self._exclusively():
            pipeline = self._open(timeout)
            try:
                yield pipeline
            finally:
                if pipeline.in_flight:  # late responses must not reach the next exchange
                    self._drop()
                elif self._session.decoder.excess:
                    self._session.decoder.shrink()

    def close(self) -> None:
        """Close the connection; requests under way in other threads fail."""
        self._is_closed = True
        self._drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "open" if self._socket is not None else "not connected"
        return f"<BlockingConnection {self.address}: {state}>"

    def _exclusively(self) -> threading.Lock:
        if self._pid != os.getpid():
            # A forked child: the thread that held the lock does not exist here, and the socket is the parent's.
            # Closing the child's descriptor leaves the parent's connection open.
            self._lock = threading.Lock()
            self._drop()
            self._pid = os.getpid()
        return self._lock

    def _begin_session(self) -> Session[int]:
        # No limit: callers limit the requests under way by `depth`.
        decoder = FrameDecoder(self._max_frame, keeps_buffer=True)
        return Session(self.address, decoder, max_pending=MAX_OPAQUE, credentials=self._credentials)

    def _open(self, timeout: float) -> Pipeline:
        if self._is_closed:
            raise ConnectionLost(self.address, "closed on this side")
        if self._socket is not None and _has_ended(self._socket):
            self._drop()
        if self._socket is None:
            self._socket = _connect(self.address, self._connect_timeout, self._tls)
        return Pipeline(self._socket, self._session, timeout)

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            self._session = self._begin_session()


def _has_ended(sock: Socket) -> bool:
    """Return whether the peer has closed the connection, or sent what nobody asked for."""
    if not wait_for(sock, READ, 0):
        return False
    if isinstance(sock, socket.socket):
        return True
    try:  # the server of TLS 1.3 sends tickets, which are not answers
        sock.recv_into(memoryview(bytearray(1)))
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _connect(address: str, timeout: float, tls: ClientTls | None) -> Socket:
    until = time.monotonic() + timeout
    try:
        sock = socket.create_connection(parse_address(address), timeout)
    except TimeoutError:
        raise ConnectError(address, f"no connection within {seconds_text(timeout)} s") from None
    except OSError as error:
        raise ConnectError(address, error.strerror or str(error)) from error
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if tls is not None:
        return _encrypted(sock, address, tls, until, timeout)
    sock.setblocking(False)
    return sock


def _encrypted(sock: socket.socket, address: str, tls: ClientTls, until: float, timeout: float) -> Socket:
    """Return the socket after its TLS handshake; it is closed if that fails."""
    import ssl  # only with TLS, because executors of Spark have to start fast

    from rocket_client.blocking.tls_socket import TlsSocket
    from rocket_remoting.tls.contexts import client_context, tls_problem

    try:
        sock.settimeout(max(0.01, until - time.monotonic()))
        encrypted = client_context(tls).wrap_socket(sock, server_hostname=host_of(address))
    except BaseException as error:
        sock.close()
        if isinstance(error, ssl.SSLEOFError | ConnectionError):
            raise ConnectError(address, "the peer closed the connection during the TLS handshake") from error
        if isinstance(error, ssl.SSLError):
            raise ConnectError(address, f"the TLS handshake failed: {tls_problem(error)}") from error
        if isinstance(error, TimeoutError):
            raise ConnectError(address, f"no connection within {seconds_text(timeout)} s") from None
        raise
    encrypted.setblocking(False)
    return TlsSocket(encrypted)
