"""One HTTP/1.1 connection of the management server, with limits on what it may keep and for how long.

uvicorn bounds neither how long a client may take to send its request, nor how long it may leave its answer unread, nor
how many connections there are: its `limit_concurrency` refuses every request while there are too many connections, so
that slow clients would lock out all others. Here the slow ones make room.
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
"""Bytes of a request's first line and headers: h11's own limit. It bounds the number of headers too."""

_LINGER: Final = 1.0
"""Seconds a client has to read an answer that came before all of its request: a reset would take the answer away."""
_DISCARDED: Final = 64 * 1024
"""Bytes of the rest of such a request that are read, so that a client whose body is small can go on."""

_turns: Final = count()
"""Numbers connections in the order in which they began to wait: many may begin at one time of the loop's clock."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What connections may use.

    Attributes:
        connections: How many there are at most: probes, scrapers and people need a few. One more closes the connection
            that has waited longest for its request to be complete.
        request_timeout: Seconds a client has to send a request, from when it connected or was last answered.
        write_timeout: Seconds it may leave an answer unread that is too large for the sockets' buffers.
    """

    connections: int = 100
    request_timeout: float = 10.0
    write_timeout: float = 10.0


class ManagementConnection(H11Protocol):
    """A connection that is closed when its client is too slow, or when others need its place."""

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
        """Wait for a request; close the connection that has waited longest if there are too many."""
        super().connection_made(transport)
        self._wait_again(self._limits.request_timeout)
        if len(self.connections) > self._limits.connections:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        """Take what the client sent, in pieces: h11 looks at the size of a head only while it is incomplete."""
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
        """Give the client time to read."""
        super().pause_writing()
        self._writing = self.loop.call_later(self._limits.write_timeout, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on: the client has read."""
        super().resume_writing()
        self._write_no_more()

    def shutdown(self) -> None:
        """Answer the request that is complete; close at once if there is none."""
        if self._is_waiting:
            self.transport.abort()
        else:
            super().shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers."""
        self._wait_no_more()
        self._write_no_more()
        super().connection_lost(exc)

    @property
    def _is_waiting(self) -> bool:
        """Whether a request is to come, or the rest of one."""
        cycle = self._last_cycle
        return cycle is None or cycle.response_complete or self.conn.their_state is h11.SEND_BODY

    @property
    def _is_answered_early(self) -> bool:
        """Whether the last request was answered before all of it has come."""
        cycle = self._last_cycle
        return cycle is not None and cycle.response_complete and self.conn.their_state is h11.SEND_BODY

    @property
    def _last_cycle(self) -> RequestResponseCycle | None:
        """The last request, with its answer; None before the first, though uvicorn's annotation does not say so."""
        return self.cycle

    def _cut_off(self) -> None:
        """Read no more, and say so: what is unread stays with the client until the connection is reset."""
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
        """Close the connection that has waited longest; this one, if all others are being answered."""
        connections = (each for each in self.connections if isinstance(each, ManagementConnection))
        slowest = min((each for each in connections if each._is_waiting), key=lambda each: each._turn)
        logger.debug(
            "Closed the connection of %s: there are more than %d", slowest.client, self._limits.connections
        )
        self.connections.discard(slowest)
        slowest.transport.abort()
