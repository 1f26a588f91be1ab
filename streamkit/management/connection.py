"""One HTTP/1.1 connection of the management server, with limits of memory and time.

uvicorn limits neither the time in which a client sends its request, nor the time in which it reads the response, nor
the number of connections. Its `limit_concurrency` refuses every request while there are too many connections, so that
slow clients would lock out all others. Here the slowest connection is closed instead.
"""

import asyncio
import logging
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

__all__ = ["MAX_HEAD", "ConnectionLimits", "ManagementConnection"]

logger = logging.getLogger(__name__)

MAX_HEAD: Final = 16 * 1024
"""The most bytes of a request's first line and headers: h11's own limit. It also bounds the number of headers."""

_LINGER: Final = 1.0
"""The seconds to read a response sent before the request was complete: a reset could discard the response."""
_DISCARDED: Final = 64 * 1024
"""The most bytes of the rest of such a request that are read, so that a client with a small body can go on."""

_turns: Final = count()
"""Numbers the connections in the order in which they began to wait; times of the loop's clock may be equal."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of connections.

    Attributes:
        connections: The most connections: probes, scrapers and people need a few. At one more, the connection that has
            waited longest for a complete request is closed.
        request_timeout: The seconds in which a client has to send a request, from the connect or the last response.
        write_timeout: The seconds for which a client may leave unread a response that exceeds the sockets' buffers.
    """

    connections: int = 100
    request_timeout: float = 10.0
    write_timeout: float = 10.0


class ManagementConnection(H11Protocol):
    """A connection that is closed if its client is too slow, or if there are too many connections."""

    def __init__(
        self,
        limits: ConnectionLimits,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = limits
        self._turn = 0
        self._discarded = 0
        self._is_cut_off = False
        self._reading: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request; if there are too many connections, close the one that has waited longest."""
        super().connection_made(transport)
        self._wait_again(self._limits.request_timeout)
        if len(self.connections) > self._limits.connections:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        """Process received bytes in pieces, as h11 checks the size of a head only while the head is incomplete."""
        for start in range(0, len(data), MAX_HEAD):
            if self.transport.is_closing() or self._is_cut_off:
                return
            self._take(data[start : start + MAX_HEAD])

    def _take(self, data: bytes) -> None:
        was_early = self._is_answered_early
        super().data_received(data)
        if was_early:
            self._discarded += len(data)
            if not self._is_answered_early:
                self._wait_again(self._limits.request_timeout)
            elif self._discarded > _DISCARDED:
                self._cut_off()
        elif not self._is_waiting:
            self._wait_no_more()

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the rest of one that was answered early."""
        self._wait_no_more()
        self._discarded = 0
        super().on_response_complete()
        if self._is_waiting:
            self._wait_again(_LINGER if self._is_answered_early else self._limits.request_timeout)

    def pause_writing(self) -> None:
        """Start the time limit in which the client has to read."""
        super().pause_writing()
        self._writing = self.loop.call_later(self._limits.write_timeout, self.transport.abort)

    def resume_writing(self) -> None:
        """End the time limit: the client has read."""
        super().resume_writing()
        self._write_no_more()

    def shutdown(self) -> None:
        """Finish the response to a complete request; if there is none, close the connection at once."""
        if self._is_waiting:
            self.transport.abort()
        else:
            super().shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timers."""
        self._wait_no_more()
        self._write_no_more()
        super().connection_lost(exc)

    @property
    def _is_waiting(self) -> bool:
        """Whether the connection waits for a request or for the rest of one."""
        cycle = self._last_cycle
        return cycle is None or cycle.response_complete or self.conn.their_state is h11.SEND_BODY

    @property
    def _is_answered_early(self) -> bool:
        """Whether the last request was answered before all of its bytes arrived."""
        cycle = self._last_cycle
        return cycle is not None and cycle.response_complete and self.conn.their_state is h11.SEND_BODY

    @property
    def _last_cycle(self) -> RequestResponseCycle | None:
        """The last request with its response; None before the first, although uvicorn annotates it otherwise."""
        return self.cycle

    def _cut_off(self) -> None:
        """Stop reading and send EOF; unread bytes stay in the sockets until the connection is reset."""
        self._is_cut_off = True
        self.transport.pause_reading()
        self.transport.write_eof()

    def _wait_again(self, timeout: float) -> None:
        self._wait_no_more()
        self._turn = next(_turns)
        self._reading = self.loop.call_later(timeout, self.transport.abort)

    def _wait_no_more(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _write_no_more(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    def _make_room(self) -> None:
        """Close the connection that has waited longest: this one, if all others have responses in progress."""
        connections = (each for each in self.connections if isinstance(each, ManagementConnection))
        slowest = min((each for each in connections if each._is_waiting), key=lambda each: each._turn)
        logger.debug("Closed the connection of %s: there are more than %d", slowest.client, self._limits.connections)
        self.connections.discard(slowest)
        slowest.transport.abort()
