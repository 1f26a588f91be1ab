"""The delay levels of ``messageDelayLevel``: ``1s 5s 10s 30s 1m …``, counted from 1."""

import re
from collections.abc import Iterator

from rocket_remoting.wire.topics import SCHEDULE_TOPIC

__all__ = ["SCHEDULE_TOPIC", "DelayLevels"]

_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL = re.compile(r"([0-9]+)([smhd])")
_UNKNOWN_LEVEL_MS = 1_000


class DelayLevels:
    """The delay of each level. A message of level n waits in queue n - 1 of `SCHEDULE_TOPIC`.

    Attributes:
        text: The text of the setting.
        max_level: The highest level; a message that asks for a higher level gets this one.
    """

    __slots__ = ("_delays", "max_level", "text")

    def __init__(self, text: str) -> None:
        """Parse the setting.

        Raises:
            ValueError: A word is not a number followed by s, m, h or d.
        """
        self.text = text
        self._delays = tuple(_milliseconds(word) for word in text.split())
        self.max_level = len(self._delays)

    def bounded(self, level: int) -> int:
        """Return the level for a message that asks for ``level``: at most the highest, and 0 for no delay."""
        return max(0, min(level, self.max_level))

    def delay_ms(self, level: int) -> int:
        """Return the delay of a level in milliseconds; one second for an unknown level."""
        return self._delays[level - 1] if 1 <= level <= self.max_level else _UNKNOWN_LEVEL_MS

    def deliver_at(self, level: int, store_timestamp: int) -> int:
        """Return the time at which a message is due, in milliseconds since 1970.

        Args:
            level: The message's delay level.
            store_timestamp: Store time of the message, in milliseconds since 1970.
        """
        return store_timestamp + self.delay_ms(level)

    def __iter__(self) -> Iterator[int]:
        return iter(range(1, self.max_level + 1))

    def __repr__(self) -> str:
        return f"DelayLevels({self.text!r})"


def _milliseconds(word: str) -> int:
    match = _LEVEL.fullmatch(word)
    if match is None:
        raise ValueError(f"{word!r} is not a delay: expected a number and one of s, m, h, d, as in 10s")
    return int(match[1]) * _UNIT_MS[match[2]]
