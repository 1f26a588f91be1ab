"""The bytes that records take in memory, by which polls and windows are bounded in addition to counts."""

from typing import Final

from binders.kafka.headers import Record

__all__ = ["POLL_SIZE", "PollBudget", "record_size"]

_OBJECT: Final = 128
"""The bytes that a record, or one of its headers, takes in addition to its contents, which may be empty."""

POLL_SIZE: Final = 32 << 20
"""The bytes of records that one poll returns; the last record may exceed the limit. The limit is 32 times Kafka's
largest message by default."""


def record_size(record: Record) -> int:
    """Return the approximate size of a record in memory, in bytes."""
    headers, key, value = record.headers, record.key, record.value
    size = _OBJECT
    if headers:
        size += record.serialized_header_size + _OBJECT * len(headers)
    if key is not None:
        size += len(key)
    return size if value is None else size + len(value)


class PollBudget:
    """The bytes that one poll may return. kafka-python limits only the number of records, which may have any size.

    Attributes:
        left: The bytes that the current poll may still return; with 0 or less the poll ends.
    """

    def __init__(self, size: int = POLL_SIZE) -> None:
        """Make a budget.

        Args:
            size: The bytes that each poll may return.
        """
        self._size = size
        self.left = size

    def begin(self) -> None:
        """Reset the budget for the next poll."""
        self.left = self._size
