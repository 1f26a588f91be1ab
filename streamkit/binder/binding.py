"""Bindings: what connects one channel of the application with a destination of a binder."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Final, Protocol

from pydantic import BaseModel

from streamkit.binder.binder import (
    Binder,
    BindingState,
    ConsumerBinding,
    ConsumerDestination,
    Health,
    ProducerBinding,
    ProducerDestination,
)
from streamkit.binder.capabilities import Capability, describe
from streamkit.binder.receiving import MessageReceiver
from streamkit.binder.sending import SendingHandler
from streamkit.binder.transactional_sending import TransactionalSendingHandler
from streamkit.errors import (
    ApplicationError,
    BinderError,
    BinderUnavailable,
    ConfigurationError,
    UnsupportedCapability,
)
from streamkit.events import binding_changed, binding_created, binding_removed, notify
from streamkit.messaging.channel import SubscribableChannel
from streamkit.messaging.message import Message

__all__ = ["Binding", "Feeder", "InputBinding", "OutputBinding", "ReadyBinder"]

logger = logging.getLogger(__name__)

_STOP_GRACE: Final = 10.0
"""Seconds a binder gets, after the calls in flight, to settle, commit and leave the group."""


class Feeder(Protocol):
    """Something that sends to an output by itself, as long as the output is bound."""

    async def start(self) -> None:
        """Begin to send."""

    async def stop(self, timeout: float) -> None:
        """Send no more, within ``timeout`` seconds."""

    def health(self) -> Health:
        """Return whether it does its work."""
        ...


MakeSender = Callable[[ProducerBinding], SendingHandler | TransactionalSendingHandler]


class ReadyBinder(ABC):
    """A binder that is started when a binding needs it."""

    binder: Binder

    @abstractmethod
    async def get(self) -> Binder:
        """Return the binder, started and able to do what its bindings ask.

        Raises:
            BinderUnavailable: Its system is away.
            ConfigurationError: It cannot do what a setting asks.
        """

    def located(self, error: ConfigurationError) -> ConfigurationError:
        """Return an error of the binder with the place of the binder's own setting that it names."""
        return error


class Binding(ABC):
    """One binding of the application.

    Attributes:
        name: Its name in the settings.
        destinations: The destinations it is bound to.
        channel: The application's end.
        binder: The binder behind it.
        is_expected: Whether it is to be bound as soon as its system is there.
        answer: While the start of its binder is awaited beside that of the application: done when the binding is bound,
            or its system known to be away.
        failure: Why it was given up, if it was.
    """

    def __init__(
        self,
        owner: object,
        name: str,
        destinations: Sequence[str],
        channel: SubscribableChannel,
        binder: ReadyBinder,
    ) -> None:
        self.name = name
        self.binder = binder
        self.destinations = tuple(destinations)
        self.channel = channel
        self.is_expected = False
        self.failure: Exception | None = None
        self.answer: asyncio.Future[None] | None = None
        self._owner = owner
        self._starting = asyncio.Lock()
        # How often it was stopped: a start that was overtaken by a stop gives up.
        self._stops = 0
        self._is_closed = False

    @property
    @abstractmethod
    def state(self) -> BindingState:
        """Running, paused or stopped."""

    @property
    def settings(self) -> Sequence[BaseModel]:
        """Its settings: the application's of this binding, then its binder's own."""
        return ()

    @abstractmethod
    async def start(self) -> None:
        """Bind; does nothing on a binding that is bound. A stop meanwhile ends it.

        Raises:
            BinderUnavailable: The binder's system is away.
            ApplicationError: The application is stopping: new bindings are refused.
        """

    @abstractmethod
    async def stop(self, timeout: float = 30.0) -> None:
        """Unbind, and expect no more to be bound; calls in flight get ``timeout`` seconds."""

    def close(self) -> None:
        """Say that it is not to be bound any more."""
        self._is_closed = True

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise ApplicationError(f"binding {self.name!r} cannot be started: the application stops")

    def expect(self) -> None:
        """Say that it is going to be bound, now or later."""
        self.is_expected = True
        self.failure = None

    def give_up(self, error: Exception) -> None:
        """Say that it cannot be bound, and why."""
        self.is_expected = False
        self.failure = error

    async def pause(self) -> None:
        """Receive nothing until :meth:`resume`."""
        raise TypeError(f"binding {self.name!r} is an output: only inputs can be paused")

    async def resume(self) -> None:
        """Receive again."""
        raise TypeError(f"binding {self.name!r} is an output: only inputs can be resumed")

    def _created(self, kind: str) -> None:
        self.failure = None
        if binding_created.receivers:
            notify(binding_created, self._owner, binding=self.name, kind=kind)

    def _removed(self) -> None:
        if binding_removed.receivers:
            notify(binding_removed, self._owner, binding=self.name)

    def _changed(self) -> None:
        if binding_changed.receivers:
            notify(binding_changed, self._owner, binding=self.name, state=self.state)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} {self.state.value} {', '.join(self.destinations)}>"


class OutputBinding(Binding):
    """An output: what is sent to its channel goes to a destination.

    Attributes:
        destination: What it is bound to.
        feeders: What sends to it by itself: started when it is bound, stopped before it is unbound.
    """

    def __init__(
        self,
        owner: object,
        channel: SubscribableChannel,
        destination: ProducerDestination,
        binder: ReadyBinder,
        make_sender: MakeSender,
    ) -> None:
        super().__init__(owner, destination.binding, [destination.name], channel, binder)
        self.destination = destination
        self.feeders: list[Feeder] = []
        self._make_sender = make_sender
        self._producer: ProducerBinding | None = None
        self._subscriber: SendingHandler | TransactionalSendingHandler | None = None

    @property
    def settings(self) -> Sequence[BaseModel]:
        """`producer.*` of the binding, and its binder's."""
        return self.destination.properties, self.destination.extended

    @property
    def state(self) -> BindingState:
        """Running or stopped."""
        return BindingState.STOPPED if self._producer is None else BindingState.RUNNING

    def expect(self) -> None:
        """Tell senders, until the binding is bound, that it will be."""
        super().expect()
        if self._producer is None:
            self.channel.subscribe(self._refuse)

    async def start(self) -> None:
        """Bind; messages can be sent from now on."""
        async with self._starting:
            if self._producer is not None:
                return
            self._refuse_if_closed()
            stops = self._stops
            binder = await self.binder.get()
            producer = await binder.bind_producer(self.destination)
            if self._stops != stops:
                await producer.stop()
                return
            self._producer = producer
            self._subscriber = self._make_sender(producer)
            self.channel.subscribe(self._subscriber)
            self.channel.unsubscribe(self._refuse)
            self.is_expected = False
            self._created("producer")
        try:
            for feeder in self.feeders:
                await feeder.start()
        except Exception:  # bound without what feeds it, it could not be started once more
            await self.stop()
            raise

    async def feed(self, feeder: Feeder) -> None:
        """Have ``feeder`` send to it, from now on if it is bound; one that cannot start is forgotten."""
        self.feeders.append(feeder)
        try:
            if self._producer is not None:
                await feeder.start()
        except BaseException:
            self.feeders.remove(feeder)
            raise

    async def stop(self, timeout: float = 30.0) -> None:
        """Unbind; what is being sent is finished. Whatever a feeder raises, everything is stopped."""
        async with AsyncExitStack() as stopping:  # from the last to the first
            stopping.push_async_callback(self._unbind)
            for feeder in reversed(self.feeders):
                stopping.push_async_callback(feeder.stop, timeout)

    async def _unbind(self) -> None:
        self._stops += 1
        self.is_expected = False
        self.channel.unsubscribe(self._refuse)
        producer, self._producer = self._producer, None
        if producer is None:
            return
        subscriber, self._subscriber = self._subscriber, None
        if subscriber is not None:
            self.channel.unsubscribe(subscriber)
        try:
            await producer.stop()
        finally:
            self._removed()

    async def _refuse(self, message: Message[object]) -> None:
        if self.answer is not None:
            await asyncio.wait([self.answer])
            if self._subscriber is not None:
                await self._subscriber.handle_message(message)
                return
        name = self.binder.binder.name
        if self.failure is not None:
            raise BinderError(
                f"binding {self.name!r} cannot be bound: {self.failure}", binder=name, binding=self.name
            )
        raise BinderUnavailable(
            f"binding {self.name!r} is not bound yet: binder {name!r} is away, and tried again",
            binder=name,
            binding=self.name,
        )


class InputBinding(Binding):
    """An input: messages of its destinations go to its channel's listeners."""

    @property
    def consumer_destinations(self) -> Sequence[ConsumerDestination]:
        """What it is bound to: one for each destination, unless its binder takes all at once."""
        return [destination for destination, _ in self._consumers]

    def __init__(
        self,
        owner: object,
        name: str,
        channel: SubscribableChannel,
        consumers: Sequence[tuple[ConsumerDestination, MessageReceiver]],
        binder: ReadyBinder,
    ) -> None:
        super().__init__(owner, name, [destination.name for destination, _ in consumers], channel, binder)
        self.group = consumers[0][0].group
        self._consumers = tuple(consumers)
        self._bound: dict[str, ConsumerBinding] = {}
        self._is_paused = False
        # What is left of a stop: calls in flight, and leaving the group.
        self._ending: asyncio.Task[None] | None = None
        # Seconds the last stop gave to calls in flight: a consumer that was being bound meanwhile may have some, too.
        self._patience = 0.0

    @property
    def settings(self) -> Sequence[BaseModel]:
        """`consumer.*` of the binding, and its binder's."""
        destination, _ = self._consumers[0]
        return destination.properties, destination.extended

    @property
    def starts(self) -> bool:
        """Whether its binder's settings let it start with the application."""
        return self._consumers[0][0].extended.starts

    @property
    def receivers(self) -> list[MessageReceiver]:
        """What runs the messages of its destinations."""
        return [receiver for _, receiver in self._consumers]

    @property
    def state(self) -> BindingState:
        """Running, paused or stopped."""
        return next((bound.state for bound in self._bound.values()), BindingState.STOPPED)

    async def start(self) -> None:
        """Bind; messages arrive from now on. What was bound before a failure stays bound."""
        async with self._starting:
            if self._ending is not None:
                await asyncio.wait([self._ending])
            unbound = [each for each in self._consumers if each[0].name not in self._bound]
            if not unbound:
                return
            self._refuse_if_closed()
            stops = self._stops
            binder = await self.binder.get()
            for destination, receiver in unbound:
                if not await self._bind(binder, destination, receiver, stops):
                    return
            self.is_expected = False
            self._created("consumer")

    async def _bind(
        self, binder: Binder, destination: ConsumerDestination, receiver: MessageReceiver, stops: int
    ) -> bool:
        """Bind one destination; False when the binding was stopped meanwhile."""
        if self._stops != stops:
            return False
        destination.permits.grant()
        if self._is_paused:
            destination.permits.withhold()
        try:
            consumer = await receiver.bind(binder, destination)
        except ConfigurationError as error:
            raise self.binder.located(error) from error
        if self._stops != stops:
            await consumer.stop(self._patience)
            return False
        self._bound[destination.name] = consumer
        if self._is_paused:
            await consumer.pause()
        return True

    async def stop(self, timeout: float = 30.0) -> None:
        """Unbind; calls in flight get ``timeout`` seconds.

        A listener may stop its own binding: then this returns while the calls in flight end.
        """
        self._stops += 1
        self._patience = timeout
        self.is_expected = self._is_paused = False
        bound, self._bound = self._bound, {}
        stopping = [asyncio.create_task(consumer.stop(timeout)) for consumer in bound.values()]
        await asyncio.sleep(0)
        # The consumers start no more calls now; what they have fetched and nobody handles yet stays unsettled.
        for destination, _ in self._consumers:
            destination.permits.close()
        if bound:
            self._ending = asyncio.create_task(self._end(stopping, timeout))
        caller = asyncio.current_task()
        if self._ending is not None and not any(receiver.runs_in(caller) for _, receiver in self._consumers):
            await asyncio.shield(self._ending)

    async def _end(self, stopping: Sequence["asyncio.Task[None]"], timeout: float) -> None:
        try:
            await self._await_stops(stopping, timeout)
        finally:
            for _, receiver in self._consumers:
                receiver.close()
            self._ending = None
            self._removed()

    async def _await_stops(self, stopping: Sequence["asyncio.Task[None]"], timeout: float) -> None:
        _, late = await asyncio.wait(stopping, timeout=timeout + _STOP_GRACE)
        if late:
            logger.error(
                "Binding %r did not stop within %g s and is left to itself: does a listener catch CancelledError?",
                self.name,
                timeout + _STOP_GRACE,
            )
        for task in stopping:
            if task not in late:
                task.result()

    async def pause(self) -> None:
        """Receive nothing until :meth:`resume`; the group keeps the messages.

        Raises:
            UnsupportedCapability: The binder cannot pause.
        """
        offered = self.binder.binder.capabilities()
        if Capability.PAUSE not in offered:
            raise UnsupportedCapability(
                f"binding {self.name!r} cannot be paused: binder {self.binder.binder.name!r} can only "
                f"{describe(offered)}"
            )
        self._is_paused = True
        # What the binder has fetched already waits for a permit.
        for destination, _ in self._consumers:
            destination.permits.withhold()
        for consumer in list(self._bound.values()):
            await consumer.pause()
        self._changed()

    async def resume(self) -> None:
        """Receive again."""
        self._is_paused = False
        for consumer in list(self._bound.values()):
            await consumer.resume()
        for destination, _ in self._consumers:
            if destination.name in self._bound:
                destination.permits.grant()
        self._changed()
