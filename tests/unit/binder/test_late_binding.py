"""A messaging system that is unavailable when the application starts."""

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
    """A binder whose system becomes available at a given time."""

    type = "flaky"
    up_at = 0.0

    async def start(self) -> None:
        await asyncio.sleep(0.1)
        if asyncio.get_running_loop().time() < self.up_at:
            raise BinderUnavailable("nobody there", binder=self.name)
        await super().start()


class FlakyPlugin(BinderType):
    """The flaky binder's type and plugin."""

    name = "flaky"

    def __init__(self, up_at: float) -> None:
        self._up_at = up_at

    @hookimpl
    def streamkit_binder_types(self) -> Mapping[str, BinderType]:
        """Return itself."""
        return {self.name: self}

    def create_binder(self, name: str, context: BinderContext) -> Binder:
        """Return the flaky binder."""
        binder = Flaky(name, context)
        binder.up_at = self._up_at
        return binder

    def extended_models(self) -> tuple[ConsumerModel, ProducerModel]:
        """Return those of the in-memory binder."""
        return InMemoryBinderType().extended_models()


def application(up_at: float, interval: str = "30") -> StreamApplication:
    """Return an application on a system that is available from then on."""
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
    """Run `main` while the application runs, in virtual time."""

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


def test_application_starts_and_binds_later() -> None:
    """Bindings are retried every 30 s; senders get an error meanwhile."""
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


def test_each_failed_attempt_sends_an_event() -> None:
    """binding_failed names the binding."""
    app = application(up_at=1000)
    failed: list[str] = []

    def note(sender: object, binding: str, error: Exception) -> None:
        failed.append(binding)

    with binding_failed.connected_to(note, sender=app):
        run(app, lambda: asyncio.sleep(61))
    assert failed == ["output"] * 3


def test_start_fails_without_a_retry_interval() -> None:
    """binding-retry-interval=0."""
    app = application(up_at=45, interval="0")
    with pytest.raises(BinderError, match="nobody there"):
        run(app, lambda: None)
    assert not app.is_running


def test_stop_cancels_a_start_in_progress() -> None:
    """What was bound is unbound, and the start raises."""
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
    """A plugin whose binder's start takes 11 seconds and fails until the system is available;

    for good with a negative time.
    """

    name = "slow"

    def create_binder(self, name: str, context: BinderContext) -> Binder:
        """Return a slow binder."""
        binder = Slow(name, context)
        binder.up_at = self._up_at
        return binder


class Slow(Flaky):
    """A binder that answers slowly."""

    async def start(self) -> None:
        await asyncio.sleep(10.9)
        if self.up_at < 0:
            raise ConfigurationError("there is no such cluster")
        await super().start()


def application_beside(slow: float, **settings: str) -> StreamApplication:
    """Return an application on an available system and on a slow one that is available from then on."""
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
def test_slow_binder_does_not_block_others(up_at: float) -> None:
    """Their bindings are bound three seconds later; senders to its own bindings wait."""
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
            with pytest.raises(MessagingError, match="'far' is not bound yet: the system of binder 'slow' cannot be"):
                await app.bridge.asend("far", "early")
            assert loop.time() == pytest.approx(11, abs=0.1)
            await asyncio.sleep(60)
        await app.bridge.asend("far", "far")
        await asyncio.sleep(1)
        assert {binding.state for binding in app.bindings.values()} == {BindingState.RUNNING}

    run(app, main)
    assert [text for _, text in received] == ["near", "far"]


def test_error_of_a_late_binder_is_reported_when_it_answers(caplog: pytest.LogCaptureFixture) -> None:
    """Its binding is given up, and senders and events get the reason; the others continue."""
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


def test_start_without_retries_waits_for_all_binders() -> None:
    """With binding-retry-interval=0 the slow binder's error fails it."""
    app = application_beside(45, **{"binding-retry-interval": "0"})
    with pytest.raises(BinderError, match="nobody there"):
        run(app, lambda: None)
    assert not app.is_running


def test_stop_ends_the_wait_for_a_binder() -> None:
    """Waiting senders get an error, and nothing is left behind."""
    app = application_beside(45)

    async def main() -> None:
        sending = asyncio.create_task(app.bridge.asend("far", "x"))
        await asyncio.sleep(1)
        await app.stop()
        with pytest.raises(MessagingError):
            await sending
        assert asyncio.get_running_loop().time() < 5

    run(app, main)


def test_manually_stopped_binding_is_not_bound_by_a_late_answer() -> None:
    """It stays stopped."""
    app = application_beside(0)

    async def main() -> None:
        await app.binding("far").stop()
        await asyncio.sleep(60)
        assert app.binding("far").state is BindingState.STOPPED
        assert app.binding("output").state is BindingState.RUNNING

    run(app, main)
