"""Avro schemas in files, and bodies of messages that are read with them.

::

    | C3 01 | fingerprint of the schema (8 bytes) | record |     a body that names its schema: Avro's single object
    | record |                                                  any other; one of these files has its schema

    content type application/vnd.order.v1+avro     order.v1.avsc
    topic orders                                   orders.avsc; also without a content type
    a content type of Avro                         the file itself, if one file was given instead of a directory

The first of these rules that finds a file decides. Bodies come from anywhere: their size, depth and number of values
are bounded before a value is made (`streamkit.messaging.avro_limits`).
"""

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from rocket_admin.conditions import json_document
from rocket_admin.messages import CONTENT_TYPE, origin_topic
from rocket_remoting.wire.message import Message
from streamkit.messaging.avro_limits import AvroLimits

__all__ = ["AvroRecord", "AvroSchemas", "SchemaError", "is_avro"]

_SUFFIX: Final = ".avsc"
_MOST_FILES: Final = 1_000
_MAX_FILE: Final = 1 << 20
"""Bytes of a file with a schema."""
_SINGLE_OBJECT: Final = b"\xc3\x01"
_FINGERPRINT_END: Final = 10
_LONGEST: Final = 1 << 20
"""Bytes of a body that is read: a larger one would keep the other work of the event loop waiting."""


class SchemaError(Exception):
    """The schemas cannot be used; the text names the file, and says what to do."""


class _NoRecordError(ValueError):
    """A body is not a record of the schema; the text says why."""


class AvroRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A body that was read with a schema.

    Attributes:
        file: The name of the schema's file.
        text: The record as JSON with indents; None if the body is not a record of the schema.
        problem: Why the body is not a record; empty if it is one.
    """

    file: str
    text: str | None
    problem: str = ""


class AvroSchemas:
    """Schemas by their names and their fingerprints."""

    def __init__(self, schemas: Mapping[str, "_Schema"], only: "_Schema | None" = None) -> None:
        """Create it with schemas that are parsed.

        Args:
            schemas: The schemas by the names of their files, without `.avsc`.
            only: The schema of the one file that was given instead of a directory; None if there is none.
        """
        self._by_name = schemas
        self._by_fingerprint = {schema.fingerprint: schema for schema in schemas.values()}
        self._only = only

    @classmethod
    def none(cls) -> Self:
        """Return an object without schemas."""
        return cls({})

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the schemas of a file `.avsc`, or of all in a directory.

        A schema may use types of other files in its directory, which are named by the full name of their type.

        Args:
            path: The file or the directory.

        Raises:
            SchemaError: fastavro is missing, there is no file, or one has no valid schema.
        """
        try:
            import fastavro  # noqa: F401 - an extra
        except ImportError:
            raise SchemaError("--schemas needs fastavro: pip install 'streamkit-messaging[avro]'") from None
        if path.is_file():
            schema = _Schema(path)
            return cls({schema.name: schema}, schema)
        files = sorted(path.glob(f"*{_SUFFIX}"))
        if not files:
            raise SchemaError(
                f"--schemas {path}: there is no file *{_SUFFIX}; give a file, or a directory with such files"
            )
        if len(files) > _MOST_FILES:
            raise SchemaError(f"--schemas {path} has {len(files)} files *{_SUFFIX}: at most {_MOST_FILES} are read")
        schemas = map(_Schema, files)
        return cls({schema.name: schema for schema in schemas})

    def record_of(self, body: bytes, content_type: str | None, topic: str) -> AvroRecord | None:
        """Return the record that a body is; None if no schema is known for it.

        Args:
            body: The body, decompressed.
            content_type: The sender's content type, if the message has one.
            topic: The topic that it was first sent to.
        """
        found = self._found(body, content_type, topic)
        return None if found is None else found[0].record(found[1])

    def document_of(self, message: Message) -> Any:
        """Return the body of a message as the values that `json.loads` returns; None if it is neither Avro nor JSON.

        Conditions on paths are checked against these values. In an Avro record, decimals are numbers, and other values
        that JSON does not have, such as dates, are the texts that a page shows.
        """
        content_type = message.properties.get(CONTENT_TYPE)
        found = self._found(bytes(message.body), content_type, origin_topic(message))
        if found is not None:
            try:
                return json.loads(found[0].json(found[1], _as_number_or_text))
            except _NoRecordError:
                pass
        return json_document(message)

    def _found(self, body: bytes, content_type: str | None, topic: str) -> "tuple[_Schema, bytes] | None":
        """Return the schema of a body, and its record without the header; None if no schema is known for it."""
        if body.startswith(_SINGLE_OBJECT):
            named = self._by_fingerprint.get(body[len(_SINGLE_OBJECT) : _FINGERPRINT_END])
            if named is not None:
                return named, body[_FINGERPRINT_END:]
        if not content_type:
            schema = self._by_name.get(topic)
        elif is_avro(content_type):
            schema = self._by_name.get(_name_in(content_type)) or self._by_name.get(topic) or self._only
        else:
            return None
        return None if schema is None else (schema, body)


class _Schema:
    """One schema.

    Attributes:
        name: The name of its file, without `.avsc`.
        fingerprint: The fingerprint with which a body names it.
    """

    def __init__(self, path: Path) -> None:
        """Read the file.

        Raises:
            SchemaError: It cannot be read, or has no valid schema.
        """
        from fastavro.schema import fingerprint, load_schema, to_parsing_canonical_form

        if path.suffix != _SUFFIX:
            raise SchemaError(f"--schemas {path}: the name of a schema's file ends with {_SUFFIX}")
        try:
            if path.stat().st_size > _MAX_FILE:
                raise SchemaError(f"--schemas {path} has more than {_MAX_FILE:,} bytes")
            self._parsed: Any = load_schema(str(path))
            self._limits = AvroLimits(self._parsed, max_size=_LONGEST)
            self.fingerprint = bytes.fromhex(fingerprint(to_parsing_canonical_form(self._parsed), "CRC-64-AVRO"))
        except SchemaError:
            raise
        except Exception as error:  # fastavro's parser raises exceptions of any class
            raise SchemaError(f"--schemas {path} is not an Avro schema: {type(error).__name__}: {error}") from error
        self.name = path.stem
        self._file = path.name

    def record(self, data: bytes) -> AvroRecord:
        """Return the record that data is."""
        try:
            return AvroRecord(file=self._file, text=self.json(data, _as_text, indent=2))
        except _NoRecordError as error:
            return AvroRecord(file=self._file, text=None, problem=str(error))

    def json(self, data: bytes, default: Callable[[object], object], *, indent: int | None = None) -> str:
        """Return the record that data is as JSON.

        Args:
            data: The record, without a header.
            default: Returns what stands in the JSON for a value that JSON does not have, such as a date.
            indent: The spaces of an indent; None for one line.

        Raises:
            _NoRecordError: It is not a record of the schema, or beyond a limit.
        """
        import fastavro

        source = BytesIO(data)
        try:
            self._limits.check(data)
            value = fastavro.schemaless_reader(source, self._parsed, None)
            text = json.dumps(value, indent=indent, ensure_ascii=False, default=default)
        except Exception as error:  # fastavro's decoder raises exceptions of any class
            raise _NoRecordError(str(error) or type(error).__name__) from error
        if source.read(1):
            raise _NoRecordError("there are more bytes after the record")
        return text


def is_avro(content_type: str | None) -> bool:
    """Return whether a content type is one of Avro's: `application/avro`, `application/*+avro`, `avro/binary`."""
    essence = _essence(content_type)
    return essence == "avro/binary" or essence.endswith(("/avro", "+avro"))


def _name_in(content_type: str | None) -> str:
    """Return the name of a schema in a content type: `order.v1` of `application/vnd.order.v1+avro`."""
    return _essence(content_type).partition("/")[2].removesuffix("+avro").removeprefix("vnd.")


def _essence(content_type: str | None) -> str:
    # Some senders quote the content type, as a JSON string.
    return (content_type or "").partition(";")[0].strip().strip('"').lower()


def _as_text(value: object) -> str:
    return value.hex(" ") if isinstance(value, bytes | bytearray) else str(value)


def _as_number_or_text(value: object) -> float | str:
    return float(value) if isinstance(value, Decimal) else _as_text(value)
