"""Endpoints that handle one message at a time and keep no state."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeAlias, TypeVar, cast
from uuid import uuid4

from streamkit.errors import MessageDeliveryError
from streamkit.expression import compile_expression
from streamkit.messaging.handler import awaited
from streamkit.messaging.headers import CORRELATION_ID, SEQUENCE_NUMBER, SEQUENCE_SIZE
from streamkit.messaging.message import Message
from streamkit.messaging.message_channel import MessageChannel
from streamkit.settlement import raise_returned

__all__ = ["Bridge", "MessageFilter", "Router", "Splitter", "Transformer"]

T = TypeVar("T")
Decision: TypeAlias = Callable[[Message[object]], T | Awaitable[T]]
"""A function of the message, `def` or `async def`."""


class Bridge:
    """Passes every message on to another channel."""

    def __init__(self, output: MessageChannel) -> None:
        self._output = output

    async def handle_message(self, message: Message[object]) -> None:
        """Send ``message`` unchanged."""
        await self._output.asend(message)


class MessageFilter:
    """Passes on the messages that it accepts."""

    def __init__(
        self, accepts: Decision[bool] | str, output: MessageChannel, *, discards: MessageChannel | None = None
    ) -> None:
        """Make a filter.

        Args:
            accepts: Whether to accept a message: a function, or an expression over the message.
            output: The channel of accepted messages.
            discards: The channel of other messages; None drops them.

        Raises:
            ExpressionError: The text of ``accepts`` is not an expression.
        """
        self._accepts = compile_expression(accepts).test if isinstance(accepts, str) else accepts
        self._output = output
        self._discards = discards

    async def handle_message(self, message: Message[object]) -> None:
        """Send ``message`` to the output, or to the discards."""
        output = self._output if await _decided(self._accepts(message)) else self._discards
        if output is not None:
            await output.asend(message)


class Router:
    """Sends each message to the channel that its route names."""

    def __init__(
        self,
        route: Decision[str | None] | str,
        channels: Mapping[str, MessageChannel],
        *,
        default: MessageChannel | None = None,
    ) -> None:
        """Make a router.

        Args:
            route: The name of a message's route: a function, or an expression over the message.
            channels: The channel of each route.
            default: The channel of messages whose route is None or unknown; None: such messages fail.

        Raises:
            ExpressionError: The text of ``route`` is not an expression.
        """
        self._route = cast("Decision[str | None]", compile_expression(route)) if isinstance(route, str) else route
        self._channels = dict(channels)
        self._default = default

    async def handle_message(self, message: Message[object]) -> None:
        """Send ``message`` to the channel of its route.

        Raises:
            MessageDeliveryError: There is no such channel, and no default.
        """
        way = await _decided(self._route(message))
        channel = self._default if way is None else self._channels.get(way, self._default)
        if channel is None:
            known = ", ".join(sorted(self._channels))
            raise MessageDeliveryError(f"no channel for {way!r}, and no default; known: {known}", message)
        await channel.asend(message)


class Transformer:
    """Sends another payload, or message, instead of each message; nothing if the function returns None."""

    def __init__(self, transform: Decision[object], output: MessageChannel) -> None:
        self._transform = transform
        self._output = output

    async def handle_message(self, message: Message[object]) -> None:
        """Send the transformed ``message``, with its headers."""
        made = await _decided(self._transform(message))
        if made is not None:
            await self._output.asend(made if isinstance(made, Message) else message.with_payload(made))


class Splitter:
    """Sends the parts of each message one by one, numbered so that an aggregator can join them.

    Headers: ``correlationId`` is the same for all parts, ``sequenceNumber`` counts them from 1 to ``sequenceSize``.
    """

    def __init__(self, split: Decision[Iterable[object]], output: MessageChannel) -> None:
        self._split = split
        self._output = output

    async def handle_message(self, message: Message[object]) -> None:
        """Send the parts of ``message``, with its headers."""
        parts = list(await awaited(self._split(message)))
        whole = str(uuid4())
        for number, part in enumerate(parts, start=1):
            one = part if isinstance(part, Message) else message.with_payload(part)
            place = {CORRELATION_ID: whole, SEQUENCE_NUMBER: number, SEQUENCE_SIZE: len(parts)}
            await self._output.asend(one.with_headers(place))


async def _decided(result: T | Awaitable[T]) -> T:
    """Return what a function decided, once it is not awaitable.

    Raises:
        Requeue: The function returned it.
        Reject: The function returned it.
        TypeError: The function returned a generator, which would count as true.
    """
    decided = await awaited(result)
    raise_returned(decided)
    return decided
