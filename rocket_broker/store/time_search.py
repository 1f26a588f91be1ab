"""Which message of a queue was stored at a time: a binary search over the store timestamps of its records."""

from rocket_broker.store.commit_log import CommitLog
from rocket_broker.store.consume_queue import ConsumeQueue
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.record import peek_record

__all__ = ["offset_at", "stored_at"]


def stored_at(log: CommitLog, queue: ConsumeQueue, offset: int) -> int:
    """Return when a message of a queue was stored, -1 if there is no such message."""
    entry = queue.entry(offset)
    record = log.record(entry[0], entry[1]) if entry is not None else None
    if record is None:
        return -1
    try:
        return peek_record(record).store_timestamp
    except RemoteProtocolError:
        return -1


def offset_at(log: CommitLog, queue: ConsumeQueue, timestamp: int) -> int:
    """Return the offset of the message that was stored nearest to a time, of two equally near the earlier.

    So do brokers before 5.0, for which this is no lower bound: beyond the last message it is the last one. Of
    several messages with that very timestamp any may be meant. Numbers whose message is gone are passed over; 0 stands
    for a queue that has no other ones.
    """
    low, high = queue.min_offset, queue.max_offset - 1
    before: tuple[int, int] | None = None
    after: tuple[int, int] | None = None
    while low <= high:
        at = middle = (low + high) // 2
        while (stored := stored_at(log, queue, at)) < 0 and at > low:
            at -= 1
        if stored == timestamp:
            return at
        if stored > timestamp:
            high, after = at - 1, (at, stored)
        else:
            low = middle + 1
            if stored >= 0:
                before = (at, stored)
    if before is None or after is None:
        nearest = before or after
        return nearest[0] if nearest is not None else 0
    return after[0] if timestamp - before[1] > after[1] - timestamp else before[0]
