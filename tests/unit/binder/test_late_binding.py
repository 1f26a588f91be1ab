"""A messaging system that is away when the application starts."""

import asyncio
from collections.abc import Callable

import pytest

from binders.inmemory.binder import InMemoryBinder
from binders.inmemory.plugin import streamkit_extended_models as extended_models
from streamkit.application import StreamApplication
from streamkit.binder.binder import Binder, BinderContext, BindingState
from streamkit.binder.delivery import ConsumerModel, ProducerModel
from streamkit.binder.plugin import hookimpl
from streamkit.errors import ApplicationError, BinderError, BinderUnavailable, MessagingError
from streamkit.events import binding_failed
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


class FlakyPlugin:
    """Its hooks."""

    def __init__(self, up_at: float) -> None:
        self._up_at = up_at

    @hookimpl
    def streamkit_create_binder(self, type: str, name: str, context: BinderContext) -> Binder:  # noqa: A002
        """A flaky binder."""
        binder = Flaky(name, context)
        binder.up_at = self._up_at
        return binder

    @hookimpl
    def streamkit_extended_models(self, type: str) -> tuple[ConsumerModel, ProducerModel] | None:  # noqa: A002
        """Those of the in-memory binder."""
        return extended_models("inmemory")


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
        binder_plugins={"flaky": FlakyPlugin(up_at)},
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
