"""Invocation of listeners: from an input channel to the function, and from its result to the outputs.

`async def` listeners run on the application's loop, `def` listeners on threads of their binding or of their error
channel. An awaitable that a listener returns is awaited on the loop, and its result is the listener's
(`streamkit.messaging.handler.awaited`). Otherwise its message would count as consumed, and be lost.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import Executor
from contextvars import copy_context
from functools import partial
from inspect import isawaitable
from typing import Final, Protocol

from streamkit.binder.acknowledgment import ACKNOWLEDGMENT
from streamkit.expression import Expression
from streamkit.listeners.arguments import ArgumentPlan, describe, lists_messages
from streamkit.listeners.listener import Listener
from streamkit.messaging.handler import awaited
from streamkit.messaging.headers import (
    DELAY,
    DELAY_LEVEL,
    DELIVER_AT,
    DELIVERY_ATTEMPT,
    PARTITION,
    PARTITION_OVERRIDE,
    READ_ONLY,
    SEND_TO_DESTINATION,
    TAGS,
    MessageHeaders,
)
from streamkit.messaging.message import Message
from streamkit.settlement import Accept, raise_returned

__all__ = [
    "ErrorListenerOnThread",
    "ListenerDispatch",
    "ListenerHandler",
    "Outputs",
    "SendElsewhere",
    "call_on_thread",
]

logger = logging.getLogger(__name__)

# Headers that only concern the incoming message. They are not copied to a message sent in answer to it.
_NOT_COPIED: Final = (
    ACKNOWLEDGMENT,
    DELIVERY_ATTEMPT,
    PARTITION,
    PARTITION_OVERRIDE,
    DELAY,
    DELAY_LEVEL,
    DELIVER_AT,
    TAGS,
    SEND_TO_DESTINATION,
)


class Outputs(Protocol):
    """A channel for a listener's results."""

    async def asend(self, message: Message[object]) -> bool:
        """Send one message; return whether it was accepted."""
        ...

    async def asend_all(self, messages: Sequence[Message[object]]) -> None:
        """Send several messages in their order, up to the first that fails."""
        ...


SendElsewhere = Callable[[str, Message[object]], Awaitable[object]]


class CalledHandler(Protocol):
    """Handles the messages of one listener."""

    async def handle_message(self, message: Message[object]) -> None:
        """Handle ``message``; an exception fails the call."""


class ListenerHandler:
    """Calls one listener.

    Attributes:
        function: The listener.
        condition: The compiled condition that a message must match, or None.
    """

    def __init__(
        self,
        function: Callable[..., object],
        listener: Listener,
        plan: ArgumentPlan,
        *,
        condition: Expression | None,
        is_async: bool,
        pool: Callable[[], Executor],
        outputs: Sequence[Outputs],
        elsewhere: SendElsewhere,
        not_copied: Collection[str],
    ) -> None:
        """Create a handler.

        Args:
            function: The listener.
            listener: The arguments of its decorator.
            plan: The argument plan.
            condition: The compiled condition that a message must match, or None.
            is_async: Whether the listener is an `async def`.
            pool: Returns the threads for a listener that is a `def`.
            outputs: The channels for the listener's results.
            elsewhere: Sends a result whose header names another destination.
            not_copied: Further headers of the input that are not copied to results.
        """
        self.function = function
        self.condition = condition
        self._plan = plan
        self._is_async = is_async
        self._pool = pool
        self._outputs = tuple(outputs)
        self._elsewhere = elsewhere
        self._lists_messages = lists_messages(function)
        self._copy_headers = listener.copy_headers
        self._not_copied = frozenset((*_NOT_COPIED, *READ_ONLY, *not_copied))

    @property
    def returns_messages(self) -> bool:
        """Whether the listener's results are sent."""
        return bool(self._outputs)

    @property
    def settles_by_hand(self) -> bool:
        """Whether the listener takes an acknowledgment."""
        return self._plan.takes_acknowledgment

    async def handle_message(self, message: Message[object]) -> None:
        """Call the listener with ``message`` and send its result.

        Raises:
            MessageConversionError: The payload or a header cannot be converted to the annotated type.
            Requeue: The listener returned this settlement.
            Reject: The listener returned this settlement.
        """
        positional, keywords = self._plan.arguments(message)
        function = self.function
        if self._is_async:
            waiting: Awaitable[object]
            waiting = function(*positional, **keywords) if keywords else function(*positional)  # type: ignore[assignment]
            result = await waiting
            if result is not None:
                result = await awaited(result)
        else:
            result = await call_on_thread(self._pool(), function, *positional, **keywords)
        if result is not None and (sending := self._answer(result, message.headers)) is not None:
            await sending

    def _answer(self, result: object, headers: MessageHeaders) -> Awaitable[object] | None:
        """Process the listener's result: raise a returned settlement, or return what sends the result, if anything."""
        raise_returned(result)
        outputs = self._outputs
        if not outputs or isinstance(result, Accept):
            return None
        if isinstance(result, Message):
            return self._send([result])
        if isinstance(result, list) and self._are_messages(result):
            return self._send(result)
        copied = headers.copy_without(self._not_copied) if self._copy_headers else None
        answer: Message[object] = Message(result, copied)
        return outputs[0].asend(answer) if len(outputs) == 1 else self._send([answer])

    async def _send(self, messages: Sequence[Message[object]]) -> None:
        """Send messages to the outputs, or to the destinations that their headers name."""
        if len(messages) > 1 and len(self._outputs) == 1 and not any(map(_has_destination, messages)):
            await self._outputs[0].asend_all(messages)
            return
        for message in messages:
            elsewhere = message.headers.get(SEND_TO_DESTINATION)
            if isinstance(elsewhere, str):
                await self._elsewhere(elsewhere, message.without_header(SEND_TO_DESTINATION))
            else:
                for output in self._outputs:
                    await output.asend(message)

    def _are_messages(self, items: list[object]) -> bool:
        """Return whether a list holds messages; for an empty list the annotation decides."""
        return all(isinstance(item, Message) for item in items) if items else self._lists_messages

    def __repr__(self) -> str:
        return f"<ListenerHandler {describe(self.function)}>"


class ErrorListenerOnThread:
    """Calls a `def` listener of an error channel on a thread, so that the listener cannot block the loop."""

    def __init__(self, function: Callable[..., object], pool: Callable[[], Executor]) -> None:
        """Create a handler.

        Args:
            function: The listener.
            pool: Returns the threads.
        """
        self.function = function
        self._pool = pool

    async def handle_message(self, message: Message[object]) -> object:
        """Call the listener with ``message`` and return its result."""
        return await call_on_thread(self._pool(), self.function, message)

    def __repr__(self) -> str:
        return f"<ErrorListenerOnThread {describe(self.function)}>"


class ListenerDispatch:
    """Calls the listeners of one input whose conditions match, in the order of their registration."""

    def __init__(self, binding: str, handlers: Sequence[tuple[Expression | None, "CalledHandler"]]) -> None:
        """Create a dispatch.

        Args:
            binding: The binding's name.
            handlers: The condition of each listener, or None, and its handler.
        """
        self._binding = binding
        self._handlers = tuple(handlers)

    async def handle_message(self, message: Message[object]) -> None:
        """Call the matching listeners; drop a message that no condition matches, with a warning."""
        matched = False
        for condition, handler in self._handlers:
            if condition is None or condition.test(message):
                matched = True
                await handler.handle_message(message)
        if not matched:
            logger.warning(
                "Binding %r drops message %s: no listener's condition matches it",
                self._binding,
                message.headers.id,
            )

    def __repr__(self) -> str:
        return f"<ListenerDispatch {self._binding!r} of {len(self._handlers)}>"


def _has_destination(message: Message[object]) -> bool:
    return isinstance(message.headers.get(SEND_TO_DESTINATION), str)


async def call_on_thread(
    pool: Executor, function: Callable[..., object], *positional: object, **keywords: object
) -> object:
    """Call ``function`` on a thread, in a copy of the caller's context; return its result once it is not awaitable.

    A `def` decorator may set context variables, and return the coroutine of the `async def` that it decorates. So what
    the function returns is awaited in the same context, on the loop.
    """
    context = copy_context()
    call = partial(context.run, function, *positional, **keywords)
    result = await asyncio.get_running_loop().run_in_executor(pool, call)
    if result is None or not isawaitable(result):
        return result
    return await asyncio.create_task(awaited(result), context=context)
