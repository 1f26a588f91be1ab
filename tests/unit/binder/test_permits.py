"""Permits and deadlines: how many at once, and how long."""

import asyncio

from streamkit.binder.deadlines import Deadlines
from streamkit.binder.permits import Permits
from streamkit.testing.virtual_time import VirtualTime


def test_permits_are_handed_out_in_line() -> None:
    """Who waits longest has the permit that becomes free."""

    async def main() -> list[int]:
        permits = Permits(1)
        got: list[int] = []

        async def take(number: int) -> None:
            await permits.acquire()
            got.append(number)
            await asyncio.sleep(0)
            permits.release()

        await asyncio.gather(*(take(number) for number in range(5)))
        assert permits.free == 1
        return got

    assert asyncio.run(main()) == [0, 1, 2, 3, 4]


def test_a_waiter_that_is_cancelled_loses_no_permit() -> None:
    """Neither while it waits nor in the moment the permit is handed to it."""

    async def main() -> int:
        permits = Permits(1)
        await permits.acquire()
        waiting = asyncio.create_task(permits.acquire())
        handed = asyncio.create_task(permits.acquire())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.sleep(0)
        permits.release()
        handed.cancel()
        await asyncio.gather(waiting, handed, return_exceptions=True)
        return permits.free

    assert asyncio.run(main()) == 1


def test_who_is_recalled_leaves_the_line_and_keeps_what_it_has() -> None:
    """Only a task that waits for a permit is cancelled, also one that has waited before."""

    async def main() -> list[str]:
        permits = Permits(1)
        events: list[str] = []

        async def work(name: str) -> None:
            for number in range(2):
                await permits.acquire()
                events.append(f"{name}{number}")
                await asyncio.sleep(0)
                permits.release()

        first, second = (asyncio.create_task(work(name)) for name in "ab")
        await asyncio.sleep(0)
        permits.recall(first)
        permits.recall(second)
        await asyncio.gather(first, second, return_exceptions=True)
        assert second.cancelled()
        permits.recall(first)
        assert permits.free == 1
        return events

    assert asyncio.run(main()) == ["a0", "a1"]


def test_a_free_permit_is_told_only_when_nobody_waits() -> None:
    """A binder that watches is not woken for a permit that is taken already."""

    async def main() -> int:
        told = 0

        def tell() -> None:
            nonlocal told
            told += 1

        permits = Permits(1)
        permits.watch(tell)
        await permits.acquire()
        waiting = asyncio.create_task(permits.acquire())
        await asyncio.sleep(0)
        permits.release()
        await waiting
        assert told == 0
        permits.release()
        return told

    assert asyncio.run(main()) == 1


def test_closing_ends_every_wait() -> None:
    """For a permit and for the next attempt; nothing starts until permits are granted again."""

    async def main() -> None:
        permits = Permits(1)
        await permits.acquire()
        waits = [asyncio.create_task(permits.acquire()), asyncio.create_task(permits.sleep(60))]
        await asyncio.sleep(0)
        permits.close()
        results = await asyncio.gather(*waits, permits.acquire(), permits.sleep(0), return_exceptions=True)
        assert [type(result) for result in results] == [asyncio.CancelledError] * 4
        permits.release()
        assert permits.free == 0
        permits.grant()
        await permits.acquire()
        await permits.sleep(0)

    asyncio.run(main())


def test_deadlines_cancel_the_calls_that_are_late_and_no_others() -> None:
    """One timer for all: each call expires at its own time."""
    ended: list[tuple[str, float]] = []

    async def call(deadlines: Deadlines, name: str, begin: float, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(begin)
        noted = deadlines.begin()
        try:
            await asyncio.sleep(seconds)
            ended.append((name, loop.time()))
        except asyncio.CancelledError:
            assert deadlines.is_timeout(noted)
            ended.append((f"{name} late", loop.time()))
        finally:
            deadlines.end(noted)

    async def main() -> None:
        deadlines = Deadlines(10)
        await asyncio.gather(call(deadlines, "a", 0, 100), call(deadlines, "b", 3, 5), call(deadlines, "c", 4, 100))
        deadlines.close()

    with VirtualTime() as time:
        time.run(main())
    assert ended == [("b", 8), ("a late", 10), ("c late", 14)]


def test_a_call_that_swallows_its_cancellation_leaves_none_behind() -> None:
    """The task is no more cancelled than before."""

    async def main() -> int:
        deadlines = Deadlines(1)
        call = deadlines.begin()
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            pass
        deadlines.end(call)
        deadlines.close()
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    with VirtualTime() as time:
        assert time.run(main()) == 0
