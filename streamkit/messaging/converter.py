"""Converters: from the bytes that bindings carry to a listener's argument, and back.

A converter is asked once for each pair of type and content type, and returns a function that converts. For a message
only that function runs. The content type of a payload is the message's header, else the binding's, else
`application/json`.
"""

from collections.abc import Callable, Sequence
from inspect import isawaitable
from types import NoneType, UnionType
from typing import Any, TypeAlias, Union, get_args, get_origin

from streamkit.errors import MessageConversionError
from streamkit.messaging.handler import not_awaited
from streamkit.messaging.headers import CONTENT_TYPE
from streamkit.messaging.json_converter import JsonConverter
from streamkit.messaging.message import NO_PAYLOAD, Message, message_of
from streamkit.messaging.message_converter import MessageConverter, Reader, Writer, type_name
from streamkit.messaging.mime import MimeType
from streamkit.messaging.plain_converter import BytesConverter, TextConverter

DEFAULT_CONTENT_TYPE = "application/json"

PayloadReader: TypeAlias = Callable[[Message[object]], object]
"""Returns the payload of a message as one type, converted by the message's content type.

All attempts of a delivery get the same object. It raises `MessageConversionError` if the payload cannot be converted.
"""
PayloadWriter: TypeAlias = Callable[[Message[object]], Message[bytes]]
"""Returns a message with its payload as bytes, converted by its content type, which becomes a header.

It raises `MessageConversionError` if the payload cannot be converted.
"""

_MAX_CACHED = 100
"""The most readers or writers that are kept: content types come with messages, so senders may invent any number."""


class CompositeMessageConverter:
    """Asks the application's converters first, then those of plugins, then those that come with streamkit."""

    def __init__(
        self, converters: Sequence[MessageConverter] = (), of_plugins: Sequence[MessageConverter] = ()
    ) -> None:
        """Make a converter that asks others in turn.

        Args:
            converters: Those of the application, in the order in which they are tried.
            of_plugins: Those of plugins, tried after them, in their order.
        """
        provided = (BytesConverter(), TextConverter(), JsonConverter(), _ProvidedAvroConverter())
        self.converters: tuple[MessageConverter, ...] = (*converters, *of_plugins, *provided)

    def reader(self, type_: object, content_type: MimeType | str) -> Reader:
        """Return a function that makes a `type_` (any annotation) of bytes of that content type.

        Raises:
            MessageConversionError: No converter can, or the content type is invalid.
        """
        mime = _parsed(content_type)
        for converter in self.converters:
            reader = converter.reader(type_, mime)
            if reader is not None:
                return reader
        raise MessageConversionError(
            f"No converter reads {mime.essence} as {type_name(type_)}: annotate the payload as bytes or str, "
            "or add a converter of your own.",
            content_type=str(mime),
            target_type=type_,
        )

    def writer(self, type_: type, content_type: MimeType | str) -> Writer:
        """Return a function that makes bytes of that content type of an instance of `type_`.

        Raises:
            MessageConversionError: No converter can, or the content type is invalid.
        """
        mime = _parsed(content_type)
        for converter in self.converters:
            writer = converter.writer(type_, mime)
            if writer is not None:
                return writer
        raise MessageConversionError(
            f"No converter writes {type_name(type_)} as {mime.essence}: send bytes or text, set the content "
            "type to application/json, or add a converter of your own.",
            content_type=str(mime),
            target_type=type_,
        )

    def payload_reader(self, type_: object, content_type: str | None = None, *, place: str = "") -> PayloadReader:
        """Return a function that returns the payload of a message as `type_`.

        Args:
            type_: Any annotation.
            content_type: The content type of messages without such a header; None for `application/json`.
            place: Where messages are converted, such as ``binding 'orders'``, for errors.

        Raises:
            MessageConversionError: No converter reads `content_type` as `type_`, or `content_type` is invalid.
        """
        # A bound method: a call of an object with `__call__` costs half as much again.
        return _PayloadReader(self, type_, content_type or DEFAULT_CONTENT_TYPE, place).read

    def payload_writer(self, content_type: str | None = None, *, place: str = "") -> PayloadWriter:
        """Return a function that returns a message with its payload as bytes.

        Args:
            content_type: The content type of messages without such a header; None for `application/json`.
            place: Where messages are converted, such as ``binding 'orders'``, for errors.

        Raises:
            MessageConversionError: `content_type` is invalid.
        """
        return _PayloadWriter(self, content_type or DEFAULT_CONTENT_TYPE, place).write


class _ProvidedAvroConverter:
    """An AvroConverter without schemas, which is imported for the first payload of Avro."""

    def reader(self, type_: object, mime: MimeType) -> Reader | None:
        """Return what `AvroConverter.reader` returns."""
        if not mime.is_avro:
            return None
        from streamkit.messaging.avro_converter import AvroConverter

        return AvroConverter().reader(type_, mime)

    def writer(self, type_: type, mime: MimeType) -> Writer | None:
        """Return what `AvroConverter.writer` returns."""
        if not mime.is_avro:
            return None
        from streamkit.messaging.avro_converter import AvroConverter

        return AvroConverter().writer(type_, mime)


class _PayloadReader:
    """Reads payloads as one type, each by its message's content type."""

    __slots__ = ("_accepts", "_converter", "_default", "_place", "_readers", "_type")

    def __init__(self, converter: CompositeMessageConverter, type_: object, content_type: str, place: str) -> None:
        self._converter = converter
        self._type = type_
        self._place = place
        self._accepts = _instance_type(type_)
        self._default = content_type
        try:
            self._readers = {content_type: converter.reader(type_, content_type)}
        except MessageConversionError as error:
            error.happened_at(place)
            raise

    def read(self, message: Message[object]) -> object:
        conversions = message.conversions
        if conversions and self in conversions:
            return conversions[self]
        headers = message.headers
        content_type = headers._present.get(CONTENT_TYPE)
        if type(content_type) is not str or not content_type:
            content_type = headers.content_type or self._default
        payload = message.payload
        try:
            if type(payload) is bytes:
                # The reader is looked up here as well: most messages have the same content type.
                value = (self._readers.get(content_type) or self._reader(content_type))(payload)
            elif payload is NO_PAYLOAD:
                value = _nothing(self._type)
            elif isinstance(payload, self._accepts):
                value = payload
            else:
                value = self._reader(content_type)(_as_bytes(payload, self._type))
        except MessageConversionError as error:
            error.happened_at(self._place, message)
            raise
        except Exception as error:  # a user's converter may raise any exception
            failure = MessageConversionError(
                f"Cannot read the payload as {type_name(self._type)} from {content_type}: {error}",
                content_type=content_type,
                target_type=self._type,
            )
            failure.happened_at(self._place, message)
            raise failure from error
        if conversions is not None:
            conversions[self] = value
        return value

    def _reader(self, content_type: str) -> Reader:
        reader = self._readers.get(content_type)
        if reader is None:
            if len(self._readers) >= _MAX_CACHED:
                self._readers.clear()
            reader = self._readers[content_type] = self._converter.reader(self._type, content_type)
        return reader


class _PayloadWriter:
    """Writes payloads to bytes, each by its message's content type."""

    __slots__ = ("_converter", "_default", "_place", "_writers")

    def __init__(self, converter: CompositeMessageConverter, content_type: str, place: str) -> None:
        self._converter = converter
        self._default = content_type
        self._place = place
        _parsed(content_type)
        self._writers: dict[tuple[type, str], Writer] = {}

    def write(self, message: Message[object]) -> Message[bytes]:
        headers = message.headers
        given = headers._present.get(CONTENT_TYPE)
        content_type = given if type(given) is str and given else headers.content_type or self._default
        try:
            payload = message.payload
            kind = type(payload)
            written = (self._writers.get((kind, content_type)) or self._writer(payload, content_type))(payload)
        except MessageConversionError as error:
            error.happened_at(self._place, message)
            raise
        except Exception as error:  # a user's converter may raise any exception
            failure = MessageConversionError(
                f"Cannot write {type_name(type(message.payload))} as {content_type}: {error}",
                content_type=content_type,
                target_type=type(message.payload),
            )
            failure.happened_at(self._place, message)
            raise failure from error
        return message_of(written, headers if content_type is given else headers.with_content_type(content_type))

    def _writer(self, payload: object, content_type: str) -> Writer:
        if isawaitable(payload):
            raise MessageConversionError(f"The payload is {not_awaited(payload)}.", target_type=type(payload))
        type_ = type(payload)
        writer = self._writers.get((type_, content_type))
        if writer is None:
            if len(self._writers) >= _MAX_CACHED:
                self._writers.clear()
            writer = self._writers[type_, content_type] = self._converter.writer(type_, content_type)
        return writer


def _nothing(type_: object) -> object:
    """Return the value of a parameter annotated `type_` for a message without a payload."""
    if type_ is None or (get_origin(type_) in (Union, UnionType) and NoneType in get_args(type_)):
        return None
    if type_ in (bytes, object, Any):
        return NO_PAYLOAD
    raise MessageConversionError(
        f"The message has no payload: annotate the parameter as {type_name(type_)} | None to receive None.",
        target_type=type_,
    )


def _instance_type(type_: object) -> type | tuple[()]:
    """Return the classes of payloads that need no conversion to a type; `()` if `isinstance` cannot tell."""
    return type_ if isinstance(type_, type) and get_origin(type_) is None else ()


def _as_bytes(payload: object, type_: object) -> bytes:
    if isinstance(payload, str):
        return payload.encode()
    if isinstance(payload, bytearray | memoryview):
        return bytes(payload)
    raise MessageConversionError(
        f"The payload is a {type_name(type(payload))}, not bytes, text or {type_name(type_)}.",
        target_type=type_,
    )


def _parsed(content_type: MimeType | str) -> MimeType:
    if isinstance(content_type, MimeType):
        return content_type
    try:
        return MimeType.parse(content_type)
    except ValueError as error:
        raise MessageConversionError(str(error), content_type=content_type) from error
