"""Reading and writing of JSON bodies.

A body that standard JSON can hold is read and written by msgspec in one C call; only what that refuses, and
bodies whose maps have other keys than texts, go through `fastjson`.
"""

from collections.abc import Generator
from enum import StrEnum
from functools import cache
from typing import TypeVar, get_args, get_origin

import msgspec

from rocket_remoting.wire import fastjson
from rocket_remoting.wire.errors import RemoteProtocolError


class Body(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """A JSON body: attributes are its names in snake_case, defaults are Java's and are not written."""


class KeyedBody(Body):
    """A body in which some map's keys are numbers or message queues."""


B = TypeVar("B", bound=Body)

_decoders: dict[type[Body], msgspec.json.Decoder[Body] | None] = {}
_encode = msgspec.json.Encoder().encode


def decode_body(data: bytes | memoryview, type_: type[B], *, forgiving_up_to: int | None = None) -> B:
    """Return the body that JSON of fastjson's kind holds; unknown names are passed over.

    Args:
        data: The JSON.
        type_: The body's class.
        forgiving_up_to: Most bytes of data that is not quite the JSON which Java clients write: reading that takes a
            hundred times as long. None: no bound.

    Raises:
        RemoteProtocolError: The data is no JSON, a required name is missing, or a value is not of its type.
    """
    try:
        decoder = _decoders[type_]
    except KeyError:
        decoder = _decoders[type_] = _make_decoder(type_)
    if decoder is not None:
        try:
            return decoder.decode(data)  # type: ignore[return-value]  # the decoder was made for type_
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            # The slower way is more forgiving, and says what is wrong if something is.
            if forgiving_up_to is not None and len(data) > forgiving_up_to:
                raise RemoteProtocolError(f"{type_.__name__} of {len(data)} bytes: {error}") from None
    return _converted(fastjson.loads(data), type_)


def decode_steps(data: bytes | memoryview, type_: type[B]) -> Generator[None, None, B]:
    """Return the body that JSON holds, as `decode_body` does, in steps; for maps whose keys are message queues.

    Raises:
        RemoteProtocolError: As `decode_body`.
    """
    return _converted((yield from fastjson.read_steps(data)), type_)


def _converted(value: object, type_: type[B]) -> B:
    try:
        return msgspec.convert(_with_names(value, type_), type_, strict=False)
    except (msgspec.ValidationError, TypeError) as error:
        raise RemoteProtocolError(f"{type_.__name__}: {error}") from None


def encode_body(body: Body, *, standard_json: bool = False) -> bytes:
    """The body's JSON, with bare numbers as keys unless `standard_json` is asked for."""
    if isinstance(body, KeyedBody):
        return fastjson.dumps(body, standard=standard_json)
    return _encode(body)


def _with_names(value: object, type_: object) -> object:
    """The value with the constants of enumerations by their names: C++ writes them as numbers, which fastjson reads."""
    if isinstance(value, dict) and isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        for name, of_field in _field_types(type_).items():
            if name in value:
                value[name] = _with_names(value[name], of_field)
    elif isinstance(value, list) and get_origin(type_) is list:
        (of_item,) = get_args(type_)
        return [_with_names(item, of_item) for item in value]
    elif type(value) is int and isinstance(type_, type) and issubclass(type_, StrEnum):
        constants = list(type_)
        return constants[value] if 0 <= value < len(constants) else value
    return value


@cache
def _field_types(type_: type[msgspec.Struct]) -> dict[str, object]:
    """The fields' types by the names they have on the wire."""
    return {field.encode_name: field.type for field in msgspec.structs.fields(type_)}


def _make_decoder(type_: type[B]) -> msgspec.json.Decoder[B] | None:
    try:
        return msgspec.json.Decoder(type_, strict=False)
    except TypeError:  # a map with message queues as keys
        return None
