"""How many bytes records take in memory, so that polls and windows are bounded by them and not by counts alone."""

from typing import Final

from binders.kafka.headers import Record

__all__ = ["POLL_SIZE", "PollBudget", "record_size"]

_OBJECT: Final = 128
"""Bytes that a record, or one of its headers, takes beside its contents; a header may have none."""

POLL_SIZE: Final = 32 << 20
"""Bytes of records that one poll brings, and the record that goes beyond them: 32 times Kafka's largest message by
default."""


def record_size(record: Record) -> int:
    """Return the bytes that a record takes, about."""
    headers, key, value = record.headers, record.key, record.value
    size = _OBJECT
    if headers:
        size += record.serialized_header_size + _OBJECT * len(headers)
    if key is not None:
        size += len(key)
    return size if value is None else size + len(value)


class PollBudget:
    """What one poll may bring. kafka-python counts records only, and a record may have any size.

    Attributes:
        left: Bytes that the poll may still bring; 0 or less if it is to end.
    """

    def __init__(self, size: int = POLL_SIZE) -> None:
        """Make the budget of polls that bring so many bytes each."""
        self._size = size
        self.left = size

    def begin(self) -> None:
        """Begin the next poll."""
        self.left = self._size
