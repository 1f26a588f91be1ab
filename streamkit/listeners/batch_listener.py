"""Calling listeners of bindings in batch mode, with several messages at once.

::

    list[Order]              the payloads
    list[Message[Order]]     with the headers of each
    Message[list[Order]]     the payloads, and as its header `streamkit_batch_headers` the headers of each
    Acknowledgment           settling all of them by hand

A listener returns nothing, one settlement for each message it was handed, or, with an output, what is to be sent.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeGuard, cast, get_args, get_origin

from streamkit.binder.batch import Batch
from streamkit.binder.settlement import Settlement
from streamkit.errors import ConfigurationError, MessageConversionError, MessageHandlingError
from streamkit.listeners.arguments import (
    ArgumentPlan,
    ProviderLookup,
    Reader,
    annotations_of,
    describe,
    plan_arguments,
)
from streamkit.listeners.invocation import ListenerHandler, call_on_thread
from streamkit.listeners.listener import Header
from streamkit.messaging.message import Message
from streamkit.messaging.message_converter import type_name

__all__ = ["BATCH_HEADERS", "BatchListenerHandler", "BatchPlan", "plan_batch_arguments"]

BATCH_HEADERS: Final = "streamkit_batch_headers"
"""Of a batch: a list of the headers of its messages."""

MakeReader = Callable[[object], Reader]


@dataclass(frozen=True, slots=True)
class BatchPlan(ArgumentPlan):
    """How a batch becomes the arguments of a listener: those of a message whose payload is the list.

    Attributes:
        read: Makes an item of the list of a message.
    """

    read: Reader


def plan_batch_arguments(
    function: Callable[..., object], reader_for: MakeReader, providers: ProviderLookup
) -> BatchPlan:
    """Plan the arguments of a listener of a binding in batch mode.

    Raises:
        ConfigurationError: It asks for what a batch cannot give.
    """
    items: list[Reader] = []

    def reader_of_list(type_: object) -> Reader:
        items.append(_item_reader(type_, reader_for))
        return _payload

    for name, hint in annotations_of(function).items():
        if any(isinstance(mark, Header) for mark in get_args(hint)[1:]):
            raise ConfigurationError(
                f"listener {describe(function)} takes one header as {name!r}, but its binding is in batch mode: take "
                "list[Message[...]] for the headers of each message"
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
        """Call the listener with the messages of a batch that can be converted; the others fail each alone."""
        batch = message.payload
        if not isinstance(batch, Batch):
            raise MessageHandlingError(
                f"listener {describe(self.function)} takes batches, but one message was sent to its channel by hand",
                message,
            )
        items = self._read(batch)
        if not items:
            return
        handed = [batch[place].headers for place in batch.places]
        headers = message.headers.annotated(BATCH_HEADERS, handed)
        positional, keywords = self._plan.arguments(Message(items, headers))
        if self._is_async:
            result = await cast("Awaitable[object]", self.function(*positional, **keywords))
        else:
            result = await call_on_thread(self._pool(), self.function, *positional, **keywords)
        if _are_settlements(result):
            batch.settle(result)
        elif self._outputs:
            if result is not None:
                for output in self._messages(result, headers):
                    await self._send(output)
        elif result == []:
            batch.settle([])  # too few

    def _read(self, batch: Batch) -> list[object]:
        """The items that can be made; of the others the batch knows why not."""
        plan = self._plan
        assert isinstance(plan, BatchPlan), "a handler of batches is made with a plan for batches"
        items = []
        for place, one in enumerate(batch):
            try:
                items.append(plan.read(one))
            except MessageConversionError as error:
                error.meant_for(plan.listener, one)
                batch.errors[place] = error
        return items


def _are_settlements(result: object) -> TypeGuard[list[Settlement]]:
    """Whether a listener settles its messages.

    Raises:
        TypeError: It settles some of them only.
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
