"""An exchange on one socket: requests are written and answers read, many of them under way at once."""

import selectors
import socket
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from rocket_remoting.wire.command import Buffer, RemotingCommand
from rocket_remoting.wire.errors import ConnectionLost, RequestTimeout
from rocket_remoting.wire.ext_fields import Header
from rocket_remoting.wire.frame_decoder import FrameDecoder

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
# Not the default selector: that one would be a file descriptor more, shared with forked children.
_Selector: type[selectors.BaseSelector] = getattr(selectors, "PollSelector", selectors.SelectSelector)


class Request(NamedTuple):
    """A request to be sent: code, typed header, body."""

    code: int
    header: Header | None = None
    body: Buffer = b""


class Pipeline:
    """Requests under way on one connection, each known by the number its sender gave it."""

    __slots__ = ("_exchange", "_next_opaque", "_timeout", "_waiting")

    def __init__(self, exchange: "Exchange", next_opaque: Callable[[], int], timeout: float) -> None:
        self._exchange = exchange
        self._next_opaque = next_opaque
        self._timeout = timeout
        self._waiting: dict[int, tuple[int, int]] = {}  # number and code, by opaque

    @property
    def in_flight(self) -> int:
        """Requests whose answers have not come."""
        return len(self._waiting)

    def submit(self, requests: Iterable[tuple[int, Request]]) -> None:
        """Send requests, each with its number.

        Raises:
            ConnectionLost: The connection ended.
            RequestTimeout: The peer did not take them in time.
        """
        pieces: list[Buffer] = []
        for number, request in requests:
            command = RemotingCommand.request(request.code, request.header, request.body)
            command.opaque = self._next_opaque()
            self._waiting[command.opaque] = number, request.code
            pieces += command.encode()
        if pieces:
            self._expect()
            self._exchange.write(b"".join(pieces))

    def read(self) -> list[tuple[int, RemotingCommand]]:
        """The answers that have come, at least one, each with its request's number.

        Raises:
            ConnectionLost: The connection ended.
            RequestTimeout: None came in time.
        """
        answers: list[tuple[int, RemotingCommand]] = []
        self._expect()
        while not answers:
            for response in self._exchange.read():
                found = self._waiting.pop(response.opaque, None)
                if found is not None:
                    answers.append((found[0], response))
        return answers

    def _expect(self) -> None:
        self._exchange.expect(next(iter(self._waiting.values()))[1], self._timeout)


class Exchange:
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
                if self._wait(READ | WRITE) & READ:
                    self._early += self._receive()
            except OSError as error:
                raise ConnectionLost(self._address, error.strerror or str(error)) from error

    def read(self) -> list[RemotingCommand]:
        """The next answers, at least one."""
        answers, self._early = self._early, []
        while not answers:
            self._wait(READ)
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
        ready = wait_for(self._socket, events, max(0.0, self._deadline - time.monotonic()))
        if not ready:
            raise RequestTimeout(self._address, self._code, self._timeout)
        return ready


def wait_for(sock: socket.socket, events: int, timeout: float) -> int:
    with _Selector() as selector:
        selector.register(sock, events)
        ready = selector.select(timeout)
    return ready[0][1] if ready else 0
