"""The start of an accepted connection, until its first request has been handled.

::

    socket ──> FirstRequest ──> Connection             the first byte decides whether there is TLS between the two;
    socket ──────────────────> Connection              after the first request the way is direct

A peer must complete its TLS handshake, and send its whole first request, within a time. So connections that were only
opened, or that send their first request byte by byte, do not stay. Meanwhile the server counts the peer as unknown, and
keeps fewer such connections than others.
"""

import asyncio
import logging
import ssl
from typing import cast

from rocket_remoting.session.connection import Connection
from rocket_remoting.session.limits import Limits
from rocket_remoting.session.turns import Turns
from rocket_remoting.tls.contexts import ServerContext
from rocket_remoting.tls.settings import TlsMode
from rocket_remoting.tls.transport import HANDSHAKE, TlsTransport

__all__ = ["FirstRequest"]

logger = logging.getLogger("rocket_remoting")

HANDSHAKE_BYTES = 48 * 1024
"""Bytes that OpenSSL holds for a connection during its handshake, measured: they count as buffered meanwhile."""
_LOCAL = "handshakes of this host"
"""The party of the turns of all handshakes of peers without quotas."""


class FirstRequest(asyncio.BufferedProtocol):
    """Stands between a transport and an accepted connection until the first request has been handled.

    Args:
        connection: The connection.
        limits: Limits of time.
        turns: The turns of the server's addresses, which handshakes share.
        tls: The server's certificate; None if the server accepts no TLS.
    """

    __slots__ = ("_buffer", "_connection", "_is_decided", "_limits", "_loop", "_received", "_timer", "_tls",
                 "_transport", "_turns")  # fmt: skip

    def __init__(self, connection: Connection, limits: Limits, turns: Turns, tls: ServerContext | None) -> None:
        self._connection = connection
        self._limits = limits
        self._turns = turns
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = memoryview(b"")
        self._received = 0  # bytes of plain text
        self._is_decided = tls is None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Open the connection, and limit the time until its first request."""
        self._transport = cast(asyncio.Transport, transport)
        self._connection.connection_made(transport)
        if not self._connection.is_closed:
            self._wait_for_request()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the connection's buffer."""
        self._buffer = self._connection.get_buffer(sizehint)
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Look at the first byte; give the bytes to TLS or to the connection."""
        if not self._is_decided:
            self._is_decided = True
            if not self._is_plain(nbytes):
                return
        if self._has_handled_request:
            self._hand_over()
        self._received += nbytes
        self._connection.buffer_updated(nbytes)
        if self._has_handled_request:
            self._hand_over()

    def eof_received(self) -> bool:
        return self._connection.eof_received()

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end to the connection."""
        self._stop_timer()
        self._connection.connection_lost(exc)

    # ---- the first byte --------------------------------------------------------------------------------

    def _is_plain(self, nbytes: int) -> bool:
        """Return whether the first bytes are for the connection; otherwise begin TLS, or refuse plain text."""
        assert self._tls is not None
        if self._buffer[0] == HANDSHAKE:
            self._begin_tls(self._tls.current(self._loop.time()), nbytes)
            return False
        if self._tls.settings.mode is TlsMode.ENFORCING:
            self._refuse("it sent plain text, and only TLS is accepted here (tls.server.mode=enforcing)")
            return False
        return True

    def _begin_tls(self, context: ssl.SSLContext, nbytes: int) -> None:
        assert self._transport is not None
        connection, raw = self._connection, self._transport
        self._stop_timer()
        timeout = self._limits.handshake_timeout
        self._timer = self._loop.call_later(timeout, self._give_up, f"no TLS handshake within {timeout:g} s")
        connection.hold_memory(HANDSHAKE_BYTES)
        if connection.is_closed:  # the budget of buffers was exceeded
            return
        self._transport = tls = TlsTransport(
            self,
            context,
            server_side=True,
            on_open=self._tls_is_open,
            on_failure=self._refuse,
            turns=self._turns,
            party=connection.counted_as or _LOCAL,
        )
        connection.replace_transport(tls)
        tls.begin(raw, bytes(self._buffer[:nbytes]))

    def _tls_is_open(self) -> None:
        self._connection.hold_memory(0)
        self._wait_for_request()

    # ---- time and end ----------------------------------------------------------------------------------

    @property
    def _has_handled_request(self) -> bool:
        return self._connection.undecoded < self._received

    def _wait_for_request(self) -> None:
        self._stop_timer()
        if self._limits.first_request_timeout is not None:
            self._timer = self._loop.call_later(self._limits.first_request_timeout, self._check_request)

    def _check_request(self) -> None:
        self._timer = None
        if self._has_handled_request:
            self._hand_over()
        elif self._connection.holds_requests:  # it has come, and waits for its turn
            self._wait_for_request()
        else:
            self._give_up(f"no request within {self._limits.first_request_timeout:g} s")

    def _hand_over(self) -> None:
        """Leave: from now on the transport talks to the connection."""
        self._stop_timer()
        if self._transport is not None and not self._connection.is_closed:
            self._transport.set_protocol(self._connection)

    def _give_up(self, reason: str) -> None:
        self._stop_timer()
        if not self._connection.is_closed:
            self._log(reason)
            self._connection.abort(reason)

    def _refuse(self, reason: str) -> None:
        self._stop_timer()
        if not self._connection.is_closed:
            self._log(reason)
            self._connection.start_close(reason)

    def _log(self, reason: str) -> None:
        peer = self._connection
        logger.warning("closing the connection to %s: %s", peer.remote_address, reason, extra=peer.log_peer)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
