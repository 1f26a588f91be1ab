"""Limits the messages of a batch, by number or size, and the time between batches."""

from collections.abc import Mapping
from typing import TypeVar

K = TypeVar("K")


def admitted(backlog: Mapping[K, int], limit: int) -> dict[K, int]:
    """Return the number of messages of each queue for a batch of at most `limit` messages.

    In proportion to what waits in each, but at least one of each queue that has any: a small queue must not wait
    for a large one. So the sum may exceed the limit by the number of queues at most.
    """
    total = sum(backlog.values())
    if total <= limit:
        return dict(backlog)
    return {queue: min(count, max(1, count * limit // total)) if count else 0 for queue, count in backlog.items()}


def admitted_bytes(backlog: Mapping[K, int], sizes: Mapping[K, float], limit: int) -> dict[K, int]:
    """Return the same for a limit in bytes, by the average size of each queue's messages."""
    total = sum(count * sizes[queue] for queue, count in backlog.items())
    if total <= limit:
        return dict(backlog)
    return {queue: min(count, max(1, int(count * limit / total))) if count else 0 for queue, count in backlog.items()}


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
        """Return whether to make a batch of `waiting` messages; if so, it counts as made."""
        if self._least is not None and waiting < self._least and now - self._last < self._longest:
            return False
        if waiting:
            self._last = now
        return True
