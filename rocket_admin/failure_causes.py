"""Why a message failed, as the client that failed has written it into the properties of its copy."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from rocket_remoting.wire.message import Message

__all__ = ["Cause", "cause_of"]

# The names of this framework first, then those of Spring's dead letters.
_TYPES: Final = ("FAILURE_TYPE", "x-exception-fqcn")
_MESSAGES: Final = ("FAILURE_MESSAGE", "x-exception-message")
_PLACES: Final = ("FAILURE_PLACE",)


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """Why a delivery failed.

    Attributes:
        type: The class of the exception, with its module; absent if it is not known.
        message: Its text, or the reason of a rejection; absent if it is not known.
        place: File, line and function that raised it; absent if it is not known.
    """

    type: str | None = None
    message: str | None = None
    place: str | None = None


def cause_of(message: Message) -> Cause | None:
    """Return why a message failed before this copy was stored; None if nobody has written it: Java's clients do not."""
    properties = message.properties
    found = Cause(
        type=_first(properties, _TYPES), message=_first(properties, _MESSAGES), place=_first(properties, _PLACES)
    )
    return None if found == Cause() else found


def _first(properties: Mapping[str, str], names: Sequence[str]) -> str | None:
    return next((properties[name] for name in names if name in properties), None)
