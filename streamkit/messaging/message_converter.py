"""What a message converter is, and how it names types in errors."""

from collections.abc import Callable
from types import NoneType, UnionType
from typing import Any, Protocol, TypeAlias, Union, get_args, get_origin

from streamkit.messaging.mime import MimeType

__all__ = ["MessageConverter", "Reader", "Writer", "type_name", "without_none"]

Reader: TypeAlias = Callable[[bytes], object]
Writer: TypeAlias = Callable[[Any], bytes]


class MessageConverter(Protocol):
    """Makes the functions that convert."""

    def reader(self, type_: object, mime: MimeType) -> Reader | None:
        """What makes a `type_` (any annotation) of bytes of content type `mime`; None: not by this converter.

        Raises:
            MessageConversionError: The annotation is this converter's, but cannot be honoured.
        """
        ...

    def writer(self, type_: type, mime: MimeType) -> Writer | None:
        """What makes bytes of content type `mime` of an instance of `type_`; None: not by this converter."""
        ...


def type_name(type_: object) -> str:
    """How errors call an annotation: `Order`, `list[Order]`."""
    if isinstance(type_, type) and not get_args(type_):
        return type_.__qualname__
    return str(type_).replace("typing.", "")


def without_none(type_: object) -> object:
    """`X` of `X | None`, else `type_` itself."""
    if get_origin(type_) in (Union, UnionType):
        others = [argument for argument in get_args(type_) if argument is not NoneType]
        if len(others) == 1:
            return others[0]
    return type_
