"""How far a setting goes here. A field of a settings model that says nothing is honoured.

    concurrency: int = 1                                             honoured
    vip: Annotated[bool, Accepted("no such channel here")] = False   does nothing; a warning says so
    multiplex: Annotated[bool, Rejected("bind it twice")] = False    an error says what to do instead

A limit counts only when the setting is given a value other than its default, or one of the values named.
"""

from dataclasses import dataclass
from typing import TypeAlias

from pydantic.fields import FieldInfo


@dataclass(frozen=True, slots=True)
class Accepted:
    """The setting has no meaning here: it does nothing, and a warning says so.

    Attributes:
        reason: Why it has none.
        only: The values this is true of; empty: all but the default.
    """

    reason: str
    only: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class Rejected:
    """The setting asks for something that is not done: it stops the start.

    Attributes:
        reason: Why, and what to do instead.
        only: The values this is true of; empty: all but the default.
    """

    reason: str
    only: tuple[object, ...] = ()


Limit: TypeAlias = Accepted | Rejected


def limit_of(field: FieldInfo) -> Limit | None:
    """What the field says about itself; None: it is honoured."""
    return next((note for note in field.metadata if isinstance(note, Accepted | Rejected)), None)
