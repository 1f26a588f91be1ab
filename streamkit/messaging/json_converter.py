"""JSON: dataclasses, msgspec structs, TypedDicts, builtins, enums and dates by msgspec; pydantic models, and unions
of classes without a tag, by pydantic, which is imported only for these.
"""

from collections.abc import Iterator
from inspect import isawaitable
from typing import Final, cast

import msgspec
from msgspec import inspect

from streamkit.errors import MessageConversionError
from streamkit.messaging.document_limits import MAX_DOCUMENT_SIZE, UNCOUNTED_SIZE, require_readable_json
from streamkit.messaging.handler import not_awaited
from streamkit.messaging.message_converter import Reader, Writer, type_name
from streamkit.messaging.mime import MimeType

_NOT_JSON = "neither a dataclass, a msgspec Struct, a TypedDict, a pydantic model nor a builtin"
_AT = " - at `"
_SHOWN: Final = 300
"""The characters of a reason that an error quotes: msgspec's reasons contain the whole wrong value."""
_TOO_DEEP: Final = "it is nested too deeply"

_MOST_ERRORS: Final = 1000
"""pydantic collects the errors of a whole document. Beyond this number an error has only the count: a list would take a
kilobyte for each."""
_PATH_SIZE: Final = 64 << 10
"""Bytes of a document in which the path of an error is looked up; for a larger document pydantic's own path is used."""


class JsonConverter:
    """Reads and writes `application/json` and content types with the suffix `+json`.

    How deeply a document may be nested is bounded by Python's recursion limit, and by 200 for pydantic's models.
    """

    def __init__(self, *, max_size: int = MAX_DOCUMENT_SIZE) -> None:
        """Make a converter.

        Args:
            max_size: The largest size in bytes of a document that is read.
        """
        self._max_size = max_size
        self._encode = msgspec.json.Encoder(enc_hook=_encode_pydantic).encode

    def reader(self, type_: object, mime: MimeType) -> Reader | None:
        """Return a strict reader of the annotation `type_`.

        Raises:
            MessageConversionError: JSON cannot be read as that type.
        """
        if not mime.is_json:
            return None
        try:
            unsupported = list(_unsupported(type_))
        except TypeError as error:  # a union: msgspec selects classes by their tags only
            return _pydantic_reader(type_, mime, self._max_size, str(error))
        if not unsupported:
            return _msgspec_reader(type_, mime, self._max_size)
        if all(hasattr(class_, "__pydantic_validator__") for class_ in unsupported):
            return _pydantic_reader(type_, mime, self._max_size)
        names = ", ".join(type_name(class_) for class_ in unsupported)
        raise _unreadable(type_, mime, f"{names} is {_NOT_JSON}")

    def writer(self, type_: type, mime: MimeType) -> Writer | None:
        """Return the encoder, which is the same for every type."""
        return self._write if mime.is_json else None

    def _write(self, payload: object) -> bytes:
        try:
            return self._encode(payload)
        except (TypeError, ValueError, OverflowError) as error:
            raise MessageConversionError(
                f"Cannot write {type_name(type(payload))} as JSON: {error}", target_type=type(payload)
            ) from error


def _msgspec_reader(type_: object, mime: MimeType, max_size: int) -> Reader:
    decode = msgspec.json.Decoder(type_).decode
    unchecked = min(UNCOUNTED_SIZE, max_size)

    def read(data: bytes) -> object:
        if len(data) > unchecked:
            _require_readable(data, max_size, type_, mime)
        try:
            return decode(data)
        except msgspec.DecodeError as error:
            raise wrong_payload(type_, mime, *path_of(error)) from error
        except RecursionError as error:
            raise wrong_payload(type_, mime, _TOO_DEEP, None) from error

    return read


def _pydantic_reader(type_: object, mime: MimeType, max_size: int, refused: str | None = None) -> Reader:
    import pydantic

    try:
        adapter: pydantic.TypeAdapter[object] = pydantic.TypeAdapter(cast("type[object]", type_))
    except pydantic.errors.PydanticSchemaGenerationError as error:
        raise _unreadable(type_, mime, refused or str(error).splitlines()[0]) from error

    unchecked = min(UNCOUNTED_SIZE, max_size)

    def read(data: bytes) -> object:
        if len(data) > unchecked:
            _require_readable(data, max_size, type_, mime)
        try:
            return adapter.validate_json(data)
        except pydantic.ValidationError as error:
            count = error.error_count()
            if count <= _MOST_ERRORS:
                first = error.errors(include_url=False, include_input=False)[0]
                raise wrong_payload(type_, mime, first["msg"], _json_path(first["loc"], data)) from error
        except RecursionError as error:
            raise wrong_payload(type_, mime, _TOO_DEEP, None) from error
        # Raised outside of `except`, so that the error does not keep pydantic's error as its context.
        raise wrong_payload(type_, mime, f"pydantic finds {count} errors in it", None)

    return read


def _require_readable(data: bytes, max_size: int, type_: object, mime: MimeType) -> None:
    """Refuse a document that is too large or holds too many values.

    Raises:
        MessageConversionError: The document is refused.
    """
    try:
        require_readable_json(data, max_size)
    except ValueError as error:
        raise wrong_payload(type_, mime, str(error), None) from error


def _json_path(location: tuple[int | str, ...], data: bytes) -> str | None:
    """Return `$.items[2].price` for pydantic's ("items", 2, "Order", "price"), without the names of a union's
    members."""
    if len(data) > _PATH_SIZE:
        return "".join(("$", *(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)))
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None
    path = "$"
    for number, step in enumerate(location, start=1):
        if isinstance(value, list) and isinstance(step, int):
            path += f"[{step}]"
            value = value[step] if step < len(value) else None
        elif isinstance(value, dict) and (step in value or number == len(location)):
            path += f".{step}"
            value = value.get(step)
    return path if location else None


def path_of(error: msgspec.DecodeError) -> tuple[str, str | None]:
    """Return the reason and the path of msgspec's error.

    The path is the last part of the text. The text before may quote the payload, so it is not searched.
    """
    reason, _, path = (text := str(error)).rpartition(_AT)
    return (reason, path[:-1]) if reason and path.endswith("`") else (text, None)


def wrong_payload(type_: object, mime: MimeType, reason: str, path: str | None) -> MessageConversionError:
    """Return the error for a payload that does not fit its type, at `path`."""
    where = f" at {path[:_SHOWN]}" if path else ""
    if len(reason) > _SHOWN:
        reason = f"{reason[:_SHOWN]}…"
    return MessageConversionError(
        f"Cannot read the payload as {type_name(type_)} from {mime.essence}: {reason}{where}",
        content_type=str(mime),
        target_type=type_,
        path=path,
    )


def _unreadable(type_: object, mime: MimeType, reason: str) -> MessageConversionError:
    return MessageConversionError(
        f"{mime.essence} cannot be read as {type_name(type_)}: {reason}.",
        content_type=str(mime),
        target_type=type_,
    )


def _unsupported(type_: object) -> Iterator[type]:
    """Return the classes in the annotation that msgspec cannot make, such as pydantic models."""
    pending: list[object] = [inspect.type_info(type_)]
    seen: set[int] = set()
    while pending:
        node = pending.pop()
        if id(node) in seen or not isinstance(node, msgspec.Struct):
            continue
        seen.add(id(node))
        if isinstance(node, inspect.CustomType | inspect.DataclassType) and _needs_more_than_msgspec(node):
            yield node.cls
        for value in msgspec.structs.asdict(node).values():
            pending.extend(value if isinstance(value, tuple) else (value,))


def _needs_more_than_msgspec(node: inspect.CustomType | inspect.DataclassType) -> bool:
    if isinstance(node, inspect.CustomType):
        return node.cls is not object
    return hasattr(node.cls, "__pydantic_validator__")


def _encode_pydantic(value: object) -> msgspec.Raw:
    """Return the dump of a pydantic model, by alias: of the payload itself, or of a value in it."""
    serializer = getattr(type(value), "__pydantic_serializer__", None)
    if isawaitable(value):
        raise TypeError(f"it contains {not_awaited(value)}")
    if serializer is None:
        raise TypeError(f"{type_name(type(value))} is {_NOT_JSON}")
    return msgspec.Raw(serializer.to_json(value, by_alias=True))
