"""A messaging system that is away when the application starts."""

import asyncio
from collections.abc import Callable, Mapping

import pytest

from binders.inmemory.binder import InMemoryBinder
from binders.inmemory.plugin import InMemoryBinderType
from streamkit.application import StreamApplication
from streamkit.binder.binder import Binder, BinderContext, BindingState
from streamkit.binder.binder_type import BinderType
from streamkit.binder.delivery import ConsumerModel, ProducerModel
from streamkit.errors import (
    ApplicationError,
    BinderError,
    BinderUnavailable,
    ConfigurationError,
    MessagingError,
)
from streamkit.events import binding_failed
from streamkit.plugins import hookimpl
from streamkit.testing.virtual_time import VirtualTime


class Flaky(InMemoryBinder):
    """A binder whose system comes up at a given time."""

    type = "flaky"
    up_at = 0.0

    async def start(self) -> None:
        await asyncio.sleep(0.1)
        if asyncio.get_running_loop().time() < self.up_at:
            raise BinderUnavailable("nobody there", binder=self.name)
        await super().start()


class FlakyPlugin(BinderType):
    """Its type, and the plugin that offers it."""

    name = "flaky"

    def __init__(self, up_at: float) -> None:
        self._up_at = up_at

    @hookimpl
    def streamkit_binder_types(self) -> Mapping[str, BinderType]:
        """Itself."""
        return {self.name: self}

    def create_binder(self, name: str, context: BinderContext) -> Binder:
        """A flaky binder."""
        binder = Flaky(name, context)
        binder.up_at = self._up_at
        return binder

    def extended_models(self) -> tuple[ConsumerModel, ProducerModel]:
        """Those of the in-memory binder."""
        return InMemoryBinderType().extended_models()


def application(up_at: float, interval: str = "30") -> StreamApplication:
    """An application on a system that is up from then on."""
    return StreamApplication(
        config_location="optional:/none",
        properties={
            "spring.cloud.stream.default-binder": "flaky",
            "spring.cloud.stream.inmemory.binder.stands-in-for": "inmemory",
            "spring.cloud.stream.binding-retry-interval": interval,
            "spring.cloud.stream.output-bindings": "output",
            "spring.cloud.stream.bindings.output.destination": "topic",
            "spring.cloud.stream.bindings.input.destination": "topic",
        },
        plugins=[FlakyPlugin(up_at)],
    )


def run(app: StreamApplication, main: Callable[[], object]) -> None:
    """Run `main` while the application runs, on virtual time."""

    async def case() -> None:
        await app.start(watch_loop=False)
        try:
            result = main()
            if asyncio.iscoroutine(result):
                await result
        finally:
            await app.stop()

    with VirtualTime() as time:
        time.run(case())


def test_the_application_starts_and_binds_later() -> None:
    """Bindings are tried again every 30 s; senders are told meanwhile."""
    app = application(up_at=45)
    received: list[str] = []

    @app.stream_listener("input")
    async def note(text: str) -> None:
        received.append(text)

    async def main() -> None:
        assert app.binding("input").state is BindingState.STOPPED
        with pytest.raises(MessagingError, match="not bound yet"):
            await app.bridge.asend("output", "early")
        await asyncio.sleep(61)
        assert {binding.state for binding in app.bindings.values()} == {BindingState.RUNNING}
        await app.bridge.asend("output", "late")
        await asyncio.sleep(1)

    run(app, main)
    assert received == ["late"]


def test_each_failed_attempt_is_an_event() -> None:
    """binding_failed names the binding."""
    app = application(up_at=1000)
    failed: list[str] = []

    def note(sender: object, binding: str, error: Exception) -> None:
        failed.append(binding)

    with binding_failed.connected_to(note, sender=app):
        run(app, lambda: asyncio.sleep(61))
    assert failed == ["output"] * 3


def test_with_no_interval_the_start_fails() -> None:
    """binding-retry-interval=0: the application does not start without its system."""
    app = application(up_at=45, interval="0")
    with pytest.raises(BinderError, match="nobody there"):
        run(app, lambda: None)
    assert not app.is_running


def test_a_stop_ends_a_start_under_way() -> None:
    """What it had bound is unbound, and who waits for the start hears of it."""
    app = application(up_at=0)

    async def main() -> None:
        starting = asyncio.create_task(app.start(watch_loop=False))
        await asyncio.sleep(0.05)
        await app.stop()
        with pytest.raises(ApplicationError, match="stopped while it was starting"):
            await starting
        assert not app.is_running
        await app.start(watch_loop=False)
        assert app.binding("output").state is BindingState.RUNNING
        await app.stop()

    with VirtualTime() as time:
        time.run(main())


class SlowPlugin(FlakyPlugin):
    """Its binder's start takes 11 seconds, and ends with an error until it is up; with a negative time for good."""

    name = "slow"

    def create_binder(self, name: str, context: BinderContext) -> Binder:
        """A slow binder."""
        binder = Slow(name, context)
        binder.up_at = self._up_at
        return binder


class Slow(Flaky):
    """One that takes long to answer."""

    async def start(self) -> None:
        await asyncio.sleep(10.9)
        if self.up_at < 0:
            raise ConfigurationError("there is no such cluster")
        await super().start()


def application_beside(slow: float, **settings: str) -> StreamApplication:
    """An application on a system that is there, and on a slow one that is up from then on."""
    prefix = "spring.cloud.stream"
    return StreamApplication(
        config_location="optional:/none",
        properties={
            f"{prefix}.default-binder": "flaky",
            f"{prefix}.inmemory.binder.stands-in-for": "inmemory",
            f"{prefix}.output-bindings": "output;far",
            f"{prefix}.bindings.output.destination": "topic",
            f"{prefix}.bindings.input.destination": "topic",
            f"{prefix}.bindings.far.binder": "slow",
            f"{prefix}.bindings.away.binder": "slow",
            f"{prefix}.bindings.away.destination": "far",
        }
        | {f"{prefix}.{key}": value for key, value in settings.items()},
        plugins=[FlakyPlugin(0), SlowPlugin(slow)],
    )


@pytest.mark.parametrize("up_at", [0, 45])
def test_a_binder_that_takes_long_holds_up_no_other(up_at: float) -> None:
    """The others' bindings are bound three seconds later; whoever sends to its own waits for its answer."""
    app = application_beside(up_at)
    received: list[tuple[float, str]] = []

    @app.stream_listener("input")
    @app.stream_listener("away")
    async def note(text: str) -> None:
        received.append((asyncio.get_running_loop().time(), text))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert loop.time() < 4
        await app.bridge.asend("output", "near")
        await asyncio.sleep(0.1)
        assert [text for _, text in received] == ["near"]
        assert app.binding("far").state is BindingState.STOPPED
        if up_at:
            with pytest.raises(MessagingError, match="'far' is not bound yet: binder 'slow' is away"):
                await app.bridge.asend("far", "early")
            assert loop.time() == pytest.approx(11, abs=0.1)
            await asyncio.sleep(60)
        await app.bridge.asend("far", "far")
        await asyncio.sleep(1)
        assert {binding.state for binding in app.bindings.values()} == {BindingState.RUNNING}

    run(app, main)
    assert [text for _, text in received] == ["near", "far"]


def test_what_is_wrong_with_a_late_binder_is_told_when_it_answers(caplog: pytest.LogCaptureFixture) -> None:
    """The binding is given up, senders and events are told why; the others go on."""
    app = application_beside(-1)
    failed: list[str] = []

    def note(sender: object, binding: str, error: Exception) -> None:
        failed.append(binding)

    async def main() -> None:
        with pytest.raises(MessagingError, match="'far' cannot be bound: there is no such cluster"):
            await app.bridge.asend("far", "x")
        await app.bridge.asend("output", "x")

    with binding_failed.connected_to(note, sender=app):
        run(app, main)
    assert failed == ["far"]
    assert "Binder 'slow' has not answered within 3 s" in caplog.text


def test_a_start_that_is_to_fail_waits_for_all_binders() -> None:
    """binding-retry-interval=0: the error of the slow one ends it."""
    app = application_beside(45, **{"binding-retry-interval": "0"})
    with pytest.raises(BinderError, match="nobody there"):
        run(app, lambda: None)
    assert not app.is_running


def test_a_stop_ends_the_wait_for_a_binder() -> None:
    """Whoever waits to send is told, and nothing is left behind."""
    app = application_beside(45)

    async def main() -> None:
        sending = asyncio.create_task(app.bridge.asend("far", "x"))
        await asyncio.sleep(1)
        await app.stop()
        with pytest.raises(MessagingError):
            await sending
        assert asyncio.get_running_loop().time() < 5

    run(app, main)


def test_a_binding_that_was_stopped_by_hand_is_not_bound_by_a_late_answer() -> None:
    """Whoever stopped it would find it running."""
    app = application_beside(0)

    async def main() -> None:
        await app.binding("far").stop()
        await asyncio.sleep(60)
        assert app.binding("far").state is BindingState.STOPPED
        assert app.binding("output").state is BindingState.RUNNING

    run(app, main)
