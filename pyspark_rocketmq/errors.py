"""The errors of this package, which name the option, column or queue.

::

    RocketMQError
    ├── OptionError          an option is unknown, missing or has a wrong value
    ├── SchemaError          a column is unknown, missing or of a wrong type
    ├── OffsetError          offsets, in an option or a checkpoint, do not fit
    ├── DataLossError        messages that were to be read are gone
    ├── UnreadableBodyError  a message's body cannot be decompressed
    ├── ClusterError         name servers or brokers cannot be reached, or do not know a topic
    └── UnsendableError      a row cannot be sent as it is

Each has one argument, its text: Spark carries errors from one process to another.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class RocketMQError(Exception):
    """The base of this package's errors."""


class OptionError(RocketMQError):
    """An option is unknown, missing or has a wrong value."""


class SchemaError(RocketMQError):
    """A column is unknown, missing or of a wrong type."""


class OffsetError(RocketMQError):
    """Offsets are malformed, or do not match the topic's queues."""


class DataLossError(RocketMQError):
    """Messages were deleted before they were read."""


class UnreadableBodyError(RocketMQError):
    """A message's body is damaged, or larger than `maxDecompressedBodySize` when it is decompressed."""


class ClusterError(RocketMQError):
    """Name servers or brokers cannot be reached, or do not know a topic."""


class UnsendableError(RocketMQError):
    """A row cannot be sent as it is."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"``, or an empty text if no known name is near."""
    by_lower = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), by_lower, n=1)
    return f"; did you mean {by_lower[near[0]]!r}?" if near else ""
