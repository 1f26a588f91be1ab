"""Marks in the memory of the process: for tests, and for duplicates that come soon after each other."""

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor

from streamkit.patterns.inbox.marks import Claim, Mark, MarkStore

__all__ = ["MemoryMarks"]


class MemoryMarks(MarkStore):
    """Marks in memory, at most ``limit``: the oldest one makes room for a new one. The process's end drops all.

    One event loop uses them.
    """

    def __init__(self, limit: int = 100_000) -> None:
        """Make a store without marks.

        Args:
            limit: The most marks that are kept.

        Raises:
            ValueError: The limit is less than 1.
        """
        if limit < 1:
            raise ValueError(f"MemoryMarks(limit={limit}): expected at least 1")
        self._limit = limit
        # Invariant: in the order of their times, since a mark is added at its end and never changed.
        self._done: dict[Mark, int] = {}
        self._claimed: set[Mark] = set()

    def __len__(self) -> int:
        return len(self._done)

    async def claim(
        self, marks: Sequence[Mark], *, now_ms: int, expired_ms: int, threads: Callable[[], Executor]
    ) -> "Claim":
        """Claim marks; see :meth:`MarkStore.claim`."""
        done = [mark for mark in marks if self._done.get(mark, expired_ms - 1) >= expired_ms]
        busy = [mark for mark in marks if mark in self._claimed]
        claimed = [mark for mark in marks if mark not in done and mark not in busy]
        self._claimed.update(claimed)
        return _MemoryClaim(self, claimed, done, busy, now_ms)

    def end(self, claimed: Collection[Mark], done: Collection[Mark], now_ms: int) -> None:
        """End a claim.

        Args:
            claimed: The marks of the claim.
            done: Those of them that become final.
            now_ms: The time of the claim.
        """
        self._claimed.difference_update(claimed)
        for mark in done:
            self._done.pop(mark, None)
            self._done[mark] = now_ms
        while len(self._done) > self._limit:
            del self._done[next(iter(self._done))]

    async def clean_up(self, *, expired_ms: int, limit: int, threads: Callable[[], Executor]) -> int:
        """Delete up to ``limit`` marks made before ``expired_ms``; return their number."""
        expired: list[Mark] = []
        for mark, made_ms in self._done.items():
            if made_ms >= expired_ms or len(expired) == limit:
                break
            expired.append(mark)
        for mark in expired:
            del self._done[mark]
        return len(expired)

    def __repr__(self) -> str:
        return f"<MemoryMarks {len(self._done)} of at most {self._limit}>"


class _MemoryClaim(Claim):
    def __init__(
        self,
        store: MemoryMarks,
        claimed: Collection[Mark],
        done: Collection[Mark],
        busy: Collection[Mark],
        now_ms: int,
    ) -> None:
        super().__init__(claimed, done, busy)
        self._store = store
        self._now_ms = now_ms

    async def commit(self, done: Collection[Mark]) -> None:
        """Make marks final."""
        self._store.end(self.claimed, done, self._now_ms)

    async def abandon(self) -> None:
        """Drop the claimed marks."""
        self._store.end(self.claimed, (), self._now_ms)
