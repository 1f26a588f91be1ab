"""Read messages through a consume queue, with the results of Apache's brokers.

A damaged record is skipped like a deleted one: clients could not parse it, nor the records behind it in the same
answer.

Without a filter by contents, the native core reads what is usual: records of one file of the log, none of them damaged.
"""

import logging
from collections.abc import Callable, Iterator
from functools import cache
from time import perf_counter
from typing import Any, Protocol

from rocket_broker.store.commit_log import CommitLog
from rocket_broker.store.consume_queue import ENTRY, FILLER_SIZE, ConsumeQueue
from rocket_broker.store.messages import GetResult, GetStatus
from rocket_remoting.native import has_native_core
from rocket_remoting.wire.record import record_check

__all__ = ["RecordFilter", "read"]

logger = logging.getLogger(__name__)

_LEAST_ENTRIES_LOOKED_AT = 800
"""Entries that one read looks at, however few the filter accepts (Apache: 16,000 bytes of entries)."""
_FILTER_SECONDS = 0.005
"""Seconds that a read filters records: the cost of each depends on the filter and the properties."""
_FEW_TAGS = 16
"""Maximum number of tags of a filter for the native core, which compares a message's tags code with each of them."""


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
    looked_at = max(_LEAST_ENTRIES_LOOKED_AT, max_count)
    is_usual = record_filter is None and (tag_codes is None or len(tag_codes) <= _FEW_TAGS)
    if is_usual and (read_records := _core()) is not None:
        usual = _read_usual(read_records, log, queue, offset, looked_at, max_count, max_bytes, tag_codes)
        if usual is not None:
            return usual
    return _read_each(log, queue, offset, looked_at, max_count, max_bytes, tag_codes, record_filter)


def _read_each(  # noqa: PLR0917 - as `read`
    log: CommitLog,
    queue: ConsumeQueue,
    offset: int,
    looked_at: int,
    max_count: int,
    max_bytes: int,
    tag_codes: frozenset[int] | None,
    record_filter: RecordFilter | None,
) -> GetResult:
    """Return the result of a read, message by message."""
    status = GetStatus.OFFSET_FOUND_NULL
    records: list[bytes | memoryview] = []
    total = 0
    next_offset = offset
    skip_to = 0
    record_of, found, is_record = log.record, log.found, record_check(queue.topic)
    entries = queue.entries(offset, looked_at)
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
    return GetResult(status, next_offset, queue.min_offset, queue.max_offset, records, total)


def _read_usual(  # noqa: PLR0917 - as `read`
    read_records: Callable[..., Any],
    log: CommitLog,
    queue: ConsumeQueue,
    offset: int,
    looked_at: int,
    max_count: int,
    max_bytes: int,
    tag_codes: frozenset[int] | None,
) -> GetResult | None:
    """Return the result if the native core can read it; None if `read` must do so."""
    entries = queue.place_of(offset, looked_at)
    file = None if entries is None else log.files.file_at(ENTRY.unpack_from(entries[0], entries[1])[0])
    if file is None:
        return None
    file.used = True
    found = read_records(
        entries, (file.view or file.readable(), file.base), (log.files.first, log.found, log.committed), queue.topic,
        None if tag_codes is None else list(tag_codes), (max_count, max_bytes),
    )  # fmt: skip
    if found is None:
        return None
    count, records, total = found
    status = GetStatus.FOUND if records else GetStatus.NO_MATCHED_MESSAGE
    return GetResult(status, offset + count, queue.min_offset, queue.max_offset, records, total)


@cache
def _core() -> "Callable[..., Any] | None":
    """Return the function of the native core that reads records; None without the core."""
    if not has_native_core():
        return None
    from rocket_native import read_records

    return read_records


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
