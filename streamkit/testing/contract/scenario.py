"""The tools of cases: applications, topics, and recorders that wait for expected items."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from functools import partial, wraps
from itertools import count
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, cast
from uuid import uuid4

import pytest
from dependency_injector import providers

from streamkit.application import StreamApplication
from streamkit.binder.attempts import causes
from streamkit.binder.binding import InputBinding
from streamkit.binder.capabilities import Capability
from streamkit.config.origin import Scalar
from streamkit.errors import UnsupportedCapability
from streamkit.messaging.message import Message
from streamkit.testing.contract.environment import ContractEnvironment

__all__ = ["Recorder", "Scenario", "case", "needs", "run_case"]

T = TypeVar("T")

PREFIX = "spring.cloud.stream"
STOP_TIMEOUT = 5.0
"""Seconds for the calls that are under way when a case ends."""
LONG_STOP_TIMEOUT = 600.0
"""Seconds for the calls that are under way when a case stops an application; enough for a busy machine."""

Case = Callable[[Any, "Scenario"], Coroutine[Any, Any, None]]


def case(function: Case) -> Callable[[Any, ContractEnvironment], None]:
    """Make a test of a coroutine that takes a scenario."""

    @wraps(function)
    def test(self: object, environment: ContractEnvironment) -> None:
        run_case(environment, partial(function, self))

    del test.__wrapped__  # pytest would look for a fixture called like its argument
    return test


def needs(*capabilities: Capability) -> Callable[[Case], Case]:
    """Skip the body of a case if the binder lacks one of these capabilities; other cases assert the refusals."""

    def decorate(function: Case) -> Case:
        @wraps(function)
        async def checked(self: object, scenario: "Scenario") -> None:
            if not scenario.lacks(*capabilities):
                await function(self, scenario)

        return checked

    return decorate


def run_case(environment: ContractEnvironment, function: "Callable[[Scenario], Coroutine[Any, Any, None]]") -> None:
    """Run one case in an environment, with a scenario of its own."""

    async def main() -> None:
        async with environment.around(), Scenario(environment) as scenario:
            await function(scenario)

    environment.run(main())


class Recorder(Generic[T]):
    """A list of recorded items with their times; a case can wait for more."""

    def __init__(self, scenario: "Scenario", what: str) -> None:
        self.items: list[T] = []
        self.times: list[float] = []
        self._scenario = scenario
        self._what = what
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def add(self, item: T) -> None:
        """Record ``item``; from any thread."""
        self.items.append(item)
        self.times.append(self._loop.time())
        self._loop.call_soon_threadsafe(self._changed.set)

    async def listen(self, item: T) -> None:
        """Record ``item``, as a listener on the application's loop."""
        self.add(item)

    async def listen_to_text(self, payload: str) -> None:
        """Record a payload, as a listener that succeeds."""
        self.add(cast("T", payload))

    async def fail(self, payload: str) -> None:
        """Record a payload and raise `ValueError`, as a listener that always fails."""
        self.add(cast("T", payload))
        raise ValueError(f"cannot handle {payload}")

    async def wait(self, number: int, within: float | None = None) -> list[T]:
        """Return the items once there are ``number`` of them.

        Raises:
            AssertionError: Fewer items came within the time.
        """
        try:
            async with asyncio.timeout(within or self._scenario.environment.patience):
                while len(self.items) < number:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"{self._what}: {len(self.items)} of {number} came: {self.items}") from None
        return self.items

    async def settled(self, number: int) -> list[T]:
        """Return the items once there are ``number`` of them, and assert that no more follow."""
        await self.wait(number)
        await self._scenario.nothing_more()
        assert len(self.items) == number, f"{self._what}: {len(self.items)} came instead of {number}: {self.items}"
        return self.items

    @property
    def pauses(self) -> list[float]:
        """The seconds between one item and the next."""
        return [later - earlier for earlier, later in zip(self.times, self.times[1:], strict=False)]


class Scenario:
    """The applications, topics and recorders of one case; its applications are stopped at its end."""

    def __init__(self, environment: ContractEnvironment) -> None:
        self.environment = environment
        self._run = uuid4().hex[:8]
        self._stack = AsyncExitStack()
        self._members = count()
        self._sender: StreamApplication | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    # Names, topics and waiting

    def name(self, text: str) -> str:
        """Return ``text`` with a suffix that no other case uses, as the name of a topic or group."""
        return f"{text}-{self._run}"

    async def topic(self, text: str = "topic", partitions: int = 4) -> str:
        """Create a topic for this case and return its name."""
        name = self.name(text)
        await self.environment.create_topic(name, partitions)
        return name

    def recorder(self, what: str = "messages") -> "Recorder[Any]":
        """Return a recorder; ``what`` names its items in errors."""
        return Recorder(self, what)

    def lacks(self, *capabilities: Capability) -> bool:
        """Return whether the binder lacks one of these capabilities, and note it for the report."""
        missing = set(capabilities) - self.environment.capabilities
        self.environment.lacking.update(missing)
        return bool(missing)

    def only_on_virtual_time(self, reason: str) -> None:
        """Skip the case on a real clock."""
        if not self.environment.is_virtual:
            pytest.skip(f"only on virtual time: {reason}")

    async def nothing_more(self) -> None:
        """Wait ``environment.quiet`` seconds, in which messages that are on their way arrive."""
        await asyncio.sleep(self.environment.quiet)

    async def until(self, what: str, condition: Callable[[], Awaitable[bool]]) -> None:
        """Wait until ``condition`` returns True.

        Args:
            what: The condition in words, for the error.
            condition: Asked again and again.

        Raises:
            AssertionError: It stayed False for ``environment.patience`` seconds.
        """
        try:
            async with asyncio.timeout(self.environment.patience):
                while not await condition():  # noqa: ASYNC110  # nothing notifies of a change
                    await asyncio.sleep(self.environment.quiet / 20)
        except TimeoutError:
            raise AssertionError(f"waited {self.environment.patience:g} s for {what}") from None

    async def until_lag(self, app: StreamApplication, binding: str, expected: int) -> None:
        """Wait until an input has this lag.

        Raises:
            AssertionError: It had another one for ``environment.patience`` seconds.
        """

        async def is_reached() -> bool:
            return (await app.lags())[binding] == expected

        await self.until(f"a lag of {expected} at {binding!r}", is_reached)

    # Applications

    def app(self, settings: Mapping[str, Scalar], *sources: object) -> StreamApplication:
        """Return an application with these settings and those of the environment, not started."""
        properties: dict[str, Scalar] = {
            f"{PREFIX}.default-binder": self.environment.binder_type,
            "spring.lifecycle.timeout-per-shutdown-phase": f"{LONG_STOP_TIMEOUT:g}s",
            **self.environment.properties,
            **self.environment.member(next(self._members)),
            **settings,
        }
        app = StreamApplication(
            *sources,
            config_location="optional:/nonexistent",
            properties=properties,
            plugins=self.environment.plugins,
        )
        if self.environment.clock is not None:
            app.container.clock.override(providers.Object(self.environment.clock))
        return app

    async def start(self, app: StreamApplication) -> StreamApplication:
        """Start ``app``; it is stopped when the case ends."""
        await app.start(watch_loop=False)
        self._stack.push_async_callback(app.stop, STOP_TIMEOUT)
        return app

    def consumer(
        self,
        topic: str,
        group: str | None,
        handler: Callable[..., object],
        *,
        concurrency: int = 1,
        settings: Mapping[str, Scalar] | None = None,
        **portable: object,
    ) -> StreamApplication:
        """Return an application with one listener on binding `input`, not started.

        Args:
            topic: The destination.
            group: The group, or None for an anonymous consumer.
            handler: The listener.
            concurrency: The number of calls at the same time.
            settings: More settings of the binding, by names below ``spring.cloud.stream.bindings.input``.
            portable: Arguments of ``ContractEnvironment.consumer_properties``.
        """
        binding = f"{PREFIX}.bindings.input"
        own: dict[str, Scalar] = {
            f"{binding}.destination": topic,
            f"{binding}.consumer.concurrency": concurrency,
            f"{binding}.consumer.back-off-initial-interval": f"{self.environment.back_off * 1000:g}ms",
        }
        if group is not None:
            own[f"{binding}.group"] = group
        own |= {f"{binding}.{key}": value for key, value in (settings or {}).items()}
        own |= self.environment.consumer_properties("input", portable)
        app = self.app(own)
        app.stream_listener("input")(handler)
        return app

    def producer(self, topic: str, settings: Mapping[str, Scalar] | None = None) -> StreamApplication:
        """Return an application with binding `output`, not started.

        Args:
            topic: The destination.
            settings: More settings of the binding, by names below ``spring.cloud.stream.bindings.output``.
        """
        binding = f"{PREFIX}.bindings.output"
        own: dict[str, Scalar] = {f"{PREFIX}.output-bindings": "output", f"{binding}.destination": topic}
        return self.app(own | {f"{binding}.{key}": value for key, value in (settings or {}).items()})

    async def consume(
        self, topic: str, group: str | None, handler: Callable[..., object], **options: Any
    ) -> StreamApplication:
        """Start an application with one listener; the arguments are those of :meth:`consumer`."""
        return await self.start(self.consumer(topic, group, handler, **options))

    async def record(self, topic: str, group: str | None, **options: Any) -> "Recorder[Message[bytes]]":
        """Start an application that records the messages it receives."""
        recorder: Recorder[Message[bytes]] = self.recorder(f"messages of {topic} for {group}")

        async def note(message: Message[bytes]) -> None:
            recorder.add(message)

        await self.consume(topic, group, note, **options)
        return recorder

    async def dead_letters(
        self, app: StreamApplication, group: str, binding: str = "input"
    ) -> "Recorder[Message[bytes]]":
        """Record the dead letters of ``group``, from the first, for a binding of a started application."""
        bound = app.binding(binding)
        assert isinstance(bound, InputBinding), f"binding {binding!r} is not an input"
        letters = bound.binder.binder.dead_letter_destination(bound.consumer_destinations[0])
        assert letters is not None, "a binder with dead letters must return their destination"
        return await self.record(letters, self.name("dead-letter-reader"), start="earliest")

    async def send(self, topic: str, payload: object, headers: Mapping[str, object] | None = None) -> None:
        """Send a message to a topic, from an application that only sends."""
        app = await self.sender()
        await app.bridge.asend(topic, Message(payload, headers))

    async def sender(self) -> StreamApplication:
        """Return the application that sends; it has no bindings of its own."""
        if self._sender is None:
            self._sender = await self.start(self.app({f"{PREFIX}.dynamic-destination-cache-size": 50}))
        return self._sender


def refusal(error: BaseException) -> UnsupportedCapability | None:
    """Return the `UnsupportedCapability` among the causes of ``error``, if there is one."""
    return next((cause for cause in causes(error) if isinstance(cause, UnsupportedCapability)), None)


async def refused(starting: Awaitable[object]) -> UnsupportedCapability:
    """Assert that ``starting`` raises a refusal, and return the refusal."""
    with pytest.raises(Exception) as caught:  # noqa: PT011  # whatever wraps the refusal
        await starting
    found = refusal(caught.value)
    assert found is not None, f"not refused as unsupported: {caught.value!r}"
    return found
