"""Compilation of the filters that clients send, limited so that the loop has time for other clients.

A character takes some ten microseconds to compile, and an expression of the maximum length a tenth of a second, which
is spent in steps. Expressions in use are compiled already and cost nothing, so honest clients compile each once. The
connections of one address share a number of characters that they may have compiled at once, and a number that is added
each second. Each connection from the broker's own address has these numbers to itself. All clients together have four
times as many.
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

__all__ = ["AT_ONCE", "FilterCompiler"]

AT_ONCE = 4 * MAX_LENGTH
A_SECOND = MAX_LENGTH // 2
AT_ONCE_OF_ALL = 16 * MAX_LENGTH
A_SECOND_OF_ALL = 2 * MAX_LENGTH
"""Characters at once, and characters a second: for all clients about a fifth of a processor, for one a quarter of
that."""


class FilterCompiler:
    """Compiles expressions for clients, within limits for each address and for all clients together.

    Args:
        time: Returns the loop's time in seconds.
    """

    def __init__(self, *, time: Callable[[], float] = loop_time) -> None:
        self._time = time
        self._of_all_clients: Allowance | None = None
        self._rates = Rates(AT_ONCE, A_SECOND)

    def compile(self, text: str | None, connection: Connection | None = None) -> SqlExpression:
        """Compile an expression for the connection's client, or return it if it is compiled already.

        Raises:
            SqlError: The expression is invalid or too long.
            Refusal: Too many characters were compiled recently.
        """
        length = len(text or "")
        if length <= MAX_LENGTH and not is_compiled(text):
            self._take(length, connection)
        return compile_sql(text)

    def prepare(
        self, texts: Iterable[str | None], connection: Connection | None = None
    ) -> Generator[None, None, list[SqlExpression]]:
        """Compile expressions in steps, so that `compile` returns them at once while the returned list is kept.

        An expression that cannot be compiled now is left out; `compile` raises the reason.
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
        """Forget the limits of the connection."""
        self._rates.connection_closed(connection)

    def _take(self, number: int, connection: Connection | None) -> None:
        now = self._time()
        if self._of_all_clients is None:
            self._of_all_clients = Allowance(AT_ONCE_OF_ALL, A_SECOND_OF_ALL, now)
        mine = self._of_all_clients
        if connection is not None:
            mine = self._rates.of(connection, now)
        if not (mine.has(number, now) and self._of_all_clients.has(number, now)):
            raise Refusal(
                ResponseCode.SYSTEM_BUSY,
                f"broker busy: too many filters were compiled recently, this has {number} characters: try again",
            )
        self._of_all_clients.take(number)
        if mine is not self._of_all_clients:
            mine.take(number)
