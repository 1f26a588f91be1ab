"""How many bytes records take in memory, so that polls and windows are bounded by them and not by counts alone."""

from typing import Final

from binders.kafka.headers import Record

__all__ = ["PollBudget", "record_size"]

_OBJECT: Final = 128
"""Bytes that a record, or one of its headers, takes beside its contents; a header may have none."""

POLL_SIZE: Final = 32 << 20
"""Bytes of records that one poll brings, and the record that goes beyond them: 32 times Kafka's largest message by
default."""


def record_size(record: Record) -> int:
    """Return the bytes that a record takes, about."""
    size = _OBJECT * (1 + len(record.headers))
    if record.headers:
        size += record.serialized_header_size
    if record.key is not None:
        size += len(record.key)
    return size if record.value is None else size + len(record.value)


class PollBudget:
    """What one poll may still bring. kafka-python counts records only, and a record may have any size."""

    def __init__(self, size: int = POLL_SIZE) -> None:
        """Make the budget of polls that bring so many bytes each."""
        self._size = size
        self._left = size

    def begin(self) -> None:
        """Begin the next poll."""
        self._left = self._size

    def spend(self, record: Record) -> bool:
        """Note a record; False if it is the last one of the poll."""
        self._left -= record_size(record)
        return self._left > 0

    @property
    def is_spent(self) -> bool:
        """Whether the poll brings no further record."""
        return self._left <= 0
