"""Channels, to which messages are sent and from which handlers and receivers get them.

    DirectChannel             one subscriber handles the message, while the sender waits
    PublishSubscribeChannel   every subscriber handles the message
    QueueChannel              the message is kept until it is received

Sending is written once, as a coroutine: `await channel.asend(message)` awaits it. `channel.send(message)`
runs it in the caller's thread when every subscriber and interceptor is a plain function, else on the
application's loop, through the channel's `portal`, and waits for it.

asyncio is imported by the code that has a loop or waits for one, so that plain functions can be connected without it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor
from inspect import isawaitable
from sys import modules
from typing import TYPE_CHECKING

from streamkit.errors import BlockingSendError
from streamkit.messaging.dispatcher import (
    BroadcastingDispatcher,
    LoadBalancingStrategy,
    MessageDispatcher,
    RoundRobin,
    UnicastingDispatcher,
)
from streamkit.messaging.handler import Handler, drive, not_awaited
from streamkit.messaging.interceptor import ChannelInterceptor, InterceptorChain
from streamkit.messaging.message import Message
from streamkit.messaging.portal import Portal
from streamkit.messaging.transaction import ChannelTransaction

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


class InterceptableChannel(ABC):
    """The base of all channels: a name, interceptors, and the two ways to send.

    Attributes:
        name: The name in settings and errors.
    """

    # Set whenever `_portal` is set. It is called for every message, so it is asyncio's C function without a wrapper.
    _running_loop: "Callable[[], AbstractEventLoop | None]"

    def __init__(self, name: str, *, portal: Portal | None = None) -> None:
        self.name = name
        self.portal = portal
        self._chain = InterceptorChain()

    @property
    def portal(self) -> Portal | None:
        """The way onto the application's loop, once there is one."""
        return self._portal

    @portal.setter
    def portal(self, portal: Portal | None) -> None:
        self._portal = portal
        if portal is not None:
            import asyncio

            self._running_loop = asyncio._get_running_loop

    @property
    def interceptors(self) -> tuple[ChannelInterceptor, ...]:
        """The interceptors, in the order their `pre_send` is called."""
        return self._chain.interceptors

    def add_interceptor(self, interceptor: ChannelInterceptor, index: int | None = None) -> None:
        """Add an interceptor for every further message, as the last one or at `index`."""
        interceptors = list(self.interceptors)
        interceptors.insert(len(interceptors) if index is None else index, interceptor)
        self._chain = InterceptorChain(interceptors)

    def remove_interceptor(self, interceptor: ChannelInterceptor) -> bool:
        """Remove an interceptor; return False if the channel did not have it."""
        kept = [i for i in self.interceptors if i is not interceptor]
        removed = len(kept) < len(self.interceptors)
        self._chain = InterceptorChain(kept)
        return removed

    @property
    def is_synchronous(self) -> bool:
        """Whether `send` needs no loop: every subscriber and interceptor is a plain function."""
        return self._chain.is_synchronous

    def send(self, message: Message[object], timeout: float | None = None) -> bool:
        """Send from a thread that may block.

        Args:
            message: What to send.
            timeout: Seconds; None or a negative number waits as long as it takes. Plain functions
                cannot be interrupted: for them it has no effect.

        Returns:
            True if the message was accepted; False if an interceptor stopped it, or it was not accepted in time.

        Raises:
            BlockingSendError: Some subscriber or interceptor is `async def`, and this thread runs their
                loop, or no application runs.
            TypeError: `message` is a payload without a message around it.
            MessagingError: The message could not be delivered.
        """
        if self.is_synchronous:
            return drive(self.sending(message, None))
        portal = self.portal_for(message)
        return portal.run(self.sending(message, none_if_indefinite(timeout)))

    async def asend(self, message: Message[object], timeout: float | None = None) -> bool:
        """Send from a coroutine.

        Args:
            message: What to send.
            timeout: Seconds; None or a negative number waits as long as it takes.

        Returns:
            True if the message was accepted; False if an interceptor stopped it, or it was not accepted in time.

        Raises:
            MessagingError: The message could not be delivered.
            ForeignLoopError: The subscribers belong to an application on another loop.
            TypeError: `message` is a payload without a message around it.
        """
        sending = self.sending(message, None if timeout is None else none_if_indefinite(timeout))
        portal = self._portal
        # The test of `_foreign_portal`, repeated here to save a call for each message.
        if portal is None or portal.loop is self._running_loop() or self.is_synchronous:
            return await sending
        return await portal.carry(sending, f"channel {self.name!r}")

    def _foreign_portal(self) -> Portal | None:
        """Return the portal to the subscribers' loop if they need one and it is not the running loop, else None."""
        portal = self._portal
        if portal is None or portal.loop is self._running_loop() or self.is_synchronous:
            return None
        return portal

    def transaction(self, message: Message[object], timeout: float | None = None) -> ChannelTransaction:
        """Return a context manager that sends `message` as part of a local transaction, the block.

        ::

            async with channel.transaction(message) as tx:     # in `def` code: with channel.transaction(message)
                ...                                            # the local transaction

        See :mod:`streamkit.messaging.transaction` for the ways it may end. The channel must be that of a transactional
        output binding.

        Args:
            message: What to send; it is stored when the block begins.
            timeout: Seconds for storing it; None or a negative number waits as long as it takes.
        """
        return ChannelTransaction(self, message, timeout)

    def sending(self, message: Message[object], timeout: float | None = None) -> Coroutine[object, None, bool]:
        """Return the coroutine that sends a message.

        The caller must run on the subscribers' loop; :meth:`asend` works on any loop.

        Args:
            message: What to send.
            timeout: Seconds; None waits as long as it takes.

        Raises:
            TypeError: `message` is a payload without a message around it.
        """
        given: object = message
        if not isinstance(given, Message):
            wrong = not_awaited(given) if isawaitable(given) else f"{type(given).__name__}: send Message(payload)"
            raise TypeError(f"channel {self.name!r} sends messages, not {wrong}")
        if self._chain.interceptors:
            return self._chain.send(message, self, self._do_send, timeout)
        return self._do_send(message, timeout)

    @abstractmethod
    def _do_send(self, message: Message[object], timeout: float | None) -> Coroutine[object, None, bool]:
        """Send a message that has passed the interceptors; return False if that took longer than `timeout` seconds."""

    def portal_for(self, message: Message[object]) -> Portal:
        """Return the portal to the application's loop, for a thread that may block.

        Raises:
            BlockingSendError: This thread runs that loop, or no application runs.
        """
        if self.portal is None:
            raise BlockingSendError(
                f"Channel {self.name!r} has `async def` subscribers or interceptors, and no application runs "
                "their loop: use `await channel.asend(message)`, or start the application first.",
                message,
            )
        if running_loop() is self.portal.loop:
            raise BlockingSendError(
                f"channel.send on {self.name!r} would block the loop that has to run its subscribers: "
                "use `await channel.asend(message)` here.",
                message,
            )
        return self.portal

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class SubscribableChannel(InterceptableChannel):
    """A channel that passes each message to its subscribers."""

    def __init__(
        self,
        name: str,
        make_dispatcher: Callable[[Callable[[Coroutine[object, None, bool]], bool]], MessageDispatcher],
        *,
        portal: Portal | None = None,
    ) -> None:
        super().__init__(name, portal=portal)
        self._dispatcher = make_dispatcher(self._run_on_loop)

    @property
    def subscribers(self) -> tuple[Handler, ...]:
        """The handlers, in the order in which they are called."""
        return self._dispatcher.handlers

    @property
    def is_synchronous(self) -> bool:
        """Whether `send` needs no loop: every subscriber and interceptor is a plain function."""
        return self._dispatcher.is_synchronous and self._chain.is_synchronous

    def subscribe(self, handler: Handler) -> bool:
        """Add a handler; return False if it was subscribed already."""
        return self._dispatcher.add_handler(handler)

    def unsubscribe(self, handler: Handler) -> bool:
        """Remove a handler, so that it gets no further message; return False if it was not subscribed."""
        return self._dispatcher.remove_handler(handler)

    async def asend_all(self, messages: Sequence[Message[object]]) -> None:
        """Send several messages from a coroutine, in their order, up to the first that fails.

        An output channel without interceptors passes them to its binder together, which may take fewer requests.

        Raises:
            MessagingError: A message could not be delivered.
            ForeignLoopError: The subscribers belong to an application on another loop.
        """
        if self._chain:
            for message in messages:
                await self.asend(message)
        else:
            sending, portal = self._dispatcher.dispatch_all(messages), self._foreign_portal()
            await (sending if portal is None else portal.carry(sending, f"channel {self.name!r}"))

    def sending(self, message: Message[object], timeout: float | None = None) -> Coroutine[object, None, bool]:
        """Return the coroutine that sends, for a caller on the loop of the subscribers."""
        if timeout is None and not self._chain.interceptors and isinstance(message, Message):
            return self._dispatcher.dispatch(message)  # as `_do_send`, which would be another call for each message
        return super().sending(message, timeout)

    def _do_send(self, message: Message[object], timeout: float | None) -> Coroutine[object, None, bool]:
        if timeout is None:
            return self._dispatcher.dispatch(message)
        return self._dispatch_within(timeout, message)

    async def _dispatch_within(self, timeout: float, message: Message[object]) -> bool:
        import asyncio

        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                return await self._dispatcher.dispatch(message)
        except TimeoutError:
            # A handler may raise TimeoutError as well. Only the end of this limit means "not accepted in time".
            if limit.expired():
                return False
            raise

    def _run_on_loop(self, coroutine: Coroutine[object, None, bool]) -> bool:
        if self.portal is None:
            import asyncio

            return asyncio.run(_awaited(coroutine))
        return self.portal.run(coroutine)


class DirectChannel(SubscribableChannel):
    """A channel that passes each message to one subscriber, and to the next one if that fails."""

    def __init__(
        self,
        name: str,
        *,
        load_balancing: Callable[[], LoadBalancingStrategy] | None = RoundRobin,
        failover: bool = True,
        executor: Executor | None = None,
        portal: Portal | None = None,
    ) -> None:
        """Make a channel without subscribers.

        Args:
            name: The name in settings and errors.
            load_balancing: Makes the strategy that chooses the first subscriber to try; None always tries them in their
                order.
            failover: Whether the next subscriber is tried when one raises.
            executor: Runs the subscribers; `send` then only queues the message. None runs them within `send`.
            portal: The way onto the application's loop.
        """
        super().__init__(
            name,
            lambda run_on_loop: UnicastingDispatcher(
                name,
                load_balancing=None if load_balancing is None else load_balancing(),
                failover=failover,
                executor=executor,
                run_on_loop=run_on_loop,
            ),
            portal=portal,
        )


class PublishSubscribeChannel(SubscribableChannel):
    """A channel that passes each message to every subscriber."""

    def __init__(
        self,
        name: str,
        *,
        require_subscribers: bool = False,
        ignore_failures: bool = False,
        executor: Executor | None = None,
        portal: Portal | None = None,
    ) -> None:
        """Make a channel without subscribers.

        Args:
            name: The name in settings and errors.
            require_subscribers: Whether a message without subscribers is an error.
            ignore_failures: Whether the other subscribers still get a message if one of them has failed.
            executor: Runs the subscribers; `send` then only queues the message. None runs them within `send`.
            portal: The way onto the application's loop.
        """
        super().__init__(
            name,
            lambda run_on_loop: BroadcastingDispatcher(
                name,
                require_subscribers=require_subscribers,
                ignore_failures=ignore_failures,
                executor=executor,
                run_on_loop=run_on_loop,
            ),
            portal=portal,
        )


def running_loop() -> "AbstractEventLoop | None":
    """Return the running loop of this thread, or None."""
    if "asyncio" not in modules:
        return None
    import asyncio

    return asyncio._get_running_loop()


async def _awaited(coroutine: Coroutine[object, None, bool]) -> bool:
    return await coroutine


def none_if_indefinite(timeout: float | None) -> float | None:
    """Return a timeout for asyncio: None for a negative one. Spring's INDEFINITE_TIMEOUT is -1."""
    return None if timeout is None or timeout < 0 else timeout
