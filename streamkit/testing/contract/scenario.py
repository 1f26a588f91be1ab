"""What cases are written with: applications, topics, and recorders that wait for what should come."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from functools import partial, wraps
from itertools import count
from types import TracebackType
from typing import Any, Generic, Self, TypeVar
from uuid import uuid4

import pytest
from dependency_injector import providers

from streamkit.application import StreamApplication
from streamkit.binder.attempts import causes
from streamkit.binder.capabilities import Capability
from streamkit.config.origin import Scalar
from streamkit.errors import UnsupportedCapability
from streamkit.messaging.message import Message
from streamkit.testing.contract.environment import ContractEnvironment

__all__ = ["Recorder", "Scenario", "case", "run_case"]

T = TypeVar("T")

PREFIX = "spring.cloud.stream"
STOP_TIMEOUT = 5.0
"""Seconds for the calls that are under way when a case ends."""
LONG = 600.0
"""Seconds for those under way when a case stops an application: more than a machine with much to do takes."""

Case = Callable[[Any, "Scenario"], Coroutine[Any, Any, None]]


def case(function: Case) -> Callable[[Any, ContractEnvironment], None]:
    """Make a test of a coroutine that takes a scenario."""

    @wraps(function)
    def test(self: object, environment: ContractEnvironment) -> None:
        run_case(environment, partial(function, self))

    del test.__wrapped__  # pytest would look for a fixture called like its argument
    return test


def run_case(
    environment: ContractEnvironment, function: "Callable[[Scenario], Coroutine[Any, Any, None]]"
) -> None:
    """Run one case in an environment, with a scenario of its own."""

    async def main() -> None:
        async with environment.around(), Scenario(environment) as scenario:
            await function(scenario)

    environment.run(main())


class Recorder(Generic[T]):
    """What was recorded, and when; waits for more."""

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

    async def wait(self, number: int, within: float | None = None) -> list[T]:
        """Return the items once there are ``number`` of them.

        Raises:
            AssertionError: They did not come.
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
        """Return the items when there are ``number`` of them, and after a while still no more."""
        await self.wait(number)
        await self._scenario.nothing_more()
        assert len(self.items) == number, (
            f"{self._what}: {len(self.items)} came instead of {number}: {self.items}"
        )
        return self.items

    @property
    def pauses(self) -> list[float]:
        """The seconds between one item and the next."""
        return [later - earlier for earlier, later in zip(self.times, self.times[1:], strict=False)]


class Scenario:
    """One case: everything it starts is stopped when it ends."""

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

    # What a case is about

    def name(self, text: str) -> str:
        """Return a topic's or group's name that no other case uses."""
        return f"{text}-{self._run}"

    async def topic(self, text: str = "topic", partitions: int = 4) -> str:
        """Return a topic of this case."""
        name = self.name(text)
        await self.environment.create_topic(name, partitions)
        return name

    def recorder(self, what: str = "messages") -> "Recorder[Any]":
        """Return a recorder."""
        return Recorder(self, what)

    def lacks(self, *capabilities: Capability) -> bool:
        """Return whether the binder declares that it lacks one of these."""
        missing = set(capabilities) - self.environment.capabilities
        self.environment.lacking.update(missing)
        return bool(missing)

    def only_on_virtual_time(self, reason: str) -> None:
        """Skip the case on a real clock."""
        if not self.environment.is_virtual:
            pytest.skip(f"only on virtual time: {reason}")

    async def nothing_more(self) -> None:
        """Wait until whatever was going to come has come."""
        await asyncio.sleep(self.environment.quiet)

    async def until(self, what: str, true: Callable[[], Awaitable[bool]]) -> None:
        """Wait until that is true; ``what`` says it in words.

        Raises:
            AssertionError: It did not become true.
        """
        try:
            async with asyncio.timeout(self.environment.patience):
                while not await true():  # noqa: ASYNC110  # any condition: nothing tells of its change
                    await asyncio.sleep(self.environment.quiet / 20)
        except TimeoutError:
            raise AssertionError(f"waited {self.environment.patience:g} s for {what}") from None

    # Applications

    def app(self, settings: Mapping[str, Scalar], *sources: object) -> StreamApplication:
        """Return an application at the system under test, not started."""
        properties: dict[str, Scalar] = {
            f"{PREFIX}.default-binder": self.environment.binder_type,
            "spring.lifecycle.timeout-per-shutdown-phase": f"{LONG:g}s",
            **self.environment.properties,
            **self.environment.member(next(self._members)),
            **settings,
        }
        app = StreamApplication(
            *sources,
            config_location="optional:/nonexistent",
            properties=properties,
            binder_plugins=self.environment.binder_plugins,
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
            group: The group.
            handler: The listener.
            concurrency: How many calls at once.
            settings: More settings, below the binding.
            portable: The meaning of the binder's own settings.
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

    async def consume(
        self, topic: str, group: str | None, handler: Callable[..., object], **options: Any
    ) -> StreamApplication:
        """Start an application with one listener; arguments as those of :meth:`consumer`."""
        return await self.start(self.consumer(topic, group, handler, **options))

    async def record(self, topic: str, group: str | None, **options: Any) -> "Recorder[Message[bytes]]":
        """Start an application that records the messages it receives."""
        recorder: Recorder[Message[bytes]] = self.recorder(f"messages of {topic} for {group}")

        async def note(message: Message[bytes]) -> None:
            recorder.add(message)

        await self.consume(topic, group, note, **options)
        return recorder

    async def dead_letters(self, app: StreamApplication, group: str) -> "Recorder[Message[bytes]]":
        """Record what goes to the dead letters of ``group`` of a started application's binding `input`."""
        binding = app.binding("input")
        letters = binding.binder.binder.dead_letter_destination(binding.destinations[0], group)
        assert letters is not None, "a binder with dead letters says where they are"
        return await self.record(letters, self.name("undertaker"), start="earliest")

    async def send(self, topic: str, payload: object, headers: Mapping[str, object] | None = None) -> None:
        """Send a message."""
        app = await self.sender()
        await app.bridge.asend(topic, Message(payload, headers))

    async def sender(self) -> StreamApplication:
        """Return the application that sends; it has no bindings of its own."""
        if self._sender is None:
            self._sender = await self.start(self.app({f"{PREFIX}.dynamic-destination-cache-size": 50}))
        return self._sender


def refusal(error: BaseException) -> UnsupportedCapability | None:
    """Return the refusal among the causes of ``error``."""
    return next((cause for cause in causes(error) if isinstance(cause, UnsupportedCapability)), None)


async def refused(starting: Awaitable[object]) -> UnsupportedCapability:
    """Assert that the binder refuses, and return how."""
    with pytest.raises(Exception) as caught:  # noqa: PT011  # whatever wraps the refusal
        await starting
    found = refusal(caught.value)
    assert found is not None, f"not refused as unsupported: {caught.value!r}"
    return found
