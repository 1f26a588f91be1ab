"""Starting and stopping: on the caller's loop, in a thread, in a process of its own."""

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from streamkit import Message, output_channel
from streamkit.application import StreamApplication
from streamkit.config.environment import Environment
from streamkit.errors import ApplicationError, ConfigurationError, ForeignLoopError, UseAfterFork
from streamkit.events import (
    application_started,
    application_stopped,
    binding_created,
    binding_removed,
    loop_blocked,
)
from streamkit.running.loop_watch import LoopWatch

MakeApplication = Callable[..., StreamApplication]


def test_with_block_runs_the_application_in_a_thread(make_app: MakeApplication) -> None:
    """Blocking code sends while listeners work."""
    app = make_app(default_binder="inmemory", **{"bindings__a-out__destination": "a"})
    received: list[tuple[str, bool]] = []
    done = threading.Event()

    @app.stream_listener("a")
    async def note(text: str) -> None:
        received.append((text, threading.current_thread() is threading.main_thread()))
        done.set()

    app.enable_binding(_Output)
    with app:
        assert app.is_running
        assert app.bound(_Output).out.send(Message("x"))
        assert done.wait(5)
    assert received == [("x", False)]
    assert not app.is_running


def test_error_channel_can_be_used_from_any_thread_while_running(
    make_app: MakeApplication,
) -> None:
    """Its listeners run on the application's loop, also for channels made later."""
    heard: list[object] = []

    async def note(message: Message[object]) -> None:
        heard.append(message.payload)

    app = make_app(default_binder="inmemory")
    with app:
        late = app.channel("late.errors")
        late.subscribe(note)
        assert late.send(Message("x"))
    assert heard == ["x"]


def test_startup_error_is_raised_in_the_blocks_thread(make_app: MakeApplication) -> None:
    """The application's thread has ended."""
    app = make_app(default_binder="nonesuch")
    app.stream_listener("a")(lambda: None)
    with pytest.raises(ConfigurationError, match="nonesuch"), app:
        pass
    assert "streamkit loop" not in [thread.name for thread in threading.enumerate()]


def test_binding_events_follow_the_lifecycle(make_app: MakeApplication) -> None:
    """Outputs start before inputs and stop after them."""
    app = make_app(default_binder="inmemory")
    app.stream_listener("a")(lambda: None)
    app.enable_binding(_Output)
    reported: list[str] = []

    async def main() -> None:
        async with app:
            pass

    with ExitStack() as connected:
        for event in (application_started, binding_created, binding_removed, application_stopped):

            def note(sender: object, *, _name: str = event.name, **values: object) -> None:
                reported.append(f"{_name} {values.get('binding', '')}".strip())

            connected.enter_context(event.connected_to(note, sender=app))
        asyncio.run(main())
    assert reported == [
        "binding_created a-out",
        "binding_created a",
        "application_started",
        "binding_removed a",
        "binding_removed a-out",
        "application_stopped",
    ]


def test_blocked_loop_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    """A heartbeat more than a second late is a warning and an event."""

    class Clock(asyncio.SelectorEventLoop):
        """A loop with an adjustable clock."""

        ahead = 0.0

        def time(self) -> float:
            return super().time() + self.ahead

    blocked: list[float] = []

    def note(sender: object, seconds: float) -> None:
        blocked.append(seconds)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Clock)
        watch = LoopWatch("app")
        watch.start()
        loop.ahead += 5
        with loop_blocked.connected_to(note):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        watch.stop()

    with asyncio.Runner(loop_factory=Clock) as runner:
        runner.run(main())
    assert blocked == pytest.approx([4.5], abs=0.4)
    assert "was blocked for" in caplog.text


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this platform")
def test_use_after_fork_is_an_error(make_app: MakeApplication) -> None:
    """In a forked child neither channels nor the bridge work."""
    app = make_app(default_binder="inmemory")
    app.enable_binding(_Output)
    reading, writing = os.pipe()
    with app:
        channel = app.bound(_Output).out
        assert channel.send(Message("x"))
        child = os.fork()
        if child == 0:
            refused = 0
            for send in (
                lambda: channel.send(Message("x")),
                lambda: app.bridge.send("b", "x"),
                lambda: asyncio.run(channel.asend(Message("x"))),
                lambda: asyncio.run(app.bridge.asend("b", "x")),
                lambda: asyncio.run(app.controller.change_state("a-out", "STOPPED")),
                lambda: app.portal,
                lambda: asyncio.run(app.start()),
                lambda: asyncio.run(app.stop()),
            ):
                try:
                    send()
                except UseAfterFork:
                    refused += 1
                except BaseException:
                    refused += 100
            os.write(writing, str(refused).encode())
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(reading, 10) == b"8"
        assert channel.send(Message("x"))
    os.close(reading)
    os.close(writing)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this platform")
def test_forked_child_leaves_the_block_without_waiting(make_app: MakeApplication) -> None:
    """The thread to wait for exists only in the parent."""
    app = make_app(default_binder="inmemory", output_bindings="b")
    child = None
    try:
        with app:
            child = os.fork()
    except BaseException:
        if child == 0:
            os._exit(1)
        raise
    if child == 0:
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_awaiting_on_another_loop_is_refused(make_app: MakeApplication) -> None:
    """The error names the alternative, which works; calls that need no loop work everywhere."""
    app = make_app(default_binder="inmemory")
    app.enable_binding(_Output)

    async def elsewhere() -> bool:
        channel = app.bound(_Output).out
        for send in (channel.asend(Message("x")), app.bridge.asend("b", "x")):
            with pytest.raises(ForeignLoopError, match=r"another event loop.*async with app.*to_thread\(channel\.send"):
                await send
        plain = app.channel("plain")
        plain.subscribe(lambda message: None)
        assert await plain.asend(Message("x"))
        return await asyncio.to_thread(channel.send, Message("x"))

    with app:
        assert asyncio.run(elsewhere())


def test_calls_in_progress_may_send_until_they_end(make_app: MakeApplication) -> None:
    """During a stop the bridge and the channels still work; a second stop waits for the first."""
    app = make_app(default_binder="inmemory", output_bindings="to", bindings__to__destination="a")
    sent: list[bool] = []
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.stream_listener("a")
    async def slow(text: str) -> None:
        begun.set()
        await go_on.wait()
        sent.append(await app.bridge.asend("b", text))

    async def main() -> None:
        await app.start()
        assert await app.bridge.asend("to", "x")
        await begun.wait()
        stops = [asyncio.create_task(app.stop()), asyncio.create_task(app.stop())]
        await asyncio.sleep(0)
        assert not app.is_running
        with pytest.raises(ApplicationError, match="still stopping"):
            await app.start()
        go_on.set()
        await stops[1]
        assert stops[0].done()

    asyncio.run(main())
    assert sent == [True]


def test_run_on_a_running_loop_is_an_error(app: StreamApplication) -> None:
    """It names the alternative, for example for notebooks."""

    async def main() -> None:
        with pytest.raises(ApplicationError, match="use `async with app`"):
            app.run()

    asyncio.run(main())


def test_stop_without_a_start_does_nothing(app: StreamApplication) -> None:
    """And a stop can be requested only while `run` runs."""
    asyncio.run(app.stop())
    app.request_stop()
    with pytest.raises(ApplicationError):
        _ = app.portal


class _Output:
    """A declaring interface."""

    out = output_channel("a-out")


def test_second_start_does_not_disturb_the_first(make_app: MakeApplication) -> None:
    """It is refused; leaving the first block stops the application."""
    app = make_app(default_binder="inmemory")
    with app:
        with pytest.raises(ApplicationError, match="runs already"), app:
            pass
        assert app.is_running
    assert not app.is_running


def test_given_environment_is_used_as_it_is() -> None:
    """No other source is read; arguments override it as they override files."""
    given = {"spring.application.name": "shop", "spring.cloud.stream.instance-index": "1"}
    environment = Environment.load(config_location="optional:/none", variables={}, overrides=given)
    app = StreamApplication(environment=environment)
    app.take_arguments(["--spring.cloud.stream.instance-index=3"])
    assert app.name == "shop"
    assert app.container.settings().value.instance_index == 3
    app.take_arguments([])
    assert app.container.settings().value.instance_index == 1
