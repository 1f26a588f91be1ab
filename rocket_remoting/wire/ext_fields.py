"""The header fields ``extFields`` of a command, a map of strings, and the typed headers that are read from it.

::

    JSON       {"topic":"orders","queueId":"3"}       the JavaScript client leaves numbers unquoted
    binary     name length 2 | name | value length 4 | value          repeated to the end

A `Header` declares the names and types of one such map. Most headers are read by msgspec in one C call. What msgspec
refuses, such as unquoted values, is read in a slower way. This module does no I/O.
"""

import re
import struct
from collections.abc import Callable, Mapping
from typing import Annotated, TypeVar, get_type_hints

import msgspec

from rocket_remoting.wire.errors import LocalProtocolError, RemoteProtocolError

Int = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""Java's ``int``. Numbers that peers put into sets or maps must have this type: larger numbers that differ by multiples
of 2⁶¹ - 1 have the same hash in Python, and reading ten thousand of them into a set would take seconds."""

Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""Java's ``long``."""

_WRONG_VALUE = r"(?P<expected>.+?)(?:, got `\w+`)? - at `\$\.(?P<name>\w+)`"
_SHOWN = 100
"""Maximum number of characters of a wrong value that an error quotes."""

_NAME_LENGTH = struct.Struct(">h")
_VALUE_LENGTH = struct.Struct(">i")


class Header(msgspec.Struct, kw_only=True, gc=False, rename="camel"):
    """A typed map of header fields; a field that is ``None`` is not sent."""


H = TypeVar("H", bound=Header)

_values = msgspec.structs.astuple
_writers: dict[type[Header], tuple[tuple[str, ...], tuple[Callable[[object], str], ...]]] = {}
_decoders: dict[type[Header], msgspec.json.Decoder[Header]] = {}
_text_decoder: msgspec.json.Decoder[dict[str, str]] = msgspec.json.Decoder(dict[str, str])
_any_decoder: msgspec.json.Decoder[dict[str, object] | None] = msgspec.json.Decoder(dict[str, object] | None)


def to_fields(header: Header) -> dict[str, str]:
    """Return the fields of a header as a dict of texts, without those that are ``None``."""
    type_ = header.__class__
    try:
        names, writers = _writers[type_]
    except KeyError:
        names, writers = _writers[type_] = _make_writers(type_)
    return {
        name: write(value)
        for name, write, value in zip(names, writers, _values(header), strict=True)
        if value is not None
    }


def read_json(raw: bytes | msgspec.Raw, type_: type[H]) -> H:
    """Return the header of `type_` in a JSON map; unknown fields are ignored.

    Raises:
        RemoteProtocolError: A required field is missing, or a value is not of its type.
    """
    decoder = _decoders.get(type_)
    if decoder is None:
        decoder = _decoders[type_] = msgspec.json.Decoder(type_, strict=False)
    try:
        return decoder.decode(raw)  # type: ignore[return-value]  # the decoder was made for type_
    except (msgspec.MsgspecError, ValueError, RecursionError):
        # The slow way also gives the error its text, with the field's name and value.
        return read_fields(json_fields(raw), type_)


def read_binary(raw: bytes, type_: type[H]) -> H:
    """Return the header of `type_` in a binary map; unknown fields are ignored.

    Raises:
        RemoteProtocolError: A required field is missing, a value is not of its type, or a length is wrong.
    """
    return read_fields(binary_fields(raw), type_)


def read_fields(fields: Mapping[str, str], type_: type[H]) -> H:
    """Return the header of `type_` in a dict of texts.

    Raises:
        RemoteProtocolError: A required field is missing, or a value is not of its type.
    """
    try:
        return msgspec.convert(fields, type_, strict=False)
    except msgspec.ValidationError as error:
        filled = {name: value for name, value in fields.items() if value}  # Java reads an empty text as none
        try:
            return msgspec.convert(filled, type_, strict=False)
        except msgspec.ValidationError:
            raise RemoteProtocolError(f"{type_.__name__}: {_problem(error, fields)}") from None


def _problem(error: msgspec.ValidationError, fields: Mapping[str, str]) -> str:
    """Return the error of a wrong field, with its value, which msgspec does not name."""
    wrong = re.fullmatch(_WRONG_VALUE, str(error))
    if wrong is None:
        return str(error)
    name, value = wrong["name"], fields.get(wrong["name"], "")
    shown = repr(value[:_SHOWN])
    if len(value) > _SHOWN:
        shown += f"… ({len(value)} characters)"
    return f"{name}={shown}: {wrong['expected']}"


def json_fields(raw: bytes | msgspec.Raw) -> dict[str, str]:
    """Return a JSON map as a dict of texts: numbers and booleans as Java prints them, without nulls.

    Raises:
        RemoteProtocolError: The data is not a JSON object.
    """
    try:
        return _text_decoder.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass  # other values than texts, or an error, which gets its text below
    try:
        fields = _any_decoder.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise RemoteProtocolError(f"extFields is not a map: {error}") from None
    return {name: _as_text(value) for name, value in fields.items() if value is not None} if fields else {}


def binary_fields(raw: bytes) -> dict[str, str]:
    """Return the binary form of a map as a dict of texts.

    Raises:
        RemoteProtocolError: A length leads beyond the end, or a text is not UTF-8.
    """
    fields: dict[str, str] = {}
    position, end = 0, len(raw)
    try:
        while position < end:
            (length,) = _NAME_LENGTH.unpack_from(raw, position)
            name_end = position + 2 + length
            name = str(raw[position + 2 : name_end], "utf-8")
            (value_length,) = _VALUE_LENGTH.unpack_from(raw, name_end)
            value_end = name_end + 4 + value_length
            # A negative length could lead backwards and make this loop endless.
            if length < 0 or value_length < 0 or value_end > end:
                raise RemoteProtocolError(
                    f"extFields at {position} of {end} bytes: name of {length}, value of {value_length} bytes"
                )
            fields[name] = str(raw[name_end + 4 : value_end], "utf-8")
            position = value_end
    except struct.error:
        raise RemoteProtocolError(f"extFields cut off at {position} of {end} bytes") from None
    except UnicodeDecodeError:
        raise RemoteProtocolError(f"extFields at {position} of {end} bytes: not UTF-8") from None
    return fields


def write_binary(fields: Mapping[str, str]) -> bytes:
    """Return the binary form of a dict of texts.

    Raises:
        LocalProtocolError: A name is longer than 32767 bytes.
    """
    parts: list[bytes] = []
    for name, value in fields.items():
        name_bytes, value_bytes = name.encode(), value.encode()
        try:
            name_length = _NAME_LENGTH.pack(len(name_bytes))
        except struct.error:
            raise LocalProtocolError(
                f"the name of a header field has {len(name_bytes)} bytes, at most 32767 are allowed: {name[:40]}…"
            ) from None
        parts += (name_length, name_bytes, _VALUE_LENGTH.pack(len(value_bytes)), value_bytes)
    return b"".join(parts)


def _make_writers(type_: type[Header]) -> tuple[tuple[str, ...], tuple[Callable[[object], str], ...]]:
    """Return the names on the wire, and for each the function that converts its value to a string."""
    hints = get_type_hints(type_)
    writers = tuple(_bool_text if hints[name] in (bool, bool | None) else str for name in type_.__struct_fields__)
    return type_.__struct_encode_fields__, writers


_bool_text: Callable[[object], str] = {True: "true", False: "false"}.__getitem__  # type: ignore[assignment]


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    return msgspec.json.encode(value).decode()
