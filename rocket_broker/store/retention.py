"""Deleting what is too old: files of the commit log, and what led to their messages."""

from rocket_broker.store.commit_log import CommitLog
from rocket_broker.store.index import Index
from rocket_broker.store.queue_table import QueueTable

__all__ = ["delete_expired"]

_MOST_AT_ONCE = 10
"""Deleting a file of a gigabyte takes its time."""


def delete_expired(log: CommitLog, queues: QueueTable, index: Index, before_ms: int) -> int:
    """Delete the log's files last written before a time, at most ten and never the last; return how many.

    Queues begin then with their first message that is still there, and keep their count even if none is.
    """
    deleted = 0
    while deleted < _MOST_AT_ONCE and log.remove_first_file(before_ms):
        deleted += 1
    if deleted:
        for queue in queues:
            queue.correct_min_offset(log.first)
            queue.remove_files()
        index.remove_before(log.first)
    return deleted
