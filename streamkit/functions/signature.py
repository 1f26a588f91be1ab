"""What a function takes and gives, read from its annotations.

::

    (Order) -> Receipt                                    a function: called for each message
    (Order) -> None                                       a consumer
    () -> Tick                                            a supplier: polled
    (Order) -> Iterator[Line], AsyncIterator[Line]        each item is sent on its own
    (AsyncIterator[Order]) -> AsyncIterator[Receipt]      called once, with the stream of what arrives
    (tuple[AsyncIterator[A], AsyncIterator[B]]) -> …      two inputs; as well as two parameters
    … -> tuple[AsyncIterator[A], AsyncIterator[B]]        two outputs

An item of a stream may be a message: `AsyncIterator[Message[Order]]`. A function that takes messages takes what a
listener does: headers, an acknowledgment, what a container provides.
"""

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Generator, Iterator
from dataclasses import dataclass
from enum import Enum
from types import NoneType
from typing import Annotated, Any, Final, get_args, get_origin

from streamkit.errors import ConfigurationError
from streamkit.listeners.arguments import ProviderLookup, annotations_of, describe, free_parameters
from streamkit.messaging.handler import is_async

__all__ = ["Result", "Signature", "StreamParameter", "provided_to", "read_signature"]

_ASYNC: Final = (AsyncIterator, AsyncIterable, AsyncGenerator)
_SYNC: Final = (Iterator, Generator)


class Result(Enum):
    """What a call gives."""

    NOTHING = "nothing"
    VALUE = "a value"
    ITEMS = "an iterator"
    STREAM = "an async iterator"
    STREAMS = "a tuple of async iterators"


@dataclass(frozen=True, slots=True)
class StreamParameter:
    """A parameter that takes streams.

    Attributes:
        name: Its name.
        items: What its streams' items are: of one stream, or of each in a tuple.
        is_tuple: Whether it takes a tuple of them.
    """

    name: str
    items: tuple[object, ...]
    is_tuple: bool


@dataclass(frozen=True, slots=True)
class Signature:
    """A function's shape.

    Attributes:
        takes_messages: Whether it is called with messages, or with streams of them; else it is a supplier.
        streams: Its parameters that take streams; empty when it is called for each message.
        result: What a call gives.
        outputs: How many outputs it has.
        item: What it gives: the value's annotation, or that of an item.
    """

    takes_messages: bool
    streams: tuple[StreamParameter, ...]
    result: Result
    outputs: int
    item: object

    @property
    def inputs(self) -> int:
        """How many inputs it has."""
        if self.streams:
            return sum(len(each.items) for each in self.streams)
        return 1 if self.takes_messages else 0


def read_signature(function: Callable[..., object], providers: ProviderLookup) -> Signature:
    """Return the shape of ``function``.

    Raises:
        ConfigurationError: Its annotations do not say one.
    """
    hints = annotations_of(function)
    parameters = free_parameters(function)
    streams = tuple(
        found
        for each in parameters
        if (found := _stream_parameter(each.name, hints.get(each.name))) is not None
    )
    given = {*(stream.name for stream in streams), *provided_to(function, providers)}
    others = [each.name for each in parameters if each.name not in given]
    if streams and others:
        raise _wrong(
            function,
            f"takes streams, so it cannot take {others[0]!r}: let the items be Message[...] for their headers",
        )
    if "return" not in hints:
        raise _wrong(function, "does not say what it returns: annotate it, with -> None if it is a consumer")
    result, outputs, item = _result(hints["return"])
    takes_messages = bool(streams or others)
    if streams and result in (Result.VALUE, Result.ITEMS):
        raise _wrong(
            function, "takes streams, so it gives async iterators, or None: annotate what it returns"
        )
    if streams and result is Result.NOTHING and not is_async(function):
        raise _wrong(function, "consumes a stream, so it has to be `async def`")
    if not takes_messages and result is Result.NOTHING:
        raise _wrong(function, "takes nothing and returns nothing: what is it for?")
    return Signature(takes_messages, streams, result, outputs, item)


def _stream_parameter(name: str, hint: object) -> StreamParameter | None:
    if get_origin(hint) in _ASYNC:
        return StreamParameter(name, (_item(hint),), is_tuple=False)
    members = get_args(hint)
    if get_origin(hint) is tuple and members and all(get_origin(each) in _ASYNC for each in members):
        return StreamParameter(name, tuple(_item(each) for each in members), is_tuple=True)
    return None


def _result(hint: object) -> tuple[Result, int, object]:
    """What a return annotation says: the kind, how many outputs, what is sent."""
    if hint in (None, NoneType):
        return Result.NOTHING, 0, None
    origin, members = get_origin(hint), get_args(hint)
    if origin in _ASYNC:
        return Result.STREAM, 1, _item(hint)
    if origin in _SYNC:
        return Result.ITEMS, 1, _item(hint)
    if origin is tuple and members and all(get_origin(each) in _ASYNC for each in members):
        return Result.STREAMS, len(members), Any
    return Result.VALUE, 1, hint


def _item(hint: object) -> object:
    return next(iter(get_args(hint)), Any)


def provided_to(
    function: Callable[..., object], providers: ProviderLookup
) -> dict[str, Callable[[], object]]:
    """Return what a container gives a function, by the names of the parameters.

    Raises:
        ConfigurationError: A marker stands for nothing that any container has.
    """
    hints = annotations_of(function)
    found = {}
    for parameter in free_parameters(function):
        hint = hints.get(parameter.name)
        marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        for mark in (*marks, parameter.default):
            try:
                provide = providers.find(mark)
            except LookupError as error:
                raise _wrong(function, f"parameter {parameter.name!r}: {error}") from error
            if provide is not None:
                found[parameter.name] = provide
    return found


def _wrong(function: Callable[..., object], reason: str) -> ConfigurationError:
    return ConfigurationError(f"function {describe(function)} {reason}")
