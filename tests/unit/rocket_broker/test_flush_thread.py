"""The thread that flushes the log: its calls, and how the loop gets their results."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest
import uvloop

from rocket_broker.store.flush_thread import FlushThread

Run = Callable[[Coroutine[None, None, None]], None]


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine on a loop of asyncio, or of uvloop."""
    runner: Run = request.param
    return runner


def descriptors() -> set[Path]:
    """Return the open file descriptors of the process."""
    return set(Path("/dev/fd").iterdir())


def test_calls_are_made_in_order_in_one_other_thread(run: Run) -> None:
    """A call begins when the one before it has ended."""

    async def main() -> None:
        thread, called = FlushThread("flush"), list[tuple[int, int]]()
        await asyncio.gather(*(thread.run(lambda n: called.append((n, threading.get_ident())), n) for n in range(50)))
        thread.close()
        assert [number for number, _ in called] == list(range(50))
        (ident,) = {ident for _, ident in called}
        assert ident != threading.get_ident()

    run(main())


def test_exception_reaches_only_who_waits_for_the_call(run: Run) -> None:
    """The thread goes on, and later calls succeed."""

    def refuse(error: OSError | None) -> None:
        if error is not None:
            raise error

    async def main() -> None:
        thread, error = FlushThread("flush"), OSError("the disk refused")
        first, second = thread.run(refuse, error), thread.run(refuse, None)
        with pytest.raises(OSError, match="the disk refused") as raised:
            await first
        await second
        thread.close()
        assert raised.value is error

    run(main())


def test_loop_runs_during_a_call(run: Run) -> None:
    """A slow disk keeps no client waiting that does not need it."""

    async def main() -> None:
        thread, goes_on = FlushThread("flush"), threading.Event()
        waiting = thread.run(lambda event: event.wait(), goes_on)
        for _ in range(100):
            await asyncio.sleep(0)
        assert not waiting.done()
        goes_on.set()
        await waiting
        thread.close()

    run(main())


def test_cancelled_call_is_made_and_the_next_one_has_its_own_result(run: Run) -> None:
    """The result of the cancelled call is dropped."""

    async def main() -> None:
        thread, goes_on, called = FlushThread("flush"), threading.Event(), list[int]()
        held = thread.run(lambda event: event.wait(), goes_on)
        cancelled, last = thread.run(called.append, 1), thread.run(called.append, 2)
        cancelled.cancel()
        goes_on.set()
        await last
        assert held.done()
        assert called == [1, 2]
        thread.close()

    run(main())


def test_close_makes_the_calls_that_wait_and_ends_the_thread(run: Run) -> None:
    """Nobody waits for ever for a result of a closed thread."""

    async def main() -> None:
        thread, called = FlushThread("flush-to-close"), list[int]()
        waiting = [thread.run(called.append, number) for number in range(3)]
        thread.close()
        assert called == [0, 1, 2]
        await asyncio.gather(*waiting)
        assert "flush-to-close" not in {each.name for each in threading.enumerate()}

    run(main())


def test_thread_that_is_closed_later_ends_after_its_calls_and_frees_the_pipe(run: Run) -> None:
    """The loop does not wait for a call under way, and the calls have their results."""

    async def main() -> None:
        before = descriptors()
        thread, goes_on, called = FlushThread("flush"), threading.Event(), list[int]()
        waiting = [thread.run(lambda event: event.wait(), goes_on), thread.run(called.append, 1)]
        thread.close_later()
        assert not called
        goes_on.set()
        await asyncio.gather(*waiting)
        assert called == [1]
        gone = weakref.ref(thread)
        del thread
        while gone() is not None:  # noqa: ASYNC110 - a thread closes the pipe
            await asyncio.sleep(0)
        assert descriptors() <= before

    run(main())


def test_thread_ends_with_a_loop_that_did_not_close_it(run: Run) -> None:
    """It keeps neither what it has called nor the pipe."""
    kept: list[weakref.ref[object]] = []

    class Store:
        """What the thread flushes."""

        def flush(self, _: int) -> None:
            """Do nothing."""

    async def main() -> None:
        store = Store()
        kept.append(weakref.ref(store))
        await FlushThread("flush-without-close").run(store.flush, 1)

    run(asyncio.sleep(0))  # a first loop keeps some descriptors for later ones
    before = descriptors()
    run(main())
    gc.collect()
    for thread in [each for each in threading.enumerate() if each.name == "flush-without-close"]:
        thread.join(60)
        assert not thread.is_alive()
    assert kept[0]() is None
    assert descriptors() <= before
