"""What sends to an output by itself: declared on a function, made and started with the application."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:  # slow to import, and needed only when the application starts
    from streamkit.binder.binding import Feeder

__all__ = ["FeederDeclaration", "feeders_on", "note_feeder"]

F = TypeVar("F", bound=Callable[..., object])
_FEEDERS = "__streamkit_feeders__"


@dataclass(frozen=True, slots=True)
class FeederDeclaration:
    """Something that is to send to an output.

    Attributes:
        output: The output binding's name.
        make: Makes it for one run of an application, which is its argument.
    """

    output: str
    make: "Callable[[Any], Feeder]"


def note_feeder(function: F, declaration: FeederDeclaration) -> F:
    """Have applications that take in the function start what is declared; the function stays as it is."""
    setattr(function, _FEEDERS, (*feeders_on(function), declaration))
    return function


def feeders_on(function: object) -> tuple[FeederDeclaration, ...]:
    """Return what `note_feeder` noted on a function."""
    return cast("tuple[FeederDeclaration, ...]", getattr(function, _FEEDERS, ()))
