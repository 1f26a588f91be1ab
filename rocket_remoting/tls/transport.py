"""The TLS layer of one asyncio connection, at either end.

::

    socket ──> raw transport ──> TlsTransport ──> connection       to the raw transport it is a protocol,
               cipher text         OpenSSL         plain text      to the connection a transport

OpenSSL works on two buffers in memory: the layer puts cipher text into one and takes out of the other what is to be
written. asyncio's own layer is not used, because a server has read the first bytes before it knows that they are TLS,
and because the handshakes of one address must not take the loop's time from others: they share the `Turns` of its
requests.

What waits here is bounded. While the connection does not read, the socket is not read either, so at most one read and
one TLS record (16 KiB) wait in the incoming buffer. The outgoing buffer is empty between two calls.
"""

import asyncio
import ssl
import threading
from collections.abc import Callable, Hashable
from time import perf_counter
from typing import Any, Protocol, cast

from rocket_remoting.session.turns import Turns
from rocket_remoting.tls.contexts import tls_problem
from rocket_remoting.wire.receive_buffer import BUFFER_SIZE

__all__ = ["HANDSHAKE", "TlsTransport"]

HANDSHAKE = 0x16
"""The first byte of a TLS connection. A frame would begin so with a length of 352 MiB, far above the limit."""


class _CipherText(threading.local):
    """The memory into which the connections of a thread's loop receive; it is copied before the next read."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(BUFFER_SIZE))


_CIPHER_TEXT = _CipherText()


class _Reader(Protocol):
    """The receiver of the plain text: an `asyncio.BufferedProtocol`."""

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes."""

    def buffer_updated(self, nbytes: int) -> None:
        """Handle the bytes that were put at the beginning of that buffer."""

    def eof_received(self) -> bool | None:
        """Handle the end of the peer's bytes."""

    def pause_writing(self) -> None:
        """Note that the write buffer is above its high-water mark."""

    def resume_writing(self) -> None:
        """Note that the write buffer is below its low-water mark."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the end of the connection."""


class TlsTransport(asyncio.Transport, asyncio.BufferedProtocol):
    """A transport that encrypts what is written to it, and decrypts what comes from the raw transport below.

    Args:
        protocol: Gets the plain text.
        context: The context of this end.
        server_side: Whether this end is the server.
        server_hostname: At a client, the host that the certificate must be for.
        on_open: Called when the handshake is complete, before plain text is delivered.
        on_failure: Called with the reason if the handshake fails or the peer breaks the protocol; then the raw
            transport must be closed by the callee.
        turns: The turns of a server's addresses; None at a client.
        party: The party of the turns that this connection's handshake counts for.
    """

    # _waits_for_turn: the raw transport is paused until `take_turn`. _reading_paused: the connection wants no bytes.
    __slots__ = (
        "_cipher_text", "_early", "_incoming", "_is_handshaking", "_loop", "_on_failure", "_on_open", "_outgoing",
        "_party", "_protocol", "_raw", "_reading_paused", "_tls", "_turns", "_waits_for_turn",
    )  # fmt: skip

    def __init__(
        self,
        protocol: _Reader,
        context: ssl.SSLContext,
        *,
        server_side: bool,
        server_hostname: str | None = None,
        on_open: Callable[[], None],
        on_failure: Callable[[str], None],
        turns: Turns | None = None,
        party: Hashable = None,
    ) -> None:
        super().__init__()
        self._protocol = protocol
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_hostname
        )
        self._cipher_text = _CIPHER_TEXT.view
        self._on_open = on_open
        self._on_failure = on_failure
        self._turns = turns
        self._party = party
        self._loop = asyncio.get_running_loop()
        self._raw: asyncio.Transport | None = None
        self._is_handshaking = True
        self._reading_paused = False
        self._waits_for_turn = False
        self._early: list[bytes] = []  # written before the handshake was complete

    def begin(self, raw: asyncio.Transport, received: bytes | memoryview) -> None:
        """Begin on an open transport of which ``received`` has been read; a server calls this."""
        self._raw = raw
        raw.set_protocol(self)
        self._incoming.write(received)
        self._advance()

    # ---- to the raw transport, a protocol --------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake of a client."""
        self._raw = cast(asyncio.Transport, transport)
        self._advance()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for cipher text."""
        return self._cipher_text

    def buffer_updated(self, nbytes: int) -> None:
        """Decrypt the cipher text, or continue the handshake with it."""
        self._incoming.write(self._cipher_text[:nbytes])
        self._advance()

    def eof_received(self) -> bool:
        """Deliver what is left, then the end."""
        self._incoming.write_eof()
        if not self._is_handshaking:
            self._deliver()
            self._protocol.eof_received()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end to the connection."""
        if self._is_handshaking:
            self._is_handshaking = False
            self._on_failure("the peer closed the connection during the TLS handshake" if exc is None else str(exc))
        self._protocol.connection_lost(exc)
        # The connection refers to this layer. Without the way back, the memory of OpenSSL, 50 KiB, is free at once, and
        # not at a garbage collection, which is rare in a server.
        self._raw = None
        del self._protocol, self._on_open, self._on_failure

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    # ---- handshake -------------------------------------------------------------------------------------

    def take_turn(self, seconds: float) -> None:
        """Continue the handshake or the reading; `Turns` calls this after `Turns.wait`."""
        self._waits_for_turn = False
        if self._raw is None or self._raw.is_closing():
            return
        self._advance(is_in_turn=True)
        if not (self._reading_paused or self._waits_for_turn or self._raw.is_closing()):
            self._raw.resume_reading()

    def _advance(self, *, is_in_turn: bool = False) -> None:
        """Continue the handshake; deliver plain text when it is complete."""
        if self._waits_for_turn:
            return
        if self._is_handshaking:
            turns = self._turns
            if turns is None:
                self._shake_hands()
            elif is_in_turn or turns.left(self._party) > 0:
                began = perf_counter()
                self._shake_hands()
                turns.use(self._party, perf_counter() - began)
            else:
                self._wait_for_turn(turns)
        if not self._is_handshaking:
            # After a turn that was waited for, nothing is counted: there may be nothing to decrypt.
            self._deliver(None if is_in_turn else self._turns)

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except (ssl.SSLError, ssl.CertificateError) as error:
            self._fail(f"the TLS handshake failed: {tls_problem(error)}")
            return
        self._is_handshaking = False
        self._flush()
        self._on_open()
        early, self._early = self._early, []
        for data in early:
            self.write(data)

    def _fail(self, reason: str) -> None:
        self._is_handshaking = False
        self._flush()  # the alert that tells the peer the reason
        self._on_failure(reason)

    def _wait_for_turn(self, turns: Turns) -> None:
        assert self._raw is not None
        self._waits_for_turn = True
        self._raw.pause_reading()
        turns.wait(self._party, self)

    # ---- reading ---------------------------------------------------------------------------------------

    def _deliver(self, turns: Turns | None = None) -> None:
        """Decrypt into the connection's buffer, until there is nothing left or the connection reads no more.

        Args:
            turns: Where the time of records without plain text is counted.
        """
        raw = self._raw
        while raw is not None and not (self._reading_paused or raw.is_closing()):
            room = self._protocol.get_buffer(-1)
            began = perf_counter()
            count, failure = self._decrypt(room)
            if count:
                self._protocol.buffer_updated(count)
            elif turns is not None:
                self._count_fruitless(turns, perf_counter() - began)
            if failure is not None:
                if not raw.is_closing():
                    self._fail(failure)
                return
            if count < len(room):
                break
        self._flush()  # answers of TLS itself, such as to a change of keys

    def _decrypt(self, room: memoryview) -> tuple[int, str | None]:
        """Fill the buffer; return the number of bytes, and the reason if the peer broke the protocol."""
        count, size = 0, len(room)
        try:
            while count < size:
                decrypted = self._tls.read(size - count, room[count:])
                if not decrypted:
                    self._loop.call_soon(self._end_of_stream)
                    break
                count += cast(int, decrypted)
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError, ssl.SSLEOFError):
            pass
        except ssl.SSLError as error:
            return count, f"the peer broke the TLS protocol, or refused: {tls_problem(error)}"
        return count, None

    def _end_of_stream(self) -> None:
        """Close this side too: the peer has ended the encrypted stream."""
        if self._raw is not None and not self._raw.is_closing():
            self._protocol.eof_received()
            self.close()

    def _count_fruitless(self, turns: Turns, seconds: float) -> None:
        """Count the time of records without plain text, so that a peer cannot keep the loop busy with them."""
        turns.use(self._party, seconds)
        if turns.left(self._party) <= 0 and not self._waits_for_turn:
            self._wait_for_turn(turns)

    # ---- to the connection, a transport ----------------------------------------------------------------

    def write(self, data: Any) -> None:
        """Encrypt and write bytes."""
        if self._raw is None or self._raw.is_closing():
            return
        if self._is_handshaking:
            self._early.append(bytes(data))
            return
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._tls.write(rest) :]  # one record of at most 16 KiB each time
        except ssl.SSLError as error:
            self._fail(f"the peer broke the TLS protocol: {tls_problem(error)}")
            return
        self._flush()

    def _flush(self) -> None:
        if self._outgoing.pending and self._raw is not None and not self._raw.is_closing():
            self._raw.write(self._outgoing.read())

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._raw is not None:
            self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return 0 if self._raw is None else self._raw.get_write_buffer_size()

    def can_write_eof(self) -> bool:
        return False

    def is_reading(self) -> bool:
        return not self._reading_paused and not self.is_closing()

    def pause_reading(self) -> None:
        self._reading_paused = True
        if self._raw is not None and not self._raw.is_closing():
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._reading_paused = False
        if self._raw is not None and not (self._raw.is_closing() or self._waits_for_turn):
            self._raw.resume_reading()
            self._loop.call_soon(self._advance)  # what was received before the pause

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = cast(_Reader, protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return cast(asyncio.BaseProtocol, self._protocol)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self._tls
        return default if self._raw is None else self._raw.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._raw is None or self._raw.is_closing()

    def close(self) -> None:
        """Send what is left and TLS's `close_notify` alert, then close the raw transport."""
        if self._raw is None or self._raw.is_closing():
            return
        if not self._is_handshaking:
            try:
                self._tls.unwrap()
            except ssl.SSLError:  # the peer's own end has not come yet; nobody waits for it
                pass
            self._flush()
        self._raw.close()

    def abort(self) -> None:
        if self._raw is not None:
            self._raw.abort()
