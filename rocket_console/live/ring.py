"""The newest values of a figure, with their times."""

from collections import deque
from collections.abc import Sequence
from typing import Final

__all__ = ["KEPT", "Point", "Ring"]

KEPT: Final = 120
"""Values that are kept: ten minutes, at one in five seconds."""
_OLDEST: Final = 600.0
"""Seconds for which a value is kept: while nobody watches, none are added."""

Point = tuple[float, float]
"""A time in seconds since 1970, and a value."""


class Ring:
    """The newest values of a figure."""

    def __init__(self) -> None:
        self._points: deque[Point] = deque(maxlen=KEPT)

    def add(self, time: float, value: float) -> None:
        """Add a value; those that are too old go, and the oldest one if there are too many."""
        while self._points and self._points[0][0] < time - _OLDEST:
            self._points.popleft()
        self._points.append((time, value))

    @property
    def points(self) -> Sequence[Point]:
        """The values, the oldest one first."""
        return tuple(self._points)

    @property
    def newest(self) -> float | None:
        """The newest value; None without any."""
        return self._points[-1][1] if self._points else None

    def __repr__(self) -> str:
        return f"<Ring of {len(self._points)}>"
