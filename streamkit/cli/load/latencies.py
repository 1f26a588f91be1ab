"""A histogram of durations whose size does not depend on how many there are."""

from collections.abc import Mapping
from math import ceil

__all__ = ["PERCENTILES", "Latencies"]

PERCENTILES: Mapping[str, float] = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
"""The percentiles that are shown, by name."""

_STEPS_BITS = 5
"""Each power of two has 2⁵ buckets of equal width, so a value is at most 1/32 too large."""
_STEPS = 1 << _STEPS_BITS


class Latencies:
    """Durations in microseconds, counted in buckets."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._total = 0

    def __len__(self) -> int:
        return self._total

    def add(self, microseconds: int) -> None:
        """Count one duration; a negative one counts as 0."""
        bucket = _bucket(max(0, microseconds))
        self._counts[bucket] = self._counts.get(bucket, 0) + 1
        self._total += 1

    def percentile(self, part: float) -> int | None:
        """Return the microseconds that this part of the durations does not exceed; None if there are none.

        Args:
            part: Greater than 0 and at most 1. The answer exceeds the exact one by at most 1/32.
        """
        left = ceil(self._total * part)
        for bucket in sorted(self._counts):
            left -= self._counts[bucket]
            if left <= 0:
                return _largest_in(bucket)
        return None

    def summary(self) -> dict[str, int | None]:
        """Return the microseconds of each of `PERCENTILES`."""
        return {name: self.percentile(part) for name, part in PERCENTILES.items()}


def _bucket(value: int) -> int:
    """Return the number of the bucket of a value; larger values have larger numbers.

    Below 64 each value has a bucket of its own. Above, with s = bit length − 6, the bucket is 32·s plus the six highest
    bits of the value.
    """
    shift = max(0, value.bit_length() - _STEPS_BITS - 1)
    return (shift << _STEPS_BITS) + (value >> shift)


def _largest_in(bucket: int) -> int:
    shift = max(0, (bucket >> _STEPS_BITS) - 1)
    return (((bucket - (shift << _STEPS_BITS)) + 1) << shift) - 1
