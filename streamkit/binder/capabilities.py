"""What a binder can do, what settings and messages ask for, and the difference.

A binder states its set once it is connected (:meth:`streamkit.binder.binder.Binder.capabilities`). What a
*setting* asks and the binder lacks fails at start and names the settings line; what a *message* asks fails at
``send``, before anything is written.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

__all__ = ["Capability", "Requirement", "describe", "missing"]


class Capability(Enum):
    """One ability of a messaging system, as far as an application can tell."""

    ORDER = "order"
    """One call in flight per partition; a failing message suspends the ones behind it."""
    DELAY_LEVEL = "delay-level"
    """A message is delivered after one of a fixed table of delays."""
    DELAY_ANY = "delay-any"
    """A message is delivered after any delay, or at any time, the sender names."""
    TRANSACTION = "transaction"
    """A message becomes visible only when the sender's transaction commits."""
    TAG = "tag"
    """A consumer receives only the messages whose tag it subscribes to."""
    SQL = "sql"
    """A consumer receives only the messages whose headers match an SQL92 expression."""
    DEAD_LETTER = "dead-letter"
    """A rejected message is kept, with its cause, in a destination that can be read."""
    BROADCAST = "broadcast"
    """Every member of a group receives every message."""
    SEEK = "seek"
    """A group can be moved to another place in its destination."""
    PAUSE = "pause"
    """A consumer binding stops and resumes delivery without losing its place in the group."""
    PARTITION = "partition"
    """The sender chooses the partition a message goes to."""
    REDELIVERY = "redelivery"
    """A message given back is delivered again later, perhaps to another member of the group."""
    BATCH = "batch"
    """A consumer binding receives several messages at once, and settles each."""
    POLLED = "polled"
    """The application asks for messages, one at a time, and settles each."""
    DURABLE_GROUP = "durable-group"
    """A group receives what was sent while none of its members ran."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """A capability that a setting asks for.

    Attributes:
        capability: What is asked.
        properties: The setting's possible spellings below the extended prefix of the binding, such as
            ``("orderly", "push.orderly")``; the one that is set is named in the error.
    """

    capability: Capability
    properties: tuple[str, ...]


def missing(asked: Iterable[Requirement], offered: frozenset[Capability]) -> list[Requirement]:
    """Return the requirements that ``offered`` does not meet, in the order they were asked."""
    return [requirement for requirement in asked if requirement.capability not in offered]


def describe(offered: Iterable[Capability]) -> str:
    """Return the capabilities' names, sorted, for messages and reports."""
    return ", ".join(sorted(capability.value for capability in offered)) or "none"
