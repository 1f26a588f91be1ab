"""Annotations that mark settings as ignored or refused. A field without an annotation is honoured.

    concurrency: int = 1                                             honoured
    vip: Annotated[bool, Accepted("no such channel here")] = False   ignored; a warning says so
    multiplex: Annotated[bool, Rejected("bind it twice")] = False    an error says what to do instead

`NotInMemory` marks a setting that is honoured by its messaging system, and that a binder in memory does not imitate.

A limit applies only to a value other than the setting's default or, if the limit lists values, only to those.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec


class Accepted(msgspec.Struct, frozen=True):
    """Marks a setting that is accepted but ignored; a warning says so.

    Attributes:
        reason: Why the setting is ignored.
        only: The values that are ignored; empty: all but the default.
    """

    reason: str
    only: tuple[object, ...] = ()


class Rejected(msgspec.Struct, frozen=True):
    """Marks a setting that is refused: the application does not start.

    Attributes:
        reason: Why the setting is refused, or what to do instead.
        only: The values that are refused; empty: all but the default.
    """

    reason: str
    only: tuple[object, ...] = ()


class NotInMemory(msgspec.Struct, frozen=True):
    """Marks a setting that has no effect with a binder in memory that stands in for the setting's type.

    A warning says so. Settings that make no difference in memory, such as timeouts of connections, have no mark.

    Attributes:
        reason: What happens in memory instead.
        only: The values that a warning is about; empty: all but the default.
    """

    reason: str
    only: tuple[object, ...] = ()


class AcceptedEntries(msgspec.Struct, frozen=True):
    """Marks a table some of whose entries are accepted but ignored; a warning names each of them.

    Attributes:
        why: Returns why the entry of a name is ignored; None if it is not.
    """

    why: Callable[[str], str | None]


Limit: TypeAlias = Accepted | Rejected


def limit_of(notes: Iterable[object]) -> Limit | None:
    """Return the limit among the metadata of a field's annotation; None if the field is honoured."""
    return next((note for note in notes if isinstance(note, Accepted | Rejected)), None)
