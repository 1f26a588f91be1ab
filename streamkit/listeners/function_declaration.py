"""The decorator of functions that settings bind by name.

::

    @function
    def upper(text: str) -> str: ...              # binding upper-in-0 to binding upper-out-0

    @function("ticks")
    async def tick() -> Tick: ...                 # polled; the result goes to ticks-out-0

The decorator stores its arguments on the function and returns the function unchanged.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from streamkit.declarations import declare

__all__ = ["FunctionDeclaration", "function", "function_declaration"]

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class FunctionDeclaration:
    """The arguments of `function`.

    Attributes:
        name: The name by which settings bind the function.
        polled: Whether a supplier that is an async generator is called at every poll, instead of once.
    """

    name: str
    polled: bool = False


@overload
def function(name: F, /) -> F: ...
@overload
def function(name: str | None = None, /, *, polled: bool = False) -> Callable[[F], F]: ...
def function(name: F | str | None = None, /, *, polled: bool = False) -> F | Callable[[F], F]:
    """Register the function under a name that `spring.cloud.function.definition` can bind.

    The annotations tell its kind: a supplier has no parameters for messages, a consumer is annotated ``-> None``.

    Args:
        name: The name; the function's own name if not given.
        polled: For a supplier that is an async generator: call the function at every poll, as its stream is finite.
            Without it, the function is called once.

    Raises:
        TypeError: The function has no name, or one with characters that separate names in a definition.
    """

    def note(target: F) -> F:
        return declare(target, function_declaration(target, name if isinstance(name, str) else None, polled=polled))

    return note(name) if callable(name) else note


def function_declaration(target: Callable[..., object], name: str | None, *, polled: bool) -> FunctionDeclaration:
    """Return the declaration of a function, under its own name if `name` is None.

    Raises:
        TypeError: The function has no name, or one with characters that separate names in a definition.
    """
    chosen = name or getattr(target, "__name__", "")
    if not chosen or not set(chosen).isdisjoint("|;,<> \t"):
        raise TypeError(f'{target!r} needs a name without spaces, "|", ";" and ",": write @function("name")')
    return FunctionDeclaration(chosen, polled)
