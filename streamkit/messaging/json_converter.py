"""JSON: dataclasses, msgspec structs, TypedDicts, builtins, enums and dates by msgspec; pydantic models by
pydantic, which is never imported unless the application did.
"""

import re
from collections.abc import Iterator
from typing import cast

import msgspec
from msgspec import inspect

from streamkit.errors import MessageConversionError
from streamkit.messaging.converter import Reader, Writer, type_name
from streamkit.messaging.mime import MimeType

_NOT_JSON = "neither a dataclass, a msgspec Struct, a TypedDict, a pydantic model nor a builtin"
_PATH = re.compile(r" - at `(.+)`$")


class JsonConverter:
    """Reads and writes `application/json` and everything suffixed `+json`."""

    def __init__(self) -> None:
        self._encode = msgspec.json.Encoder(enc_hook=_encode_pydantic).encode

    def reader(self, type_: object, mime: MimeType) -> Reader | None:
        """A strict reader of the annotation `type_`.

        Raises:
            MessageConversionError: JSON cannot be read as such a type.
        """
        if not mime.is_json:
            return None
        unsupported = list(_unsupported(type_))
        if not unsupported:
            return _msgspec_reader(type_, mime)
        if all(hasattr(class_, "__pydantic_validator__") for class_ in unsupported):
            return _pydantic_reader(type_, mime)
        names = ", ".join(type_name(class_) for class_ in unsupported)
        raise _unreadable(type_, mime, f"{names} is {_NOT_JSON}")

    def writer(self, type_: type, mime: MimeType) -> Writer | None:
        """One encoder for every type."""
        return self._write if mime.is_json else None

    def _write(self, payload: object) -> bytes:
        try:
            return self._encode(payload)
        except (TypeError, ValueError, OverflowError) as error:
            raise MessageConversionError(
                f"Cannot write {type_name(type(payload))} as JSON: {error}", target_type=type(payload)
            ) from error


def _msgspec_reader(type_: object, mime: MimeType) -> Reader:
    decode = msgspec.json.Decoder(type_).decode

    def read(data: bytes) -> object:
        try:
            return decode(data)
        except msgspec.DecodeError as error:
            reason = str(error)
            found = _PATH.search(reason)
            raise _wrong(type_, mime, _PATH.sub("", reason), found[1] if found else None) from error

    return read


def _pydantic_reader(type_: object, mime: MimeType) -> Reader:
    import pydantic

    try:
        adapter: pydantic.TypeAdapter[object] = pydantic.TypeAdapter(cast("type[object]", type_))
    except pydantic.errors.PydanticSchemaGenerationError as error:
        raise _unreadable(type_, mime, str(error).splitlines()[0]) from error

    def read(data: bytes) -> object:
        try:
            return adapter.validate_json(data)
        except pydantic.ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise _wrong(type_, mime, first["msg"], _json_path(first["loc"])) from error

    return read


def _json_path(location: tuple[int | str, ...]) -> str | None:
    """`$.items[2].price` of pydantic's ("items", 2, "price")."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)
    return "$" + "".join(steps) if location else None


def _wrong(type_: object, mime: MimeType, reason: str, path: str | None) -> MessageConversionError:
    where = f" at {path}" if path else ""
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
    """The classes in the annotation that msgspec cannot build, pydantic's own among them."""
    try:
        pending: list[object] = [inspect.type_info(type_)]
    except TypeError as error:
        raise MessageConversionError(
            f"JSON cannot be read as {type_name(type_)}: {error}", target_type=type_
        ) from error
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
    """A pydantic model inside the payload, or the payload itself: written by pydantic, by alias."""
    serializer = getattr(type(value), "__pydantic_serializer__", None)
    if serializer is None:
        raise TypeError(f"{type_name(type(value))} is {_NOT_JSON}")
    return msgspec.Raw(serializer.to_json(value, by_alias=True))
