"""How long a broker that is away or busy is waited for."""

import time

from rocket_client.errors import BrokerNotFoundError, NameServersUnreachableError, TopicNotFoundError
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.errors import ConnectError, ConnectionLost, RequestTimeout

AWAY = (
    ConnectError,
    ConnectionLost,
    RequestTimeout,
    BrokerNotFoundError,
    NameServersUnreachableError,
    TopicNotFoundError,
)
"""What it looks like when a broker is being started anew; a topic's only broker takes its topics along."""

BUSY_CODES = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE})
"""Refusals that say: not now."""

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 2.0


class Patience:
    """Counts failures in a row, pauses longer from one to the next, and gives up in the end.

    Args:
        limit: Seconds from the first failure of a row to the last that is borne.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self.renew()

    def renew(self) -> None:
        """Something went well: the next failure is the first of a row."""
        self._since: float | None = None
        self._pause = FIRST_PAUSE

    def failed(self, error: Exception) -> None:
        """Note a failure; raise it if they have gone on for too long."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
        if now - self._since >= self._limit:
            raise error

    def pause(self) -> float:
        """Seconds to wait before the next attempt."""
        pause = self._pause
        self._pause = min(pause * 2, LONGEST_PAUSE)
        return pause

    def __repr__(self) -> str:
        return f"<Patience of {self._limit:g} s>"
