"""Signatures of functions: their inputs and outputs, read from the annotations.

::

    (Order) -> Receipt                                    a function: called for each message
    (Order) -> None                                       a consumer
    () -> Tick                                            a supplier: polled
    (Order) -> Iterator[Line], AsyncIterator[Line]        each item is sent as a message
    (AsyncIterator[Order]) -> AsyncIterator[Receipt]      called once, with the stream of incoming messages
    (tuple[AsyncIterator[A], AsyncIterator[B]]) -> …      two inputs; two parameters are possible as well
    … -> tuple[AsyncIterator[A], AsyncIterator[B]]        two outputs

The items of a stream may be messages: `AsyncIterator[Message[Order]]`. A function that is called for each message may
have the same parameters as a listener: headers, an acknowledgment, objects of a container.
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
    """The kind of a function's result."""

    NOTHING = "nothing"
    VALUE = "a value"
    ITEMS = "an iterator"
    STREAM = "an async iterator"
    STREAMS = "a tuple of async iterators"


@dataclass(frozen=True, slots=True)
class StreamParameter:
    """A parameter that takes a stream or a tuple of streams.

    Attributes:
        name: The parameter's name.
        items: The item type of each stream.
        is_tuple: Whether the parameter takes a tuple of streams.
    """

    name: str
    items: tuple[object, ...]
    is_tuple: bool


@dataclass(frozen=True, slots=True)
class Signature:
    """The inputs and outputs of a function.

    Attributes:
        takes_messages: Whether the function is called with messages or with streams of messages; if not, it is a
            supplier.
        streams: The parameters that take streams; empty if the function is called for each message.
        result: The kind of its result.
        outputs: The number of its outputs.
        item: The type of the data it sends: that of its value, or of an item.
    """

    takes_messages: bool
    streams: tuple[StreamParameter, ...]
    result: Result
    outputs: int
    item: object

    @property
    def inputs(self) -> int:
        """The number of the function's inputs."""
        if self.streams:
            return sum(len(each.items) for each in self.streams)
        return 1 if self.takes_messages else 0


def read_signature(function: Callable[..., object], providers: ProviderLookup) -> Signature:
    """Return the signature of ``function``.

    Args:
        function: The function.
        providers: Resolves the markers of a container; parameters with such a marker are not inputs.

    Raises:
        ConfigurationError: The annotations are missing, cannot be resolved, or do not fit together.
    """
    hints = annotations_of(function)
    parameters = free_parameters(function)
    streams = tuple(
        found for each in parameters if (found := _stream_parameter(each.name, hints.get(each.name))) is not None
    )
    given = {*(stream.name for stream in streams), *provided_to(function, providers)}
    others = [each.name for each in parameters if each.name not in given]
    if streams and others:
        raise _wrong(
            function,
            f"takes streams, so it cannot take {others[0]!r}: annotate the items as Message[...] for their headers",
        )
    if "return" not in hints:
        raise _wrong(function, "has no return annotation: add one, -> None for a consumer")
    result, outputs, item = _result(hints["return"])
    takes_messages = bool(streams or others)
    if streams and result in (Result.VALUE, Result.ITEMS):
        raise _wrong(
            function,
            "takes streams, so it must return async iterators or None: correct its return annotation",
        )
    if streams and result is Result.NOTHING and not is_async(function):
        raise _wrong(function, "consumes a stream, so it has to be `async def`")
    if not takes_messages and result is Result.NOTHING:
        raise _wrong(function, "has neither a parameter nor a result, so it cannot be bound")
    return Signature(takes_messages, streams, result, outputs, item)


def _stream_parameter(name: str, hint: object) -> StreamParameter | None:
    if get_origin(hint) in _ASYNC:
        return StreamParameter(name, (_item(hint),), is_tuple=False)
    members = get_args(hint)
    if get_origin(hint) is tuple and members and all(get_origin(each) in _ASYNC for each in members):
        return StreamParameter(name, tuple(_item(each) for each in members), is_tuple=True)
    return None


def _result(hint: object) -> tuple[Result, int, object]:
    """Return the kind of result, the number of outputs and the type of sent data of a return annotation."""
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


def provided_to(function: Callable[..., object], providers: ProviderLookup) -> dict[str, Callable[[], object]]:
    """Return the providers of the objects that a container gives to a function, by parameter name.

    Raises:
        ConfigurationError: No container has the provider that a marker names.
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
