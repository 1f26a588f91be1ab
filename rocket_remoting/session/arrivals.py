"""The connections whose requests have arrived in one turn of the event loop.

::

    a turn of the loop    read A, read B, read C                      each adds itself
    its end               first frames of A, B and C together         `take`
                          then the other frames of A, of B, of C      each by itself, as its share of the loop allows

Handling requests of many connections together costs less for each of them. No request waits for others to arrive: only
connections that were ready in the same turn are handled together. A connection that comes alone, turn after turn, is
handled at once when it is read. That saves a callback, and with it a system call, for each of its reads. Connections
that come alone one after the other are handled at once, too, and a callback notes the end of each turn. The only
connection of a turn is asked with `take_alone`, as one that comes alone.

A request that `take` has left is not offered to it again, unless it was left only because of the number of others.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from time import perf_counter
from typing import Generic, Protocol, TypeVar

from rocket_remoting.wire.receive_buffer import ReceiveBuffer

__all__ = ["Arrivals", "Taken"]

logger = logging.getLogger(__name__)

Taken = tuple[int, bytes, bool]
"""What was taken of a connection: the number of bytes, the frames of the answers, and whether the requests behind them
may be taken, too. Otherwise the first of these is to be handled by itself."""

_NOTHING: Taken = (0, b"", True)
_MOST = 64
"""Connections that are handled together at most."""


class _Receiver(Protocol):
    """A connection, as `Arrivals` uses it."""

    remote_address: str

    def first_frames(self) -> memoryview:
        """Return the received bytes from the first whole frame on; empty if none may be handled now."""

    def frames_taken(self, count: int, answers: bytes, seconds: float) -> bool:
        """Continue behind frames that have been handled, of ``count`` bytes.

        Returns:
            Whether these were all frames, and the answers are sent; otherwise they are sent by `handle_arrived`.
        """

    def handle_arrived(self, *, may_take: bool) -> None:
        """Handle the other frames, and send all answers.

        Args:
            may_take: Whether the first of them may be taken.
        """

    def handle_alone(self) -> None:
        """Handle all frames, and send all answers, of the only connection of a turn."""

    def abort(self, reason: str) -> None:
        """Close the connection now."""


_Connection = TypeVar("_Connection", bound=_Receiver)


class Arrivals(Generic[_Connection]):
    """Handles the requests of a server's connections at the end of the turn of the loop in which they arrived.

    Args:
        buffer: The memory that the connections receive into.
        take: Handles the first frames of connections without decoding them into commands. It gets what each has
            received, which begins with a whole frame. It returns what it has taken of each; or None if that is nothing,
            and each connection may be asked again by itself.
        take_alone: Called instead of `take` with the only connection of a turn, and what it has received. It may take
            other requests than `take`.
        begin_turn: Called when the first requests of a turn have arrived.
        end_turn: Called when all requests of a turn have been handled.
        codes: The codes of the requests that `take` may handle.

    Attributes:
        codes: As given.
        take: As given.
        take_alone: As given.
        begin_turn: As given.
        alone: The connection that was read last, if it came alone: read once more, it comes alone again. None once its
            turn has ended, if it was another one that was read before.
    """

    # Invariant: while _is_in_turn, `_end` is scheduled for the end of this turn, and `alone` is None.
    __slots__ = (
        "_buffer", "_connections", "_count", "_end_turn", "_is_in_turn", "_last", "_last_count", "_loop", "alone",
        "begin_turn", "codes", "take", "take_alone",
    )  # fmt: skip

    def __init__(
        self,
        buffer: ReceiveBuffer,
        take: Callable[[Sequence[tuple[_Connection, memoryview]]], Sequence[Taken] | None],
        take_alone: Callable[[_Connection, memoryview], Taken | None],
        begin_turn: Callable[[], None],
        end_turn: Callable[[], None],
        *,
        codes: Collection[int],
    ) -> None:
        self.codes = codes
        self.take = take
        self.take_alone = take_alone
        self._buffer = buffer
        self.begin_turn = begin_turn
        self._end_turn = end_turn
        self._loop = asyncio.get_running_loop()
        self._connections: list[_Connection] = []
        self._is_in_turn = False
        self._count = self._last_count = 0  # reads of this turn, and of the turn before
        self._last: _Connection | None = None  # that was read
        self.alone: _Connection | None = None

    def is_alone(self, connection: _Connection) -> bool:
        """Count a connection that was read; return whether it handles its requests itself, now.

        It does so if the last turn had no other connection. If `take_alone` does not handle all of its requests, it
        calls `begin_turn` before the others and `end_alone` behind them. Otherwise `add` must be called now.
        """
        if not self._is_in_turn:
            # If another connection was read last, that may have been in this same turn.
            alone = self.alone
            if self._last_count <= 1 and (alone is connection or alone is None):
                self.alone = connection
                if self._last is not connection:  # so the next read may be of another connection, too
                    self._last = connection
                    self._loop.call_soon(self._end_alone)
                return True
            self._is_in_turn = True
            self._count = 0 if alone is None else 1
            self.alone = None
            # The loop runs a callback of `call_soon` before it reads anything in the next turn.
            self._loop.call_soon(self._end)
            self.begin_turn()
        self._last = connection
        self._count += 1
        return False

    def _end_alone(self) -> None:
        """Note that the turn of a connection that came alone has ended: another may come alone in the next one."""
        self.alone = None

    def end_alone(self) -> None:
        """End the turn of a connection that came alone: its requests have been handled."""
        if not self._is_in_turn:
            self._end_turn()

    def add(self, connection: _Connection) -> None:
        """Handle the connection's requests together with those of others, at the end of this turn at the latest.

        If it is read again before `Arrivals` has called its `handle_arrived`, it must settle its decoder first.
        """
        self._connections.append(connection)
        if len(self._connections) >= _MOST or self._buffer.is_full:
            self.handle()

    def handle(self) -> None:
        """Handle the requests that have arrived, now."""
        connections, self._connections = self._connections, []
        if len(connections) == 1:
            try:
                connections[0].handle_alone()
            except Exception as error:
                self._abort(connections[0], error)
        else:
            self._handle_several(connections)
        self._buffer.used = 0

    def _handle_several(self, connections: Sequence[_Connection]) -> None:
        received = [(connection, frames) for connection in connections if (frames := connection.first_frames())]
        left = self._take_together(received) if received else {}
        for connection in connections:
            may_take = left.get(connection, True)
            if may_take is not None:
                try:
                    connection.handle_arrived(may_take=may_take)
                except Exception as error:
                    self._abort(connection, error)

    @staticmethod
    def _abort(connection: _Connection, error: Exception) -> None:
        logger.error("%s: its requests could not be handled", connection.remote_address, exc_info=error)
        connection.abort("its requests could not be handled")

    def _take_together(self, received: Sequence[tuple[_Connection, memoryview]]) -> Mapping[_Connection, bool | None]:
        """Handle first frames together; return for each connection whether what is left may be taken, None if nothing
        is left."""
        began = perf_counter()
        try:
            taken = self.take(received)
        except Exception:  # each connection is asked again, and only the one that causes the error is closed
            logger.exception("requests of %d connection(s) could not be handled together", len(received))
            taken = None
        if taken is None:
            taken = [_NOTHING] * len(received)
        seconds = (perf_counter() - began) / len(received)
        return {
            connection: None if connection.frames_taken(count, answers, seconds) else may_take
            for (connection, _), (count, answers, may_take) in zip(received, taken, strict=True)
        }

    def _end(self) -> None:
        self._is_in_turn = False
        self._last_count, self._count = self._count, 0
        if self._connections:
            self.handle()
        self._end_turn()

    def __repr__(self) -> str:
        return f"<Arrivals: {len(self._connections)} connections have requests>"
