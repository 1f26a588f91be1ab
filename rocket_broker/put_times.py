"""How long storing messages took, as Apache's brokers show it: the distribution over the last full minute."""

from collections.abc import Callable

__all__ = ["FAST_SECONDS", "PutTimes"]

FAST_SECONDS = 0.001
"""Messages that were stored faster are in the first range."""

_BOUNDS_MS = (1, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
_RANGES = (
    "[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]", "[500ms~1s]",
    "[1~2s]", "[2~3s]", "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]",
)  # fmt: skip


class PutTimes:
    """Counts the messages that were stored slowly; all others were fast.

    Args:
        stored: Returns the number of all messages stored so far.

    Attributes:
        longest_ms: The longest time so far, in milliseconds.
    """

    def __init__(self, stored: Callable[[], int]) -> None:
        self.longest_ms = 0
        self._stored = stored
        self._stored_before = 0
        self._counts = [0] * len(_RANGES)
        self._minute = [0] * len(_RANGES)

    def note(self, seconds: float, messages: int) -> None:
        """Count messages that took at least `FAST_SECONDS` together."""
        milliseconds = int(seconds * 1000)
        self.longest_ms = max(self.longest_ms, milliseconds)
        self._counts[sum(milliseconds >= bound for bound in _BOUNDS_MS)] += messages

    def begin_minute(self) -> None:
        """Show the minute that ends now, and count another."""
        stored = self._stored()
        self._counts[0] += max(stored - self._stored_before - sum(self._counts), 0)
        self._minute, self._counts, self._stored_before = self._counts, [0] * len(_RANGES), stored

    def distribution(self) -> str:
        """Return the number of messages of each range, in the format of Apache's brokers."""
        return "".join(f"{name}:{count} " for name, count in zip(_RANGES, self._minute, strict=True))

    def quantile_ms(self, share: float) -> float:
        """Return the time that this share of the minute's messages did not exceed: the upper bound of its range."""
        rest = sum(self._minute) * share
        for bound, count in zip((0, *_BOUNDS_MS[1:]), self._minute, strict=False):
            rest -= count
            if rest <= 0:
                return float(bound)
        return float(self.longest_ms)

    def __repr__(self) -> str:
        return f"PutTimes({self.distribution().rstrip()})"
