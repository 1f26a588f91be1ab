"""The rules of waiting for a broker that is unreachable or busy."""

import time

from rocket_client.errors import (
    BrokerNotFoundError,
    NameServersUnreachableError,
    NotCopiedError,
    TopicNotFoundError,
)
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.errors import ConnectError, ConnectionLost, RequestTimeout

UNREACHABLE_ERRORS = (
    ConnectError,
    ConnectionLost,
    RequestTimeout,
    BrokerNotFoundError,
    NotCopiedError,
    NameServersUnreachableError,
    TopicNotFoundError,
)
"""Errors while a broker restarts. The topics of a cluster's only broker are unknown in the meantime."""

BUSY_CODES = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE})
"""Response codes of a broker that may accept the request later."""

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 2.0


class Patience:
    """Measures how long failures have followed each other, and doubles the pauses between attempts.

    Args:
        limit: Seconds after the first failure of a series in which further failures are tolerated.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self.renew()

    def renew(self) -> None:
        """Note a success: the next failure begins a new series."""
        self._since: float | None = None
        self._pause = FIRST_PAUSE

    def failed(self, error: Exception) -> None:
        """Note a failure; raise `error` if the series has lasted for the limit."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
        if now - self._since >= self._limit:
            raise error

    @property
    def is_waiting(self) -> bool:
        """Whether the last attempt failed."""
        return self._since is not None

    def pause(self) -> float:
        """Return the seconds to wait before the next attempt, and double them for the attempt after that."""
        pause = self._pause
        self._pause = min(pause * 2, LONGEST_PAUSE)
        return pause

    def __repr__(self) -> str:
        return f"<Patience of {self._limit:g} s>"
