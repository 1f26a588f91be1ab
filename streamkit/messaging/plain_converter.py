"""Converters of bytes, and of text in its charset."""

import datetime as dt
import decimal
import enum
import uuid
from codecs import CodecInfo
from collections.abc import Callable
from typing import Any, Final, Literal, NewType, cast, get_args, get_origin

import msgspec

from streamkit.errors import MessageConversionError
from streamkit.messaging.charset import text_codec
from streamkit.messaging.message import NoPayload
from streamkit.messaging.message_converter import Reader, Writer, type_name, without_none
from streamkit.messaging.mime import APPLICATION_OCTET_STREAM, MimeType

_BYTES_LIKE = (bytes, bytearray, memoryview)
_SCALARS = (int, float, bool, decimal.Decimal, uuid.UUID, dt.datetime, dt.date, dt.time, dt.timedelta)

_SHOWN: Final = 300
"""Characters of a payload that an error quotes: errors are logged and sent in headers of dead letters."""


class BytesConverter:
    """Passes bytes on unchanged, whatever the content type; `application/octet-stream` is for bytes only."""

    def reader(self, type_: object, mime: MimeType) -> Reader | None:
        """Return a reader of the unchanged bytes, for bytes-like types, `object` and `Any`."""
        target = without_none(type_)
        if target in (bytes, object, Any):
            return _itself
        if target is bytearray:
            return bytearray
        return memoryview if target is memoryview else None

    def writer(self, type_: type, mime: MimeType) -> Writer | None:
        """Return a writer of the unchanged bytes, for bytes-like types.

        Raises:
            MessageConversionError: The content type is `application/octet-stream` and the type is not bytes-like.
        """
        if type_ in (bytes, NoPayload):
            return _itself
        if issubclass(type_, _BYTES_LIKE):
            return bytes
        if APPLICATION_OCTET_STREAM.includes(mime):
            raise MessageConversionError(
                f"application/octet-stream carries bytes, not {type_name(type_)}: send bytes, or set the "
                "content type to application/json or text/plain.",
                content_type=str(mime),
                target_type=type_,
            )
        return None


class TextConverter:
    """Converts text in the content type's charset, by default UTF-8.

    A `str` is text under every content type, so under JSON it is sent without quotes. JSON is UTF-8 whatever charset
    its content type names (RFC 8259), as in Spring. Under `text/*` every value is written by `str()`, and numbers,
    dates, UUIDs and enums are read from text.
    """

    def reader(self, type_: object, mime: MimeType) -> Reader | None:
        """Return a reader of text for `str`; under `text/*` also for types that are written as one value."""
        target = _plain(without_none(type_))
        if target is str:
            return _decoder(mime, type_)
        if get_origin(target) is Literal and all(isinstance(each, str) for each in get_args(target)):
            decode = _decoder(mime, type_)
            return lambda data: _scalar(decode(data), target, mime)
        if mime.is_text and isinstance(target, type) and issubclass(target, (*_SCALARS, enum.Enum)):
            decode = _decoder(mime, type_)
            return lambda data: _scalar(decode(data), target, mime)
        return None

    def writer(self, type_: type, mime: MimeType) -> Writer | None:
        """Return a writer of text for `str`; under `text/*` for any type."""
        if not (mime.is_text or issubclass(type_, str)):
            return None
        encode = _codec(mime, type_).encode
        return lambda payload: encode(str(payload))[0]


def _plain(type_: object) -> object:
    """Return the supertype of a `NewType`, else the type itself."""
    while isinstance(type_, NewType):
        type_ = type_.__supertype__
    return type_


def _itself(data: bytes) -> bytes:
    return data


def _decoder(mime: MimeType, type_: object) -> Callable[[bytes], str]:
    decode = _codec(mime, type_).decode

    def read(data: bytes) -> str:
        try:
            return decode(data)[0]
        except UnicodeDecodeError as error:
            raise MessageConversionError(
                f"The payload is not {_charset(mime)} text: byte {error.start} is wrong ({error.reason}).",
                content_type=str(mime),
                target_type=type_,
            ) from error

    return read


def _charset(mime: MimeType) -> str:
    return "utf-8" if mime.is_json else mime.charset


def _codec(mime: MimeType, type_: object) -> CodecInfo:
    """Return the codec of the content type's charset.

    Raises:
        MessageConversionError: The charset is unknown.
    """
    try:
        return text_codec(_charset(mime))
    except LookupError as error:
        raise MessageConversionError(
            f"{mime.essence} names an {error}", content_type=str(mime), target_type=type_
        ) from error


def _scalar(text: str, type_: object, mime: MimeType) -> object:
    try:
        return msgspec.convert(text.strip(), cast("type[object]", type_), strict=False)
    except msgspec.ValidationError as error:
        raise MessageConversionError(
            f"Cannot read the text {text[:_SHOWN]!r} as {type_name(type_)}: {str(error)[:_SHOWN]}",
            content_type=str(mime),
            target_type=type_,
        ) from error
