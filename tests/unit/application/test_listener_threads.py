"""The threads on which `def` listeners run."""

import asyncio
import threading
from concurrent.futures import Future, wait

import pytest

from streamkit.listeners.listener_threads import ListenerThreads


def named(name: str) -> list[str]:
    """Return the living threads with this name prefix."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(name)]


def test_calls_run_on_other_threads_and_complete_futures() -> None:
    """With the result or the exception, in the order of the calls."""
    threads = ListenerThreads(1, "orders listener")
    names = [threads.submit(lambda: threading.current_thread().name) for _ in range(3)]
    failed = threads.submit(divmod, 1, 0)
    assert [name.result(5) for name in names] == ["orders listener 1"] * 3
    assert isinstance(failed.exception(5), ZeroDivisionError)
    threads.shutdown()


def test_threads_are_reused_and_limited() -> None:
    """A free thread takes the next call; at most `width` calls run at once."""
    threads = ListenerThreads(2, "bills listener")
    assert named("bills") == []
    for _ in range(5):
        threads.submit(int).result(5)
    assert len(named("bills")) <= 2
    both = threading.Barrier(2)
    results: list[Future[int]] = [threads.submit(both.wait, 5) for _ in range(4)]
    assert sorted(result.result(5) for result in results) == [0, 0, 1, 1]
    threads.shutdown()
    assert named("bills") == []


def test_waiting_calls_can_be_cancelled() -> None:
    """A running call is abandoned; no further calls are accepted."""
    threads = ListenerThreads(1, "orders listener")
    begun, go_on = threading.Event(), threading.Event()

    def work() -> bool:
        begun.set()
        return go_on.wait(5)

    first, second = threads.submit(work), threads.submit(int)
    assert begun.wait(5)
    threads.shutdown(wait=False, cancel_futures=True)
    assert second.cancelled()
    go_on.set()
    assert first.result(5)
    with pytest.raises(RuntimeError, match="orders listener: the threads are closed"):
        threads.submit(int)


def test_concurrent_calls_from_many_threads_all_run() -> None:
    """None is lost, whichever thread takes it."""
    threads = ListenerThreads(4, "orders listener")
    results: list[Future[int]] = []
    callers = [
        threading.Thread(target=lambda: results.extend([threads.submit(int) for _ in range(500)])) for _ in range(4)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    done, late = wait(results, 5)
    assert (len(done), len(late)) == (2000, 0)
    threads.shutdown()


def test_stop_iteration_reaches_the_caller() -> None:
    """asyncio's futures refuse StopIteration, which would leave the caller waiting for ever."""

    async def main() -> None:
        threads = ListenerThreads(1, "orders listener")
        with pytest.raises(RuntimeError, match="the function raised StopIteration") as raised:
            await asyncio.wait_for(asyncio.get_running_loop().run_in_executor(threads, next, iter(())), timeout=30)
        assert isinstance(raised.value.__cause__, StopIteration)
        threads.shutdown()

    asyncio.run(main())
