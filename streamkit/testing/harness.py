"""The test harness: an application on memory and virtual time.

::

    with app.test() as test:
        test.input("orders").send(Order(1, 250))
        assert test.output("receipts").receive(Receipt).payload == Receipt(1)
        test.advance(hours=2)
        assert test.dead_letters("orders").receive().headers["FAILURE_TYPE"] == "builtins.ValueError"

Every binder is replaced by one in memory that reads the settings of the type it stands in for. Time stands
still between the calls: after `send` everything has happened that can happen without time passing, listeners
on threads included; `advance` lets time pass.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast, overload

from dependency_injector import providers

from streamkit.application import StreamApplication
from streamkit.binder.binder import (
    Binder,
    BinderContext,
    ConsumerDestination,
    ProducerBinding,
    ProducerDestination,
)
from streamkit.binder.delivery import Delivery, StartPosition
from streamkit.binder.factory import topics_of
from streamkit.binder.permits import Permits
from streamkit.binder.registry import BinderTypes
from streamkit.binder.settlement import ACCEPT, Settlement
from streamkit.config.environment import Environment
from streamkit.config.settings import PREFIX, BindingProperties, ConsumerProperties, ProducerProperties
from streamkit.config.source import table_source
from streamkit.errors import BinderError
from streamkit.messaging.channel import running_loop
from streamkit.messaging.headers import SEQUENCE
from streamkit.messaging.message import ErrorMessage, Message
from streamkit.messaging.portal import LoopPortal
from streamkit.testing.virtual_time import VirtualTime, VirtualTimeLoop

__all__ = ["Harness", "InputDestination", "OutputDestination"]

R = TypeVar("R")
T = TypeVar("T")

_MEMORY: Final = "inmemory"
# The smallest step of time: its timer fires when nothing else is left to do now.
_NOW: Final = 1e-6


class Harness:
    """An application under test; a context that starts and stops it.

    Attributes:
        app: The application.
        time: Its virtual time.
        errors: What was told on `errorChannel`, in order.
    """

    def __init__(self, app: StreamApplication, *, strict: bool = False) -> None:
        self.app = app
        self.time = VirtualTime()
        self.errors: list[ErrorMessage] = []
        self._strict = strict
        self._inputs: dict[str, InputDestination] = {}
        self._outputs: dict[str, OutputDestination] = {}

    def __enter__(self) -> Self:
        container = self.app.container
        types = _InMemoryTypes(container.binder_types(), self._strict)
        container.clock.override(providers.Object(self.time.clock))
        container.binder_types.override(providers.Object(types))
        self.app.channel("errorChannel").subscribe(self._note_error)
        try:
            portal = _VirtualPortal(self.time)
            self.time.run(self.app.start(portal=portal, watch_loop=False))
        except BaseException:
            self._restore()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.time.run(self.app.stop())
        except BinderError:
            # An unread message is the test's failure only if it has no other.
            if error is None:
                raise
        finally:
            self._restore()

    def _restore(self) -> None:
        self.app.channel("errorChannel").unsubscribe(self._note_error)
        self.app.container.clock.reset_last_overriding()
        self.app.container.binder_types.reset_last_overriding()
        self.app.container.settings.reset()
        self.time.close()

    def _note_error(self, message: Message[object]) -> None:
        if isinstance(message, ErrorMessage):
            self.errors.append(message)

    def input(self, name: str) -> "InputDestination":
        """Return where messages are sent to a binding, or to a destination by its name."""
        found = self._inputs.get(name)
        if found is None:
            found = self._inputs[name] = InputDestination(self, name)
        return found

    def output(self, name: str) -> "OutputDestination":
        """Return what was sent to a binding, or to a destination by its name, since the start."""
        topic = topics_of(self.properties(name).destination or name)[0]
        return self._collected(name, topic)

    def dead_letters(self, binding: str) -> "OutputDestination":
        """Return the dead letters of an input binding's group."""
        properties = self.properties(binding)
        topic, group = topics_of(properties.destination or binding)[0], properties.group or "anonymous"
        letters = self.binder(binding).dead_letter_destination(topic, group)
        if letters is None:
            raise ValueError(f"the binder of {binding!r} keeps no dead letters")
        return self._collected(binding, letters)

    def _collected(self, name: str, topic: str) -> "OutputDestination":
        found = self._outputs.get(topic)
        if found is None:
            found = self._outputs[topic] = OutputDestination(self, name, topic)
        return found

    def advance(self, *, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Let time pass; everything due in it happens, at its time."""
        duration = timedelta(hours=hours, minutes=minutes, seconds=seconds).total_seconds()
        self.time.advance(max(duration, _NOW))

    def settle(self) -> None:
        """Let everything happen that can happen without time passing."""
        self.time.advance(_NOW)

    def run(self, main: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine on the application's loop; time passes as it waits."""
        return self.time.run(main)

    def properties(self, name: str) -> BindingProperties:
        """Return the settings of a binding."""
        return self.app.container.settings().value.binding(name)

    def binder(self, name: str) -> Binder:
        """Return the binder behind a binding, or the default one."""
        registry = self.app.container.binders()
        bound = self.app.bindings.get(name)
        binder = registry.get(self.properties(name).binder) if bound is None else bound.binder.binder
        return self.run(registry.started(binder))

    def __repr__(self) -> str:
        return f"<Harness of {self.app!r} at {self.time.loop.time():.3f} s>"


class InputDestination:
    """Where a test sends what the application receives."""

    def __init__(self, harness: Harness, name: str) -> None:
        self._harness = harness
        properties = harness.properties(name)
        binder = harness.binder(name)
        topic = topics_of(properties.destination or name)[0]
        self._write = harness.app.container.converter().payload_writer(properties.content_type)
        destination = ProducerDestination(
            topic, f"test of {name}", ProducerProperties(), binder.producer_properties(), _ignore
        )
        self._producer: ProducerBinding = harness.run(binder.bind_producer(destination))

    def send(self, data: object, headers: Mapping[str, object] | None = None) -> None:
        """Send a message, or a payload converted by the binding's content type; return when it is settled.

        Args:
            data: A message or a payload.
            headers: Headers of a payload.
        """
        message: Message[object] = data if isinstance(data, Message) else Message(data, headers)
        self._harness.run(self._producer.send(self._write(message)))
        self._harness.settle()


class OutputDestination:
    """What the application has sent to one destination."""

    def __init__(self, harness: Harness, name: str, topic: str) -> None:
        self._harness = harness
        self._topic = topic
        self._content_type = harness.properties(name).content_type
        self._waiting: list[Message[bytes]] = []
        self._arrival: asyncio.Future[None] | None = None
        binder = harness.binder(name)
        destination = ConsumerDestination(
            topic,
            None,
            f"test of {topic}",
            ConsumerProperties(),
            binder.consumer_properties(),
            Delivery(start=StartPosition.EARLIEST),
            Permits(1000),
        )
        harness.run(binder.bind_consumer(destination, self._collect))
        harness.settle()

    async def _collect(self, message: Message[bytes], redeliveries: int) -> Settlement:
        self._waiting.append(message)
        self._waiting.sort(key=_sequence)
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)
        return ACCEPT

    @overload
    def receive(self, type_: None = None, *, within: float = 0) -> Message[bytes]: ...
    @overload
    def receive(self, type_: type[T], *, within: float = 0) -> Message[T]: ...
    def receive(self, type_: type[T] | None = None, *, within: float = 0) -> Message[T] | Message[bytes]:
        """Take the oldest message.

        Args:
            type_: What its payload is read as; bytes if not given.
            within: Seconds of virtual time to wait for one.

        Raises:
            AssertionError: There is none.
        """
        self._settle_if_empty()
        if not self._waiting and within > 0:
            self._harness.run(self._wait(within))
        if not self._waiting:
            raise AssertionError(self._nothing(within))
        return self._read(self._waiting.pop(0), type_)

    @overload
    def receive_all(self, type_: None = None) -> list[Message[bytes]]: ...
    @overload
    def receive_all(self, type_: type[T]) -> list[Message[T]]: ...
    def receive_all(self, type_: type[T] | None = None) -> list[Message[T]] | list[Message[bytes]]:
        """Take all messages there are, in the order they were sent."""
        self._harness.settle()
        taken, self._waiting = self._waiting, []
        if type_ is None:
            return taken
        return [cast("Message[T]", self._read(message, type_)) for message in taken]

    @property
    def is_empty(self) -> bool:
        """Whether there is no message."""
        self._settle_if_empty()
        return not self._waiting

    def clear(self) -> None:
        """Forget the messages there are."""
        self._waiting.clear()

    def __len__(self) -> int:
        return len(self._waiting)

    def __bool__(self) -> bool:
        return True

    def _settle_if_empty(self) -> None:
        """Let what the test has sent by other ways arrive."""
        if not self._waiting:
            self._harness.settle()

    async def _wait(self, seconds: float) -> None:
        self._arrival = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(seconds):
                await self._arrival
        except TimeoutError:
            pass  # the caller sees that nothing came
        finally:
            self._arrival = None

    def _read(self, message: Message[bytes], type_: type[T] | None) -> "Message[T] | Message[bytes]":
        if type_ is None:
            return message
        converter = self._harness.app.container.converter()
        value = converter.payload_reader(type_, self._content_type)(message)
        return Message(cast("T", value), message.headers)

    def _nothing(self, within: float) -> str:
        told = [f"nothing was sent to {self._topic!r}" + (f" within {within:g} s" if within else "")]
        if self._harness.errors:
            told.append("errors of the application:")
            told += [f"  {error.payload}" for error in self._harness.errors]
        return "\n".join(told)

    def __repr__(self) -> str:
        return f"<OutputDestination {self._topic!r} with {len(self._waiting)}>"


class _InMemoryTypes(BinderTypes):
    """The installed types, each stood in for by memory."""

    def __init__(self, real: BinderTypes, strict: bool) -> None:
        super().__init__(real.plugins)
        self._strict = strict

    def create(self, type_: str, name: str, context: BinderContext) -> Binder:
        """Return a binder in memory."""
        table: dict[str, str | bool] = {f"{PREFIX}.{_MEMORY}.binder.strict": self._strict}
        if type_ != _MEMORY:
            self.extended_models(type_)
            table[f"{PREFIX}.{_MEMORY}.binder.stands-in-for"] = type_
        own = table_source("test harness", table, "set by the test harness")
        environment = Environment([own, *context.environment.sources], context.environment.active_profiles)
        return super().create(_MEMORY, name, replace(context, environment=environment))


class _VirtualPortal:
    """The way onto a virtual loop: other threads wait for it, the test's own thread runs it."""

    def __init__(self, time: VirtualTime) -> None:
        self._time = time
        self._from_threads = LoopPortal(time.loop)

    @property
    def loop(self) -> VirtualTimeLoop:
        """The loop."""
        return self._time.loop

    def run(self, coroutine: Coroutine[object, None, R], timeout: float | None = None) -> R:
        """Return the coroutine's result."""
        if self._time.loop.is_running() and running_loop() is None:
            return self._from_threads.run(coroutine, timeout)
        return self._time.run(coroutine)

    def check_loop(self, what: str) -> None:
        """Refuse ``what`` on another loop than the test's."""
        self._from_threads.check_loop(what)


def _sequence(message: Message[bytes]) -> int:
    number = message.headers.get(SEQUENCE)
    return number if isinstance(number, int) else 0


async def _ignore(message: Message[bytes], error: BinderError) -> None:
    """Nothing: the in-memory producer never fails after it returned."""
