"""Dispatchers, which pass a message of a channel to the channel's handlers.

    UnicastingDispatcher      to one handler; to the next one if that fails
    BroadcastingDispatcher    to every handler

Dispatching is a coroutine. If every handler is a plain function the coroutine never waits, so a channel can
run it to its end in the sender's own thread (`streamkit.messaging.handler.drive`).
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import count
from typing import Protocol, TypeAlias

from streamkit.errors import (
    AllHandlersFailed,
    MessageDeliveryError,
    MessageHandlingError,
    MessagingError,
    NoSubscriberError,
)
from streamkit.messaging.cause import kind_and_text
from streamkit.messaging.handler import Handler, Subscription, awaited, drive, name_of
from streamkit.messaging.message import Message
from streamkit.settlement import Reject, Requeue, raise_returned

logger = logging.getLogger(__name__)

Delivery: TypeAlias = Callable[[Message[object]], Coroutine[object, None, bool]]
RunOnLoop: TypeAlias = Callable[[Coroutine[object, None, bool]], bool]


class MessageDispatcher(ABC):
    """Keeps handlers and passes messages to them."""

    def __init__(self, channel_name: str, executor: Executor | None = None, run_on_loop: RunOnLoop = drive) -> None:
        """Make a dispatcher without handlers.

        Args:
            channel_name: The name of the channel, for errors.
            executor: Runs the handlers; `dispatch` then only queues the message. None runs them within `dispatch`.
            run_on_loop: How a thread of the executor runs `async def` handlers.
        """
        self.channel_name = channel_name
        self._executor = executor
        self._run_on_loop = run_on_loop
        # Replaced as a whole, never changed in place: a dispatch under way keeps the tuple that it started with.
        self._subscriptions: tuple[Subscription, ...] = ()
        self._any_async = False

    @property
    def handlers(self) -> tuple[Handler, ...]:
        """The handlers, in the order in which they are called."""
        return tuple(subscription.handler for subscription in self._subscriptions)

    @property
    def is_synchronous(self) -> bool:
        """Whether `dispatch` never waits: it only queues, or every handler is a plain function."""
        return not self._any_async or self._executor is not None

    def add_handler(self, handler: Handler) -> bool:
        """Add a handler; return False if it was there already."""
        if handler in self.handlers:
            return False
        self._replace(sorted((*self._subscriptions, Subscription(handler)), key=_order))
        return True

    def remove_handler(self, handler: Handler) -> bool:
        """Remove a handler, so that it gets no further message; return False if it was not there."""
        kept = [s for s in self._subscriptions if s.handler != handler]
        removed = len(kept) < len(self._subscriptions)
        self._replace(kept)
        return removed

    def _replace(self, subscriptions: Sequence[Subscription]) -> None:
        self._subscriptions = tuple(subscriptions)
        self._any_async = any(subscription.is_async for subscription in subscriptions)

    @abstractmethod
    def dispatch(self, message: Message[object]) -> Coroutine[object, None, bool]:
        """Pass a message on; return True if it was handled or queued for the executor.

        Raises:
            NoSubscriberError: There is no handler, and one is required.
            MessagingError: No handler handled it.
        """

    async def dispatch_all(self, messages: Sequence[Message[object]]) -> None:
        """Pass on `messages` in their order, up to the first that fails.

        Raises:
            NoSubscriberError: There is no handler, and one is required.
            MessagingError: No handler handled a message.
        """
        for message in messages:
            await self.dispatch(message)

    def _queue(self, executor: Executor, delivery: Delivery, message: Message[object]) -> None:
        executor.submit(self._deliver_in_thread, delivery, message)

    def _deliver_in_thread(self, delivery: Delivery, message: Message[object]) -> None:
        run = self._run_on_loop if self._any_async else drive
        try:
            run(delivery(message))
        except Exception:  # the sender has returned already
            logger.exception("Channel %r could not deliver the queued message %r", self.channel_name, message)

    def _no_subscriber(self, message: Message[object]) -> NoSubscriberError:
        return NoSubscriberError(
            f"Dispatcher has no subscribers for channel {self.channel_name!r}. Subscribe a handler to it; "
            "when it belongs to a binding, start the application before sending. List outputs that no listener or "
            "function names in spring.cloud.stream.output-bindings.",
            message,
        )

    def __repr__(self) -> str:
        names = ", ".join(name_of(handler) for handler in self.handlers)
        return f"{type(self).__name__}({self.channel_name!r}, handlers=[{names}])"


class LoadBalancingStrategy(Protocol):
    """Decides in which order the handlers are tried for one message."""

    def order(self, subscriptions: Sequence[Subscription]) -> Sequence[Subscription]:
        """Return all of `subscriptions`, in the order in which they are tried."""
        ...


class RoundRobin:
    """Starts each message with the handler after the first handler of the message before."""

    __slots__ = ("_turns",)

    def __init__(self) -> None:
        self._turns = count()  # atomic under the GIL: senders may come from any thread

    def order(self, subscriptions: Sequence[Subscription]) -> Sequence[Subscription]:
        """Return all of `subscriptions`, rotated by one more than for the message before."""
        first = next(self._turns) % len(subscriptions)
        return (*subscriptions[first:], *subscriptions[:first])


class UnicastingDispatcher(MessageDispatcher):
    """Gives each message to one handler.

    Handlers are tried in turn until one succeeds. The load balancing chooses the first one. Without load
    balancing it is the handler with the smallest order, then the one that was added first.
    """

    def __init__(
        self,
        channel_name: str,
        *,
        load_balancing: LoadBalancingStrategy | None = None,
        failover: bool = True,
        executor: Executor | None = None,
        run_on_loop: RunOnLoop = drive,
    ) -> None:
        """Make a dispatcher without handlers.

        Args:
            channel_name: The name of the channel, for errors.
            load_balancing: Chooses the first handler to try; None always tries them in their order.
            failover: Whether the next handler is tried when one raises.
            executor: Runs the handlers; `dispatch` then only queues the message. None runs them within `dispatch`.
            run_on_loop: How a thread of the executor runs `async def` handlers.
        """
        super().__init__(channel_name, executor, run_on_loop)
        self._load_balancing = load_balancing
        self._failover = failover
        if executor is None and type(self).dispatch is UnicastingDispatcher.dispatch:
            self.dispatch = self._try_handlers  # type: ignore[method-assign]  # saves a call for each message

    async def dispatch(self, message: Message[object]) -> bool:
        """Pass a message to one handler; return True if it was handled or queued for the executor.

        Raises:
            NoSubscriberError: There is no handler.
            MessageHandlingError: The only handler that was tried raised.
            AllHandlersFailed: Every handler raised.
        """
        if self._executor is None:
            return await self._try_handlers(message)
        # The handlers are chosen when the task runs, so a handler that is removed until then does not get the
        # message.
        self._queue(self._executor, self._try_handlers, message)
        return True

    async def dispatch_all(self, messages: Sequence[Message[object]]) -> None:
        """Pass `messages` on: in one call if the only handler has `handle_messages`, else one after the other.

        Raises:
            NoSubscriberError: There is no handler.
            MessageHandlingError: The only handler that was tried raised.
            AllHandlersFailed: Every handler raised.
        """
        call_with_all = self._subscriptions[0].call_with_all if len(self._subscriptions) == 1 else None
        if call_with_all is None or self._executor is not None:
            await super().dispatch_all(messages)
        elif failed := await call_with_all(messages):
            message, error = failed
            raise error if isinstance(error, Requeue | Reject) else self._failure(message, [error])

    async def _try_handlers(self, message: Message[object]) -> bool:
        """Pass `message` to one handler; return True if a handler handled it.

        Raises:
            NoSubscriberError: There is no handler.
            MessageHandlingError: The only handler that was tried raised.
            AllHandlersFailed: Every handler raised.
        """
        failures: tuple[Exception, ...] = ()
        subscriptions = self._subscriptions
        for subscription in subscriptions if len(subscriptions) == 1 else self._in_order(message):
            try:
                result = subscription.call(message)
                if result is not None and subscription.is_async:
                    waiting: Awaitable[object] = result  # type: ignore[assignment]  # `cast` would be another call
                    result = await waiting
                if result is not None:
                    raise_returned(await awaited(result))
                return True  # handled
            except (Requeue, Reject):
                raise  # the handler decided about the message
            except Exception as error:
                failures = (*failures, error)
                if not self._failover:
                    break
        raise self._failure(message, failures)

    def _in_order(self, message: Message[object]) -> Sequence[Subscription]:
        subscriptions = self._subscriptions
        if not subscriptions:
            raise self._no_subscriber(message)
        if self._load_balancing is None:
            return subscriptions
        return self._load_balancing.order(subscriptions)

    def _failure(self, message: Message[object], failures: Sequence[Exception]) -> MessagingError:
        # As with Spring's UnicastingDispatcher: one failure is raised as such, several as one exception that names
        # all.
        if len(failures) == 1:
            return handling_error(message, failures[0], self.channel_name)
        reasons = "; ".join(map(kind_and_text, failures))
        return AllHandlersFailed(
            f"All {len(failures)} handlers of channel {self.channel_name!r} failed: {reasons}",
            message,
            failures,
        )


class BroadcastingDispatcher(MessageDispatcher):
    """Passes each message to every handler, one after the other.

    With an executor each handler gets the message as a task of its own.
    """

    def __init__(
        self,
        channel_name: str,
        *,
        require_subscribers: bool = False,
        ignore_failures: bool = False,
        executor: Executor | None = None,
        run_on_loop: RunOnLoop = drive,
    ) -> None:
        """Make a dispatcher without handlers.

        Args:
            channel_name: The name of the channel, for errors.
            require_subscribers: Whether a message without handlers is an error.
            ignore_failures: Whether the other handlers still get a message if one of them has failed.
            executor: Runs the handlers; `dispatch` then only queues the message. None runs them within `dispatch`.
            run_on_loop: How a thread of the executor runs `async def` handlers.
        """
        super().__init__(channel_name, executor, run_on_loop)
        self._require_subscribers = require_subscribers
        self._ignore_failures = ignore_failures

    async def dispatch(self, message: Message[object]) -> bool:
        """Pass `message` to every handler; return True, also if there is no handler and none is required.

        Raises:
            NoSubscriberError: There is no handler, and one is required.
            MessageHandlingError: A handler raised, and failures are not ignored.
        """
        if self._require_subscribers and not self._subscriptions:
            raise self._no_subscriber(message)
        for subscription in self._subscriptions:
            if self._executor is None:
                await self._deliver(subscription, message)
            else:
                self._queue(self._executor, partial(self._deliver, subscription), message)
        return True

    async def _deliver(self, subscription: Subscription, message: Message[object]) -> bool:
        try:
            result = subscription.call(message)
            if result is not None:
                raise_returned(await awaited(result))
        except (Requeue, Reject):
            raise
        except Exception as error:
            # Without an executor the handlers after this one do not get the message, as with Spring's
            # BroadcastingDispatcher. Requeue and Reject, above, are decisions and reach the binding even if failures
            # are ignored.
            if not self._ignore_failures:
                raise handling_error(message, error, self.channel_name) from error
            logger.warning("Handler %r of channel %r failed", subscription, self.channel_name, exc_info=True)
        return True


def handling_error(message: Message[object], error: Exception, channel_name: str) -> MessagingError:
    """Return the exception for the sender: `error` if it names its message, else one that does, caused by `error`."""
    if isinstance(error, MessagingError) and error.failed_message is not None:
        return error
    text = f"Channel {channel_name!r} could not deliver the message: {kind_and_text(error)}"
    wrapper = MessageDeliveryError if isinstance(error, MessagingError) else MessageHandlingError
    wrapped = wrapper(text, message)
    wrapped.__cause__ = error
    return wrapped


def _order(subscription: Subscription) -> tuple[bool, int]:
    """Return the sort key of a subscription: handlers with an order first, by order; then the others as they were
    added."""
    return (subscription.order is None, subscription.order or 0)
