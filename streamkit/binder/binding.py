"""Bindings: each connects a channel of the application with the destinations of a binder."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

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
from streamkit.binder.keeping import MessageKeeper, UnboundProducer
from streamkit.config.settings_model import SettingsModel
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

if TYPE_CHECKING:  # imported late: many programs only send or only receive
    from streamkit.binder.receiving import MessageReceiver
    from streamkit.binder.sending import SendingHandler
    from streamkit.binder.transactional_sending import TransactionalSendingHandler

__all__ = ["Binding", "Feeder", "InputBinding", "OutputBinding", "ReadyBinder"]

logger = logging.getLogger(__name__)

_STOP_GRACE: Final = 10.0
"""Seconds that a binder has, after the time of the calls in flight, to settle, commit and leave the group."""


class Feeder(Protocol):
    """Sends to an output by itself while the output is bound."""

    async def start(self) -> None:
        """Begin to send."""

    async def stop(self, timeout: float) -> None:
        """Stop sending within ``timeout`` seconds."""

    def health(self) -> Health:
        """Return whether the feeder works."""
        ...


MakeSender: TypeAlias = "Callable[[ProducerBinding], SendingHandler | TransactionalSendingHandler]"


class ReadyBinder(ABC):
    """A binder that is started when a binding needs it."""

    binder: Binder

    @abstractmethod
    async def get(self) -> Binder:
        """Start the binder if necessary and return it.

        Raises:
            BinderUnavailable: The binder's system cannot be reached.
            ConfigurationError: The binder lacks a capability that a setting requires.
        """

    def located(self, error: ConfigurationError) -> ConfigurationError:
        """Return an error of the binder with the origin of the binder's own setting that the error names."""
        return error


class Binding(ABC):
    """A binding of the application.

    Attributes:
        name: The name in the settings.
        destinations: The names of the destinations.
        channel: The application's channel.
        binder: The binder.
        is_expected: Whether the binding is to be bound as soon as its system can be reached.
        failure: The error after which binding was given up, or None.
        refusal: The error of the last attempt to bind, which is tried again; None if the binding is or was bound.
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
        self.refusal: BinderUnavailable | None = None
        # Set while a binder is late at the application's start; done when the binding is bound or cannot be bound now.
        self._answer: asyncio.Future[None] | None = None
        self._owner = owner
        self._starting = asyncio.Lock()
        # The number of stops: a start compares it before and after each wait, and gives up if a stop came in between.
        self._stops = 0
        self._is_closed = False

    @property
    @abstractmethod
    def state(self) -> BindingState:
        """Running, paused or stopped."""

    @property
    def settings(self) -> Sequence[SettingsModel]:
        """The settings of the binding: the consumer or producer settings, then the binder's own."""
        return ()

    @abstractmethod
    async def start(self) -> None:
        """Bind; do nothing if the binding is bound. A concurrent `stop` ends the start.

        Raises:
            BinderUnavailable: The binder's system cannot be reached.
            BinderError: The binder's system refused.
            ConfigurationError: The binder cannot do what a setting asks.
            ApplicationError: The application is stopping, so no binding is bound any more.
        """

    @abstractmethod
    async def stop(self, timeout: float = 30.0) -> None:
        """Unbind, and do not bind again until `start`; calls in flight have ``timeout`` seconds."""

    def close(self) -> None:
        """Refuse every later `start`."""
        self._is_closed = True

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise ApplicationError(f"binding {self.name!r} cannot be started: the application is stopping")

    def expect(self) -> None:
        """Note that the binding is going to be bound, now or later."""
        self.is_expected = True
        self.failure = None

    def await_answer(self) -> None:
        """Make senders wait until :meth:`answered`, because the binder is still starting."""
        self._answer = asyncio.get_running_loop().create_future()

    def answered(self) -> None:
        """Release waiting senders: the binding is bound, or cannot be bound now."""
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.set_result(None)

    def give_up(self, error: Exception) -> None:
        """Note that the binding cannot be bound, and the error."""
        self.is_expected = False
        self.failure = error

    async def pause(self) -> None:
        """Receive no messages until :meth:`resume`.

        Raises:
            TypeError: The binding is an output.
        """
        raise TypeError(f"binding {self.name!r} is an output: only inputs can be paused")

    async def resume(self) -> None:
        """Receive messages again.

        Raises:
            TypeError: The binding is an output.
        """
        raise TypeError(f"binding {self.name!r} is an output: only inputs can be resumed")

    def _created(self, kind: str) -> None:
        self.failure = self.refusal = None
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
    """An output binding: messages that are sent to its channel go to a destination.

    Attributes:
        destination: The destination and its settings.
        feeders: The feeders, which are started when the binding is bound and stopped before it is unbound.
    """

    def __init__(
        self,
        owner: object,
        channel: SubscribableChannel,
        destination: ProducerDestination,
        binder: ReadyBinder,
        make_sender: MakeSender,
        *,
        keeper: MessageKeeper | None = None,
    ) -> None:
        super().__init__(owner, destination.binding, [destination.name], channel, binder)
        self.destination = destination
        self.feeders: list[Feeder] = [] if keeper is None else [keeper]
        self._keeps = keeper is not None
        self._make_sender = make_sender
        self._producer: ProducerBinding | None = None
        self._subscriber: SendingHandler | TransactionalSendingHandler | None = None

    @property
    def settings(self) -> Sequence[SettingsModel]:
        """The settings `producer.*` of the binding, and its binder's extended producer properties."""
        return self.destination.properties, self.destination.extended

    @property
    def state(self) -> BindingState:
        """Running or stopped."""
        return BindingState.STOPPED if self._producer is None else BindingState.RUNNING

    def expect(self) -> None:
        """Note that the binding is going to be bound; until then, senders wait or get an error that says so."""
        super().expect()
        if self._producer is None:
            self.channel.subscribe(self._refuse)

    async def start(self) -> None:
        """Bind, and start the feeders; if one cannot start, unbind again. Errors are those of `Binding.start`."""
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
            # In this order, so that a thread that sends at this moment never finds the channel without a subscriber.
            self.channel.subscribe(self._subscriber)
            self.channel.unsubscribe(self._refuse)
            self.is_expected = False
            self._created("producer")
        try:
            for feeder in self.feeders:
                await feeder.start()
        except Exception:  # if it stayed bound, the next start would not start the feeders
            await self.stop()
            raise

    async def feed(self, feeder: Feeder) -> None:
        """Add a feeder, and start it if the binding is bound; remove the feeder again if it cannot start."""
        self.feeders.append(feeder)
        try:
            if self._producer is not None:
                await feeder.start()
        except BaseException:
            self.feeders.remove(feeder)
            raise

    async def stop(self, timeout: float = 30.0) -> None:
        """Stop the feeders, finish the sends under way, and unbind, even if a feeder raises.

        Args:
            timeout: Seconds that each feeder has to stop.
        """
        async with AsyncExitStack() as stopping:  # callbacks run in reverse order: the feeders first
            stopping.push_async_callback(self._unbind)
            for feeder in reversed(self.feeders):
                stopping.push_async_callback(feeder.stop, timeout)

    async def _unbind(self) -> None:
        self._stops += 1
        self.is_expected = False
        self.channel.unsubscribe(self._refuse)
        # Taken before the first await: a second stop must not stop the producer again.
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
        """Refuse a message because the binding is not bound; send it if the binder starts meanwhile, or keep it."""
        if self._answer is not None:
            await asyncio.wait([self._answer])
            if self._subscriber is not None:
                await self._subscriber.handle_message(message)
                return
        name = self.binder.binder.name
        if self.failure is not None:
            raise BinderError(f"binding {self.name!r} cannot be bound: {self.failure}", binder=name, binding=self.name)
        away = BinderUnavailable(
            f"binding {self.name!r} is not bound yet: the system of binder {name!r} cannot be reached, which is "
            "tried again" + ("" if self.refusal is None else f"; the last time: {self.refusal}"),
            binder=name,
            binding=self.name,
        )
        if not self._keeps:
            raise away
        await self._make_sender(UnboundProducer(away)).handle_message(message)


class InputBinding(Binding):
    """An input binding: messages of its destinations go to the listeners of its channel.

    Attributes:
        group: The consumer group, or None for an anonymous group.
    """

    @property
    def consumer_destinations(self) -> Sequence[ConsumerDestination]:
        """The destinations and their settings: one for each topic, or a single one if the binder multiplexes."""
        return [destination for destination, _ in self._consumers]

    def __init__(
        self,
        owner: object,
        name: str,
        channel: SubscribableChannel,
        consumers: Sequence["tuple[ConsumerDestination, MessageReceiver]"],
        binder: ReadyBinder,
    ) -> None:
        super().__init__(owner, name, [destination.name for destination, _ in consumers], channel, binder)
        self.group = consumers[0][0].group
        self._consumers = tuple(consumers)
        self._bound: dict[str, ConsumerBinding] = {}
        self._is_paused = False
        # The rest of a stop: it waits for calls in flight and leaves the group.
        self._ending: asyncio.Task[None] | None = None
        # The timeout of the last stop, in seconds. A consumer that was being bound meanwhile may have calls, too.
        self._patience = 0.0

    @property
    def settings(self) -> Sequence[SettingsModel]:
        """The settings `consumer.*` of the binding, and its binder's extended consumer properties."""
        destination, _ = self._consumers[0]
        return destination.properties, destination.extended

    @property
    def starts(self) -> bool:
        """Whether the extended properties let the binding start with the application."""
        return self._consumers[0][0].extended.starts

    @property
    def receivers(self) -> "list[MessageReceiver]":
        """The receivers of the destinations."""
        return [receiver for _, receiver in self._consumers]

    @property
    def state(self) -> BindingState:
        """Running, paused or stopped."""
        return next((bound.state for bound in self._bound.values()), BindingState.STOPPED)

    async def start(self) -> None:
        """Bind all destinations; if one fails, those before it stay bound. Errors are those of `Binding.start`."""
        async with self._starting:
            # The consumers of the last stop have not left their groups yet: the group would have this binding as a
            # member twice.
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
        self, binder: Binder, destination: ConsumerDestination, receiver: "MessageReceiver", stops: int
    ) -> bool:
        """Bind one destination; return False if the binding was stopped meanwhile."""
        if self._stops != stops:
            return False
        # A stop has closed the permits. They are opened before the binding, because a consumer may have messages at
        # once.
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
        """Unbind and leave the group.

        A listener may stop its own binding: then this returns while the calls in flight still run.

        Args:
            timeout: Seconds to wait for calls in flight; calls that take longer are cancelled.
        """
        # Without the lock `_starting`: a start holds the lock for as long as it waits for its system, and this ends
        # that start.
        self._stops += 1
        self._patience = timeout
        self.is_expected = self._is_paused = False
        bound, self._bound = self._bound, {}
        stopping = [asyncio.create_task(consumer.stop(timeout)) for consumer in bound.values()]
        await asyncio.sleep(0)
        # Each consumer's stop has run up to its first await, so no consumer fetches any more. Closing the permits
        # cancels the calls that no handler has begun with; their messages stay unsettled and are delivered again.
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
                "Binding %r did not stop within %g s and is abandoned: check whether a listener catches CancelledError",
                self.name,
                round(timeout + _STOP_GRACE, 1),
            )
        for task in stopping:
            if task not in late:
                task.result()

    async def pause(self) -> None:
        """Receive no messages until :meth:`resume`; the group keeps them.

        Raises:
            UnsupportedCapability: The binder lacks the capability to pause.
        """
        offered = self.binder.binder.capabilities()
        if Capability.PAUSE not in offered:
            raise UnsupportedCapability(
                f"binding {self.name!r} cannot be paused: binder {self.binder.binder.name!r} can only "
                f"{describe(offered)}"
            )
        self._is_paused = True
        # Messages that are already fetched wait for a permit.
        for destination, _ in self._consumers:
            destination.permits.withhold()
        for consumer in list(self._bound.values()):
            await consumer.pause()
        self._changed()

    async def resume(self) -> None:
        """Receive messages again after :meth:`pause`."""
        self._is_paused = False
        for consumer in list(self._bound.values()):
            await consumer.resume()
        for destination, _ in self._consumers:
            # A stop during the awaits has unbound destinations and closed their permits, which must stay closed.
            if destination.name in self._bound:
                destination.permits.grant()
        self._changed()
