"""Reading messages through a consume queue, with the answers that Apache's brokers give."""

from rocket_broker.store.commit_log import CommitLog
from rocket_broker.store.consume_queue import ConsumeQueue
from rocket_broker.store.messages import GetResult, GetStatus

__all__ = ["read"]

_LEAST_ENTRIES_LOOKED_AT = 800
"""However few of them the filter lets through, a read looks at no more (Apache: 16,000 bytes of them)."""


def read(  # noqa: PLR0917 - made for every pull; keywords cost
    log: CommitLog,
    queue: ConsumeQueue,
    offset: int,
    max_count: int,
    max_bytes: int,
    tag_codes: frozenset[int] | None,
) -> GetResult:
    """Read messages from an offset on, at most up to the end of the queue's file.

    ``next_begin_offset`` is where the reader goes on: behind what was looked at, or where there is something.
    """
    first, end = queue.min_offset, queue.max_offset
    if end == 0:
        return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, first, end)
    if offset < first:
        return GetResult(GetStatus.OFFSET_TOO_SMALL, first, first, end)
    if offset == end:
        return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, first, end)
    if offset > end:
        return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, end, first, end)
    status = GetStatus.OFFSET_FOUND_NULL
    records: list[memoryview] = []
    queue_offsets: list[int] = []
    total = 0
    next_offset = offset
    skip_to = 0
    record_of = log.record
    for log_offset, size, tags_code in queue.entries(offset, max(_LEAST_ENTRIES_LOOKED_AT, max_count)):
        if log_offset >= skip_to:
            if records and (len(records) >= max_count or total + size > max_bytes):
                break
            if tag_codes is not None and tags_code not in tag_codes:
                status = GetStatus.NO_MATCHED_MESSAGE
            elif (record := record_of(log_offset, size)) is None:
                status = GetStatus.MESSAGE_WAS_REMOVING
                skip_to = log.next_file(log_offset)
            else:
                records.append(record)
                queue_offsets.append(next_offset)
                total += size
        next_offset += 1
    if records:
        status = GetStatus.FOUND
    elif status is GetStatus.OFFSET_FOUND_NULL:
        next_offset = queue.next_file(offset)
    return GetResult(status, next_offset, first, end, records, total, queue_offsets)
