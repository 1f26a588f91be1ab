"""Listeners that block the loop, and tasks that ignore their cancellation."""

import asyncio
import gc
import logging
import sys
from collections.abc import Callable
from time import monotonic
from types import FrameType, ModuleType

import pytest

import streamkit.loop.loops
import streamkit.messaging.channel
from streamkit.application import StreamApplication
from streamkit.clock import use_clock
from streamkit.loop.code_location import line_of, line_of_task
from streamkit.loop.loops import run_on_new_loop
from streamkit.running.loop_watch import LoopWatch
from streamkit.testing.virtual_time import VirtualTime

MakeApplication = Callable[..., StreamApplication]


async def ignore_cancellation(release: asyncio.Event) -> None:
    """Wait, ignoring cancellation."""
    while not release.is_set():
        try:
            await release.wait()
        except asyncio.CancelledError:
            continue


def test_task_that_ignores_its_cancellation_is_abandoned(caplog: pytest.LogCaptureFixture) -> None:
    """The loop is closed, and the log has the line at which the task waits."""
    left: list[asyncio.Task[None]] = []

    async def main() -> None:
        left.append(asyncio.create_task(ignore_cancellation(asyncio.Event()), name="stubborn"))
        await asyncio.sleep(0)

    run_on_new_loop(main(), patience=0.01)
    (error,) = [record.getMessage() for record in caplog.records if "abandoned" in record.getMessage()]
    assert error.startswith("Task 'stubborn' was cancelled and is still running; it is abandoned at ")
    assert error.endswith(" in ignore_cancellation")
    assert "test_stubborn_tasks.py:" in error
    left.clear()
    gc.collect()  # now, that its end is not told in another test


def test_error_of_main_is_raised_after_its_tasks_ended() -> None:
    """Remaining tasks are cancelled before the loop closes."""
    ended = []

    async def other() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    tasks = set()

    async def main() -> None:
        tasks.add(asyncio.create_task(other()))
        await asyncio.sleep(0)
        raise LookupError

    with pytest.raises(LookupError):
        run_on_new_loop(main())
    assert ended == [True]


def test_stop_does_not_wait_for_ever_for_a_stubborn_listener(
    make_app: MakeApplication, caplog: pytest.LogCaptureFixture
) -> None:
    """Ten seconds after the shutdown timeout the application is stopped."""
    app = make_app(default_binder="inmemory", bindings__a__destination="topic")
    with VirtualTime() as time, use_clock(time.clock):

        async def main() -> None:
            loop, begun, release = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

            @app.stream_listener("a")
            async def stubborn(text: str) -> None:
                begun.set()
                await ignore_cancellation(release)

            await app.start(watch_loop=False)
            await app.bridge.asend("topic", "x")
            await begun.wait()
            began = loop.time()
            await app.stop(5)
            assert loop.time() - began == pytest.approx(15)
            release.set()
            await asyncio.sleep(1)

        time.run(main())
    assert "Binding 'a' did not stop within 15 s and is abandoned" in caplog.text


def test_blocked_loop_is_logged_while_it_is_blocked(caplog: pytest.LogCaptureFixture) -> None:
    """By a thread that checks the loop's heartbeat; once per blockage."""

    async def work_without_awaiting() -> None:
        until = monotonic() + 30
        while "is blocked by" not in caplog.text and monotonic() < until:
            pass

    async def main() -> None:
        watch = LoopWatch("app")
        watch.start()
        await work_without_awaiting()
        watch.stop()

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "test_stubborn_tasks.py:" in warning
    assert "in test_blocked_loop_is_logged_while_it_is_blocked.<locals>.work_without_awaiting. An `async" in warning


def test_logged_line_is_in_the_application() -> None:
    """Not in Python's modules below it."""

    async def main() -> None:
        task = asyncio.create_task(ignore_cancellation(release := asyncio.Event()))
        await asyncio.sleep(0)
        assert line_of_task(task).endswith(" in ignore_cancellation")
        release.set()
        await task

    asyncio.run(main())
    assert line_of([]) == "no line of Python"


@pytest.mark.parametrize("module", [streamkit.messaging.channel, streamkit.application, streamkit.loop.loops])
def test_lines_of_streamkit_do_not_count_as_the_application(module: ModuleType) -> None:
    """In a checkout as well as installed."""
    code = compile("import sys\nframe = sys._getframe()", str(module.__file__), "exec")
    namespace: dict[str, FrameType] = {}
    exec(code, namespace)
    assert line_of([sys._getframe(), namespace["frame"]]).endswith(
        " in test_lines_of_streamkit_do_not_count_as_the_application"
    )
