"""One connection, seen from either end: frames in, frames out, requests matched with their answers.

Requests flow both ways: clients ask, brokers push. A `Connection` is an asyncio protocol; what it stands on,
a socket or a pipe in memory, is an asyncio transport. All time is the loop's.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Hashable, Mapping
from heapq import heappop, heappush
from time import perf_counter
from typing import cast

from rocket_remoting.session.address import crowd_of, format_address, host_of, log_peer
from rocket_remoting.session.limits import Limits
from rocket_remoting.session.turns import Turns
from rocket_remoting.wire.codes import ResponseCode, request_name
from rocket_remoting.wire.command import Buffer, RemotingCommand
from rocket_remoting.wire.errors import (
    ConnectionLost,
    RemoteProtocolError,
    RemotingError,
    RequestTimeout,
    TooManyRequests,
)
from rocket_remoting.wire.ext_fields import Header
from rocket_remoting.wire.frame_decoder import FrameDecoder

logger = logging.getLogger("rocket_remoting")

_MAX_OPAQUE = 0x7FFFFFFF
_COUNTED_FROM = 64 * 1024
"""Bytes that wait to be written: more of them count against what all connections may buffer."""

Handler = Callable[["Connection", RemotingCommand], RemotingCommand | None]
"""Answers a request, in the loop; None: the answer comes later by `Connection.respond`, or never."""


class Connection(asyncio.BufferedProtocol):
    """An open connection to one peer.

    Attributes:
        remote_address: ``host:port`` of the peer; for a connection we made, as it was asked for.
        local_address: ``host:port`` of this end.
        counted_as: The address that this peer's quotas are counted under: its IPv4 address, or 64 bits of its IPv6
            address. Empty for a peer at this end's own address, which has no quotas.
        is_closed: Whether nothing more can be sent.
        waiting_since: When the requests were read that are being handled now, in seconds of the loop's time.
    """

    __slots__ = (
        "__weakref__", "_accepted", "_behind", "_close_callbacks", "_closed", "_deadlines", "_decoder", "_drained",
        "_flushing", "_handler", "_held", "_idle_timer", "_is_paused", "_is_waiting", "_last_activity", "_limits",
        "_loop", "_made", "_next_opaque", "_outgoing", "_outgoing_size", "_pending", "_reading", "_reason",
        "_size_in_steps", "_stalled", "_sweep_timer", "_transport", "_turns", "counted_as", "is_closed",
        "local_address", "remote_address", "waiting_since",
    )  # fmt: skip

    def __init__(
        self,
        handler: Handler | None,
        limits: Limits,
        *,
        remote_address: str = "",
        accepted: bool = False,
        room: memoryview | None = None,
        made: Callable[["Connection"], bool] | None = None,
        turns: Turns | None = None,
    ) -> None:
        """Transports make connections; `made` is called when it stands and says whether to keep it.

        Connections of one loop may share the room into which bytes are read: see `FrameDecoder`. Those of a server
        share its turns.
        """
        self.remote_address = remote_address
        self.local_address = ""
        self.counted_as = ""
        self.is_closed = True
        self.waiting_since = 0.0
        self._handler = handler
        self._limits = limits
        self._accepted = accepted
        self._made = made
        self._turns = turns
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._decoder = FrameDecoder(limits.max_frame, room, max_header=limits.max_header)
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._close_callbacks: list[Callable[[Connection], None]] = []
        self._reason = "connection closed"
        # Requests of ours: answers by number, and when they are due. A number whose answer has come stays in
        # _deadlines until it would have been due; so one timer serves all of them.
        self._pending: dict[int, asyncio.Future[RemotingCommand]] = {}
        self._deadlines: list[tuple[float, int, float, int]] = []  # due, number, timeout, request code
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._next_opaque = 0
        # Frames of one loop turn leave in one write: at the end of the read that caused them, or in _flush.
        self._outgoing: list[Buffer] = []
        self._outgoing_size = 0
        self._flushing = False
        self._reading = False
        # Requests that were read wait in the decoder, and nothing more is read, while one of three things is true: the
        # peer does not read what we write (_behind at first, _stalled when it is too much), a request of the peer is
        # handled in steps (_is_paused), or the peer waits for its turn (_is_waiting).
        self._behind = False
        self._stalled = False
        self._is_paused = False
        self._is_waiting = False
        self._held = 0  # of limits.buffers
        self._size_in_steps = 0  # bytes of the request that is handled in steps
        self._drained: asyncio.Future[None] | None = None
        self._last_activity = 0.0
        self._idle_timer: asyncio.TimerHandle | None = None

    # ---- requests and answers ------------------------------------------------------------------------

    async def invoke(
        self,
        code: int,
        header: Header | None = None,
        body: Buffer = b"",
        *,
        timeout: float,
        ext_fields: Mapping[str, str] | None = None,
    ) -> RemotingCommand:
        """The answer to a request, whatever its code.

        Raises:
            RequestTimeout: None came within `timeout` seconds.
            ConnectionLost: The connection is closed, or was before an answer came.
            TooManyRequests: `Limits.max_pending_requests` are under way.
        """
        return await self.invoke_async(code, header, body, timeout=timeout, ext_fields=ext_fields)

    def invoke_async(
        self,
        code: int,
        header: Header | None = None,
        body: Buffer = b"",
        *,
        timeout: float,
        ext_fields: Mapping[str, str] | None = None,
    ) -> asyncio.Future[RemotingCommand]:
        """Send a request now; the future has its answer, or fails as `invoke` does.

        Raises:
            ConnectionLost: The connection is closed.
            TooManyRequests: `Limits.max_pending_requests` are under way.
        """
        if self.is_closed:
            raise ConnectionLost(self.remote_address, self._reason)
        if len(self._pending) >= self._limits.max_pending_requests:
            raise TooManyRequests(
                f"{len(self._pending)} requests to {self.remote_address} have no answer yet:"
                f" {request_name(code)} is not sent"
            )
        command = RemotingCommand.request(code, header, body, ext_fields=ext_fields)
        opaque = command.opaque = self._next_opaque
        self._next_opaque = opaque + 1 & _MAX_OPAQUE
        self._send(command.encode())
        future: asyncio.Future[RemotingCommand] = self._loop.create_future()
        self._pending[opaque] = future
        due = self._loop.time() + timeout
        heappush(self._deadlines, (due, opaque, timeout, code))
        if self._sweep_timer is None or due < self._sweep_timer.when():
            self._arm_sweep(due)
        return future

    def invoke_oneway(
        self,
        code: int,
        header: Header | None = None,
        body: Buffer = b"",
        *,
        ext_fields: Mapping[str, str] | None = None,
    ) -> None:
        """Send a request that gets no answer.

        Raises:
            ConnectionLost: The connection is closed.
        """
        if self.is_closed:
            raise ConnectionLost(self.remote_address, self._reason)
        command = RemotingCommand.request(code, header, body, oneway=True, ext_fields=ext_fields)
        command.opaque = self._next_opaque
        self._next_opaque = command.opaque + 1 & _MAX_OPAQUE
        self._send(command.encode())

    def respond(self, response: RemotingCommand) -> None:
        """Send an answer; nothing happens when the connection is closed."""
        if not self.is_closed:
            self._send(response.encode())

    def pause_requests(self, size: int) -> None:
        """Leave the peer's further requests unread until `resume_requests`: one of them is handled in steps.

        Args:
            size: Bytes of that request, which count among the connection's buffers until then.
        """
        self._is_paused = True
        self._size_in_steps = size
        if self._transport is not None and not self.is_closed:
            self._transport.pause_reading()
        self._weigh()

    def resume_requests(self) -> None:
        """Go on with the peer's requests after `pause_requests`."""
        self._is_paused = False
        self._size_in_steps = 0
        self._loop.call_soon(self._go_on)

    def take_turn(self, seconds: float) -> None:
        """Go on with the peer's requests for so long; `Turns.wait` was called before."""
        self._is_waiting = False
        self._go_on(seconds)

    def answer_failure(self, request: RemotingCommand, error: Exception) -> None:
        """Log that a request could not be handled, and answer SYSTEM_ERROR if an answer is wanted.

        An error that is none of the protocol's is a fault of ours: the log has its traceback.
        """
        if isinstance(error, RemotingError):
            remark = str(error)
            logger.warning("%s from %s: %s", request.name, self.remote_address, error, extra=self.log_peer)
        else:
            remark = f"{type(error).__name__}: {error}"
            logger.error(
                "%s from %s: failed", request.name, self.remote_address, exc_info=error, extra=self.log_peer
            )
        if not request.is_oneway:
            self.respond(RemotingCommand.response(request, ResponseCode.SYSTEM_ERROR, remark=remark))

    @property
    def is_stalled(self) -> bool:
        """Whether so much waits to be written that `drain` would wait."""
        return self._stalled

    @property
    def is_crowding(self) -> bool:
        """Whether buffers of this connection are among those that leave too little to others."""
        budget = self._limits.buffers
        return self._held > 0 and budget is not None and budget.is_short

    async def drain(self) -> None:
        """Return when less than `Limits.max_pending_bytes` wait to be written, or the connection ended."""
        if self._stalled and not self.is_closed:
            if self._drained is None:
                self._drained = self._loop.create_future()
            await asyncio.shield(self._drained)

    @property
    def file_number(self) -> int | None:
        """The number the socket has among this process's files; None where there is no socket."""
        own = None if self._transport is None else self._transport.get_extra_info("socket")
        return None if own is None else own.fileno()

    @property
    def log_peer(self) -> dict[str, str]:
        """What log records about this peer carry as their ``extra``."""
        return log_peer(self.remote_address)

    # ---- end -----------------------------------------------------------------------------------------

    def add_close_callback(self, callback: Callable[["Connection"], None]) -> None:
        """Call `callback` when the connection has ended; at once when it has already."""
        if self._closed.done():
            callback(self)
        else:
            self._close_callbacks.append(callback)

    async def close(self) -> None:
        """Return when all that was sent has been written and the connection is closed."""
        self.start_close("closed on this side")
        if self._transport is not None:
            await asyncio.shield(self._closed)

    def start_close(self, reason: str) -> None:
        """Close once all that was sent has been written; unanswered requests fail with `reason`."""
        if self._transport is not None and not self.is_closed:
            self._reason = reason
            self._flush()
            self.is_closed = True
            self._transport.close()

    def abort(self, reason: str) -> None:
        """Close the connection now, dropping what has not been written."""
        if self._transport is not None and not self._closed.done():
            if not self.is_closed:
                self._reason = reason
            self.is_closed = True
            self._outgoing.clear()
            self._hold(0)
            self._transport.abort()

    # ---- asyncio's side ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin: asyncio calls this once."""
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it
        self.is_closed = False
        self.local_address = format_address(transport.get_extra_info("sockname"))
        if not self.remote_address:
            self.remote_address = format_address(transport.get_extra_info("peername"))
        host = host_of(self.remote_address)
        self.counted_as = "" if host == host_of(self.local_address) else crowd_of(host)
        high = self._limits.max_pending_bytes
        transport.set_write_buffer_limits(
            high=high if self._limits.buffers is None else min(high, _COUNTED_FROM)
        )
        self._last_activity = self._loop.time()
        if self._made is not None and not self._made(self):
            self.abort("refused")
        elif self._limits.idle_timeout is not None:
            due = self._last_activity + self._limits.idle_timeout
            self._idle_timer = self._loop.call_at(due, self._check_idle)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes are to be put."""
        return self._decoder.writable()

    def buffer_updated(self, nbytes: int) -> None:
        """Decode and handle what has been put there."""
        self._last_activity = self._loop.time()
        self._decoder.put(nbytes)
        if self._stalled or self._is_paused or self._is_waiting:  # what was read before comes first
            self._decoder.settle()
        else:
            self.waiting_since = self._last_activity
            self._handle_all()
        if self._held or self._decoder.excess:
            self._weigh()

    def eof_received(self) -> bool:
        """The peer closed its side: close ours."""
        if not self.is_closed:
            self._reason = "closed by the peer"
            if self._decoder.pending:
                logger.warning(
                    "%s closed the connection inside a frame, %d bytes into it",
                    self.remote_address, self._decoder.pending, extra=self.log_peer,
                )  # fmt: skip
        return False

    def pause_writing(self) -> None:
        """The peer is behind: what it asks waits when too much is to be written for it."""
        self._behind = True
        self._weigh()

    def resume_writing(self) -> None:
        """The peer has read."""
        was_stalled = self._stalled
        self._behind = self._stalled = False
        self._weigh()
        if was_stalled:
            self._go_on()
            if not self._stalled:
                self._wake_drained()

    def connection_lost(self, exc: Exception | None) -> None:
        """End: fail what waits for answers, tell who asked to be told."""
        if exc is not None and not self.is_closed:
            self._reason = getattr(exc, "strerror", None) or str(exc) or type(exc).__name__
        elif not self.is_closed and self._reason == "connection closed":
            self._reason = "closed by the peer"
        self.is_closed = True
        for timer in (self._idle_timer, self._sweep_timer):
            if timer is not None:
                timer.cancel()
        self._deadlines.clear()
        self._outgoing.clear()
        self._size_in_steps = 0
        self._hold(0)
        pending, self._pending = self._pending, {}
        for future in pending.values():
            if not future.done():
                future.set_exception(ConnectionLost(self.remote_address, self._reason))
        self._wake_drained()
        if self._turns is not None and not self.counted_as:
            self._turns.forget(self)
        callbacks, self._close_callbacks = self._close_callbacks, []
        if not self._closed.done():
            self._closed.set_result(None)
        for callback in callbacks:
            callback(self)

    # ---- reading -------------------------------------------------------------------------------------

    def _handle_all(self, seconds: float | None = None) -> None:
        """Handle what has been read, for so long if it is a client's: by default what is left of its turn."""
        decoder, turns, party = self._decoder, self._turns, self.counted_as or self
        if turns is None:
            self._handle_until(math.inf)
            decoder.settle()
        else:
            begin = end = perf_counter()
            until = begin + (turns.left(party) if seconds is None else seconds)
            if begin < until:
                self._handle_until(until)
                end = perf_counter()
                if seconds is None:
                    turns.use(party, end - begin)
            decoder.settle()
            if end >= until and decoder.pending and not self._is_held_up():
                self._wait(turns, party)
        if decoder.failure is not None and not self._is_held_up():
            self._refuse_nonsense(decoder.failure)

    def _handle_until(self, until: float) -> None:
        limit = self._limits.max_pending_bytes
        self._reading = True
        try:
            while (command := self._decoder.next()) is not None:
                if command.flag & 1:
                    self._complete(command)
                else:
                    self._handle(command)
                if self._outgoing_size > limit:
                    self._flush()
                if self._accepted and (self._stalled or self._is_paused or perf_counter() >= until):
                    break
        finally:
            self._reading = False
        if self._outgoing:
            self._flush()

    def _wait(self, turns: Turns, party: Hashable) -> None:
        """Let the loop serve others before what has been read is gone on with."""
        if self._transport is not None and not self.is_closed:
            self._is_waiting = True
            self._transport.pause_reading()
            self._weigh()
            turns.wait(party, self)

    def _is_held_up(self) -> bool:
        return self._stalled or self._is_paused or self._is_waiting

    def _go_on(self, seconds: float | None = None) -> None:
        """Handle what has been read, then read on, as far as nothing holds the peer's requests up."""
        if self._transport is None or self.is_closed or self._is_held_up():
            return
        self._handle_all(seconds)
        self._read_on()

    def _read_on(self) -> None:
        if self._accepted and self._transport is not None and not self.is_closed:
            self._weigh()
            if not self._is_held_up():
                self._transport.resume_reading()

    def _complete(self, response: RemotingCommand) -> None:
        future = self._pending.pop(response.opaque, None)
        if future is None:
            logger.debug(
                "%s: an answer to no request of ours, or too late: %r", self.remote_address, response
            )
        elif not future.done():
            future.set_result(response)
        if not self._pending:
            self._deadlines.clear()

    def _handle(self, request: RemotingCommand) -> None:
        try:
            response = self._handler(self, request) if self._handler is not None else _not_supported(request)
            if response is not None and not request.is_oneway:
                self.respond(response)
        except Exception as error:
            self.answer_failure(request, error)

    def _refuse_nonsense(self, error: RemoteProtocolError) -> None:
        """Close the connection: the peer sent what is no frame, and all frames before it have been handled."""
        if not self.is_closed:
            logger.warning(
                "closing the connection to %s: %s", self.remote_address, error, extra=self.log_peer
            )
            self.start_close(f"protocol error: {error}")

    # ---- writing -------------------------------------------------------------------------------------

    def _send(self, pieces: list[Buffer]) -> None:
        self._outgoing += pieces
        self._outgoing_size += sum(map(len, pieces))
        if self._reading:
            return
        if self._outgoing_size > self._limits.max_pending_bytes:
            self._flush()  # now, so that whoever would send more in this turn sees that the peer is behind
        elif not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if not self._outgoing:
            return
        pieces, self._outgoing = self._outgoing, []
        self._outgoing_size = 0
        if self.is_closed or self._transport is None:
            return
        self._last_activity = self._loop.time()
        # Not writelines: on Python 3.12.1 and 3.13.0, for two, it never calls pause_writing, and it would hold
        # views of a broker's mapped files for as long as the peer does not read.
        self._transport.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if self._behind:
            self._weigh()

    def _weigh(self) -> None:
        """See how much is buffered, and act on it: read no more from the peer, or close the connection."""
        if self._transport is None or self.is_closed:
            return
        unread = self._transport.get_write_buffer_size() if self._behind else 0
        if unread > self._limits.max_pending_bytes and not self._stalled:
            self._stalled = True
            if self._accepted:
                self._transport.pause_reading()
        if unread > self._limits.max_unread_bytes and self._accepted:
            logger.warning(
                "closing the connection to %s: it leaves %d bytes unread",
                self.remote_address, unread, extra=self.log_peer,
            )  # fmt: skip
            self.abort(f"{unread} bytes were left unread")
        else:
            waiting = self._decoder.pending if self._is_held_up() else 0
            self._hold(unread + max(self._decoder.excess, waiting) + self._size_in_steps)

    def _hold(self, size: int) -> None:
        budget = self._limits.buffers
        if budget is not None and size != self._held:
            self._held = size
            budget.hold(self, size)

    def _wake_drained(self) -> None:
        if self._drained is not None:
            drained, self._drained = self._drained, None
            if not drained.done():
                drained.set_result(None)

    # ---- time ----------------------------------------------------------------------------------------

    def _arm_sweep(self, due: float) -> None:
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self._sweep_timer = self._loop.call_at(due, self._sweep)

    def _sweep(self) -> None:
        """Fail requests that are due; wait for the first one that is not answered and not due."""
        self._sweep_timer = None
        now = self._loop.time()
        deadlines = self._deadlines
        while deadlines:
            due, opaque, timeout, code = deadlines[0]
            future = self._pending.get(opaque)
            if future is not None:
                if due > now:
                    self._arm_sweep(due)
                    return
                del self._pending[opaque]
                if not future.done():
                    future.set_exception(RequestTimeout(self.remote_address, code, timeout))
            heappop(deadlines)

    def _check_idle(self) -> None:
        assert self._limits.idle_timeout is not None
        due = self._last_activity + self._limits.idle_timeout
        if due > self._loop.time():
            self._idle_timer = self._loop.call_at(due, self._check_idle)
            self._decoder.shrink()
            return
        logger.info(
            "closing the connection to %s: idle for %g s",
            self.remote_address, self._limits.idle_timeout, extra=self.log_peer,
        )  # fmt: skip
        self._idle_timer = None
        self.abort(f"idle for {self._limits.idle_timeout:g} s")

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else f"{len(self._pending)} requests under way"
        return f"<Connection {self.local_address} → {self.remote_address}: {state}>"


def _not_supported(request: RemotingCommand) -> RemotingCommand:
    remark = f"{request.name} is not served by this end"
    return RemotingCommand.response(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
