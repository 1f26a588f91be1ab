"""Declarations: records of the arguments of decorators, stored on the decorated functions and classes.

::

    @stream_listener("orders")       (Listener("orders"), SendTo("receipts"))
    @send_to("receipts")                  ▲ in the order of the decorators in the source
    async def charge(order): ...

A decorator stores a record and returns its target unchanged. `streamkit.assembly.collector` reads the records, both
those stored on targets and those registered with the application.
"""

from typing import Any, Final, TypeVar, cast

__all__ = ["declarations_on", "declare", "own_declarations"]

D = TypeVar("D")
T = TypeVar("T")

_ATTRIBUTE: Final = "__streamkit_declarations__"


def declare(target: T, *declarations: object) -> T:
    """Store declarations on a function or a class, in front of the existing ones; return the target.

    Those of a static or class method are stored on its function, as if the decorators were in the other order.
    """
    holder = target.__func__ if isinstance(target, staticmethod | classmethod) else target
    setattr(holder, _ATTRIBUTE, (*declarations, *declarations_on(holder, object)))
    return target


def own_declarations(target: object) -> tuple[object, ...]:
    """Return the declarations that are stored on an object itself, and not on its class."""
    try:
        own: dict[str, Any] = object.__getattribute__(target, "__dict__")
    except AttributeError:
        return ()
    found: tuple[object, ...] = own.get(_ATTRIBUTE, ())
    return found


def declarations_on(target: object, kind: type[D]) -> tuple[D, ...]:
    """Return the declarations of one kind on a function, a bound method or a class, including inherited ones."""
    noted = cast("tuple[Any, ...]", getattr(target, _ATTRIBUTE, ()))
    return tuple(each for each in noted if isinstance(each, kind))
