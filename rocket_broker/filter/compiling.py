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
from rocket_broker.limits.rates import Allowance, Rates
from rocket_broker.limits.refusal import Refusal
from rocket_broker.loop.loop_time import loop_time
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.codes import ResponseCode

__all__ = ["AT_ONCE", "Compiling"]

AT_ONCE = 4 * MAX_LENGTH
A_SECOND = MAX_LENGTH // 2
AT_ONCE_TOGETHER = 16 * MAX_LENGTH
A_SECOND_TOGETHER = 2 * MAX_LENGTH
"""About a fifth of a processor. One client's are a quarter of that."""


class Compiling:
    """What clients may still have compiled."""

    def __init__(self, *, time: Callable[[], float] = loop_time) -> None:
        self._time = time
        self._together: Allowance | None = None
        self._rates = Rates(AT_ONCE, A_SECOND)

    def compile(self, text: str | None, connection: Connection | None = None) -> SqlExpression:
        """Return the expression, compiled for the connection's client.

        Raises:
            SqlError: It is not a valid expression, or too large.
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
        self._rates.connection_closed(connection)

    def _take(self, number: int, connection: Connection | None) -> None:
        now = self._time()
        if self._together is None:
            self._together = Allowance(AT_ONCE_TOGETHER, A_SECOND_TOGETHER, now)
        mine = self._together
        if connection is not None:
            mine = self._rates.of(connection, now)
        if not (mine.has(number, now) and self._together.has(number, now)):
            raise Refusal(
                ResponseCode.SYSTEM_BUSY,
                f"broker busy: too many expressions were compiled lately for one of {number} characters, ask again",
            )
        self._together.take(number)
        if mine is not self._together:
            mine.take(number)
