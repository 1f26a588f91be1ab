"""Checks of the return annotations of listeners when the application starts."""

import logging
import sys
from collections.abc import Callable, Iterator
from types import NoneType
from typing import Any, Final, get_args, is_typeddict

from streamkit.errors import ConfigurationError, MessageConversionError
from streamkit.listeners.arguments import Reader, annotations_of, describe
from streamkit.settlement import Accept, Reject, Requeue

__all__ = ["check_result", "warn_of_lost_result"]

logger = logging.getLogger(__name__)

_NOT_SENT: Final = frozenset({None, NoneType, Any, Accept, Requeue, Reject})
_DATA_CLASS_MARKS = ("__dataclass_fields__", "__struct_fields__", "__pydantic_fields__", "__attrs_attrs__")


def check_result(function: Callable[..., object], reader_for: Callable[[object], Reader]) -> None:
    """Check that a listener with an output returns values, and that they can be written.

    Only a class that can never be written is refused: neither the class nor a subclass has fields, and no converter of
    the application accepts the class.

    Args:
        function: The listener.
        reader_for: Returns the reader that converts payloads to a type.

    Raises:
        ConfigurationError: The function is annotated to return nothing, or the annotated class cannot be written.
    """
    if annotations_of(function).get("return", Any) in {None, NoneType}:
        raise ConfigurationError(
            f"listener {describe(function)} has @send_to, but its annotation `-> None` says that it returns nothing to "
            "send: annotate what it returns, or remove @send_to"
        )
    for kind in _parts(annotations_of(function).get("return")):
        if isinstance(kind, type) and _is_plain(kind) and not _is_known(kind, reader_for):
            raise ConfigurationError(
                f"listener {describe(function)} returns {kind.__qualname__}, which no converter writes: make it a "
                "dataclass, a pydantic model, a msgspec Struct or a TypedDict, or add a converter of your own"
            )


def warn_of_lost_result(function: Callable[..., object]) -> None:
    """Log a warning if a listener returns a value but has no output to send the value to."""
    returned = annotations_of(function).get("return")
    if not _NOT_SENT.issuperset(_parts(returned)):
        logger.warning(
            "Listener %s returns %s, but has no @send_to, so the result is not sent",
            describe(function),
            returned,
        )


def _parts(hint: object) -> Iterator[object]:
    """Yield the classes that a type hint consists of."""
    arguments = get_args(hint)
    if not arguments:
        yield hint
    for argument in arguments:
        yield from _parts(argument)


def _is_plain(kind: type) -> bool:
    """Return whether instances have nothing to write: no fields, and no base class of Python's own except `object`."""
    if any(hasattr(kind, mark) for mark in _DATA_CLASS_MARKS) or is_typeddict(kind) or kind.__subclasses__():
        return False
    modules = (base.__module__.partition(".")[0] for base in kind.__mro__[:-1])
    return not any(module in sys.stdlib_module_names or module == "streamkit" for module in modules)


def _is_known(kind: type, reader_for: Callable[[object], Reader]) -> bool:
    """Return whether a converter reads the class; a converter that reads a class also writes it."""
    try:
        reader_for(kind)
    except MessageConversionError:
        return False
    return True
