"""Exceptions by name, for ``retryable-exceptions``."""

import builtins
from collections.abc import Mapping
from importlib import import_module

__all__ = ["exception_class", "exception_classes"]


def exception_classes(listed: Mapping[str, bool]) -> dict[type[BaseException], bool]:
    """Return the classes of a table from names to whether they are retried.

    Raises:
        LookupError: One of the names is no exception that can be imported.
    """
    return {exception_class(name): retried for name, retried in listed.items()}


def exception_class(name: str) -> type[BaseException]:
    """Return the exception class of a dotted name, or of a built-in one.

    Raises:
        LookupError: There is none of that name.
    """
    module, _, attribute = name.rpartition(".")
    try:
        found = getattr(import_module(module) if module else builtins, attribute, None)
    except ImportError:
        found = None
    if isinstance(found, type) and issubclass(found, BaseException):
        return found
    raise LookupError(
        f"{name!r} is no exception: expected a built-in such as ValueError, or package.module.Class"
    )
