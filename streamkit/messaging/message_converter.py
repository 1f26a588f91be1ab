"""The protocol of message converters, and names of types in errors."""

from collections.abc import Callable
from types import NoneType, UnionType
from typing import Any, Protocol, TypeAlias, Union, get_args, get_origin

from streamkit.messaging.mime import MimeType

__all__ = ["MessageConverter", "Reader", "Writer", "type_name", "without_none"]

Reader: TypeAlias = Callable[[bytes], object]
Writer: TypeAlias = Callable[[Any], bytes]


class MessageConverter(Protocol):
    """Makes functions that convert payloads."""

    def reader(self, type_: object, mime: MimeType) -> Reader | None:
        """Return a function that makes a `type_` (any annotation) of bytes of content type `mime`; None for another
        converter.

        Raises:
            MessageConversionError: This converter should convert the type, but cannot.
        """
        ...

    def writer(self, type_: type, mime: MimeType) -> Writer | None:
        """Return a function that makes bytes of content type `mime` of a `type_`; None for another converter."""
        ...


def type_name(type_: object) -> str:
    """Return the name of an annotation for errors: `Order`, `list[Order]`."""
    if isinstance(type_, type) and not get_args(type_):
        return type_.__qualname__
    return str(type_).replace("typing.", "")


def without_none(type_: object) -> object:
    """Return `X` of `X | None`, else `type_` itself."""
    if get_origin(type_) in (Union, UnionType):
        others = [argument for argument in get_args(type_) if argument is not NoneType]
        if len(others) == 1:
            return others[0]
    return type_
