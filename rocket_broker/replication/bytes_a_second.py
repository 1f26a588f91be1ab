"""A count of the bytes in the last whole second of the loop's time."""

import asyncio

__all__ = ["BytesASecond"]


class BytesASecond:
    """Counts bytes."""

    def __init__(self) -> None:
        self._second = self._this = self._last = 0

    def add(self, size: int) -> None:
        """Count bytes that are written or read now."""
        second = int(asyncio.get_running_loop().time())
        if second != self._second:
            self._last = self._this if second == self._second + 1 else 0
            self._second, self._this = second, 0
        self._this += size

    @property
    def last_second(self) -> int:
        """The bytes in the last whole second."""
        self.add(0)
        return self._last
