"""Exception classes by name, for the setting ``retryable-exceptions``."""

import builtins
from collections.abc import Mapping
from importlib import import_module

__all__ = ["exception_class", "exception_classes"]


def exception_classes(listed: Mapping[str, bool]) -> dict[type[BaseException], bool]:
    """Return a table with exception classes in place of their names.

    Args:
        listed: The names of exception classes, each with whether the exception is retried.

    Raises:
        LookupError: A name is not that of an exception class that can be imported.
    """
    return {exception_class(name): retried for name, retried in listed.items()}


def exception_class(name: str) -> type[BaseException]:
    """Return the exception class of a name such as ``ValueError`` or ``package.module.Class``.

    Raises:
        LookupError: There is no exception class of that name.
    """
    module, _, attribute = name.rpartition(".")
    try:
        found = getattr(import_module(module) if module else builtins, attribute, None)
    except ImportError:
        found = None
    if isinstance(found, type) and issubclass(found, BaseException):
        return found
    raise LookupError(
        f"{name!r} is not an exception class: expected a built-in such as ValueError, or package.module.Class"
    )
