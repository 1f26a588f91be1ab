"""Brokers that are avoided for a while after a slow or failed send.

::

    latency of the last send, ms        50   100    550    1000     2000     3000    15000
    the broker is avoided for, ms        0     0  30000   60000   120000   180000   600000

The column is the last one whose latency is not above that of the send; below the first column a broker is not avoided.
A failed send counts as a latency of `ISOLATION_MS` = 30 s, so that its broker is avoided for ten minutes. An unknown
broker is available.

This module does no I/O; times are milliseconds of the given clock.
"""

from collections.abc import Callable

import msgspec

# The numbers of Apache's MQFaultStrategy in 4.9. In 5.3 a broker is avoided for at most 30 s, and a failed send
# counts as 10 s, so that its broker is avoided for 10 s.
LATENCY_MAX_MS = (50, 100, 550, 1000, 2000, 3000, 15000)
NOT_AVAILABLE_MS = (0, 0, 30000, 60000, 120000, 180000, 600000)
ISOLATION_MS = 30_000


class FaultItem(msgspec.Struct):
    """The last send to one broker."""

    broker_name: str
    latency_ms: float
    available_from_ms: float


class FaultTable:
    """The brokers with their last latencies; `now_ms` is a monotonic clock in milliseconds."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._items: dict[str, FaultItem] = {}
        self._turn = 0

    def __repr__(self) -> str:
        out = [name for name in self._items if not self.is_available(name)]
        return f"FaultTable(brokers={list(self._items)}, avoided={out})"

    def update(self, broker_name: str, latency_ms: float, *, isolation: bool) -> None:
        """Note a send's latency and avoid the broker from now on for the table's duration.

        Args:
            broker_name: The broker.
            latency_ms: Milliseconds of the send.
            isolation: Whether the send failed; then `ISOLATION_MS` counts instead of the latency.
        """
        duration = not_available_ms(ISOLATION_MS if isolation else latency_ms)
        # Replaced, not extended: one fast send makes the broker available at once. Apache's table does the same in
        # 4.9; in 5.3 an earlier, longer time stays.
        self._items[broker_name] = FaultItem(broker_name, latency_ms, self._now_ms() + duration)

    def is_available(self, broker_name: str) -> bool:
        """Return whether the broker is not avoided now."""
        item = self._items.get(broker_name)
        return item is None or self._now_ms() >= item.available_from_ms

    def pick_one_at_least(self) -> str | None:
        """Return one of the better half of the known brokers, in turn; None if no broker is known."""
        if not self._items:
            return None
        now = self._now_ms()
        ranked = sorted(
            self._items.values(),
            key=lambda item: (now < item.available_from_ms, item.latency_ms, item.available_from_ms),
        )
        half = len(ranked) // 2
        if half == 0:
            return ranked[0].broker_name
        self._turn += 1
        return ranked[self._turn % half].broker_name

    def remove(self, broker_name: str) -> None:
        """Forget the broker: it is available again."""
        self._items.pop(broker_name, None)


def not_available_ms(latency_ms: float) -> int:
    """Return the milliseconds for which a broker is avoided after a send of this latency."""
    for bound, duration in zip(reversed(LATENCY_MAX_MS), reversed(NOT_AVAILABLE_MS), strict=True):
        if latency_ms >= bound:
            return duration
    return 0
