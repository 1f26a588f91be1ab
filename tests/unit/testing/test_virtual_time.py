"""Virtual time advances only while the loop would wait, in the order of real time."""

import asyncio
import sys
import threading
import time as real_time
from collections.abc import Iterator

import pytest

from streamkit.testing.virtual_time import CALLBACK_GRACE, DEFAULT_EPOCH_MS, StalledError, VirtualTime


@pytest.fixture
def time() -> Iterator[VirtualTime]:
    with VirtualTime() as virtual:
        yield virtual


def test_sleeping_for_hours_takes_no_real_time(time: VirtualTime) -> None:
    """The clock shows the hours."""
    began = real_time.monotonic()
    time.run(asyncio.sleep(7200))
    assert time.clock.now_ms() == DEFAULT_EPOCH_MS + 7_200_000
    assert real_time.monotonic() - began < 60


def test_timers_run_by_their_due_time(time: VirtualTime) -> None:
    """In whatever order they were set."""
    seen: list[tuple[str, float]] = []

    async def main() -> None:
        async def after(delay: float, name: str) -> None:
            await asyncio.sleep(delay)
            seen.append((name, time.loop.time()))

        await asyncio.gather(after(3, "c"), after(1, "a"), after(2, "b"))

    time.run(main())
    assert seen == [("a", 1), ("b", 2), ("c", 3)]


def test_timeout_follows_virtual_time(time: VirtualTime) -> None:
    """``asyncio.timeout`` uses the virtual clock."""

    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.Event().wait()
        return time.loop.time()

    assert time.run(main()) == 30


def test_thread_job_stops_the_clock(time: VirtualTime) -> None:
    """No timer runs while a thread works, however near it is."""

    async def main() -> float:
        timer = asyncio.create_task(asyncio.sleep(0.001))
        await asyncio.to_thread(real_time.sleep, 0.03)
        at = time.loop.time()
        await timer
        return at

    assert time.run(main()) == 0


def test_thread_job_may_wait_for_the_loop(time: VirtualTime) -> None:
    """For a coroutine that needs virtual time to pass."""

    async def main() -> float:
        def job() -> None:
            asyncio.run_coroutine_threadsafe(asyncio.sleep(3600), time.loop).result()

        await asyncio.to_thread(job)
        return time.loop.time()

    assert time.run(main()) == 3600


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells whether a thread computes")
def test_thread_job_that_computes_after_calling_the_loop_stops_the_clock(time: VirtualTime) -> None:
    """It is distinguished from one that waits."""

    async def main() -> float:
        def job() -> float:
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0), time.loop).result()
            until = real_time.thread_time() + 10 * CALLBACK_GRACE
            while real_time.thread_time() < until:
                sum(range(1000))
            return asyncio.run_coroutine_threadsafe(now(), time.loop).result()

        async def now() -> float:
            return time.loop.time()

        timer = asyncio.create_task(asyncio.sleep(1))
        at = await asyncio.to_thread(job)
        await timer
        return at

    assert time.run(main()) == 0


def test_hold_stops_the_clock_for_foreign_threads(time: VirtualTime) -> None:
    """Threads that the loop did not start."""

    async def main() -> float:
        done = asyncio.Event()

        def work() -> None:
            real_time.sleep(0.03)
            time.loop.call_soon_threadsafe(done.set)

        thread = threading.Thread(target=work)
        with time.loop.hold():
            thread.start()
            async with asyncio.timeout(0.001):
                await done.wait()
        thread.join()
        return time.loop.time()

    assert time.run(main()) == 0


def test_waiting_without_timers_is_an_error(time: VirtualTime) -> None:
    """It names the waiting tasks instead of hanging."""

    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(StalledError, match="these tasks wait"):
        time.run(main())


def test_time_stands_still_between_runs(time: VirtualTime) -> None:
    """Timers run only while the loop runs."""
    fired: list[float] = []

    async def schedule() -> None:
        time.loop.call_later(5, lambda: fired.append(time.loop.time()))

    time.run(schedule())
    time.advance(4)
    assert fired == []
    time.advance(2)
    assert fired == [5]
