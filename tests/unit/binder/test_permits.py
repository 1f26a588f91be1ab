"""Permits and deadlines: limits on concurrent calls and their duration."""

import asyncio

from streamkit.binder.deadlines import Deadlines
from streamkit.binder.permits import Permits
from streamkit.testing.virtual_time import VirtualTime


def test_permits_are_granted_in_order() -> None:
    """The longest waiter gets the next free permit."""

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


def test_cancelled_waiter_loses_no_permit() -> None:
    """Neither while it waits nor at the moment it gets the permit."""

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


def test_recalled_task_leaves_the_queue_and_keeps_its_permit() -> None:
    """Only tasks that wait for a permit are cancelled, also if they waited before."""

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


def test_free_permit_is_reported_only_without_waiters() -> None:
    """Otherwise it is taken already."""

    async def main() -> int:
        reported = 0

        def tell() -> None:
            nonlocal reported
            reported += 1

        permits = Permits(1)
        permits.watch(tell)
        await permits.acquire()
        waiting = asyncio.create_task(permits.acquire())
        await asyncio.sleep(0)
        permits.release()
        await waiting
        assert reported == 0
        permits.release()
        return reported

    assert asyncio.run(main()) == 1


def test_close_ends_every_wait() -> None:
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


def test_deadlines_cancel_only_late_calls() -> None:
    """One timer serves all; each call expires at its own time."""
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


def test_call_that_swallows_its_cancellation_is_not_cancelled_later() -> None:
    """The task's cancellation count is as before."""

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
