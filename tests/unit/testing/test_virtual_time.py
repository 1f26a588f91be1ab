"""Virtual time passes only while the loop would wait, and in the same order as real time."""

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


def test_two_hours_pass_at_once(time: VirtualTime) -> None:
    """Sleeping for hours takes no real time, and the clock shows them."""
    began = real_time.monotonic()
    time.run(asyncio.sleep(7200))
    assert time.clock.now_ms() == DEFAULT_EPOCH_MS + 7_200_000
    assert real_time.monotonic() - began < 60


def test_timers_fire_in_the_order_of_their_time(time: VirtualTime) -> None:
    """Timers run by their due time, whatever order they were set in."""
    seen: list[tuple[str, float]] = []

    async def main() -> None:
        async def after(delay: float, name: str) -> None:
            await asyncio.sleep(delay)
            seen.append((name, time.loop.time()))

        await asyncio.gather(after(3, "c"), after(1, "a"), after(2, "b"))

    time.run(main())
    assert seen == [("a", 1), ("b", 2), ("c", 3)]


def test_a_timeout_fires_at_its_virtual_time(time: VirtualTime) -> None:
    """``asyncio.timeout`` follows the virtual clock."""

    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.Event().wait()
        return time.loop.time()

    assert time.run(main()) == 30


def test_a_job_in_a_thread_holds_the_clock(time: VirtualTime) -> None:
    """While a thread works, no timer fires, however near it is."""

    async def main() -> float:
        timer = asyncio.create_task(asyncio.sleep(0.001))
        await asyncio.to_thread(real_time.sleep, 0.03)
        at = time.loop.time()
        await timer
        return at

    assert time.run(main()) == 0


def test_a_job_that_waits_for_the_loop_does_not_stall_it(time: VirtualTime) -> None:
    """A thread may wait for a coroutine that needs virtual time to pass."""

    async def main() -> float:
        def job() -> None:
            asyncio.run_coroutine_threadsafe(asyncio.sleep(3600), time.loop).result()

        await asyncio.to_thread(job)
        return time.loop.time()

    assert time.run(main()) == 3600


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells whether a thread computes")
def test_a_job_that_computes_after_it_called_the_loop_holds_the_clock(time: VirtualTime) -> None:
    """A thread that has called into the loop and goes on to compute is not mistaken for one that waits."""

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


def test_a_foreign_thread_is_waited_for_under_hold(time: VirtualTime) -> None:
    """``hold`` keeps the clock still for threads the loop did not start."""

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


def test_waiting_for_what_can_never_come_is_an_error(time: VirtualTime) -> None:
    """A loop with nothing scheduled says which tasks wait, instead of hanging."""

    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(StalledError, match="these tasks wait"):
        time.run(main())


def test_time_stands_still_between_runs(time: VirtualTime) -> None:
    """What is scheduled fires only while somebody runs the loop."""
    fired: list[float] = []

    async def schedule() -> None:
        time.loop.call_later(5, lambda: fired.append(time.loop.time()))

    time.run(schedule())
    time.advance(4)
    assert fired == []
    time.advance(2)
    assert fired == [5]
