"""Which brokers to avoid for a while, by how long their last answer took.

::

    latency of the last send, ms        50   100    550    1000     2000     3000    15000
    the broker is avoided for, ms        0     0  30000   60000   120000   180000   600000

The entry that counts is the last one not above the latency; below the first there is none. A failed send
counts as `ISOLATION_MS` = 30 s, and so takes its broker out for ten minutes. A broker nothing is known of
is available.

This module does no I/O; times are milliseconds of the clock it is given.
"""

from collections.abc import Callable
from dataclasses import dataclass

LATENCY_MAX_MS = (50, 100, 550, 1000, 2000, 3000, 15000)
NOT_AVAILABLE_MS = (0, 0, 30000, 60000, 120000, 180000, 600000)
ISOLATION_MS = 30_000


@dataclass(slots=True)
class FaultItem:
    """What is known of one broker."""

    broker_name: str
    latency_ms: float
    available_from_ms: float


class FaultTable:
    """Brokers by their last latency; `now_ms` is any steady clock."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._items: dict[str, FaultItem] = {}
        self._turn = 0

    def __repr__(self) -> str:
        out = [name for name in self._items if not self.is_available(name)]
        return f"FaultTable(brokers={list(self._items)}, avoided={out})"

    def update(self, broker_name: str, latency_ms: float, *, isolation: bool) -> None:
        """Record how a send went; the broker is avoided from now for what the table gives."""
        duration = not_available_ms(ISOLATION_MS if isolation else latency_ms)
        self._items[broker_name] = FaultItem(broker_name, latency_ms, self._now_ms() + duration)

    def is_available(self, broker_name: str) -> bool:
        """Whether the broker's time out is over, or it never had one."""
        item = self._items.get(broker_name)
        return item is None or self._now_ms() >= item.available_from_ms

    def pick_one_at_least(self) -> str | None:
        """One of the better half of the brokers known, in turn; None when none is known."""
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
    """How long a broker is avoided after a send that took this long."""
    for bound, duration in zip(reversed(LATENCY_MAX_MS), reversed(NOT_AVAILABLE_MS), strict=True):
        if latency_ms >= bound:
            return duration
    return 0
