"""A pipeline on one socket, with many requests under way at once."""

import selectors
import time
from collections.abc import Iterable
from typing import NamedTuple, NoReturn, Protocol

from rocket_remoting.session.session import Session
from rocket_remoting.wire.command import Buffer, RemotingCommand
from rocket_remoting.wire.errors import ConnectionLost, RequestTimeout
from rocket_remoting.wire.ext_fields import Header

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
# Not the default selector: it would need another file descriptor, which forked children would share.
_Selector: type[selectors.BaseSelector] = getattr(selectors, "PollSelector", selectors.SelectSelector)


class Socket(Protocol):
    """A socket in non-blocking mode, plain or encrypted."""

    def fileno(self) -> int:
        """Return the file descriptor."""

    def send(self, data: memoryview, /) -> int:
        """Send the beginning of the data; raise BlockingIOError if it takes nothing now."""

    def recv_into(self, buffer: memoryview, /) -> int:
        """Read into the buffer; raise BlockingIOError if nothing has arrived."""

    def close(self) -> None:
        """Close the socket."""


class Request(NamedTuple):
    """A request: code, typed header, body."""

    code: int
    header: Header | None = None
    body: Buffer = b""


class Pipeline:
    """The requests under way on one connection, each with a number that the caller gives it.

    Args:
        sock: The socket, in non-blocking mode.
        session: The connection's session, which matches responses with numbers.
        timeout: Seconds that each `submit` and each `read` may take. Requests have no timeouts of their own, because
            the time between two calls, in which nothing is read, would count.
    """

    __slots__ = ("_deadline", "_early", "_session", "_socket", "_timeout")

    def __init__(self, sock: Socket, session: Session[int], timeout: float) -> None:
        self._socket = sock
        self._session = session
        self._timeout = timeout
        self._deadline = 0.0
        self._early: list[tuple[int, RemotingCommand]] = []  # responses that came during a write

    @property
    def in_flight(self) -> int:
        """The number of requests whose responses have not been read."""
        return self._session.in_flight + len(self._early)

    def submit(self, requests: Iterable[tuple[int, Request]]) -> None:
        """Send requests, each with its number.

        Raises:
            ConnectionLost: The connection ended.
            RequestTimeout: The peer did not read them in time.
        """
        begin = self._session.request
        pieces: list[Buffer] = []
        for number, request in requests:
            pieces += begin(number, *request)
        if pieces:
            self._write(pieces, self._session.oldest_code)

    def submit_oneway(self, request: Request) -> None:
        """Send a request that gets no response; raise as `submit` does."""
        self._write(self._session.oneway(*request), request.code)

    def read(self) -> list[tuple[int, RemotingCommand]]:
        """Wait for at least one response; return the responses that have come, each with its request's number.

        Raises:
            ConnectionLost: The connection ended.
            RequestTimeout: No response came in time.
        """
        answers, self._early = self._early, []
        self._deadline = time.monotonic() + self._timeout
        while not answers:
            self._wait(READ, self._session.oldest_code)
            answers = self._receive()
        return answers

    def _write(self, pieces: list[Buffer], code: int) -> None:
        """Send all pieces, and read meanwhile: a peer may stop reading until its responses are read."""
        self._deadline = time.monotonic() + self._timeout
        rest = memoryview(b"".join(pieces))
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                if self._wait(READ | WRITE, code) & READ:
                    self._early += self._receive()
            except OSError as error:
                self._lose(error.strerror or str(error), error)

    def _receive(self) -> list[tuple[int, RemotingCommand]]:
        session = self._session
        try:
            count = self._socket.recv_into(session.decoder.writable())
        except BlockingIOError:
            return []
        except OSError as error:
            self._lose(error.strerror or str(error), error)
        if not count:
            self._lose("closed by the peer")
        return session.received(count)

    def _lose(self, reason: str, cause: OSError | None = None) -> NoReturn:
        self._session.close(reason)
        raise ConnectionLost(self._session.address, reason) from cause

    def _wait(self, events: int, code: int) -> int:
        ready = wait_for(self._socket, events, max(0.0, self._deadline - time.monotonic()))
        if not ready:
            raise RequestTimeout(self._session.address, code, self._timeout)
        return ready


def wait_for(sock: Socket, events: int, timeout: float) -> int:
    """Return those of the events that the socket is ready for within ``timeout`` seconds; 0 if there are none."""
    with _Selector() as selector:
        selector.register(sock, events)
        ready = selector.select(timeout)
    return ready[0][1] if ready else 0
