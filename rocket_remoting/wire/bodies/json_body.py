"""Reading and writing of JSON bodies.

Standard JSON is read and written by msgspec, in one C call. Other data, and bodies with maps whose keys are not
strings, are read and written by `fastjson`.
"""

from collections.abc import Generator
from enum import StrEnum
from functools import cache
from typing import TypeVar, get_args, get_origin

import msgspec

from rocket_remoting.wire import fastjson
from rocket_remoting.wire.errors import RemoteProtocolError


class Body(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """Base of JSON bodies. Defaults are Java's; a field that has its default is not written."""


class KeyedBody(Body):
    """Base of bodies with a map whose keys are numbers or message queues."""


B = TypeVar("B", bound=Body)

_decoders: dict[type[Body], msgspec.json.Decoder[Body] | None] = {}
_encode = msgspec.json.Encoder().encode


def decode_body(data: bytes | memoryview, type_: type[B], *, forgiving_up_to: int | None = None) -> B:
    """Decode a body from JSON, standard or fastjson's; ignore unknown names.

    Args:
        data: The JSON.
        type_: The body's class.
        forgiving_up_to: Maximum number of bytes of data that msgspec refuses and `fastjson` then reads, which takes a
            hundred times as long. None for no limit.

    Raises:
        RemoteProtocolError: The data is not JSON, a required name is missing, or a value has a wrong type.
    """
    try:
        decoder = _decoders[type_]
    except KeyError:
        decoder = _decoders[type_] = _make_decoder(type_)
    if decoder is not None:
        try:
            return decoder.decode(data)  # type: ignore[return-value]  # the decoder was made for type_
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            # `fastjson` also reads JSON that is not standard, and its errors name the place.
            if forgiving_up_to is not None and len(data) > forgiving_up_to:
                raise RemoteProtocolError(f"{type_.__name__} of {len(data)} bytes: {error}") from None
    return _converted(fastjson.loads(data), type_)


def decode_steps(data: bytes | memoryview, type_: type[B]) -> Generator[None, None, B]:
    """Decode a body as `decode_body` does, in steps; for bodies with maps whose keys are message queues.

    Raises:
        RemoteProtocolError: As for `decode_body`.
    """
    return _converted((yield from fastjson.read_steps(data)), type_)


def _converted(value: object, type_: type[B]) -> B:
    try:
        return msgspec.convert(_with_names(value, type_), type_, strict=False)
    except (msgspec.ValidationError, TypeError) as error:
        raise RemoteProtocolError(f"{type_.__name__}: {error}") from None


def encode_body(body: Body, *, standard_json: bool = False) -> bytes:
    """Return the body as JSON; numbers as keys are not quoted, as fastjson writes them, unless `standard_json`."""
    if isinstance(body, KeyedBody):
        return fastjson.dumps(body, standard=standard_json)
    return _encode(body)


def _with_names(value: object, type_: object) -> object:
    """Return the value with the names of enumeration constants instead of their numbers, which the C++ client sends."""
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
    """Return the types of the fields by their names on the wire."""
    return {field.encode_name: field.type for field in msgspec.structs.fields(type_)}


def _make_decoder(type_: type[B]) -> msgspec.json.Decoder[B] | None:
    try:
        return msgspec.json.Decoder(type_, strict=False)
    except TypeError:  # a map with message queues as keys
        return None
