"""The choice of a message's partition, in this order of precedence.

::

    1. header scst_partitionOverride              the number of the partition
    2. partition-selector-expression or -name     |selector(key)| mod count
    3. otherwise                                  |hash(key)| mod count; Java's hash, so Java applications choose the
                                                  same partition for the same key

The key comes from ``partition-key-extractor-name`` or ``partition-key-expression``. The count is the number of
partitions of the destination if the binder knows it, else ``partition-count``. :mod:`streamkit.binder.partitioners`
reads the settings.
"""

from collections.abc import Callable
from typing import Final

from streamkit.errors import MessageDeliveryError
from streamkit.expression.java_hash import java_hash
from streamkit.messaging.headers import PARTITION, PARTITION_OVERRIDE
from streamkit.messaging.message import Message

__all__ = ["KeyExtractor", "PartitionSelector", "Partitioner", "partition_of"]

KeyExtractor = Callable[[Message[object]], object]
PartitionSelector = Callable[[object, int], int]

_INT_MIN: Final = -(2**31)
_MOST_DIGITS: Final = 10
"""The most digits of a partition's number in a header, as a Java `int` has: longer texts are not parsed at all."""
_SHOWN: Final = 100
"""The number of characters of a wrong header that an error shows."""


def partition_of(key: object, count: int) -> int:
    """Return \\|hash\\| mod ``count``; the hash -2**31, whose absolute value no Java `int` has, counts as 0.

    Args:
        key: The key of a message.
        count: The number of partitions.
    """
    value = java_hash(key)
    return 0 if value == _INT_MIN else abs(value) % count


class Partitioner:
    """Sets the header ``scst_partition`` of the messages of one producer binding."""

    __slots__ = ("_extract", "_select")

    def __init__(self, extract: KeyExtractor, select: PartitionSelector = partition_of) -> None:
        self._extract = extract
        self._select = select

    def partition(self, message: Message[object], count: int) -> int:
        """Return the number of the partition for a message.

        Args:
            message: The message before its payload is converted.
            count: The number of partitions.

        Raises:
            MessageDeliveryError: The message has no key, or the selector's result or the header is not a number.
        """
        override = message.headers.get(PARTITION_OVERRIDE)
        if override is not None:
            return _number(override, PARTITION_OVERRIDE, message)
        key = self._extract(message)
        if key is None:
            raise MessageDeliveryError(
                "the partition key of the message is None: set what partition-key-expression or "
                f"partition-key-extractor-name reads, or the header {PARTITION_OVERRIDE!r}",
                message,
            )
        chosen: object = self._select(key, count)
        if not isinstance(chosen, int):
            raise MessageDeliveryError(
                f"the partition selector gives {chosen!r} for key {key!r}: expected a whole number", message
            )
        # Spring computes Math.abs(selected % count). In Java a remainder has the sign of the dividend; in Python it
        # has that of the divisor, so the absolute value is taken first.
        return abs(chosen) % count


def explicit_partition(message: Message[object]) -> int | None:
    """Return the partition that the headers of a message choose, or None; for bindings that are not partitioned.

    Raises:
        MessageDeliveryError: The header is not the number of a partition.
    """
    for name in (PARTITION_OVERRIDE, PARTITION):
        value = message.headers.get(name)
        if value is not None:
            return _number(value, name, message)
    return None


def _number(value: object, name: str, message: Message[object]) -> int:
    if isinstance(value, int) and value >= 0:
        return value
    if isinstance(value, str) and value.isdecimal() and len(value) <= _MOST_DIGITS:
        return int(value)
    shown = repr(value)[:_SHOWN]
    raise MessageDeliveryError(f"header {name!r} is {shown}: expected the number of a partition", message)
