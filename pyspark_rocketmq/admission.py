"""How much of what is there a trigger takes."""

from collections.abc import Mapping
from typing import TypeVar

K = TypeVar("K")


def admitted(backlog: Mapping[K, int], limit: int) -> dict[K, int]:
    """How many messages of each queue are taken when at most `limit` may be.

    In proportion to what waits in each, but at least one of each queue that has any: a small queue must not wait
    for a large one. So the sum may exceed the limit by the number of queues at most.
    """
    total = sum(backlog.values())
    if total <= limit:
        return dict(backlog)
    return {
        queue: min(count, max(1, count * limit // total)) if count else 0 for queue, count in backlog.items()
    }


def admitted_bytes(backlog: Mapping[K, int], sizes: Mapping[K, float], limit: int) -> dict[K, int]:
    """The same with a limit in bytes, by the average size of each queue's messages."""
    total = sum(count * sizes[queue] for queue, count in backlog.items())
    if total <= limit:
        return dict(backlog)
    return {
        queue: min(count, max(1, int(count * limit / total))) if count else 0
        for queue, count in backlog.items()
    }


class TriggerDelay:
    """Lets a small backlog wait until it is large enough or has waited long enough.

    Args:
        least: Messages worth a batch; None: any.
        longest: Seconds after the last batch from which on any number is.
        now: The monotonic time.
    """

    def __init__(self, least: int | None, longest: float, now: float) -> None:
        self._least = least
        self._longest = longest
        self._last = now

    def is_due(self, waiting: int, now: float) -> bool:
        """Whether a batch is to be made of so many messages; if so, it counts as made."""
        if self._least is not None and waiting < self._least and now - self._last < self._longest:
            return False
        if waiting:
            self._last = now
        return True
