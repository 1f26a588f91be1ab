"""The test harness: an application with in-memory binders and virtual time.

::

    with app.test() as test:
        test.input("orders").send(Order(1, 250))
        assert test.output("receipts").receive(Receipt).payload == Receipt(1)
        test.advance(hours=2)
        assert test.dead_letters("orders").receive().headers["FAILURE_TYPE"] == "builtins.ValueError"

or, in a test that is a coroutine::

    async with app.test() as test:
        await test.input("orders").asend(Order(1, 250))
        assert (await test.output("receipts").areceive(Receipt)).payload == Receipt(1)
        await test.aadvance(hours=2)

Every binder is replaced by a binder in memory, which reads the settings of the type that it replaces. Time stands still
between calls: after `send` everything has happened that can happen without time passing, including listeners on
threads; `advance` lets time pass.
"""

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from difflib import get_close_matches
from types import TracebackType
from typing import Any, Final, Generic, Protocol, Self, runtime_checkable

from dependency_injector import providers
from msgspec.structs import replace
from typing_extensions import TypeVar

from streamkit.binder.binder import Binder, BinderContext
from streamkit.binder.binder_type import BinderTypes
from streamkit.binder.binding import Binding, InputBinding
from streamkit.binder.binding_settings import topics_of
from streamkit.chaos import Chaos
from streamkit.config.environment import Environment
from streamkit.config.origin import Scalar
from streamkit.config.relaxed import uniform
from streamkit.config.settings import PREFIX, BindingProperties
from streamkit.config.source import table_source
from streamkit.errors import ApplicationError, BinderError, ForeignLoopError
from streamkit.events import message_sent
from streamkit.functions.catalog import ROUTER
from streamkit.listeners.listener import BindingName, name_of
from streamkit.messaging.channel import running_loop
from streamkit.messaging.converter import CompositeMessageConverter
from streamkit.messaging.message import ErrorMessage, Message
from streamkit.messaging.portal import LoopPortal, Portal
from streamkit.testing.destinations import InputDestination, OutputDestination, described
from streamkit.testing.tested_application import TestedApplication
from streamkit.testing.virtual_time import DEFAULT_EPOCH_MS, VirtualTime, VirtualTimeLoop

__all__ = ["Harness", "InputDestination", "OutputDestination"]

A = TypeVar("A", bound=TestedApplication, default=Any)
R = TypeVar("R")
T = TypeVar("T")

_MEMORY: Final = "inmemory"
# The smallest step of time: its timer fires when nothing else is due now.
_NOW: Final = 1e-6
_BLOCKED_AFTER: Final = 5.0
"""Real seconds after which a thread gives up waiting for the loop of an async test."""
_ASGI: Final = "httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url='http://test')"


class Harness(Generic[A]):
    """An application under test; a context manager that starts and stops the application.

    Attributes:
        app: The application.
        time: Its virtual time.
        errors: The failures that were sent to `errorChannel`, in order.
    """

    def __init__(
        self,
        app: A,
        *,
        strict: bool = False,
        properties: Mapping[str, Scalar] | None = None,
        provide: Mapping[str, object] | None = None,
        chaos: str | None = None,
        start: datetime | None = None,
    ) -> None:
        """Prepare a test; see :meth:`streamkit.StreamApplication.test`."""
        self.app = app
        self.time: VirtualTime
        self.errors: list[ErrorMessage] = []
        self._strict = strict
        self._properties = dict(properties or {})
        self._chaos = None if chaos is None else str(Chaos.parse(chaos))
        if self._chaos is not None:
            self._properties[f"{PREFIX}.{_MEMORY}.binder.chaos"] = self._chaos
        self._provide = dict(provide or {})
        self._start_ms = None if start is None else _milliseconds(start)
        self._overridden: list[providers.Provider[Any]] = []
        self._sent: list[tuple[str, Message[object]]] = []
        self._inputs: dict[str, InputDestination] = {}
        self._outputs: dict[str, OutputDestination] = {}

    def __enter__(self) -> Self:
        if running_loop() is not None:
            raise ApplicationError(
                "`with app.test()` needs an event loop of its own, and this thread runs one already: in an async test "
                "write `async with app.test() as test`, and await asend, areceive, aadvance and the like"
            )
        self.time = VirtualTime(DEFAULT_EPOCH_MS if self._start_ms is None else self._start_ms)
        try:
            self._prepare()
            self.time.run(self._start(_VirtualPortal(self.time)))
        except BaseException:
            self._restore()
            raise
        return self

    async def __aenter__(self) -> Self:
        self.time = VirtualTime.of_running_loop(self._start_ms)
        try:
            self._prepare()
            await self._start(_PortalOfAsyncTest(self.time.loop))
        except BaseException:
            self._restore()
            raise
        return self

    async def _start(self, portal: Portal) -> None:
        await self.app.start(portal=portal, watch_loop=False, serve_management=False)

    def _prepare(self) -> None:
        container = self.app.container
        self._override(container.clock, self.time.clock)
        self._override(container.binder_types, _InMemoryTypes(container.binder_types(), self._strict))
        self.app.channel("errorChannel").subscribe(self._note_error)
        message_sent.connect(self._note_sent, sender=self.app)
        if self._properties:
            self._override(container.environment, self._environment())
            container.settings.reset()
        for name, value in self._provide.items():
            self._override(self._provider(name), value)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._note_seed(error)
        try:
            self.time.run(self._stop(error))
        finally:
            self._restore()
        self._refuse_unread(error)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._note_seed(error)
        try:
            await self._stop(error)
        finally:
            self._restore()
        self._refuse_unread(error)

    async def _stop(self, error: BaseException | None) -> None:
        try:
            await self.app.stop()
            while self.app.is_running:  # the tested code has started the application, and has not stopped it
                await self.app.stop()
        except BinderError:
            # Unread messages fail the test only if nothing else has failed.
            if error is None:
                raise

    def _note_seed(self, error: BaseException | None) -> None:
        """Add to a failure of the test what repeats it."""
        if error is not None and self._chaos is not None:
            error.add_note(f"To repeat the faults of this test: app.test(chaos={self._chaos!r})")

    def _refuse_unread(self, error: BaseException | None) -> None:
        if not self._strict or error is not None:
            return
        unread = [f"{len(each)} at {topic!r}: {each.described()}" for topic, each in self._outputs.items() if len(each)]
        if unread:
            raise AssertionError("the test ends with messages it has not received: " + "; ".join(unread))

    def _restore(self) -> None:
        self.app.channel("errorChannel").unsubscribe(self._note_error)
        message_sent.disconnect(self._note_sent)  # for any sender: otherwise the signal keeps it among its receivers
        for provider in reversed(self._overridden):
            provider.reset_last_overriding()
        self._overridden.clear()
        self.app.container.settings.reset()
        self.time.close()

    def _override(self, provider: "providers.Provider[Any]", value: object) -> None:
        provider.override(providers.Object(value))
        self._overridden.append(provider)

    def _provider(self, name: str) -> "providers.Provider[Any]":
        for container in self.app.containers:
            found: providers.Provider[Any] | None = container.providers.get(name)
            if found is not None:
                return found
        known = sorted(name for container in self.app.containers for name in container.providers)
        raise LookupError(f"no container has a provider {name!r}; there are: {', '.join(known)}")

    def _environment(self) -> Environment:
        own = table_source("test", self._properties, "set by the test")
        known = self.app.environment
        return Environment([own, *known.sources], known.active_profiles, known.files)

    def _note_sent(self, sender: object, *, binding: str, message: Message[object]) -> None:
        self._sent.append((binding, message))

    def _note_error(self, message: Message[object]) -> None:
        if isinstance(message, ErrorMessage):
            self.errors.append(message)

    def input(self, binding: BindingName) -> InputDestination:
        """Return the destination for messages to a binding, or to a destination by its name.

        Raises:
            LookupError: The application has neither a binding nor a destination of this name.
        """
        name = name_of(binding)
        found = self._inputs.get(name)
        if found is None:
            self._check_name(name)
            found = self._inputs[name] = InputDestination(self, name)
        return found

    def output(self, binding: BindingName) -> OutputDestination:
        """Return the messages sent to a binding, or to a destination by its name, since the start.

        Raises:
            LookupError: The application has neither a binding nor a destination of this name.
        """
        name = name_of(binding)
        self._check_name(name)
        bound = self._bound(name)
        topics = topics_of(self.properties(name).destination or name) if bound is None else bound.destinations
        return self._collected(name, topics[:1])

    def dead_letters(self, binding: BindingName) -> OutputDestination:
        """Return the dead letters of an input binding's group.

        Raises:
            LookupError: The application has no input binding of this name.
            ValueError: The binding has no dead letters: its rejected messages are dropped.
        """
        name = name_of(binding)
        bound = self._bound(name)
        if not isinstance(bound, InputBinding):
            inputs = [each.name for each in self.app.bindings.values() if isinstance(each, InputBinding)]
            raise _unknown(name, "no input binding of the application", inputs)
        letters = _letters_of(bound)
        if not letters:
            why = "it has no group" if bound.group is None else "its settings keep none"
            raise ValueError(f"binding {name!r} has no dead letters, rejected messages are dropped: {why}")
        return self._collected(bound.name, letters)

    def _bound(self, name: str) -> Binding | None:
        return next((each for each in self.app.bindings.values() if uniform(each.name) == uniform(name)), None)

    def _check_name(self, name: str) -> None:
        """Refuse a name that is neither a binding nor a destination.

        Destinations are those of the bindings, their dead letters, those of `dynamic-destinations`, and those to which
        a message was sent.
        """
        settings = self.app.container.settings().value
        if self._bound(name) is not None or settings.configured_name(name) is not None:
            return
        bindings = list(self.app.bindings.values())
        inputs = [each for each in bindings if isinstance(each, InputBinding)]
        known = {
            *(topic for each in bindings for topic in each.destinations),
            *(topic for each in inputs for topic in _letters_of(each)),
            *settings.dynamic_destinations,
        }
        if self._bound(f"{ROUTER}-in-0") is not None:
            known.add(f"{ROUTER}-out-0")  # bound when the router first has something to send
        made = self.app.container.binders().made.values()
        if name not in known and not any(isinstance(each, _Memory) and each.has_destination(name) for each in made):
            names = [*(each.name for each in bindings), *settings.bindings, *known]
            raise _unknown(name, "neither a binding nor a destination of the application", names)

    def what_happened(self) -> str:
        """Return a description of what the application has sent, and of its errors."""
        lines = ["the application sent:" if self._sent else "the application sent nothing"]
        lines += [f"  to binding {binding!r}: {described(message)}" for binding, message in self._sent[-10:]]
        if self.errors:
            lines.append("errors of the application:")
            lines += [f"  {error.payload}" for error in self.errors]
        return "\n".join(lines)

    def _collected(self, name: str, topics: Sequence[str]) -> OutputDestination:
        key = ", ".join(topics)
        found = self._outputs.get(key)
        if found is None:
            found = self._outputs[key] = OutputDestination(self, name, topics)
        return found

    def advance(self, *, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Advance virtual time; everything due in it happens, at its time.

        Raises:
            ApplicationError: This is an async test: await :meth:`aadvance`.
        """
        self.run(self.aadvance(hours=hours, minutes=minutes, seconds=seconds))

    async def aadvance(self, *, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Advance the clock in an async test, as :meth:`advance` does in others."""
        duration = timedelta(hours=hours, minutes=minutes, seconds=seconds).total_seconds()
        await asyncio.sleep(max(duration, _NOW))

    def settle(self) -> None:
        """Run everything that is due now; virtual time stands still.

        Raises:
            ApplicationError: This is an async test: await :meth:`asettle`.
        """
        self.run(self.asettle())

    async def asettle(self) -> None:
        """Settle in an async test, as :meth:`settle` does in others."""
        await asyncio.sleep(_NOW)

    def run(self, main: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine on the application's loop; time passes as it waits.

        Raises:
            ApplicationError: This is an async test: await the coroutine.
        """
        if running_loop() is not None:
            main.close()  # otherwise Python warns of a coroutine that was never awaited
            raise ApplicationError(
                "this thread runs an event loop, so nothing may block it: in an async test await the methods that "
                "begin with `a`, such as asend, areceive and aadvance"
            )
        return self.time.run(main)

    def properties(self, name: str) -> BindingProperties:
        """Return the settings of a binding."""
        return self.app.container.settings().value.binding(name)

    def converter(self) -> CompositeMessageConverter:
        """Return the application's converter."""
        return self.app.container.converter()

    def binder(self, name: str) -> Binder:
        """Return the binder behind a binding, or the default one; it may not be started yet."""
        bound = self._bound(name)
        if bound is not None:
            return bound.binder.binder
        return self.app.container.binders().get(self.properties(name).binder)

    async def started_binder(self, name: str) -> Binder:
        """Return the binder behind a binding, or the default one."""
        return await self.app.container.binders().started(self.binder(name))

    def __repr__(self) -> str:
        return f"<Harness of {self.app!r} at {self.time.loop.time():.3f} s>"


@runtime_checkable
class _Memory(Protocol):
    """A binder in memory, as the harness sees it."""

    def has_destination(self, name: str) -> bool:
        """Return whether a destination exists."""
        ...


def _letters_of(binding: InputBinding) -> list[str]:
    """Return the destinations of a binding's dead letters, each once."""
    binder = binding.binder.binder
    found = (binder.dead_letter_destination(each) for each in binding.consumer_destinations)
    return list(dict.fromkeys(filter(None, found)))


def _unknown(name: str, reason: str, known: Iterable[str]) -> LookupError:
    names = sorted(set(known))
    near = get_close_matches(name, names, n=1)
    return LookupError(
        f"{name!r} is {reason}"
        + (f"; did you mean {near[0]!r}?" if near else ".")
        + f" Known: {', '.join(names) or 'none'}. A destination that the application may send to later is known if "
        f"{PREFIX}.dynamic-destinations lists it."
    )


class _InMemoryTypes(BinderTypes):
    """The installed binder types, each replaced by memory."""

    def __init__(self, real: BinderTypes, strict: bool) -> None:
        super().__init__(real.loaders)
        self._strict = strict

    def create(self, type_: str, name: str, context: BinderContext) -> Binder:
        """Return a binder in memory."""
        strict = {f"{PREFIX}.{_MEMORY}.binder.strict": self._strict}
        own = table_source("test harness", strict, "set by the test harness")
        environment = Environment([own, *context.environment.sources], context.environment.active_profiles)
        replaced = None if type_ == _MEMORY else type_
        return super().create(_MEMORY, name, replace(context, environment=environment, stands_in_for=replaced))


class _VirtualPortal:
    """The portal to a virtual loop that runs only while a thread waits for something on it."""

    def __init__(self, time: VirtualTime) -> None:
        self._time = time

    @property
    def loop(self) -> VirtualTimeLoop:
        """The loop."""
        return self._time.loop

    def run(self, coroutine: Coroutine[object, None, R], timeout: float | None = None) -> R:
        """Run a coroutine and return its result."""
        if running_loop() is None:
            return self._time.run(coroutine)
        with ThreadPoolExecutor(1, "streamkit test") as thread:  # here another loop runs, such as a web framework's
            return thread.submit(self._time.run, coroutine).result()

    async def carry(self, coroutine: Coroutine[object, None, R], what: str) -> R:
        """Run a coroutine for a task of another loop: a web framework's test client has a loop in a thread."""
        return await asyncio.get_running_loop().run_in_executor(None, self.run, coroutine)


class _PortalOfAsyncTest(LoopPortal):
    """The portal to the loop of an async test, whose thread the test may block."""

    __slots__ = ()

    def run(self, coroutine: Coroutine[object, None, R], timeout: float | None = None) -> R:
        """Run a coroutine on the loop, and wait for its result in the calling thread.

        Raises:
            ApplicationError: The loop does not run it, because its thread is blocked.
        """
        begun = threading.Event()

        async def begin() -> R:
            begun.set()
            return await coroutine

        outcome = asyncio.run_coroutine_threadsafe(begin(), self.loop)
        if not begun.wait(_BLOCKED_AFTER) and outcome.cancel():
            coroutine.close()
            raise ApplicationError(
                f"the loop of the async test has been blocked for {_BLOCKED_AFTER:g} s, as by the TestClient of "
                f"Starlette or FastAPI: use {_ASGI} there, or make the test a `def` with `with app.test()`"
            )
        return outcome.result(timeout)

    async def carry(self, coroutine: Coroutine[object, None, R], what: str) -> R:
        """Refuse the call: the test's loop may be blocked by the code that runs this one.

        Raises:
            ForeignLoopError: Always.
        """
        coroutine.close()
        raise ForeignLoopError(
            f"{what} belongs to the loop of the async test, and was awaited on another one, such as that of the "
            f"TestClient of Starlette or FastAPI: use {_ASGI} there, or make the test a `def` with `with app.test()`"
        )


def _milliseconds(start: datetime) -> int:
    """Return the start of a test in milliseconds since 1970.

    Raises:
        ValueError: It has no time zone.
    """
    if start.tzinfo is None:
        raise ValueError(f"start={start} has no time zone: write datetime(…, tzinfo=UTC)")
    return round(start.timestamp() * 1000)
