"""Refusing requests that have waited for too long: SYSTEM_BUSY, as Apache's brokers do by their queues.

One loop handles all requests, so there is no queue of the broker's own: requests wait in the sockets' buffers until
the loop comes round to them. A turn of the loop begins when it looks which sockets have something to be read:

::

    turn    look ─► read, handle ─► read, handle ─► read, handle ─► other callbacks ─► look
                    ▲ began                         ▲ now
                    └── so long, at least, has been waiting what is handled now ──┘

What was there when the turn began is known to have waited since; what happened before is not known. A request that
was read in an earlier turn, and had to let others go first, has waited since it was read. A turn that is longer than a
limit, be it by the disk, by many clients or by a machine that has other work, is cut short so: what
comes late in it is refused in a few microseconds, has changed nothing, and may be sent again, to another broker best.
The first request that is read in a turn is always handled.
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

__all__ = ["QueueTime"]

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_WARNINGS = 1.0

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
"""Apache's brokers let these wait for as long as it takes."""


class QueueTime:
    """How long the requests of this turn of the loop have waited, and how long each kind may.

    Attributes:
        refused: How many requests were too late since the start.
        last_turn_ms: Milliseconds from the first to the end of the turn before.
    """

    def __init__(self, settings: BrokerSettings, *, time: Callable[[], float]) -> None:
        self.refused = 0
        self.last_turn_ms = 0
        self._settings = settings
        self._time = time
        self._limits: dict[int, float] = {}
        self._other = math.inf
        self._in_turn = False
        self._began = 0.0
        self._handled = 0
        self._silent_until = 0.0
        self.settings_updated(())

    def admit(self, code: int, read_at: float = math.inf) -> None:
        """Return if a request is to be handled now.

        Args:
            code: The request's code.
            read_at: When it was read, in seconds of the clock.

        Raises:
            Refusal: It has waited for too long.
        """
        now = self._time()
        if not self._in_turn:
            self._begin(now)
        self._handled += 1
        waited = now - min(self._began, read_at)
        if waited >= self._limits.get(code, self._other):
            raise self._too_late(waited, now)

    def settings_updated(self, keys: Collection[str]) -> None:
        """Take the limits from the settings."""
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

    def _begin(self, now: float) -> None:
        self._in_turn = True
        self._began = now
        self._handled = 0
        # What is called soon is called before anything is read in the next turn.
        asyncio.get_running_loop().call_soon(self._end)

    def _end(self) -> None:
        self._in_turn = False
        self.last_turn_ms = int((self._time() - self._began) * 1000)

    def _too_late(self, waited: float, now: float) -> Refusal:
        self.refused += 1
        milliseconds = int(waited * 1000)
        if now >= self._silent_until:
            self._silent_until = now + SECONDS_BETWEEN_WARNINGS
            logger.warning(
                "requests waited for %d ms and are refused as SYSTEM_BUSY, %d since the start",
                milliseconds,
                self.refused,
            )
        return Refusal(
            ResponseCode.SYSTEM_BUSY,
            "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
            f"period in queue: {milliseconds}ms, size of queue: {self._handled}",
        )

    def __repr__(self) -> str:
        return f"QueueTime({self.refused} refused, last turn {self.last_turn_ms} ms)"
