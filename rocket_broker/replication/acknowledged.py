"""The offset up to which a slave has the log, and the senders that wait for it, as Apache's GroupTransferService."""

import asyncio
from collections.abc import Awaitable
from heapq import heappop, heappush
from itertools import count

from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.store.messages import PutStatus

__all__ = ["AcknowledgedOffset"]


class AcknowledgedOffset:
    """What slaves have reported, and the senders that SYNC_MASTER lets wait for that.

    Attributes:
        offset: The largest offset that a slave has reported: some slave has the log up to here.
        slaves: Number of slaves that are connected and follow the log.
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self.offset = 0
        self.slaves = 0
        self._settings = settings
        self._waiting: list[tuple[int, int, asyncio.Future[PutStatus]]] = []
        self._numbers = count()

    def reported(self, offset: int) -> None:
        """Take note of a slave's report, and answer the senders whose messages it has."""
        if offset <= self.offset:
            return
        self.offset = offset
        while self._waiting and self._waiting[0][0] <= offset:
            _settle(heappop(self._waiting)[2], PutStatus.OK)

    def wait_for(self, end: int) -> Awaitable[PutStatus]:
        """Begin to wait until a slave has the log up to `end`.

        Returns:
            A future with OK, FLUSH_SLAVE_TIMEOUT after `slaveTimeout`, or at once SLAVE_NOT_AVAILABLE if no slave is
            connected, or all are more than `haSlaveFallbehindMax` behind.
        """
        loop = asyncio.get_running_loop()
        result: asyncio.Future[PutStatus] = loop.create_future()
        if not self.slaves or end - self.offset >= self._settings.ha_slave_fallbehind_max:
            result.set_result(PutStatus.SLAVE_NOT_AVAILABLE)
        elif end <= self.offset:
            result.set_result(PutStatus.OK)
        else:
            heappush(self._waiting, (end, next(self._numbers), result))
            timer = loop.call_later(self._settings.slave_timeout / 1000, self._give_up, result)
            result.add_done_callback(lambda _: timer.cancel())
        return result

    def _give_up(self, result: asyncio.Future[PutStatus]) -> None:
        _settle(result, PutStatus.FLUSH_SLAVE_TIMEOUT)
        # Senders wait in about the order of their offsets, so those that gave up gather at the front.
        while self._waiting and self._waiting[0][2].done():
            heappop(self._waiting)


def _settle(result: asyncio.Future[PutStatus], status: PutStatus) -> None:
    if not result.done():
        result.set_result(status)
