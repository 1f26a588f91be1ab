"""What listeners say they return, checked when the application starts."""

import inspect
import logging
import sys
from collections.abc import Callable, Iterator
from types import NoneType
from typing import Any, get_args, is_typeddict

from streamkit.errors import ConfigurationError, MessageConversionError
from streamkit.listeners.arguments import Reader, annotations_of, describe

__all__ = ["check_result", "warn_of_lost_result"]

logger = logging.getLogger(__name__)

_DATA_CLASS_MARKS = ("__dataclass_fields__", "__struct_fields__", "__pydantic_fields__", "__attrs_attrs__")


def check_result(function: Callable[..., object], reader_for: Callable[[object], Reader]) -> None:
    """See that what a listener returns can be written.

    Only what can never be is refused: a class that has no fields to write, no subclass that has, and that no converter
    of the application's knows.

    Raises:
        ConfigurationError: It can't.
    """
    for kind in _parts(annotations_of(function).get("return")):
        if isinstance(kind, type) and _is_plain(kind) and not _is_known(kind, reader_for):
            raise ConfigurationError(
                f"listener {describe(function)} returns {kind.__qualname__}, which cannot be written: make it a "
                "dataclass, a pydantic model, a msgspec Struct or a TypedDict, or add a converter of your own"
            )


def warn_of_lost_result(function: Callable[..., object]) -> None:
    """Tell when a listener returns something that is sent nowhere."""
    returned = getattr(function, "__annotations__", {}).get("return")
    if returned not in (None, NoneType, "None", Any, inspect.Parameter.empty):
        logger.warning(
            "Listener %s returns %s, but has no @send_to: it goes nowhere", describe(function), returned
        )


def _parts(hint: object) -> Iterator[object]:
    """Yield the classes a hint is made of."""
    arguments = get_args(hint)
    if not arguments:
        yield hint
    for argument in arguments:
        yield from _parts(argument)


def _is_plain(kind: type) -> bool:
    """Whether instances have nothing that could be written: no fields, and no base of Python's own but object."""
    if any(hasattr(kind, mark) for mark in _DATA_CLASS_MARKS) or is_typeddict(kind) or kind.__subclasses__():
        return False
    modules = (base.__module__.partition(".")[0] for base in kind.__mro__[:-1])
    return not any(module in sys.stdlib_module_names or module == "streamkit" for module in modules)


def _is_known(kind: type, reader_for: Callable[[object], Reader]) -> bool:
    """Whether a converter reads it: then it writes it, too."""
    try:
        reader_for(kind)
    except MessageConversionError:
        return False
    return True
