"""One connection, for either end: an asyncio protocol that drives a `Session`.

Requests flow both ways: clients send requests, and brokers push some. The session matches our requests with the
peer's responses. A `Connection` gives the session bytes and the loop's time, serves the peer's requests, writes frames
together and applies back-pressure. Below is an asyncio transport: a socket, or a pipe in memory.

Reading, on a server::

    bytes ──> FrameDecoder ──> Arrivals ──> handler ──> responses of one read ──> one write
                  │              └── handles the first frames of several connections together
                  └── frames wait here, and the socket is not read, while one of these holds:
                      _stalled     more than max_pending_bytes are unwritten: the peer does not read
                      _is_paused   a request of this peer is handled in steps
                      _is_waiting  the peer has used up its time in this round, see `Turns`

So a peer that sends requests faster than it reads the responses is stopped by its own TCP window. Bytes that this
connection buffers count against `Limits.buffers`, which all connections share.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from time import perf_counter
from typing import cast

import msgspec

from rocket_remoting.session.address import counted_address, format_address, host_of, log_peer
from rocket_remoting.session.answer import deliver
from rocket_remoting.session.arrivals import Arrivals, Taken
from rocket_remoting.session.limits import Limits
from rocket_remoting.session.session import Session
from rocket_remoting.session.turns import Turns
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RESPONSE_FLAG, Buffer, RemotingCommand
from rocket_remoting.wire.credentials import Credentials
from rocket_remoting.wire.errors import RemoteProtocolError, RemotingError
from rocket_remoting.wire.ext_fields import Header
from rocket_remoting.wire.frame_decoder import FrameDecoder
from rocket_remoting.wire.receive_buffer import ReceiveBuffer

logger = logging.getLogger("rocket_remoting")

_NOTHING = memoryview(b"")
_TAKEN_ALONE = 2
"""Times that requests are taken of a connection that came alone, such as a send and the pull behind it."""
_REPORTED_FROM = 64 * 1024
"""Bytes that wait to be written; a connection with more of them counts against `Limits.buffers`. Requests with large
answers are refused on a connection that buffers more than this."""

Handler = Callable[["Connection", RemotingCommand], RemotingCommand | None]
"""Handles a request on the event loop. Returns the response; None if `Connection.respond` sends it later, or never."""

TakeFrames = Callable[[Sequence[tuple["Connection", memoryview]]], Sequence[Taken] | None]


class FramesHandler(msgspec.Struct, frozen=True):
    """Handles the first frames that connections have received, without decoding them into commands.

    Attributes:
        codes: The codes of the requests that `take` may handle.
        take: Called with what each connection has received, which begins with a whole frame. It returns what it has
            taken of each; or None if that is nothing, and each connection may be asked again by itself.
        take_alone: Called instead of `take` with the only connection of a turn, and what it has received. It may take
            other requests than `take`.
        begin_turn: Called when the first requests of a turn of the loop have arrived.
        end_turn: Called when all requests of the turn have been handled.
    """

    codes: frozenset[int]
    take: TakeFrames
    take_alone: Callable[["Connection", memoryview], Taken | None]
    begin_turn: Callable[[], None]
    end_turn: Callable[[], None]


class Connection(asyncio.BufferedProtocol):
    """An open connection to one peer.

    Attributes:
        remote_address: ``host:port`` of the peer; for a connection that this end opened, as it was given to `connect`.
        local_address: ``host:port`` of this end.
        counted_as: The address that the peer's quotas are counted under: its IPv4 address, or the first 64 bits of its
            IPv6 address. Empty for a peer at this end's own address, which has no quotas.
        is_closed: Whether nothing can be sent, because the connection is not open yet, is closing or has ended.
        is_known: Whether the peer is known to a server, see `mark_known`.
        waiting_since: When the requests that are being handled now were read, in seconds of the loop's time.
    """

    __slots__ = (
        "__weakref__", "_above_high_water", "_accepted", "_admit", "_arrivals", "_close_callbacks", "_closed",
        "_decoder", "_drained", "_flushing", "_handler", "_has_arrived", "_idle_timer", "_is_paused", "_is_waiting",
        "_last", "_last_activity", "_limits", "_loop", "_on_known", "_outgoing", "_outgoing_size", "_reading",
        "_reported_size", "_session", "_size_in_steps", "_stalled", "_timeout_timer", "_transport", "_turns",
        "counted_as", "is_closed", "is_known", "local_address", "remote_address", "waiting_since",
    )  # fmt: skip

    def __init__(
        self,
        handler: Handler | None,
        limits: Limits,
        *,
        remote_address: str = "",
        accepted: bool = False,
        receive_buffer: ReceiveBuffer | None = None,
        admit: Callable[["Connection"], bool] | None = None,
        on_known: Callable[["Connection"], None] | None = None,
        turns: Turns | None = None,
        arrivals: Arrivals["Connection"] | None = None,
    ) -> None:
        """Make a connection that is not open yet; only transports do.

        Args:
            handler: Handles the peer's requests; None refuses them all.
            limits: Limits of sizes, time and buffers.
            remote_address: The peer's address, if this end connects.
            accepted: Whether this end is a server. Only servers stop reading from peers that do not read.
            receive_buffer: The memory that the connections of a server share.
            admit: Called when the connection is open; returns whether to keep it.
            on_known: Called when the peer is known.
            turns: Shared by the connections of a server; None for clients, which have no turns.
            arrivals: Handles requests of the connections of a server together; None if each handles its own.
        """
        self.remote_address = remote_address
        self.local_address = ""
        self.counted_as = ""
        self.is_closed = True
        self.is_known = False
        self.waiting_since = 0.0
        self._handler = handler
        self._limits = limits
        self._accepted = accepted
        self._admit = admit
        self._on_known = on_known
        self._turns = turns
        self._arrivals = arrivals
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._decoder = FrameDecoder(limits.max_frame, receive_buffer, max_header=limits.max_header)
        # Our requests without an answer, each with the future that gets it. One timer serves all their timeouts.
        self._session: Session[asyncio.Future[RemotingCommand]] = Session(
            remote_address, self._decoder, max_pending=limits.max_pending_requests
        )
        self._timeout_timer: asyncio.TimerHandle | None = None
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._close_callbacks: list[Callable[[Connection], None]] = []
        # Frames of one turn of the loop leave in one write: at the end of the read that caused them, or in _flush.
        self._outgoing: list[Buffer] = []
        self._last: list[Buffer] = []  # leaves behind all of these
        self._outgoing_size = 0
        self._flushing = False
        self._reading = False
        # See the module docstring. _above_high_water comes before _stalled: so says asyncio's `pause_writing`.
        self._above_high_water = False
        self._stalled = False
        self._is_paused = False
        self._is_waiting = False
        self._has_arrived = False  # whether _arrivals is going to handle what was read
        self._reported_size = 0  # bytes that this connection has reported to limits.buffers
        self._size_in_steps = 0  # bytes of the request that is being handled in steps
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
        """Send a request and return its response, whatever the response's code.

        Args:
            code: The request code.
            header: The typed header.
            body: The body.
            timeout: Seconds to wait for the response.
            ext_fields: Header fields in addition to those of `header`.

        Raises:
            RequestTimeout: No response came within `timeout` seconds.
            ConnectionLost: The connection is closed, or was closed before the response came.
            TooManyRequests: `Limits.max_pending_requests` requests have no response yet.
            LocalProtocolError: The request cannot be encoded.
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
        last: bool = False,
    ) -> asyncio.Future[RemotingCommand]:
        """Send a request now; return a future of its response, which fails as `invoke` does.

        Args:
            code: The request code.
            header: The typed header.
            body: The body.
            timeout: Seconds to wait for the response.
            ext_fields: Header fields in addition to those of `header`.
            last: Whether to send it behind what else is sent in this turn of the loop and at the begin of the next.

        Raises:
            ConnectionLost: The connection is closed.
            TooManyRequests: `Limits.max_pending_requests` requests have no response yet.
            LocalProtocolError: The request cannot be encoded.
        """
        future: asyncio.Future[RemotingCommand] = self._loop.create_future()
        now = self._loop.time()
        pieces = self._session.request(future, code, header, body, now, timeout, ext_fields)
        if last:
            self._send_last(pieces)
        else:
            self._send(pieces)
        # The timer belongs to the earliest due time. A later one needs no timer of its own: `_expire_requests` arms
        # the next.
        if self._timeout_timer is None or now + timeout < self._timeout_timer.when():
            self._set_timeout_timer(now + timeout)
        return future

    def invoke_oneway(
        self,
        code: int,
        header: Header | None = None,
        body: Buffer = b"",
        *,
        ext_fields: Mapping[str, str] | None = None,
    ) -> None:
        """Send a request that gets no response.

        Args:
            code: The request code.
            header: The typed header.
            body: The body.
            ext_fields: Header fields in addition to those of `header`.

        Raises:
            ConnectionLost: The connection is closed.
            LocalProtocolError: The request cannot be encoded.
        """
        self._send(self._session.oneway(code, header, body, ext_fields))

    def sign_with(self, credentials: Credentials | None) -> None:
        """Sign all further requests of this end with the credentials; None for requests without a signature."""
        self._session.credentials = credentials

    def respond(self, response: RemotingCommand, *, at_once: bool = False) -> None:
        """Send a response; do nothing if the connection is closed.

        Args:
            response: The response.
            at_once: Whether to write now, and not at the end of this turn of the loop together with what else is sent
                in it; not while a request is being handled.

        Raises:
            LocalProtocolError: The response cannot be encoded.
        """
        if not self.is_closed:
            self._send(response.encode(), at_once=at_once)

    def respond_encoded(self, responses: bytes, *, at_once: bool = True) -> None:
        """Send responses that are encoded already; do nothing if the connection is closed.

        Args:
            responses: The frames.
            at_once: As `respond` says.
        """
        if self.is_closed:
            return
        if at_once:
            self._last_activity = self._loop.time()
            self._write(responses)
        else:
            self._send([responses])

    def pause_requests(self, size: int) -> None:
        """Leave the peer's further requests unread until `resume_requests`, while a request is handled in steps.

        Args:
            size: Bytes of the request handled in steps; until then they count as buffered by this connection.
        """
        self._is_paused = True
        self._size_in_steps = size
        if self._transport is not None and not self.is_closed:
            self._transport.pause_reading()
        self._apply_limits()

    def resume_requests(self) -> None:
        """Continue with the peer's requests after `pause_requests`, in a later turn of the loop."""
        self._is_paused = False
        self._size_in_steps = 0
        # Not at once: the caller may be inside the step that ended the request, and the peer's next
        # requests would be handled within that step.
        self._loop.call_soon(self._continue_handling)

    def hold_memory(self, size: int) -> None:
        """Count ``size`` bytes, held for this connection elsewhere, as buffered by it; 0 ends that.

        The connection may be closed within this call, if all connections together buffer too much.
        """
        self._size_in_steps = size
        self._apply_limits()

    def mark_known(self) -> None:
        """Count the connection no longer among those of unknown peers, of which a server keeps fewer.

        A peer is known when a request of it was handled, or with `Limits.knows_by_handler` when the handler says so.
        """
        if not self.is_known:
            self.is_known = True
            if self._on_known is not None:
                self._on_known(self)

    def replace_transport(self, transport: asyncio.Transport) -> None:
        """Read from and write to ``transport`` from now on, a layer over the transport that it was opened with."""
        self._transport = transport

    def take_turn(self, seconds: float) -> None:
        """Handle waiting requests for up to ``seconds``; `Turns` calls this after `Turns.wait`."""
        self._is_waiting = False
        self._continue_handling(seconds)

    def answer_failure(self, request: RemotingCommand, error: Exception) -> None:
        """Log that handling a request failed, and respond SYSTEM_ERROR unless the request is oneway.

        A `RemotingError` is logged as a warning. Any other error is a defect of the handler and logged with its
        traceback.
        """
        if isinstance(error, RemotingError):
            remark = str(error)
            logger.warning("%s from %s: %s", request.name, self.remote_address, error, extra=self.log_peer)
        else:
            remark = f"{type(error).__name__}: {error}"
            logger.error("%s from %s: failed", request.name, self.remote_address, exc_info=error, extra=self.log_peer)
        if not request.is_oneway:
            self.respond(RemotingCommand.response(request, ResponseCode.SYSTEM_ERROR, remark=remark))

    @property
    def is_stalled(self) -> bool:
        """Whether more than `Limits.max_pending_bytes` wait to be written, so that `drain` waits."""
        return self._stalled

    @property
    def exhausts_buffers(self) -> bool:
        """Whether all connections together use over half of `Limits.buffers`, and this one has a large part in it.

        A small request that waits for its turn is not a large part.
        """
        budget = self._limits.buffers
        return self._reported_size > _REPORTED_FROM and budget is not None and budget.is_scarce

    @property
    def undecoded(self) -> int:
        """Bytes received that belong to no handled frame: they wait, or their frame is incomplete."""
        return self._decoder.pending

    @property
    def holds_requests(self) -> bool:
        """Whether requests of the peer wait here, so that nothing more is read from it."""
        return self._has_arrived or self._must_wait()

    async def drain(self) -> None:
        """Wait until the peer has read again after `is_stalled`, or the connection has ended."""
        if self._stalled and not self.is_closed:
            if self._drained is None:
                self._drained = self._loop.create_future()
            await asyncio.shield(self._drained)

    @property
    def file_number(self) -> int | None:
        """The socket's file descriptor; None for a transport without a socket."""
        own = None if self._transport is None else self._transport.get_extra_info("socket")
        return None if own is None else own.fileno()

    @property
    def certificate_name(self) -> str | None:
        """The common name in the peer's verified certificate, or the whole subject; None if there is none."""
        tls = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        certificate = None if tls is None else tls.getpeercert()
        if not certificate:
            return None
        subject = [pair for part in certificate["subject"] for pair in part]
        names = [value for key, value in subject if key == "commonName"]
        return names[0] if names else ",".join(f"{key}={value}" for key, value in subject)

    @property
    def log_peer(self) -> dict[str, str]:
        """The ``extra`` of log records about this peer."""
        return log_peer(self.remote_address)

    # ---- end -----------------------------------------------------------------------------------------

    def add_close_callback(self, callback: Callable[["Connection"], None]) -> None:
        """Call `callback` when the connection has ended; at once if it has ended already."""
        if self._closed.done():
            callback(self)
        else:
            self._close_callbacks.append(callback)

    async def close(self) -> None:
        """Write everything that was sent, close the connection, and wait until it is closed."""
        self.start_close("closed on this side")
        if self._transport is not None:
            await asyncio.shield(self._closed)

    def start_close(self, reason: str) -> None:
        """Start to close: write everything that was sent, then close. Our pending requests fail with `reason`."""
        if self._transport is not None and not self.is_closed:
            # The flush must come before `_mark_closed`, because `_flush` drops all frames of a closed connection.
            self._flush_last()
            self._mark_closed(reason)
            self._transport.close()

    def abort(self, reason: str) -> None:
        """Close the connection now; unwritten bytes are lost, and our pending requests fail with `reason`."""
        if self._transport is not None and not self._closed.done():
            self._mark_closed(reason)
            self._drop_outgoing()
            self._report_buffered(0)
            self._transport.abort()

    def _drop_outgoing(self) -> None:
        self._outgoing.clear()
        self._last.clear()

    def _mark_closed(self, reason: str) -> None:
        """Refuse to send from now on. The reason is kept unless an earlier one is known."""
        self.is_closed = True
        self._session.close(reason)

    # ---- callbacks of asyncio --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Open the connection, or refuse it; asyncio calls this once."""
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass of it
        self.is_closed = False
        self.local_address = format_address(transport.get_extra_info("sockname"))
        if not self.remote_address:
            self.remote_address = format_address(transport.get_extra_info("peername"))
            self._session.address = self.remote_address
        host = host_of(self.remote_address)
        self.counted_as = "" if host == host_of(self.local_address) else counted_address(host)
        high = self._limits.max_pending_bytes
        transport.set_write_buffer_limits(
            # asyncio reports only the moment when the buffer rises above this mark. With a budget the
            # report must come early, so that bytes count before they reach max_pending_bytes.
            high=high if self._limits.buffers is None else min(high, _REPORTED_FROM)
        )
        self._last_activity = self._loop.time()
        if self._admit is not None and not self._admit(self):
            self.abort("refused")
        elif self._limits.idle_timeout is not None:
            due = self._last_activity + self._limits.idle_timeout
            self._idle_timer = self._loop.call_at(due, self._check_idle)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes; its size does not depend on `sizehint`.

        Nothing is handled here: handling may stop the reading, and uvloop crashes if that happens before this returns.
        """
        if self._has_arrived:  # a second read in this turn: what waits for its end must leave the shared buffer
            self._decoder.settle()
        return self._decoder.writable()

    def buffer_updated(self, nbytes: int) -> None:
        """Decode and handle the bytes that asyncio has put into the buffer of `get_buffer`."""
        self._last_activity = self.waiting_since = self._loop.time()
        self._decoder.put(nbytes)
        arrivals = self._arrivals
        if arrivals is None:
            self._handle_all()
        elif arrivals.alone is self or (not self._has_arrived and arrivals.is_alone(self)):
            try:
                self._handle_alone(arrivals)
            except Exception as error:
                self._abort_after(error)
        else:
            if not self._has_arrived:
                self._has_arrived = True
                arrivals.add(self)
            # uvloop reads a connection again in this turn if the buffer was filled.
            if self._has_arrived and self._decoder.is_full:
                arrivals.handle()
            return
        if self._reported_size or self._decoder.excess:
            self._apply_limits()

    def eof_received(self) -> bool:
        """Close this side too, when the peer has closed its side."""
        self._handle_arrivals()
        if not self.is_closed and self._decoder.pending:
            logger.warning(
                "%s closed the connection inside a frame, %d bytes into it",
                self.remote_address, self._decoder.pending, extra=self.log_peer,
            )  # fmt: skip
        return False

    def pause_writing(self) -> None:
        """Note that the write buffer is above its high-water mark; stop reading if it exceeds the limit."""
        self._above_high_water = True
        self._apply_limits()

    def resume_writing(self) -> None:
        """Continue with the peer's requests: it has read, and the write buffer is below its low-water mark."""
        was_stalled = self._stalled
        self._above_high_water = self._stalled = False
        self._apply_limits()
        if was_stalled:
            self._continue_handling()
            if not self._stalled:
                self._wake_drained()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail our pending requests, wake tasks in `drain`, and call the close callbacks."""
        self._handle_arrivals()
        # Before the callbacks, so that one that sends something gets ConnectionLost. If this end closed the
        # connection, its own reason is known already and is kept.
        self._mark_closed("closed by the peer" if exc is None else _reason_of(exc))
        for timer in (self._idle_timer, self._timeout_timer):
            if timer is not None:
                timer.cancel()
        self._drop_outgoing()
        self._size_in_steps = 0
        self._report_buffered(0)
        for future, error in self._session.fail_all():
            if not future.done():
                future.set_exception(error)
        self._wake_drained()
        if self._turns is not None and not self.counted_as:
            self._turns.forget(self)
        # `_closed` is set before the callbacks run: a callback that is added by one of them is then called at once.
        callbacks, self._close_callbacks = self._close_callbacks, []
        if not self._closed.done():
            self._closed.set_result(None)
        for callback in callbacks:
            callback(self)

    # ---- reading -------------------------------------------------------------------------------------

    def first_frames(self) -> memoryview:
        """Return the received bytes from the first whole frame on, for `Arrivals`; empty if none may be handled now."""
        turns = self._turns
        if self.is_closed or self._must_wait() or (turns is not None and turns.left(self.counted_as or self) <= 0):
            return _NOTHING
        return self._decoder.readable()

    def frames_taken(self, count: int, answers: bytes, seconds: float) -> bool:
        """Continue behind the frames that `Arrivals` has handled; return whether nothing is left to be handled."""
        if not self.is_known and count:
            self._note_request()
        if self._turns is not None:
            self._turns.use(self.counted_as or self, seconds)
        if self._decoder.skip_all(count):
            self._has_arrived = False
            if answers:
                self._write(answers)
            if self._reported_size:
                self._apply_limits()
            return True
        if answers:
            self._outgoing.append(answers)
            self._outgoing_size += len(answers)
        return False

    def handle_arrived(self, *, may_take: bool) -> None:
        """Handle the frames that `Arrivals` has left, and send all answers."""
        self._has_arrived = False
        if self._decoder.pending and not self.is_closed and not self._must_wait():
            self._handle_all(may_take=may_take)
        else:
            self._decoder.settle()
        self._end_arrived()

    def handle_alone(self) -> None:
        """Handle what was read from the only connection of a turn, and send all answers."""
        self._has_arrived = False
        arrivals = self._arrivals
        if arrivals is not None and self._decoder.pending and not self.is_closed and not self._must_wait():
            self._handle_alone(arrivals)
        else:
            self._decoder.settle()
        self._end_arrived()

    def _end_arrived(self) -> None:
        """Send all answers to the requests that have arrived, and apply the limits."""
        if self._outgoing:
            self._flush()
        if self._reported_size or self._decoder.excess:
            self._apply_limits()

    def _handle_arrivals(self) -> None:
        """Handle now what was read, if that waits for the end of the turn of the loop."""
        if self._has_arrived and self._arrivals is not None:
            self._arrivals.handle()

    def _handle_alone(self, arrivals: Arrivals["Connection"]) -> None:
        """Handle the frames that have been read from a connection that came alone, or is the only one of a turn.

        If all of them are taken, as of a client that sends and waits for the answer, that needs few steps: no turn of
        the loop and no time is counted, and the answers are not collected.
        """
        decoder, turns = self._decoder, self._turns
        frames, began, may_take = decoder.readable(), None, False
        if frames and (turns is None or not turns.waiting or turns.left(self.counted_as or self) > 0):
            began = perf_counter()
            for _ in range(_TAKEN_ALONE):
                taken = arrivals.take_alone(self, frames)
                if taken is None:
                    may_take = False
                    break
                count, answers, may_take = taken
                if not self.is_known and count:
                    self._note_request()
                is_all = decoder.skip_all(count)
                if answers:
                    self._write(answers)
                if is_all:
                    return
                if self.is_closed or self._must_wait():
                    if turns is not None:
                        turns.use(self.counted_as or self, perf_counter() - began)
                    decoder.settle()
                    return
                if not may_take or not (frames := decoder.readable()):
                    break
        arrivals.begin_turn()
        try:
            self._handle_all(may_take=may_take, began=began)
        finally:
            arrivals.end_alone()

    def _handle_all(self, seconds: float | None = None, *, may_take: bool = True, began: float | None = None) -> None:
        """Handle the frames that have been read.

        Args:
            seconds: On a server, the time to spend on the peer's requests; by default the rest of its time in this
                round. The frames left then wait for a later round.
            may_take: Whether the first frame may be taken; False if it was left when that was tried.
            began: When the handling of what was read began, if that was before this call.
        """
        decoder, turns, party = self._decoder, self._turns, self.counted_as or self
        if turns is None:
            self._handle_until(math.inf, may_take)
            decoder.settle()
        else:
            now = end = perf_counter()
            begin = now if began is None else began
            until = begin + (turns.left(party) if seconds is None else seconds)
            if now < until:
                self._handle_until(until, may_take)
                end = perf_counter()
            if seconds is None and end > begin:
                turns.use(party, end - begin)
            # Before another connection is read: the receive buffer is shared, and the frames that wait must leave it.
            decoder.settle()
            # An incomplete frame also counts as pending; then the connection waits for a round in which
            # there is nothing to do.
            if end >= until and decoder.pending and not self._must_wait():
                self._wait_for_turn(turns, party)
        if decoder.failure is not None and not self._must_wait():
            self._close_after_invalid_frame(decoder.failure)

    def _handle_until(self, until: float, may_take: bool) -> None:
        limit = self._limits.max_pending_bytes
        decoder, arrivals = self._decoder, self._arrivals
        self._reading = True
        try:
            while True:
                count = 0
                if may_take and arrivals is not None and (readable := decoder.readable()):
                    taken = arrivals.take(((self, readable),))
                    if taken is not None:
                        ((count, answers, may_take),) = taken
                if count:
                    self._note_request()
                    if answers:
                        self._outgoing.append(answers)
                        self._outgoing_size += len(answers)
                    if not decoder.skip(count):
                        break
                else:
                    command = decoder.next()
                    if command is None:
                        break
                    (self._answered if command.flag & RESPONSE_FLAG else self._handle)(command)
                    # A client may write pulls and sends together, so sends behind a pull are offered again. Those
                    # behind a request with one of `codes` that was not taken are not: each may be like it, and would be
                    # parsed twice.
                    may_take = arrivals is not None and command.code not in arrivals.codes
                # Flush now, so that asyncio's buffer and with it `_stalled` are up to date for the check
                # below. Otherwise one read with many pulls could pile up any number of responses.
                if self._outgoing_size > limit:
                    self._flush()
                # The check comes after a command was handled, so each turn makes progress, however short it is.
                if self._accepted and (self._stalled or self._is_paused or perf_counter() >= until):
                    break
        finally:
            self._reading = False
        if self._outgoing:
            self._flush()

    def _answered(self, response: RemotingCommand) -> None:
        future = self._session.answered(response)
        if future is None:
            logger.debug("%s: dropped a response to an unknown or timed out request: %r", self.remote_address, response)
        elif not future.done():
            deliver(response, future)

    def _wait_for_turn(self, turns: Turns, party: Hashable) -> None:
        """Stop reading, and handle the remaining frames in a later round of the turns."""
        if self._transport is not None and not self.is_closed:
            self._is_waiting = True
            self._transport.pause_reading()
            self._apply_limits()
            turns.wait(party, self)

    def _must_wait(self) -> bool:
        """Return whether the peer's requests must wait; then nothing is read. A client always takes its answers."""
        return (self._stalled and self._accepted) or self._is_paused or self._is_waiting

    def _continue_handling(self, seconds: float | None = None) -> None:
        """Handle the frames that have been read, then read from the peer again, unless its requests must wait."""
        if self._transport is None or self.is_closed or self._must_wait():
            return
        try:
            self._handle_all(seconds)
        except Exception as error:  # it may not reach `Turns`, which goes on with other connections
            self._abort_after(error)
            return
        if self._accepted:
            self._apply_limits()
            if not self._must_wait():
                self._transport.resume_reading()

    def _abort_after(self, error: Exception) -> None:
        """Log an error and close the connection, whose requests could not be handled, as `Arrivals.handle` does."""
        logger.error("%s: its requests could not be handled", self.remote_address, exc_info=error, extra=self.log_peer)
        self._decoder.settle()  # what was read must leave the shared buffer
        self.abort("its requests could not be handled")

    def _note_request(self) -> None:
        """Note that a request of the peer is handled, which may have waited since it was read."""
        if not self._limits.knows_by_handler:
            self.mark_known()

    def _handle(self, request: RemotingCommand) -> None:
        if not self.is_known:
            self._note_request()
        try:
            response = self._handler(self, request) if self._handler is not None else _not_supported(request)
            if response is not None and not request.is_oneway:
                self.respond(response)
        except Exception as error:
            self.answer_failure(request, error)

    def _close_after_invalid_frame(self, error: RemoteProtocolError) -> None:
        """Close the connection because the peer sent an invalid frame. All frames before it have been handled."""
        if not self.is_closed:
            logger.warning("closing the connection to %s: %s", self.remote_address, error, extra=self.log_peer)
            self.start_close(f"protocol error: {error}")

    # ---- writing -------------------------------------------------------------------------------------

    def _send(self, pieces: list[Buffer], *, at_once: bool = False) -> None:
        self._outgoing += pieces
        self._outgoing_size += sum(map(len, pieces))
        if self._outgoing_size > self._limits.max_pending_bytes:
            self._flush()  # now, so that `is_stalled` is up to date for a caller that sends more in this turn
        elif self._reading:
            return
        elif at_once:
            self._flush()
        elif not self._flushing and not self._last:  # otherwise the frames leave with those that wait
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _send_last(self, pieces: list[Buffer]) -> None:
        if not self._last:
            self._loop.call_soon(self._flush_last)
        self._last += pieces

    def _flush_last(self) -> None:
        self._outgoing += self._last
        self._last.clear()
        self._flush()

    def _flush(self) -> None:
        self._flushing = False
        if not self._outgoing:
            return
        # Taken first: the write may call `pause_writing`, which may abort the connection.
        pieces, self._outgoing = self._outgoing, []
        self._outgoing_size = 0
        if self.is_closed or self._transport is None:
            return
        self._last_activity = self._loop.time()
        # Not writelines: some Python versions, such as 3.12.1 and 3.13.0, do not call pause_writing there. And it would
        # keep views of a broker's mapped files for as long as the peer does not read.
        self._transport.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if self._above_high_water:
            self._apply_limits()

    def _write(self, frames: bytes) -> None:
        """Write frames now, behind those that wait; the connection was read a short time ago."""
        if self._outgoing or self.is_closed or self._transport is None:
            self._outgoing.append(frames)
            self._outgoing_size += len(frames)
            self._flush()
        else:
            self._transport.write(frames)
            if self._above_high_water:
                self._apply_limits()

    def _apply_limits(self) -> None:
        """Measure the buffered bytes and apply the limits.

        ::

            unwritten > max_pending_bytes   stalled: a server stops reading from the peer
            unwritten > max_unread_bytes    a server closes the connection
            otherwise                       report to limits.buffers: unwritten + received but not handled + in steps
        """
        if self._transport is None or self.is_closed:
            return
        unread = self._transport.get_write_buffer_size() if self._above_high_water else 0
        # On a client, `_stalled` only makes `drain` wait. Two ends that both stopped reading would wait for
        # each other forever.
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
            # Frames that wait to be handled count in full; a frame that is still arriving counts only with
            # what its buffer has beyond the usual size.
            waiting = self._decoder.pending if self._must_wait() else 0
            self._report_buffered(unread + max(self._decoder.excess, waiting) + self._size_in_steps)

    def _report_buffered(self, size: int) -> None:
        budget = self._limits.buffers
        if budget is not None and size != self._reported_size:
            self._reported_size = size
            # May abort this connection, or another one, and so call `_report_buffered(0)` from within.
            budget.update(self, size)

    def _wake_drained(self) -> None:
        if self._drained is not None:
            drained, self._drained = self._drained, None
            if not drained.done():
                drained.set_result(None)

    # ---- time ----------------------------------------------------------------------------------------

    def _set_timeout_timer(self, due: float) -> None:
        if self._timeout_timer is not None:
            self._timeout_timer.cancel()
        self._timeout_timer = self._loop.call_at(due, self._expire_requests)

    def _expire_requests(self) -> None:
        """Fail the requests whose timeout is over, and set the timer for the next timeout."""
        self._timeout_timer = None
        for future, error in self._session.expire(self._loop.time()):
            if not future.done():
                future.set_exception(error)
        due = self._session.next_due
        if due is not None:
            self._set_timeout_timer(due)

    def _check_idle(self) -> None:
        assert self._limits.idle_timeout is not None
        due = self._last_activity + self._limits.idle_timeout
        # Reads and writes only note their time, which costs less than moving a timer. So the timer may come
        # too early, and is armed again for the rest.
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
        state = "closed" if self.is_closed else f"{self._session.in_flight} requests under way"
        return f"<Connection {self.local_address} → {self.remote_address}: {state}>"


def _reason_of(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _not_supported(request: RemotingCommand) -> RemotingCommand:
    remark = f"{request.name} is not served by this end"
    return RemotingCommand.response(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
