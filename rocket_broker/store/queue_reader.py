"""Read messages through a consume queue, with the results of Apache's brokers.

A damaged record is skipped like a deleted one: clients could not parse it, nor the records behind it in the same
answer.
"""

import logging
from collections.abc import Iterator
from time import perf_counter
from typing import Protocol

from rocket_broker.store.commit_log import CommitLog
from rocket_broker.store.consume_queue import FILLER_SIZE, ConsumeQueue
from rocket_broker.store.messages import GetResult, GetStatus
from rocket_remoting.wire.record import record_check

__all__ = ["RecordFilter", "read"]

logger = logging.getLogger(__name__)

_LEAST_ENTRIES_LOOKED_AT = 800
"""Entries that one read looks at, however few the filter accepts (Apache: 16,000 bytes of entries)."""
_FILTER_SECONDS = 0.005
"""Seconds that a read filters records: the cost of each depends on the filter and the properties."""


class RecordFilter(Protocol):
    """A filter by the contents of messages."""

    def wants_record(self, record: memoryview) -> bool:
        """Return whether the filter accepts the message."""


def read(  # noqa: PLR0917 - made for every pull; keywords cost
    log: CommitLog,
    queue: ConsumeQueue,
    offset: int,
    max_count: int,
    max_bytes: int,
    tag_codes: frozenset[int] | None,
    record_filter: RecordFilter | None = None,
) -> GetResult:
    """Read messages from an offset on, at most up to the end of the queue's file.

    ``next_begin_offset`` is where the reader goes on: behind what was looked at, or where there is something.
    """
    first, end = queue.min_offset, queue.max_offset
    if not first <= offset < end:
        return _outside(offset, first, end)
    status = GetStatus.OFFSET_FOUND_NULL
    records: list[memoryview] = []
    total = 0
    next_offset = offset
    skip_to = 0
    record_of, found, is_record = log.record, log.found, record_check(queue.topic)
    entries = queue.entries(offset, max(_LEAST_ENTRIES_LOOKED_AT, max_count))
    for log_offset, size, tags_code in entries if record_filter is None else _for_some_time(entries):
        if log_offset >= skip_to:
            if records and (len(records) >= max_count or total + size > max_bytes):
                break
            if tag_codes is not None and tags_code not in tag_codes:
                status = GetStatus.NO_MATCHED_MESSAGE
            elif (record := record_of(log_offset, size)) is None:
                status = GetStatus.MESSAGE_WAS_REMOVING
                if size != FILLER_SIZE:
                    skip_to = log.next_file(log_offset)
            elif log_offset < found and not is_record(record, next_offset, log_offset):
                logger.error("%s at %d: readers of %r pass over a damaged message", log, log_offset, queue)
                status = GetStatus.MESSAGE_WAS_REMOVING
            elif record_filter is not None and not record_filter.wants_record(record):
                status = GetStatus.NO_MATCHED_MESSAGE
            else:
                records.append(record)
                total += size
        next_offset += 1
    if records:
        status = GetStatus.FOUND
    elif status is GetStatus.OFFSET_FOUND_NULL:
        next_offset = queue.next_file(offset)
    return GetResult(status, next_offset, first, end, records, total)


def _for_some_time(entries: Iterator[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    """Yield one entry at least, and more until `_FILTER_SECONDS` are over."""
    until = perf_counter() + _FILTER_SECONDS
    for entry in entries:
        yield entry
        if perf_counter() > until:
            return


def _outside(offset: int, first: int, end: int) -> GetResult:
    """Return the result for an offset without a message."""
    if end == 0:
        return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, first, end)
    if offset < first:
        return GetResult(GetStatus.OFFSET_TOO_SMALL, first, first, end)
    if offset == end:
        return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, first, end)
    return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, end, first, end)
