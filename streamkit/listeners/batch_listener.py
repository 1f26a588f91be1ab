"""Invocation of the listeners of bindings in batch mode, which take several messages at once.

Annotations of the parameters::

    list[Order]              the payloads
    list[Message[Order]]     the messages, each with its headers
    Message[list[Order]]     the payloads; the header `streamkit_batch_headers` lists the headers of each message
    Acknowledgment           settles the whole batch by hand

A listener returns None, a list with one settlement for each message it was given, or, with an output, data to send.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeGuard, get_args, get_origin

from streamkit.binder.batch import Batch
from streamkit.errors import ConfigurationError, MessageConversionError, MessageHandlingError
from streamkit.listeners.arguments import (
    ArgumentPlan,
    ProviderLookup,
    Reader,
    annotations_of,
    describe,
    free_parameters,
    marks_of,
    plan_arguments,
)
from streamkit.listeners.invocation import ListenerHandler, call_on_thread
from streamkit.listeners.listener import Header
from streamkit.messaging.handler import awaited
from streamkit.messaging.message import Message
from streamkit.messaging.message_converter import type_name
from streamkit.settlement import Settlement

__all__ = ["BATCH_HEADERS", "BatchListenerHandler", "BatchPlan", "plan_batch_arguments"]

BATCH_HEADERS: Final = "streamkit_batch_headers"
"""The header of a batch that lists the headers of its messages."""

MakeReader = Callable[[object], Reader]


@dataclass(frozen=True, slots=True)
class BatchPlan(ArgumentPlan):
    """The argument plan of a listener in batch mode: it treats the batch as one message with a list as payload.

    Attributes:
        read: Converts one message of the batch to an item of the list.
    """

    read: Reader


def plan_batch_arguments(
    function: Callable[..., object], reader_for: MakeReader, providers: ProviderLookup
) -> BatchPlan:
    """Return the argument plan for a listener of a binding in batch mode.

    Args:
        function: The listener.
        reader_for: Returns the reader that converts payloads to a type.
        providers: Resolves the markers of a container.

    Raises:
        ConfigurationError: A parameter has an annotation that a batch cannot satisfy.
    """
    items: list[Reader] = []

    def reader_of_list(type_: object) -> Reader:
        items.append(_item_reader(type_, reader_for))
        return _payload

    hints = annotations_of(function)
    for parameter in free_parameters(function):
        if any(isinstance(mark, Header) for mark in marks_of(parameter, hints.get(parameter.name))):
            raise ConfigurationError(
                f"listener {describe(function)} takes one header as {parameter.name!r}, but its binding is in batch "
                "mode: take list[Message[...]] for the headers of each message"
            )
    plan = plan_arguments(function, reader_of_list, providers)
    read = items[0] if items else _payload
    return BatchPlan(plan.positional, plan.keywords, plan.takes_acknowledgment, plan.listener, read)


def _item_reader(type_: object, reader_for: MakeReader) -> Reader:
    if type_ in (Any, object, list):
        return reader_for(Any)
    if get_origin(type_) is not list:
        raise MessageConversionError(
            f"its binding is in batch mode: annotate it as list[{type_name(type_)}] or list[Message[...]]"
        )
    (item,) = get_args(type_)
    if item is Message or get_origin(item) is Message:
        read = reader_for((get_args(item) or (bytes,))[0])
        return lambda message: Message(read(message), message.headers)
    return reader_for(item)


def _payload(message: Message[object]) -> object:
    return message.payload


class BatchListenerHandler(ListenerHandler):
    """Calls one listener with batches."""

    async def handle_message(self, message: Message[object]) -> None:
        """Call the listener with the messages of a batch that can be converted.

        A message that cannot be converted fails alone: its error is recorded in the batch.

        Raises:
            MessageHandlingError: The message is not a batch: it was sent to the listener's channel directly.
        """
        batch = message.payload
        if not isinstance(batch, Batch):
            raise MessageHandlingError(
                f"listener {describe(self.function)} takes batches, but a single message was sent to its channel",
                message,
            )
        items = self._read(batch)
        if not items:
            return
        handed = [batch[place].headers for place in batch.places]
        headers = message.headers.annotated(BATCH_HEADERS, handed)
        positional, keywords = self._plan.arguments(Message(items, headers))
        if self._is_async:
            result = await awaited(self.function(*positional, **keywords))
        else:
            result = await call_on_thread(self._pool(), self.function, *positional, **keywords)
        if _are_settlements(result):
            batch.settle(result)
        elif result == [] and not self._outputs:
            batch.settle([])  # raises: the listener returned too few settlements
        elif result is not None and (sending := self._answer(result, headers)) is not None:
            await sending

    def _read(self, batch: Batch) -> list[object]:
        """Return the items of the messages that can be converted; record the errors of the others in the batch."""
        plan = self._plan
        assert isinstance(plan, BatchPlan), "a handler of batches is made with a plan for batches"
        items = []
        for place in batch.places:
            one = batch[place]
            try:
                items.append(plan.read(one))
            except MessageConversionError as error:
                error.meant_for(plan.listener, one)
                batch.errors[place] = error
        return items


def _are_settlements(result: object) -> TypeGuard[list[Settlement]]:
    """Return whether a listener returned settlements.

    Raises:
        TypeError: Only some of the returned values are settlements.
    """
    if not isinstance(result, list):
        return False
    others = [each for each in result if not isinstance(each, Settlement)]
    if others and len(others) < len(result):
        raise TypeError(
            f"the listener returned {others[0]!r} among its settlements: return one settlement for each message, "
            "or nothing to accept all"
        )
    return bool(result) and not others
