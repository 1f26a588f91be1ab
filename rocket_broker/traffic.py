"""What was put into and read from each topic: totals since the start, and what they grew by in a minute, hour and day.

::

    a day   [23 h ago: 100] [22 h ago: 160] … [1 h ago: 900]        now: 950
             └── the newest sample that is not younger than the window ──┘   growth = 950 - 100

A sample is kept only if the totals have changed since the one before, so that thousands of idle topics cost nothing.
"""

from array import array
from collections.abc import Callable, Generator, Hashable
from typing import NamedTuple, TypeVar

__all__ = ["MOST_TRAFFIC", "SAMPLE_SECONDS", "WINDOWS", "Growth", "Traffic", "TrafficTable", "Window"]

K = TypeVar("K", bound=Hashable)

SAMPLE_SECONDS = 10.0

MOST_TRAFFIC = 10_000
"""Maximum number of entries of a table. Each takes at most 1.5 KiB. Further topics are counted in the broker's totals
only, until entries that have been idle for a day are removed."""


class Window(NamedTuple):
    """A time span, and the time between its samples, in seconds."""

    span: float
    step: float


WINDOWS = (Window(60, SAMPLE_SECONDS), Window(3600, 600), Window(24 * 3600, 3600))
"""Minute, hour and day, with the samples of Apache's StatsItem."""

_FIELDS = 4  # of a sample: time, calls, messages, size


class Growth(NamedTuple):
    """What traffic grew by in a window.

    Attributes:
        seconds: The length of the window; less than its span if the traffic is younger.
        calls: Requests.
        messages: Messages.
        size: Bytes of the records.
    """

    seconds: float
    calls: int
    messages: int
    size: int


class Traffic:
    """Messages that were put into one topic, or read from it by one group.

    Attributes:
        calls: Requests.
        messages: Messages.
        size: Bytes of the records.
    """

    __slots__ = ("_began", "_samples", "calls", "messages", "size")

    def __init__(self, began: float = 0.0) -> None:
        self.calls = 0
        self.messages = 0
        self.size = 0
        self._began = began
        self._samples: list[array[float]] | None = None

    def __repr__(self) -> str:
        return f"Traffic(calls={self.calls}, messages={self.messages}, size={self.size})"

    def count(self, messages: int, size: int, calls: int = 1) -> None:
        """Add messages of requests."""
        self.calls += calls
        self.messages += messages
        self.size += size

    def sample(self, number: int, now: float) -> None:
        """Keep the totals for a window of `WINDOWS`, if they have changed."""
        if self._samples is None:
            self._samples = [array("d") for _ in WINDOWS]
        samples = self._samples[number]
        if not samples or samples[-2] != self.messages:
            samples.extend((now, self.calls, self.messages, self.size))
        oldest = now - WINDOWS[number].span
        while len(samples) >= 2 * _FIELDS and samples[_FIELDS] <= oldest:
            del samples[:_FIELDS]

    def growth(self, number: int, now: float) -> Growth:
        """Return what the totals have grown by in a window of `WINDOWS` that ends now."""
        window = WINDOWS[number]
        # Like Apache's, a young item's first window begins one step before the item.
        began = max(now - window.span, self._began - window.step)
        samples = self._samples[number] if self._samples is not None else ()
        calls = messages = size = 0.0
        for at in range(0, len(samples), _FIELDS):
            if samples[at] > began:
                break
            _, calls, messages, size = samples[at : at + _FIELDS]
        return Growth(now - began, self.calls - int(calls), self.messages - int(messages), self.size - int(size))

    def is_idle(self, now: float) -> bool:
        """Return whether nothing was counted in the longest window."""
        return now - self._began > WINDOWS[-1].span and not self.growth(len(WINDOWS) - 1, now).messages


class TrafficTable(dict[K, Traffic]):
    """The traffic of each topic, or of each topic and group; an entry is made when it is first asked for.

    Args:
        time: Returns seconds.

    Attributes:
        removed: The sum of the entries that were removed or had no room.
    """

    __slots__ = ("_time", "removed")

    def __init__(self, time: Callable[[], float]) -> None:
        super().__init__()
        self._time = time
        self.removed = Traffic()

    def __missing__(self, key: K) -> Traffic:
        if len(self) >= MOST_TRAFFIC:
            return self.removed
        traffic = self[key] = Traffic(self._time())
        return traffic

    def total(self, field: str) -> int:
        """Return the sum of an attribute of `Traffic` over all entries, also those that were removed."""
        removed: int = getattr(self.removed, field)
        kept: list[int] = [getattr(traffic, field) for traffic in self.values()]
        return removed + sum(kept)

    def remove(self, key: K) -> None:
        """Remove an entry; its numbers stay in the totals."""
        traffic = self.pop(key, None)
        if traffic is not None:
            self.removed.count(traffic.messages, traffic.size, traffic.calls)

    def sample(self, numbers: list[int], now: float) -> Generator[None, None, None]:
        """Keep all entries' totals for some windows, in steps; with the longest window remove the idle entries.

        Args:
            numbers: Which of `WINDOWS`.
            now: The present time.
        """
        removes = len(WINDOWS) - 1 in numbers
        for count, (key, traffic) in enumerate([*self.items()], 1):
            for number in numbers:
                traffic.sample(number, now)
            if removes and traffic.is_idle(now):
                self.remove(key)
            if not count % 64:
                yield
