"""What marks functions that settings bind by their name.

::

    @function
    def upper(text: str) -> str: ...              # binding upper-in-0 to binding upper-out-0

    @function("ticks")
    async def tick() -> Tick: ...                 # polled; what it returns goes to ticks-out-0

The decorator notes what it is told and returns the function as it is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast, overload

__all__ = ["FunctionDeclaration", "declare", "function", "functions_on"]

F = TypeVar("F", bound=Callable[..., Any])

_FUNCTIONS: Final = "__streamkit_functions__"


@dataclass(frozen=True, slots=True)
class FunctionDeclaration:
    """What `function` was told.

    Attributes:
        name: The name settings bind it by.
        polled: Whether a supplier of a stream is called at every poll, and not once.
    """

    name: str
    polled: bool = False


@overload
def function(name: F, /) -> F: ...
@overload
def function(name: str | None = None, /, *, polled: bool = False) -> Callable[[F], F]: ...
def function(name: F | str | None = None, /, *, polled: bool = False) -> F | Callable[[F], F]:
    """Register the function under a name that `spring.cloud.function.definition` may bind.

    What it is, its annotations say: a supplier takes no message, a consumer is annotated ``-> None``.

    Args:
        name: The name; the function's own if not given.
        polled: Of a supplier that is an async generator: call it at every poll, for a finite stream. Without it
            the supplier is called once.
    """

    def note(target: F) -> F:
        declared = declare(target, name if isinstance(name, str) else None, polled=polled)
        setattr(target, _FUNCTIONS, (*functions_on(target), declared))
        return target

    return note(name) if callable(name) else note


def declare(target: Callable[..., object], name: str | None, *, polled: bool) -> FunctionDeclaration:
    """Return the declaration of a function, by its own name unless one is given.

    Raises:
        TypeError: It has no name that a definition could mention.
    """
    chosen = name or getattr(target, "__name__", "")
    if not chosen or not set(chosen).isdisjoint("|;,<> \t"):
        raise TypeError(f'{target!r} needs a name without spaces, "|", ";" and ",": write @function("name")')
    return FunctionDeclaration(chosen, polled)


def functions_on(target: object) -> tuple[FunctionDeclaration, ...]:
    """Return what `function` noted on a function or bound method."""
    return cast("tuple[FunctionDeclaration, ...]", getattr(target, _FUNCTIONS, ()))
