"""Compiling what clients send: so much of it that the loop has time for others.

A character takes some ten microseconds to compile, and an expression of the largest size a tenth of a second, which
is spent in steps. What is in use is compiled already and costs nothing, so honest clients compile once. The connections
of one address together may have so many characters compiled at once, and so many a second from then on; each connection
from the broker's own address may; all clients together may have four times as many.
"""

from collections.abc import Callable, Generator, Iterable

from rocket_broker.filter.sql import (
    MAX_LENGTH,
    SqlError,
    SqlExpression,
    compile_sql,
    compile_steps,
    is_compiled,
    load_steps,
)
from rocket_broker.loop_time import loop_time
from rocket_broker.refusal import Refusal
from rocket_remoting.codes import ResponseCode
from rocket_remoting.connection import Connection

__all__ = ["AT_ONCE", "Compiling"]

AT_ONCE = 4 * MAX_LENGTH
A_SECOND = MAX_LENGTH // 2
AT_ONCE_TOGETHER = 16 * MAX_LENGTH
A_SECOND_TOGETHER = 2 * MAX_LENGTH
"""About a fifth of a processor. One client's are a quarter of that."""

MOST_REMEMBERED = 4096
"""Clients that had something compiled. Beyond so many, those are forgotten that may have as much compiled as at first,
8 seconds after their last expression."""


class _Allowance:
    """Fills by the second up to what may be taken at once."""

    __slots__ = ("_at_once", "_left", "_per_second", "_seen")

    def __init__(self, at_once: int, per_second: int, now: float) -> None:
        self._at_once = at_once
        self._per_second = per_second
        self._left: float = at_once
        self._seen = now

    def has(self, number: int, now: float) -> bool:
        """Whether so many may be taken."""
        self._left = min(self._at_once, self._left + (now - self._seen) * self._per_second)
        self._seen = now
        return self._left >= number

    def take(self, number: int) -> None:
        """Take so many, which there are."""
        self._left -= number

    def is_full(self, now: float) -> bool:
        """Return whether the most may be taken, as at first."""
        return self.has(self._at_once, now)


class Compiling:
    """What clients may still have compiled."""

    def __init__(self, *, time: Callable[[], float] = loop_time) -> None:
        self._time = time
        self._together: _Allowance | None = None
        self._of_client: dict[Connection | str, _Allowance] = {}

    def compile(self, text: str | None, connection: Connection | None = None) -> SqlExpression:
        """Return the expression, compiled for the connection's client.

        Raises:
            SqlError: It is none, or too large.
            Refusal: Too much was compiled lately.
        """
        length = len(text or "")
        if length <= MAX_LENGTH and not is_compiled(text):
            self._take(length, connection)
        return compile_sql(text)

    def prepare(
        self, texts: Iterable[str | None], connection: Connection | None = None
    ) -> Generator[None, None, list[SqlExpression]]:
        """Compile expressions in steps, so that `compile` has them at hand while the returned list is kept.

        An expression that cannot be compiled now is left out: `compile` says why.
        """
        yield from load_steps()
        expressions: list[SqlExpression] = []
        for text in texts:
            try:
                if not is_compiled(text):
                    if len(text or "") > MAX_LENGTH:
                        continue
                    self._take(len(text or ""), connection)
                expressions.append((yield from compile_steps(text)))
            except (SqlError, Refusal):
                pass
        return expressions

    def connection_closed(self, connection: Connection) -> None:
        """Forget the connection."""
        self._of_client.pop(connection, None)

    def _allowance_of(self, connection: Connection, now: float) -> _Allowance:
        """Return what the client may still have compiled: its address, or at the broker's own its connection."""
        client = connection.counted_as or connection
        found = self._of_client.get(client)
        if found is None:
            if len(self._of_client) >= MOST_REMEMBERED:
                self._of_client = {
                    known: allowance
                    for known, allowance in self._of_client.items()
                    if not allowance.is_full(now)
                }
            found = self._of_client[client] = _Allowance(AT_ONCE, A_SECOND, now)
        return found

    def _take(self, number: int, connection: Connection | None) -> None:
        now = self._time()
        if self._together is None:
            self._together = _Allowance(AT_ONCE_TOGETHER, A_SECOND_TOGETHER, now)
        mine = self._together
        if connection is not None:
            mine = self._allowance_of(connection, now)
        if not (mine.has(number, now) and self._together.has(number, now)):
            raise Refusal(
                ResponseCode.SYSTEM_BUSY,
                f"broker busy: too many expressions were compiled lately for one of {number} characters, ask again",
            )
        self._together.take(number)
        if mine is not self._together:
            mine.take(number)
