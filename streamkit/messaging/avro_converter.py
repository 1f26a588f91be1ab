"""Avro: `application/avro`, `application/*+avro` and `avro/binary`, one record in binary form without a header.

A record is written without its schema, so the reader must know the writer's schema: the one given for the message's
content type, else the one derived from the type. `fastavro` is imported for the first Avro payload.
"""

import datetime as dt
import decimal
import uuid
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from io import BytesIO
from typing import Any, Final, cast

import msgspec

from streamkit.errors import MessageConversionError
from streamkit.messaging.avro_limits import AvroLimits
from streamkit.messaging.avro_schema import Schema, schema_of
from streamkit.messaging.document_limits import MAX_DOCUMENT_SIZE
from streamkit.messaging.json_converter import path_of, wrong_payload
from streamkit.messaging.message_converter import Reader, Writer, type_name, without_none
from streamkit.messaging.mime import MimeType

__all__ = ["AvroConverter"]

# Types that fastavro reads and writes unchanged.
_NATIVE: Final = (bytes, dt.datetime, dt.date, dt.time, uuid.UUID, decimal.Decimal)


class AvroConverter:
    """Reads and writes classes as Avro records, and dictionaries if a schema is given.

    ::

        StreamApplication(converters=[AvroConverter({"application/vnd.order.v1+avro": schema})])

    A converter without schemas is one of the provided converters.
    """

    def __init__(self, schemas: Mapping[str, Schema] | None = None, *, max_size: int = MAX_DOCUMENT_SIZE) -> None:
        """Make a converter.

        Args:
            schemas: The writer's schema of each content type; other payloads use the schema of their type.
            max_size: The largest size in bytes of a payload that is read.
        """
        self._max_size = max_size
        self._schemas = {MimeType.parse(name).essence: schema for name, schema in (schemas or {}).items()}

    def reader(self, type_: object, mime: MimeType) -> Reader | None:
        """Return a function that reads a record as `type_`, with fields matched by name as in Avro's schema
        resolution.

        Raises:
            MessageConversionError: fastavro is missing, or the type has no schema. The function raises it for a payload
                that does not fit.
        """
        if not mime.is_avro:
            return None
        target = without_none(type_)
        if target in (bytes, str, object, Any):
            return None
        _require_fastavro(mime)
        import fastavro

        given = self._schemas.get(mime.essence)
        own = None if given is not None and _is_dictionary(target) else _schema(target, mime)
        written = fastavro.parse_schema(cast("Schema", given if given is not None else own))
        wanted = None if own is None or own is given else fastavro.parse_schema(own)
        build = _builder(target, mime)
        limits = AvroLimits(written, max_size=self._max_size)

        def read(data: bytes) -> object:
            try:
                limits.check(data)
            except ValueError as error:
                raise wrong_payload(type_, mime, str(error), None) from error
            source = BytesIO(data)
            try:
                value = fastavro.schemaless_reader(source, written, wanted)
            except Exception as error:  # fastavro's decoder raises exceptions of any class
                reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                raise wrong_payload(type_, mime, f"it is not a record of the schema ({reason})", None) from error
            if source.read(1):
                raise wrong_payload(type_, mime, "there are more bytes after the record", None)
            return build(value)

        return read

    def writer(self, type_: type, mime: MimeType) -> Writer | None:
        """Return a function that writes an instance of `type_` as a record.

        Raises:
            MessageConversionError: fastavro is missing, or the type has no schema. The function raises it for a payload
                that does not fit the schema.
        """
        if not mime.is_avro:
            return None
        _require_fastavro(mime)
        import fastavro

        given = self._schemas.get(mime.essence)
        schema = fastavro.parse_schema(_schema(type_, mime) if given is None else given)

        def write(payload: object) -> bytes:
            value = msgspec.to_builtins(payload, builtin_types=_NATIVE, enc_hook=_dump)
            buffer = BytesIO()
            try:
                fastavro.schemaless_writer(buffer, schema, value)
            except Exception as error:  # any class, as above; the validator names the field
                raise MessageConversionError(
                    f"Cannot write {type_name(type_)} as {mime.essence}: {_fault(value, schema, error)}",
                    content_type=str(mime),
                    target_type=type_,
                ) from error
            return buffer.getvalue()

        return write


def _is_dictionary(target: object) -> bool:
    return target is dict or getattr(target, "__origin__", None) is dict


def _require_fastavro(mime: MimeType) -> None:
    if find_spec("fastavro") is None:
        raise MessageConversionError(
            f"{mime.essence} needs the package fastavro: pip install 'streamkit-messaging[avro]'",
            content_type=str(mime),
        )


def _schema(type_: object, mime: MimeType) -> Schema:
    try:
        return schema_of(type_)
    except TypeError as error:
        raise MessageConversionError(
            f"{mime.essence} cannot carry {type_name(type_)}: {error}. Give the class an __avro_schema__, or an "
            "AvroConverter the schema of the content type.",
            content_type=str(mime),
            target_type=type_,
        ) from error


def _builder(target: object, mime: MimeType) -> Callable[[object], object]:
    """Return a function that makes a `target` of the dictionaries, lists and values that fastavro returns."""
    if hasattr(target, "__pydantic_validator__"):
        import pydantic

        model: pydantic.TypeAdapter[object] = pydantic.TypeAdapter(cast("type[object]", target))
        return model.validate_python

    def build(value: object) -> object:
        try:
            return msgspec.convert(value, cast("type[object]", target), builtin_types=_NATIVE)
        except msgspec.ValidationError as error:
            reason, path = path_of(error)
            raise wrong_payload(target, mime, reason, path) from error

    return build


def _dump(value: object) -> object:
    """Return a pydantic model as a dictionary."""
    dump: Callable[[], object] | None = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"{type_name(type(value))} is not a record")
    return dump()


def _fault(value: object, schema: Schema, error: Exception) -> str:
    """Return the validator's complaint about each field."""
    from fastavro.validation import ValidationError, validate

    try:
        validate(value, schema)
    except ValidationError as found:
        return "; ".join(str(each) for each in found.errors)
    return str(error)
