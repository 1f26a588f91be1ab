"""Fast failure: a request that has waited too long is refused with SYSTEM_BUSY, as by Apache's BrokerFastFailure.

Apache's broker measures how long a request waits in a thread pool's queue. Here one loop handles all requests, and
they wait in the sockets' buffers until the loop reads them. A turn of the loop begins when the loop polls the sockets::

    turn    poll ─► read, handle ─► read, handle ─► read, handle ─► other callbacks ─► poll
                    ▲ began                         ▲ now
                    └── the request that is handled now has waited at least this long ──┘

A request that was in a buffer when the turn began has waited since then at least; its wait before the turn is unknown.
A request that was read in an earlier turn, and had to let others go first, has waited since it was read. When a turn
takes longer than a limit, because of the disk, of many clients or of other work of the machine, the requests that come
late in the turn are refused within a few microseconds each, which ends the turn soon. A refused request has changed
nothing and may be sent again, best to another broker. The first request that is read in a turn is always handled.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Iterator

from rocket_broker.limits.refusal import Refusal
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.deduplication import SEND_DEDUPLICATED

__all__ = ["FastFailure"]

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_WARNINGS = 1.0
_RECENT_SECONDS = 1.0
"""For so long a turn says how long requests wait. A turn with only sends and pulls of one connection may not be
counted."""

_SENDS = (
    Code.SEND_MESSAGE,
    Code.SEND_MESSAGE_V2,
    Code.SEND_BATCH_MESSAGE,
    SEND_DEDUPLICATED,
    Code.CONSUMER_SEND_MSG_BACK,
    Code.RECALL_MESSAGE,
)
_NEVER_LATE = (
    Code.SEND_REPLY_MESSAGE,
    Code.SEND_REPLY_MESSAGE_V2,
    Code.QUERY_MESSAGE,
    Code.VIEW_MESSAGE_BY_ID,
    Code.UNREGISTER_CLIENT,
    Code.CHECK_CLIENT_CONFIG,
    Code.GET_CONSUMER_LIST_BY_GROUP,
    Code.UPDATE_CONSUMER_OFFSET,
    Code.QUERY_CONSUMER_OFFSET,
)
"""Requests that Apache's brokers never refuse for their wait."""


class FastFailure:
    """Refuses requests that have waited longer than the limit of their kind.

    Args:
        settings: The broker's settings, with the limits in milliseconds.
        time: Returns the loop's time in seconds.

    Attributes:
        refused: Number of refused requests since the start.
        in_turn: Whether a turn has begun.
    """

    def __init__(self, settings: BrokerSettings, *, time: Callable[[], float]) -> None:
        self.refused = 0
        self._last_turn = self._ended = 0.0
        self._settings = settings
        self._time = time
        self._limits: dict[int, float] = {}
        self._other = math.inf
        self.in_turn = False
        self._began = 0.0
        self._handled = 0
        self._silent_until = 0.0
        self.settings_updated(())

    def admit(self, code: int, read_at: float = math.inf) -> None:
        """Admit a request, or refuse it because it has waited too long.

        Args:
            code: The request's code.
            read_at: When the request was read, in seconds of the loop's time.

        Raises:
            Refusal: The request has waited too long.
        """
        now = self._time()
        if not self.in_turn:
            self._begin_until_next(now)
        self._handled += 1
        waited = now - min(self._began, read_at)
        if waited >= self._limits.get(code, self._other):
            raise self._too_late(waited, now)

    def begin_turn(self) -> None:
        """Begin a turn of the loop, before its first request is handled; `end_turn` must be called at its end."""
        if not self.in_turn:
            self.in_turn = True
            self._began = self._time()
            self._handled = 0

    def end_turn(self) -> None:
        """End the turn, if one has begun."""
        if self.in_turn:
            self.in_turn = False
            self._ended = self._time()
            self._last_turn = self._ended - self._began

    @property
    def last_turn_ms(self) -> int:
        """Milliseconds from the first handled request to the end of the last turn; 0 if that is long ago."""
        return int(self._last_turn * 1000) if self._time() - self._ended < _RECENT_SECONDS else 0

    def is_late(self, code: int, read_at: float, count: int) -> bool:
        """Count requests that are to be handled together, and return whether `admit` would refuse one of them.

        If no turn has begun, they are the first requests of theirs. That is no reason to begin it here, since a turn in
        which nothing else is handled is of no interest.
        """
        now = self._time()
        if self.in_turn:
            self._handled += count
            read_at = min(self._began, read_at)
        return now - read_at >= self._limits.get(code, self._other)

    def settings_updated(self, keys: Collection[str]) -> None:
        """Take over the limits from the settings."""
        self._limits = dict(self._limits_now())
        self._other = self._seconds(self._settings.wait_time_mills_in_admin_broker_queue)

    def _limits_now(self) -> Iterator[tuple[int, float]]:
        s = self._settings
        yield from dict.fromkeys(_NEVER_LATE, math.inf).items()
        yield from dict.fromkeys(_SENDS, self._seconds(s.wait_time_mills_in_send_queue)).items()
        yield Code.PULL_MESSAGE, self._seconds(s.wait_time_mills_in_pull_queue)
        yield Code.LITE_PULL_MESSAGE, self._seconds(s.wait_time_mills_in_lite_pull_queue)
        yield Code.HEART_BEAT, self._seconds(s.wait_time_mills_in_heartbeat_queue)
        yield Code.END_TRANSACTION, self._seconds(s.wait_time_mills_in_transaction_queue)

    def _seconds(self, milliseconds: int) -> float:
        return milliseconds / 1000 if self._settings.broker_fast_failure_enable else math.inf

    def _begin_until_next(self, now: float) -> None:
        self.in_turn = True
        self._began = now
        self._handled = 0
        # The loop runs a callback of `call_soon` before it reads anything in the next turn.
        asyncio.get_running_loop().call_soon(self.end_turn)

    def _too_late(self, waited: float, now: float) -> Refusal:
        self.refused += 1
        milliseconds = int(waited * 1000)
        if now >= self._silent_until:
            self._silent_until = now + SECONDS_BETWEEN_WARNINGS
            logger.warning(
                "refused requests that waited for %d ms or longer (SYSTEM_BUSY), %d since the start",
                milliseconds,
                self.refused,
            )
        return Refusal(
            ResponseCode.SYSTEM_BUSY,
            "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
            f"period in queue: {milliseconds}ms, size of queue: {self._handled}",
        )

    def __repr__(self) -> str:
        return f"FastFailure({self.refused} refused, last turn {self.last_turn_ms} ms)"
