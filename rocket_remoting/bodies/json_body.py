"""Reading and writing of JSON bodies.

A body that standard JSON can hold is read and written by msgspec in one C call; only what that refuses, and
bodies whose maps have other keys than texts, go through `fastjson`.
"""

from typing import TypeVar

import msgspec

from rocket_remoting import fastjson
from rocket_remoting.errors import RemoteProtocolError


class Body(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """A JSON body: attributes are its names in snake_case, defaults are Java's and are not written."""


class KeyedBody(Body):
    """A body in which some map's keys are numbers or message queues."""


B = TypeVar("B", bound=Body)

_decoders: dict[type[Body], msgspec.json.Decoder[Body] | None] = {}
_encode = msgspec.json.Encoder().encode


def decode_body(data: bytes | memoryview, type_: type[B]) -> B:
    """The body of `type_` that JSON of fastjson's kind holds; unknown names are passed over.

    Raises:
        RemoteProtocolError: It is no JSON, a required name is missing, or a value is not of its type.
    """
    try:
        decoder = _decoders[type_]
    except KeyError:
        decoder = _decoders[type_] = _make_decoder(type_)
    if decoder is not None:
        try:
            return decoder.decode(data)  # type: ignore[return-value]  # the decoder was made for type_
        except (msgspec.MsgspecError, ValueError, RecursionError):
            pass  # the slower way is more forgiving, and tells what is wrong if it is
    value = fastjson.loads(data)
    try:
        return msgspec.convert(value, type_, strict=False)
    except (msgspec.ValidationError, TypeError) as error:
        raise RemoteProtocolError(f"{type_.__name__}: {error}") from None


def encode_body(body: Body, *, standard_json: bool = False) -> bytes:
    """The body's JSON, with bare numbers as keys unless `standard_json` is asked for."""
    if isinstance(body, KeyedBody):
        return fastjson.dumps(body, standard=standard_json)
    return _encode(body)


def _make_decoder(type_: type[B]) -> msgspec.json.Decoder[B] | None:
    try:
        return msgspec.json.Decoder(type_, strict=False)
    except TypeError:  # a map with message queues as keys
        return None
