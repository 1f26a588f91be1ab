"""One socket to one peer: requests out, answers in, many of them under way at once if wanted."""

import os
import socket
import threading
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from typing import Self

from rocket_client.blocking.pipeline import READ, Exchange, Pipeline, Request, wait_for
from rocket_remoting.session.address import parse_address
from rocket_remoting.wire.command import Buffer, RemotingCommand
from rocket_remoting.wire.errors import ConnectError, ConnectionLost
from rocket_remoting.wire.ext_fields import Header
from rocket_remoting.wire.frame_decoder import DEFAULT_MAX_FRAME, FrameDecoder

_MAX_OPAQUE = 0x7FFFFFFF


class BlockingConnection:
    """A connection that is made when it is first used, and made anew after a failure or a fork.

    Threads take turns: one exchange is finished before the next begins.

    Args:
        address: ``host:port`` of the peer.
        connect_timeout: Seconds within which the connection must stand.
        max_frame: Most bytes of an answer.
    """

    # Invariant: between two exchanges nothing is to be read; what is readable then is the connection's end.

    def __init__(
        self, address: str, *, connect_timeout: float = 3.0, max_frame: int = DEFAULT_MAX_FRAME
    ) -> None:
        self.address = address
        self._connect_timeout = connect_timeout
        self._max_frame = max_frame
        self._socket: socket.socket | None = None
        self._decoder = FrameDecoder(max_frame)
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._next_opaque = 0
        self._is_closed = False

    def invoke(
        self, code: int, header: Header | None = None, body: Buffer = b"", *, timeout: float
    ) -> RemotingCommand:
        """The answer to a request, whatever its code.

        Raises:
            ConnectError: The peer cannot be reached.
            ConnectionLost: The connection ended before the answer came.
            RequestTimeout: No answer came within `timeout` seconds.
        """
        with closing(self.invoke_many([Request(code, header, body)], timeout=timeout)) as answers:
            _, response = next(answers)
        return response

    def invoke_oneway(
        self, code: int, header: Header | None = None, body: Buffer = b"", *, timeout: float = 3.0
    ) -> None:
        """Send a request that gets no answer; return when the system has taken it.

        Raises:
            ConnectError: The peer cannot be reached.
            ConnectionLost: The connection ended before all was sent.
            RequestTimeout: It could not be sent within `timeout` seconds.
        """
        with self._exclusively():
            command = RemotingCommand.request(code, header, body, oneway=True)
            command.opaque = self._opaque()
            exchange = Exchange(self._open(), self._decoder, self.address)
            try:
                exchange.expect(code, timeout)
                exchange.write(b"".join(command.encode()))
            except BaseException:
                self._drop()
                raise

    def invoke_many(
        self, requests: Iterable[Request], *, depth: int = 64, timeout: float
    ) -> Generator[tuple[int, RemotingCommand]]:
        """Each answer with its request's number, counted from 0, in the order of arrival.

        `requests` is taken from as answers come, so it may go on while they are looked at; one that had
        nothing more is asked again after the next answer. The connection serves nobody else until the
        iterator is used up or closed.

        Args:
            requests: What to send.
            depth: Most requests under way at once.
            timeout: Seconds within which the next answer must come.

        Raises:
            ConnectError: The peer cannot be reached.
            ConnectionLost: The connection ended before all answers came.
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
        """Requests out and answers in as the caller likes; the connection serves nobody else meanwhile.

        Who leaves before all answers came, leaves a connection that is made anew at its next use.

        Args:
            timeout: Seconds within which the next answer must come.

        Raises:
            ConnectError: The peer cannot be reached.
        """
        with self._exclusively():
            exchange = Exchange(self._open(), self._decoder, self.address)
            pipeline = Pipeline(exchange, self._opaque, timeout)
            try:
                yield pipeline
            finally:
                if pipeline.in_flight:  # late answers must not meet the next exchange
                    self._drop()

    def close(self) -> None:
        """Close; what is under way in another thread fails."""
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
            # A forked child: whoever held the lock does not exist here, and the socket is the parent's.
            self._lock = threading.Lock()
            self._drop()
            self._pid = os.getpid()
        return self._lock

    def _opaque(self) -> int:
        opaque = self._next_opaque
        self._next_opaque = opaque + 1 & _MAX_OPAQUE
        return opaque

    def _open(self) -> socket.socket:
        if self._is_closed:
            raise ConnectionLost(self.address, "closed on this side")
        if self._socket is not None and wait_for(self._socket, READ, 0):
            self._drop()
        if self._socket is None:
            self._decoder = FrameDecoder(self._max_frame)
            self._socket = _connect(self.address, self._connect_timeout)
        return self._socket

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _connect(address: str, timeout: float) -> socket.socket:
    try:
        sock = socket.create_connection(parse_address(address), timeout)
    except TimeoutError:
        raise ConnectError(address, f"no connection within {timeout:g} s") from None
    except OSError as error:
        raise ConnectError(address, error.strerror or str(error)) from error
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setblocking(False)
    return sock
