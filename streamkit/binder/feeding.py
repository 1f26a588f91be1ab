"""Declarations of feeders: a feeder sends to an output by itself, and starts and stops with the output's binding."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:  # slow to import, and needed only when the application starts
    from streamkit.binder.binding import Feeder

__all__ = ["FeederDeclaration"]


class FeederDeclaration(msgspec.Struct, frozen=True):
    """The declaration of a feeder.

    Attributes:
        output: The output binding's name.
        make: Takes the application and returns the feeder for one run of it.
    """

    output: str
    make: "Callable[[Any], Feeder]"
