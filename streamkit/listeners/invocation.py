"""Calling listeners: from an input channel to the function, and from its result to outputs.

`async def` listeners run on the application's loop, `def` listeners on threads of their binding, or of their
error channel.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import Executor
from contextvars import copy_context
from functools import partial
from typing import Final, Protocol, cast

from streamkit.binder.acknowledgment import ACKNOWLEDGMENT
from streamkit.expression import Expression
from streamkit.listeners.arguments import ArgumentPlan, describe, lists_messages
from streamkit.listeners.listener import Listener
from streamkit.messaging.headers import (
    DELAY,
    DELAY_LEVEL,
    DELIVER_AT,
    DELIVERY_ATTEMPT,
    PARTITION,
    PARTITION_OVERRIDE,
    SEND_TO_DESTINATION,
    TAGS,
    MessageHeaders,
)
from streamkit.messaging.message import Message

__all__ = [
    "ErrorListenerOnThread",
    "ListenerDispatch",
    "ListenerHandler",
    "Outputs",
    "SendElsewhere",
    "call_on_thread",
]

logger = logging.getLogger(__name__)

# What is true of the message that came, and not of the one that is sent because of it.
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
    """Sends a listener's results."""

    async def asend(self, message: Message[object]) -> bool:
        """Send one."""
        ...


SendElsewhere = Callable[[str, Message[object]], Awaitable[object]]


class ListenerHandler:
    """Calls one listener.

    Attributes:
        function: The listener.
        condition: What a message must be like.
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
        """Make a handler.

        Args:
            function: The listener.
            listener: What its decorator was told.
            plan: How a message becomes its arguments.
            condition: What a message must be like, compiled.
            is_async: Whether it is an `async def`.
            pool: Where it runs if it is not.
            outputs: Where its result goes.
            elsewhere: Where a result goes whose header names another destination.
            not_copied: Headers of the input that are not given to results.
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
        self._not_copied = (*_NOT_COPIED, *not_copied)

    @property
    def returns_messages(self) -> bool:
        """Whether its results are sent on."""
        return bool(self._outputs)

    @property
    def settles_by_hand(self) -> bool:
        """Whether the listener asks for an acknowledgment."""
        return self._plan.takes_acknowledgment

    async def handle_message(self, message: Message[object]) -> None:
        """Call the listener with ``message``; send its result."""
        positional, keywords = self._plan.arguments(message)
        if self._is_async:
            result = await cast("Awaitable[object]", self.function(*positional, **keywords))
        else:
            result = await call_on_thread(self._pool(), self.function, *positional, **keywords)
        if self._outputs and result is not None:
            for output in self._messages(result, message.headers):
                await self._send(output)

    def _messages(self, result: object, headers: MessageHeaders) -> Sequence[Message[object]]:
        if isinstance(result, Message):
            return (result,)
        if isinstance(result, list) and self._are_messages(result):
            return result
        values = headers.user_values() if self._copy_headers else {}
        for name in self._not_copied:
            values.pop(name, None)
        return (Message(result, MessageHeaders.adopt(values)),)

    def _are_messages(self, items: list[object]) -> bool:
        """Whether a list holds messages; of an empty one only the annotation can tell."""
        return all(isinstance(item, Message) for item in items) if items else self._lists_messages

    async def _send(self, message: Message[object]) -> None:
        elsewhere = message.headers.get(SEND_TO_DESTINATION)
        if isinstance(elsewhere, str):
            await self._elsewhere(elsewhere, message.without_header(SEND_TO_DESTINATION))
            return
        for output in self._outputs:
            await output.asend(message)

    def __repr__(self) -> str:
        return f"<ListenerHandler {describe(self.function)}>"


class ErrorListenerOnThread:
    """Calls a `def` listener of an error channel on a thread: whatever it does, the loop turns meanwhile."""

    def __init__(self, function: Callable[..., object], pool: Callable[[], Executor]) -> None:
        """Make a handler.

        Args:
            function: The listener.
            pool: Where it runs.
        """
        self.function = function
        self._pool = pool

    async def handle_message(self, message: Message[object]) -> None:
        """Call the listener with ``message``."""
        await call_on_thread(self._pool(), self.function, message)

    def __repr__(self) -> str:
        return f"<ErrorListenerOnThread {describe(self.function)}>"


class ListenerDispatch:
    """Calls every listener of one input whose condition matches, in the order they were registered."""

    def __init__(self, binding: str, handlers: Sequence[ListenerHandler]) -> None:
        self._binding = binding
        self._handlers = tuple(handlers)

    async def handle_message(self, message: Message[object]) -> None:
        """Call the matching listeners; a message that none matches is dropped with a warning."""
        matched = False
        for handler in self._handlers:
            if handler.condition is None or handler.condition.test(message):
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


def call_on_thread(
    pool: Executor, function: Callable[..., object], *positional: object, **keywords: object
) -> Awaitable[object]:
    """Call ``function`` in the context of who calls this."""
    call = partial(copy_context().run, function, *positional, **keywords)
    return asyncio.get_running_loop().run_in_executor(pool, call)
