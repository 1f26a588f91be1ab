"""A session: the requests to one peer and their answers, matched by number.

::

    request(waiter)  ──► bytes to write      the request has a number (opaque) and may have a due time
    bytes read       ──► commands            a response ends its request and gives its waiter back; the caller serves
                                             the peer's requests
    expire(now)      ──► waiters, errors     of requests whose timeout is over; a later response is dropped
    fail_all()       ──► waiters, errors     of all requests, with the reason given to `close`

A waiter is any object except None, such as a future or a number. The session returns each waiter once, when its request
ends.

This module does no I/O and has no clock: `now` and `timeout` are in seconds, and the caller chooses the clock.
"""

from collections.abc import Mapping
from heapq import heappop, heappush
from math import inf
from typing import Generic, TypeVar

from rocket_remoting.wire.codes import request_name
from rocket_remoting.wire.command import ONEWAY_FLAG, Buffer, HeaderEncoding, RemotingCommand
from rocket_remoting.wire.credentials import Credentials
from rocket_remoting.wire.errors import ConnectionLost, RequestTimeout, TooManyRequests
from rocket_remoting.wire.ext_fields import Header
from rocket_remoting.wire.frame_decoder import FrameDecoder

__all__ = ["MAX_OPAQUE", "MAX_PENDING_REQUESTS", "Session"]

MAX_OPAQUE = 0x7FFFFFFF
"""The largest number a request can have: the field on the wire is a signed int."""
MAX_PENDING_REQUESTS = 65_536

W = TypeVar("W")


class Session(Generic[W]):
    """The requests of one end of a connection that have no response yet, with their waiters.

    Args:
        address: The peer's address, for errors.
        decoder: The decoder of the peer's bytes.
        max_pending: Maximum number of requests without a response.
        next_opaque: The number of the first request.
        credentials: Sign each request; None for requests without a signature.

    Attributes:
        address: The peer's address, for errors.
        credentials: As given.
        decoder: The decoder of the peer's bytes. A caller may take commands out of it one by one, as `Connection` does,
            and give the responses to `answered`; other callers use `received`.
        reason: Why the session is closed; None while it is open.
    """

    # Invariants: _pending has all requests that have not ended, by their numbers. _due, a heap, has each of them that
    # has a due time. A request that ends leaves its entry in _due until the due time, so that a response need not
    # search the heap. An entry is valid if the pending request of its number has the same due time.
    __slots__ = ("_due", "_max_pending", "_next_opaque", "_pending", "address", "credentials", "decoder", "reason")

    def __init__(
        self,
        address: str,
        decoder: FrameDecoder,
        *,
        max_pending: int = MAX_PENDING_REQUESTS,
        next_opaque: int = 0,
        credentials: Credentials | None = None,
    ) -> None:
        self.address = address
        self.decoder = decoder
        self.credentials = credentials
        self.reason: str | None = None
        self._max_pending = max_pending
        self._next_opaque = next_opaque
        self._pending: dict[int, tuple[W, int, float, float]] = {}  # waiter, request code, due, timeout
        self._due: list[tuple[float, int]] = []  # due, number

    @property
    def in_flight(self) -> int:
        """The number of requests that have no answer yet."""
        return len(self._pending)

    @property
    def next_due(self) -> float | None:
        """When to call `expire` next; None if no request has a due time."""
        return self._due[0][0] if self._due else None

    @property
    def oldest_code(self) -> int:
        """The request code of the oldest request without an answer; there must be one."""
        return next(iter(self._pending.values()))[1]

    def request(  # noqa: PLR0917 - called for every request; keywords cost
        self,
        waiter: W,
        code: int,
        header: Header | None = None,
        body: Buffer = b"",
        now: float = 0.0,
        timeout: float | None = None,
        ext_fields: Mapping[str, str] | None = None,
    ) -> list[Buffer]:
        """Begin a request; return its frame, in pieces to be written one after the other.

        Args:
            waiter: The object that is returned when the request ends.
            code: The request code.
            header: The typed header.
            body: The body.
            now: The time in seconds.
            timeout: Seconds until the request is due; None for never, if the caller limits its waiting itself.
            ext_fields: Header fields in addition to those of `header`.

        Raises:
            ConnectionLost: The session is closed.
            TooManyRequests: There are `max_pending` requests without an answer.
            LocalProtocolError: The request cannot be encoded; it has not begun.
        """
        if self.reason is not None:
            raise ConnectionLost(self.address, self.reason)
        pending = self._pending
        if len(pending) >= self._max_pending:
            raise TooManyRequests(
                f"{len(pending)} requests to {self.address} have no answer yet: {request_name(code)} is not sent"
            )
        opaque = self._next_opaque
        while opaque in pending:  # all numbers have been used since that request began
            opaque = opaque + 1 & MAX_OPAQUE
        command = RemotingCommand(code, opaque, 0, body, None, HeaderEncoding.JSON, header=header, extra=ext_fields)
        if self.credentials is not None:
            command.sign(self.credentials)
        # Before the request is registered: a request that cannot be encoded leaves no waiter and uses no number.
        pieces = command.encode()
        self._next_opaque = opaque + 1 & MAX_OPAQUE
        if timeout is None:
            pending[opaque] = waiter, code, inf, inf
        else:
            due = now + timeout
            pending[opaque] = waiter, code, due, timeout
            heappush(self._due, (due, opaque))
        return pieces

    def oneway(
        self,
        code: int,
        header: Header | None = None,
        body: Buffer = b"",
        ext_fields: Mapping[str, str] | None = None,
    ) -> list[Buffer]:
        """Return the frame of a request that gets no answer, in pieces to be written one after the other.

        Raises:
            ConnectionLost: The session is closed.
            LocalProtocolError: The request cannot be encoded.
        """
        if self.reason is not None:
            raise ConnectionLost(self.address, self.reason)
        opaque = self._next_opaque
        # A one-way request has no entry, but its number must differ too: a peer that answers it
        # nevertheless would otherwise end another request.
        while opaque in self._pending:
            opaque = opaque + 1 & MAX_OPAQUE
        command = RemotingCommand(
            code, opaque, ONEWAY_FLAG, body, None, HeaderEncoding.JSON, header=header, extra=ext_fields
        )
        if self.credentials is not None:
            command.sign(self.credentials)
        pieces = command.encode()
        self._next_opaque = opaque + 1 & MAX_OPAQUE
        return pieces

    def answered(self, response: RemotingCommand) -> W | None:
        """End the request of a response; return its waiter, or None if the request is unknown or has ended."""
        pending = self._pending
        entry = pending.pop(response.opaque, None)
        # Without pending requests all entries are out of date. This keeps the heap short on a connection
        # that always gets its answers, where nothing else removes entries before they are due.
        if not pending:
            self._due.clear()
        return None if entry is None else entry[0]

    def received(self, count: int) -> list[tuple[W, RemotingCommand]]:
        """Decode ``count`` bytes that were put at the beginning of ``decoder.writable()``.

        For an end that serves no requests: requests of the peer and late responses are dropped.

        Returns:
            The waiters of the answered requests, each with its response, in the order of arrival.

        Raises:
            RemoteProtocolError: A frame is invalid, and no complete frame came before it.
        """
        answers: list[tuple[W, RemotingCommand]] = []
        for command in self.decoder.received(count):
            if command.is_response:
                waiter = self.answered(command)
                if waiter is not None:
                    answers.append((waiter, command))
        return answers

    def expire(self, now: float) -> list[tuple[W, RequestTimeout]]:
        """End the requests that are due; return their waiters, each with its error, the earliest due first."""
        expired: list[tuple[W, RequestTimeout]] = []
        due, pending = self._due, self._pending
        while due:
            when, opaque = due[0]
            entry = pending.get(opaque)
            # The number may be in use again by a later request, which has another due time.
            if entry is not None and entry[2] == when:
                if when > now:
                    break
                del pending[opaque]
                waiter, code, _, timeout = entry
                expired.append((waiter, RequestTimeout(self.address, code, timeout)))
            heappop(due)
        return expired

    def close(self, reason: str) -> None:
        """Refuse further requests; pending ones may still get their responses. The first reason given is kept."""
        if self.reason is None:
            self.reason = reason

    def fail_all(self) -> list[tuple[W, ConnectionLost]]:
        """End all requests of a closed session, which gets no more bytes; return their waiters with their errors."""
        assert self.reason is not None, "close the session first"
        pending, self._pending = self._pending, {}
        self._due.clear()
        return [(waiter, ConnectionLost(self.address, self.reason)) for waiter, _, _, _ in pending.values()]

    def __repr__(self) -> str:
        state = f"{self.in_flight} requests under way" if self.reason is None else f"closed, {self.reason}"
        return f"<Session with {self.address}: {state}>"
