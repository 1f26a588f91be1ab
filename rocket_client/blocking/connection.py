"""One socket to one peer: requests out, answers in, many of them under way at once if wanted."""

import os
import selectors
import socket
import threading
import time
from collections.abc import Generator, Iterable
from contextlib import closing
from typing import NamedTuple, Self

from rocket_remoting.address import parse_address
from rocket_remoting.command import Buffer, RemotingCommand
from rocket_remoting.errors import ConnectError, ConnectionLost, RequestTimeout
from rocket_remoting.ext_fields import Header
from rocket_remoting.frame_decoder import DEFAULT_MAX_FRAME, FrameDecoder

_MAX_OPAQUE = 0x7FFFFFFF
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
# Not the default selector: that one would be a file descriptor more, shared with forked children.
_Selector: type[selectors.BaseSelector] = getattr(selectors, "PollSelector", selectors.SelectSelector)


class Request(NamedTuple):
    """A request to be sent: code, typed header, body."""

    code: int
    header: Header | None = None
    body: Buffer = b""


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
            exchange = _Exchange(self._open(), self._decoder, self.address)
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

        `requests` is taken from as answers come, so it may go on while they are looked at. The connection
        serves nobody else until the iterator is used up or closed.

        Args:
            requests: What to send.
            depth: Most requests under way at once.
            timeout: Seconds within which the next answer must come.

        Raises:
            ConnectError: The peer cannot be reached.
            ConnectionLost: The connection ended before all answers came.
            RequestTimeout: No answer came within `timeout` seconds.
        """
        with self._exclusively():
            exchange = _Exchange(self._open(), self._decoder, self.address)
            waiting: dict[int, tuple[int, int]] = {}  # number and code, by opaque
            source = enumerate(requests)
            try:
                while True:
                    pieces: list[Buffer] = []
                    while len(waiting) < depth and (following := next(source, None)) is not None:
                        number, request = following
                        command = RemotingCommand.request(request.code, request.header, request.body)
                        command.opaque = self._opaque()
                        waiting[command.opaque] = number, request.code
                        pieces += command.encode()
                    if not waiting:
                        return
                    exchange.expect(next(iter(waiting.values()))[1], timeout)
                    exchange.write(b"".join(pieces))
                    for response in exchange.read():
                        found = waiting.pop(response.opaque, None)
                        if found is not None:
                            yield found[0], response
            finally:
                if waiting:  # a failure, or enough was seen: late answers must not meet the next exchange
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
        if self._socket is not None and _wait_for(self._socket, _READ, 0):
            self._drop()
        if self._socket is None:
            self._decoder = FrameDecoder(self._max_frame)
            self._socket = _connect(self.address, self._connect_timeout)
        return self._socket

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class _Exchange:
    """Writes and reads on a socket that does not block, within a time limit."""

    __slots__ = ("_address", "_code", "_deadline", "_decoder", "_early", "_socket", "_timeout")

    def __init__(self, sock: socket.socket, decoder: FrameDecoder, address: str) -> None:
        self._socket = sock
        self._decoder = decoder
        self._address = address
        self._code = 0
        self._timeout = self._deadline = 0.0
        self._early: list[RemotingCommand] = []  # answers that came while we wrote

    def expect(self, code: int, timeout: float) -> None:
        """From now on `timeout` seconds may pass until a request of this code is answered."""
        self._code = code
        self._timeout = timeout
        self._deadline = time.monotonic() + timeout

    def write(self, data: bytes) -> None:
        """Send all of it, and read meanwhile: the peer may not read on before what it wrote is read."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                if self._wait(_READ | _WRITE) & _READ:
                    self._early += self._receive()
            except OSError as error:
                raise ConnectionLost(self._address, error.strerror or str(error)) from error

    def read(self) -> list[RemotingCommand]:
        """The next answers, at least one."""
        answers, self._early = self._early, []
        while not answers:
            self._wait(_READ)
            answers = self._receive()
        return answers

    def _receive(self) -> list[RemotingCommand]:
        try:
            count = self._socket.recv_into(self._decoder.writable())
        except BlockingIOError:
            return []
        except OSError as error:
            raise ConnectionLost(self._address, error.strerror or str(error)) from error
        if not count:
            raise ConnectionLost(self._address, "closed by the peer")
        return [command for command in self._decoder.received(count) if command.is_response]

    def _wait(self, events: int) -> int:
        ready = _wait_for(self._socket, events, max(0.0, self._deadline - time.monotonic()))
        if not ready:
            raise RequestTimeout(self._address, self._code, self._timeout)
        return ready


def _wait_for(sock: socket.socket, events: int, timeout: float) -> int:
    with _Selector() as selector:
        selector.register(sock, events)
        ready = selector.select(timeout)
    return ready[0][1] if ready else 0


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
