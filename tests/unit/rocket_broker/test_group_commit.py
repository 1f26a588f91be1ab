"""Group commit: rounds of flushes, and those who wait for them."""

import asyncio

import pytest

from rocket_broker.store.group_commit import GroupCommit
from tests.unit.rocket_broker.memory_peers import run_virtually

ROUND = 1.0


class Log:
    """A log of which each flush takes a second.

    Attributes:
        end: The offset behind what is stored.
        flushed: The offset up to which the log is on the disk.
        rounds: What each flush was asked for.
        is_broken: Whether the disk refuses.
    """

    def __init__(self) -> None:
        self.end = 0
        self.flushed = 0
        self.rounds: list[int] = []
        self.is_broken = False
        self.group = GroupCommit(self._flush, lambda: self.flushed, lambda: self.is_broken, 5 * ROUND)

    def store(self) -> "asyncio.Future[bool]":
        """Store a byte, and wait for it."""
        self.end += 1
        return self.group.wait_for(self.end)

    async def _flush(self, wanted: int) -> None:
        self.rounds.append(wanted)
        end = self.end
        await asyncio.sleep(ROUND)
        if not self.is_broken:
            self.flushed = end


def test_those_who_come_during_a_round_share_the_next() -> None:
    """The first ones are answered after the first round."""

    async def main() -> list[int]:
        log = Log()
        first = [log.store(), log.store()]
        await asyncio.sleep(ROUND / 2)
        second = [log.store() for _ in range(3)]
        assert await asyncio.gather(*first) == [True, True]
        assert not any(result.done() for result in second)
        assert await asyncio.gather(*second) == [True] * 3
        assert await log.group.wait_for(1)
        await log.group.stop()
        return log.rounds

    assert run_virtually(main) == [2, 5]


def test_wait_ends_after_its_time_while_others_wait_on() -> None:
    """A disk that does not answer holds nobody for ever, and a later wait has its own time."""

    async def main() -> list[tuple[bool, float]]:
        log, loop = Log(), asyncio.get_running_loop()
        log.group = GroupCommit(lambda _: asyncio.sleep(100 * ROUND), lambda: 0, lambda: False, 5 * ROUND)
        begun = loop.time()

        async def wait(pause: float) -> tuple[bool, float]:
            await asyncio.sleep(pause)
            return await log.group.wait_for(1), loop.time() - begun

        ended = [*await asyncio.gather(wait(0), wait(2))]
        await log.group.stop()
        return ended

    (is_flushed, first), (is_flushed_then, second) = run_virtually(main)
    assert (is_flushed, is_flushed_then) == (False, False)
    assert (first, second) == pytest.approx((5 * ROUND, 7 * ROUND))


def test_broken_disk_ends_all_waits() -> None:
    """Those of the round, those behind it, and later ones at once."""

    async def main() -> None:
        log = Log()
        first = log.store()
        await asyncio.sleep(ROUND / 2)
        second = log.store()
        log.is_broken = True
        assert [*await asyncio.gather(first, second)] == [False, False]
        assert not await log.store()
        assert len(log.rounds) == 1
        await log.group.stop()

    run_virtually(main)


def test_cancelled_wait_needs_no_round() -> None:
    """Its round ends, and the next one begins for others only."""

    async def main() -> None:
        log = Log()
        first = log.store()
        await asyncio.sleep(ROUND / 2)
        log.store().cancel()
        assert await first
        await log.group.stop()
        assert len(log.rounds) == 1

    run_virtually(main)
