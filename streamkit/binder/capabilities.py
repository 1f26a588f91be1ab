"""The capabilities of binders, which settings and messages may require.

A binder returns its capabilities once it is connected (:meth:`streamkit.binder.binder.Binder.capabilities`). If the
binder lacks a capability that a *setting* requires, the application does not start, and the error names the line of the
setting. If it lacks a capability that a *message* requires, ``send`` raises before the message is written.
"""

from collections.abc import Iterable
from enum import Enum

import msgspec

__all__ = ["Capability", "Requirement", "describe", "missing"]


class Capability(Enum):
    """A capability of a messaging system that applications depend on."""

    ORDER = "order"
    """One call in flight per partition; a failing message suspends the ones behind it."""
    DELAY_LEVEL = "delay-level"
    """A message is delivered after one of a fixed table of delays."""
    DELAY_ANY = "delay-any"
    """A message is delivered after any delay, or at any time, that the sender sets."""
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
    """A requeued message is delivered again later, perhaps to another member of the group."""
    BATCH = "batch"
    """A consumer binding receives several messages at once, and settles each."""
    POLLED = "polled"
    """The application polls for messages, one at a time, and settles each."""
    PATTERN = "pattern"
    """A consumer receives the messages of all destinations whose names match a regular expression."""
    DURABLE_GROUP = "durable-group"
    """A group receives the messages that were sent while none of its members ran."""


class Requirement(msgspec.Struct, frozen=True):
    """A capability that a setting requires.

    Attributes:
        capability: The capability.
        properties: The possible names of the setting below the extended prefix of the binding, such as
            ``("orderly", "push.orderly")``; the error names the one that is set.
    """

    capability: Capability
    properties: tuple[str, ...]


def missing(asked: Iterable[Requirement], offered: frozenset[Capability]) -> list[Requirement]:
    """Return the requirements in ``asked`` whose capability is not in ``offered``, in the order of ``asked``."""
    return [requirement for requirement in asked if requirement.capability not in offered]


def describe(offered: Iterable[Capability]) -> str:
    """Return the names of capabilities, sorted and separated by commas, for errors and reports."""
    return ", ".join(sorted(capability.value for capability in offered)) or "none"
