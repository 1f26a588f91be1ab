"""Starting, stopping and pausing bindings by hand at unfavourable moments."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping

import pytest

from binders.inmemory.binder import InMemoryBinder
from binders.inmemory.plugin import InMemoryBinderType
from streamkit.application import StreamApplication
from streamkit.binder.binder import (
    Binder,
    BinderContext,
    BindingState,
    ConsumerBinding,
    ConsumerDestination,
    Health,
    HealthStatus,
    ProducerBinding,
    ProducerDestination,
    Receiver,
)
from streamkit.binder.binder_type import BinderType
from streamkit.binder.binding import InputBinding
from streamkit.binder.delivery import ConsumerModel, ProducerModel
from streamkit.errors import ApplicationError, BinderError, BinderUnavailable, MessagingError
from streamkit.events import binding_changed, binding_created
from streamkit.messaging.message import Message
from streamkit.plugins import hookimpl
from streamkit.testing.virtual_time import VirtualTime

SECONDS_TO_BIND = 1.0


Trouble = Callable[[float], Exception | None]


class Slow(InMemoryBinder):
    """A binder that binds slowly, for ever for `never`, and sometimes fails; it counts bindings."""

    type = "slow"
    bound = 0
    trouble: Trouble

    def __init__(self, name: str, context: BinderContext) -> None:
        super().__init__(name, context)
        self.lingering: list[Lingering] = []

    async def bind_consumer(self, destination: ConsumerDestination, receiver: Receiver) -> ConsumerBinding:
        await self._take_time(destination.name)
        consumer = await super().bind_consumer(destination, receiver)
        return Stubborn(consumer) if destination.binding == "stubborn" else consumer

    async def bind_producer(self, destination: ProducerDestination) -> ProducerBinding:
        if destination.name == "lingering":
            producer = Lingering(await super().bind_producer(destination), self.lingering)
            await self._take_time(destination.name)
            return producer
        await self._take_time(destination.name)
        return await super().bind_producer(destination)

    async def _take_time(self, destination: str) -> None:
        if (error := self.trouble(asyncio.get_running_loop().time())) is not None:
            raise error
        self.bound += 1
        await asyncio.sleep(math.inf if destination == "never" else SECONDS_TO_BIND)


class Stubborn(ConsumerBinding):
    """A binding that cannot be stopped."""

    def __init__(self, consumer: ConsumerBinding) -> None:
        self._consumer = consumer

    @property
    def state(self) -> BindingState:
        return self._consumer.state

    async def pause(self) -> None:
        await self._consumer.pause()

    async def resume(self) -> None:
        await self._consumer.resume()

    async def stop(self, timeout: float) -> None:
        await self._consumer.stop(timeout)
        raise BinderError("it cannot be stopped", binder="slow", binding="stubborn")


class Lingering(ProducerBinding):
    """A binding that stops slowly, and must have stopped before the next one of its name is bound."""

    def __init__(self, producer: ProducerBinding, others: "list[Lingering]") -> None:
        assert not others
        others.append(self)
        self._producer = producer
        self._others = others

    async def send(self, message: Message[bytes]) -> None:
        await self._producer.send(message)

    async def stop(self) -> None:
        await asyncio.sleep(SECONDS_TO_BIND * 2)
        self._others.remove(self)
        await self._producer.stop()


class SlowPlugin(BinderType):
    """The slow binder's type and plugin."""

    binder: Slow

    def __init__(self, trouble: Trouble) -> None:
        self._trouble = trouble

    @hookimpl
    def streamkit_binder_types(self) -> Mapping[str, BinderType]:
        """Return itself."""
        return {"slow": self}

    def create_binder(self, name: str, context: BinderContext) -> Binder:
        """Return the slow binder."""
        self.binder = Slow(name, context)
        self.binder.trouble = self._trouble
        return self.binder

    def extended_models(self) -> tuple[ConsumerModel, ProducerModel]:
        """Return those of the in-memory binder."""
        return InMemoryBinderType().extended_models()


class Stage:
    """An application on a slow binder in virtual time: bindings `in` and `out` of one destination."""

    def __init__(self, trouble: Trouble = lambda now: None, **settings: str) -> None:
        self.plugin = SlowPlugin(trouble)
        self.received: list[str] = []
        table = {f"spring.cloud.stream.{key.replace('__', '.')}": value for key, value in settings.items()}
        self.app = StreamApplication(
            config_location="optional:/none",
            properties={
                "spring.cloud.stream.default-binder": "slow",
                "spring.cloud.stream.inmemory.binder.stands-in-for": "inmemory",
                "spring.cloud.stream.output-bindings": "out",
                "spring.cloud.stream.bindings.out.destination": "topic",
                "spring.cloud.stream.bindings.in.destination": "topic",
                "spring.cloud.stream.bindings.in.group": "g",
                **table,
            },
            plugins=[self.plugin],
        )

    async def note(self, text: str) -> None:
        """Do nothing."""
        self.received.append(text)

    def run(self, main: Callable[[], Awaitable[None]], listener: Callable[..., object] | None = None) -> None:
        """Run `main` while the application runs."""
        self.app.stream_listener("in")(listener or self.note)

        async def case() -> None:
            await self.app.start(watch_loop=False)
            await main()
            await self.app.stop()

        with VirtualTime() as time:
            time.run(case())


BY_HAND = {
    "bindings__in__consumer__auto_startup": "false",
    "bindings__out__producer__auto_startup": "false",
}


@pytest.mark.parametrize("name", ["in", "out"])
def test_concurrent_starts_bind_once(name: str) -> None:
    """The second one waits for the first."""
    stage = Stage(**BY_HAND)

    async def main() -> None:
        binding = stage.app.binding(name)
        await asyncio.gather(binding.start(), binding.start())
        assert binding.state is BindingState.RUNNING
        assert stage.plugin.binder.bound == 1

    stage.run(main)


@pytest.mark.parametrize("name", ["in", "out"])
def test_stop_during_a_start_wins(name: str) -> None:
    """Nothing is bound when both have returned; the binding can be started again."""
    stage = Stage(**BY_HAND)

    async def main() -> None:
        binding = stage.app.binding(name)
        starting = asyncio.create_task(binding.start())
        await asyncio.sleep(SECONDS_TO_BIND / 2)
        await binding.stop()
        await starting
        assert binding.state is BindingState.STOPPED
        await binding.start()
        assert binding.state is BindingState.RUNNING

    stage.run(main)


def test_starting_a_bound_binding_changes_nothing() -> None:
    """A paused binding stays paused, and no event is sent."""
    stage = Stage()
    created: list[str] = []

    def note(sender: object, binding: str, kind: str) -> None:
        created.append(binding)

    async def main() -> None:
        binding = stage.app.binding("in")
        await binding.pause()
        with binding_created.connected_to(note):
            await binding.start()
        await stage.app.bridge.asend("out", "x")
        await asyncio.sleep(60)
        assert (binding.state, created, stage.received) == (BindingState.PAUSED, [], [])
        await binding.resume()
        await asyncio.sleep(1)
        assert stage.received == ["x"]

    stage.run(main)


def test_binding_paused_during_its_start_starts_paused() -> None:
    """Nothing is received until it is resumed."""
    stage = Stage(bindings__in__consumer__auto_startup="false")

    async def main() -> None:
        binding = stage.app.binding("in")
        starting = asyncio.create_task(binding.start())
        await asyncio.sleep(SECONDS_TO_BIND / 2)
        await binding.pause()
        await starting
        assert binding.state is BindingState.PAUSED
        await stage.app.bridge.asend("out", "x")
        await asyncio.sleep(60)
        assert stage.received == []
        await binding.resume()
        await asyncio.sleep(1)
        assert stage.received == ["x"]

    stage.run(main)


def test_listener_may_stop_its_own_binding() -> None:
    """The stop does not wait for it; its message is settled when it returns, and another start waits for that."""
    stage = Stage()
    calls: list[float] = []

    async def stop_here(text: str) -> None:
        binding = stage.app.binding("in")
        loop = asyncio.get_running_loop()
        began = loop.time()
        await binding.stop()
        calls.append(loop.time() - began)
        assert binding.state is BindingState.STOPPED
        await asyncio.sleep(5)

    async def main() -> None:
        await stage.app.bridge.asend("out", "x")
        await asyncio.sleep(1)
        binding = stage.app.binding("in")
        assert isinstance(binding, InputBinding)
        began = asyncio.get_running_loop().time()
        await binding.start()
        assert asyncio.get_running_loop().time() - began == pytest.approx(4 + SECONDS_TO_BIND)
        await asyncio.sleep(60)

    stage.run(main, stop_here)
    assert calls == [0.0]


def test_cancelled_start_lets_calls_end() -> None:
    """Bindings that are bound already work while others are still being bound."""
    stage = Stage(bindings__in2__destination="never")

    async def work(text: str) -> None:
        await asyncio.sleep(20)
        await stage.note(text)

    stage.app.stream_listener("in")(work)
    stage.app.stream_listener("in2")(stage.note)

    async def case() -> None:
        starting = asyncio.create_task(stage.app.start(watch_loop=False))
        await asyncio.sleep(10)
        await stage.app.bridge.asend("out", "x")
        await asyncio.sleep(10)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert stage.received == ["x"]
        assert not stage.app.is_running

    with VirtualTime() as time:
        time.run(case())


def test_call_timeout_applies_after_a_restart() -> None:
    """consume-timeout holds for the calls of each start, also when the binding was stopped during a call."""
    stage = Stage(inmemory__bindings__in__consumer__consume_timeout="1m")
    timed_out: list[float] = []

    async def hang(text: str) -> None:
        began = asyncio.get_running_loop().time()
        try:
            await asyncio.sleep(math.inf)
        finally:
            timed_out.append(asyncio.get_running_loop().time() - began)

    async def main() -> None:
        binding = stage.app.binding("in")
        await stage.app.bridge.asend("out", "x")
        await asyncio.sleep(30)
        await binding.stop(timeout=1)
        await binding.start()
        await asyncio.sleep(65)
        assert timed_out == pytest.approx([31, 60])

    stage.run(main, hang)


def test_cancelled_stop_lets_calls_end() -> None:
    """The message is handled, and another start waits for that."""
    stage = Stage()

    async def work(text: str) -> None:
        await asyncio.sleep(20)
        await stage.note(text)

    async def main() -> None:
        binding = stage.app.binding("in")
        await stage.app.bridge.asend("out", "x")
        await asyncio.sleep(1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(binding.stop(), 5)
        await binding.start()
        assert stage.received == ["x"]

    stage.run(main, work)


def test_output_sends_only_while_it_runs() -> None:
    """Stopped, it refuses messages; restarted, it sends each message once."""
    stage = Stage()

    async def main() -> None:
        binding, channel = stage.app.binding("out"), stage.app.channel("out")
        await binding.stop()
        with pytest.raises(MessagingError, match="no subscriber"):
            await channel.asend(Message("x"))
        await binding.start()
        for text in "yz":
            await channel.asend(Message(text))
        await asyncio.sleep(1)
        assert stage.received == ["y", "z"]

    stage.run(main)


def test_binding_that_fails_to_stop_does_not_block_others() -> None:
    """All are stopped, and then its error is raised."""
    stage = Stage(bindings__stubborn__group="g")
    stage.app.stream_listener("stubborn")(stage.note)

    async def main() -> None:
        bindings = list(stage.app.bindings.values())
        assert {binding.name for binding in bindings} == {"stubborn", "in", "out"}
        with pytest.raises(BinderError, match="it cannot be stopped"):
            await stage.app.stop()
        assert {binding.state for binding in bindings} == {BindingState.STOPPED}
        assert not stage.app.is_running

    stage.run(main)


def test_pause_and_resume_send_events() -> None:
    """One event each, with the new state."""
    stage = Stage()
    states: list[BindingState] = []

    def note(sender: object, binding: str, state: BindingState) -> None:
        states.append(state)

    async def main() -> None:
        with binding_changed.connected_to(note):
            await stage.app.binding("in").pause()
            await stage.app.binding("in").resume()

    stage.run(main)
    assert states == [BindingState.PAUSED, BindingState.RUNNING]


def away_until_45(now: float) -> Exception | None:
    """Fail until the system is back after 45 seconds."""
    return BinderUnavailable("away") if now < 45 else None


@pytest.mark.parametrize(("name", "other"), [("in", "out"), ("out", "in")])
def test_stopped_binding_is_not_retried(name: str, other: str) -> None:
    """Not even when its system comes back."""
    stage = Stage(away_until_45, binding_retry_interval="30")

    async def main() -> None:
        await stage.app.binding(name).stop()
        await asyncio.sleep(100)
        states = {binding.name: binding.state for binding in stage.app.bindings.values()}
        assert states == {name: BindingState.STOPPED, other: BindingState.RUNNING}

    stage.run(main)


def test_health_distinguishes_retried_failed_and_stopped_bindings() -> None:
    """A binding stopped by hand is healthy; one that cannot be bound is not."""
    stage = Stage(lambda now: away_until_45(now) or BinderError("no such topic"), binding_retry_interval="30")

    async def bindings() -> tuple[HealthStatus, str]:
        found = (await stage.app.health()).components["bindings"]
        return found.status, found.details["out"]

    async def main() -> None:
        assert await bindings() == (HealthStatus.DOWN, "cannot be bound, and is tried again: away")
        await asyncio.sleep(100)
        assert await bindings() == (HealthStatus.DOWN, "cannot be bound: no such topic")
        stage.plugin.binder.trouble = lambda now: None
        for name in ("in", "out"):
            await stage.app.controller.change_state(name, "STARTED")
        assert await bindings() == (HealthStatus.UP, "running")
        await stage.app.controller.change_state("out", "STOPPED")
        assert await bindings() == (HealthStatus.UP, "stopped")

    stage.run(main)


@pytest.mark.parametrize("name", ["in", "out"])
def test_binding_without_auto_startup_is_healthy(name: str) -> None:
    """It is not expected to be bound."""
    stage = Stage(**BY_HAND)

    async def main() -> None:
        found = (await stage.app.health()).components["bindings"]
        assert (found.status, found.details[name]) == (HealthStatus.UP, "stopped")

    stage.run(main)


def test_failed_output_raises_the_reason() -> None:
    """Senders are not asked to wait for it."""
    stage = Stage(lambda now: away_until_45(now) or BinderError("no such topic"), binding_retry_interval="30")

    async def main() -> None:
        with pytest.raises(MessagingError, match=r"'out' is not bound yet.* tried again; the last time: away"):
            await stage.app.bridge.asend("out", "x")
        await asyncio.sleep(100)
        with pytest.raises(MessagingError, match="'out' cannot be bound: no such topic"):
            await stage.app.bridge.asend("out", "x")

    stage.run(main)


def test_feeder_error_does_not_prevent_the_stop() -> None:
    """The other feeders and the binding are stopped; the error is raised."""
    app = StreamApplication(
        config_location="optional:/none",
        properties={
            "spring.cloud.stream.default-binder": "inmemory",
            "spring.cloud.stream.output-bindings": "out",
        },
    )
    stopped: list[str] = []

    class Fed:
        def __init__(self, name: str) -> None:
            self.name = name

        async def start(self) -> None:
            """Do nothing."""

        async def stop(self, timeout: float) -> None:
            stopped.append(self.name)
            if self.name == "first":
                raise LookupError(self.name)

        def health(self) -> Health:
            return Health(HealthStatus.UP)

    for name in ("first", "second"):
        app.feed("out", lambda _, name=name: Fed(name))

    async def main() -> None:
        await app.start(watch_loop=False)
        binding = app.binding("out")
        with pytest.raises(LookupError, match="first"):
            await binding.stop()
        assert binding.state is BindingState.STOPPED
        with pytest.raises(LookupError, match="first"):
            await app.stop()

    asyncio.run(main())
    assert stopped == ["first", "second"] * 2


def test_nothing_is_bound_while_the_application_stops() -> None:
    """Neither an existing nor a new binding, since nothing would unbind it."""
    app = StreamApplication(
        config_location="optional:/none",
        properties={
            "spring.cloud.stream.default-binder": "inmemory",
            "spring.cloud.stream.bindings.a.group": "g",
        },
    )
    reported: list[str] = []

    async def note(text: str) -> None:
        """Do nothing."""

    async def main() -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()

        @app.stream_listener("a")
        async def wait(text: str) -> None:
            begun.set()
            await go_on.wait()
            await app.bridge.asend("new", "calls in flight may send as before")

        await app.start(watch_loop=False)
        await app.bridge.asend("a.topic", "unheard")
        binding, controller, service = app.binding("a"), app.controller, app.bindings
        broker = app.container.binders().made["inmemory"].broker  # type: ignore[attr-defined]
        broker.destination("a").put(b"x", {}, 0)
        await begun.wait()
        stopping = asyncio.create_task(app.stop(30))
        while binding.state is not BindingState.STOPPED:  # noqa: ASYNC110  # nobody tells
            await asyncio.sleep(0)
        starting = asyncio.create_task(binding.start())
        with pytest.raises(ApplicationError, match="'late' cannot be made: the application is stopping"):
            await controller.define_input("late", note)
        assert "late" not in service
        go_on.set()
        await stopping
        with pytest.raises(ApplicationError, match="'a' cannot be started: the application is stopping"):
            await starting
        assert binding.state is BindingState.STOPPED
        reported.extend(broker.destinations)

    asyncio.run(asyncio.wait_for(main(), 30))
    assert "new" in reported


def test_slow_binding_blocks_no_other_name() -> None:
    """Neither bound nor new names; each name is bound separately, and once."""
    stage = Stage(**BY_HAND)

    async def main() -> None:
        bridge, now = stage.app.bridge, asyncio.get_running_loop().time
        await bridge.asend("known", "x")
        bound, began = stage.plugin.binder.bound, now()
        waiting = asyncio.create_task(bridge.asend("never", "x"))
        await asyncio.sleep(0.1)
        await bridge.asend("known", "x")
        assert now() - began == pytest.approx(0.1)
        await asyncio.gather(*(bridge.asend("new", "x") for _ in range(3)))
        assert now() - began == pytest.approx(0.1 + SECONDS_TO_BIND)
        assert stage.plugin.binder.bound == bound + 2
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    stage.run(main)


def test_least_recently_used_binding_is_unbound() -> None:
    """With a cache size of two."""
    stage = Stage(**BY_HAND, **{"dynamic-destination-cache-size": "2"})

    async def main() -> None:
        for name in ("a", "b", "a", "c", "a"):
            await stage.app.bridge.asend(name, "x")
        assert stage.plugin.binder.bound == len("abc")
        await stage.app.bridge.asend("b", "x")
        assert stage.plugin.binder.bound == len("abcb")

    stage.run(main)


def test_evicted_binding_is_unbound_before_it_is_bound_again() -> None:
    """A send to it waits."""
    stage = Stage(**BY_HAND, **{"dynamic-destination-cache-size": "1"})

    async def main() -> None:
        sends = [stage.app.bridge.asend(name, "x") for name in "abababab"]
        assert all(await asyncio.gather(*sends))

    stage.run(main)


def test_name_is_bound_again_after_its_former_binding_stopped() -> None:
    """However long that takes, since two bindings of one name would send concurrently."""
    stage = Stage(**BY_HAND, **{"dynamic-destination-cache-size": "1"})

    async def main() -> None:
        await stage.app.bridge.asend("lingering", "x")
        evicting = asyncio.create_task(stage.app.bridge.asend("other", "x"))
        await asyncio.sleep(SECONDS_TO_BIND * 1.5)
        await stage.app.bridge.asend("lingering", "x")
        await evicting

    stage.run(main)


def test_binding_in_progress_at_the_stop_is_unbound() -> None:
    """Its sender gets an error; no binding outlives the application."""
    stage = Stage(**BY_HAND)

    async def main() -> None:
        sending = asyncio.create_task(stage.app.bridge.asend("lingering", "x"))
        await asyncio.sleep(SECONDS_TO_BIND / 2)
        await stage.app.stop()
        with pytest.raises(ApplicationError, match="the application is stopping"):
            await sending
        assert stage.plugin.binder.lingering == []

    stage.run(main)
