"""The record that `repair` writes over damaged bytes of the commit log, so that the records behind them can be reached.

The record has the flag of a rolled-back transaction, so our broker and Apache's skip it: it is in no queue and has no
key. No message from a client has its store host.
"""

from rocket_remoting.wire.record import RecordHeader, encode_record, record_size
from rocket_remoting.wire.sys_flag import TRANSACTION_ROLLBACK, transaction_value

__all__ = ["gap_record", "is_gap"]

_TOPIC = "RMQ_SYS_DAMAGED"
_NOBODY = ("0.0.0.0", 0)


def gap_record(offset: int, length: int) -> bytes | None:
    """Return a record of `length` bytes for an offset of the log; None if no record is so short.

    A gap may be as short as the shortest record of a message; the topic's name is truncated to fit.
    """
    topic = _TOPIC[: length - record_size(0, 0, 0)] if length > record_size(0, 0, 0) else ""
    body_length = length - record_size(0, len(topic), 0)
    if not topic:
        return None
    return encode_record(
        topic,
        bytes(body_length),
        b"",
        queue_id=0,
        queue_offset=0,
        commit_log_offset=offset,
        sys_flag=TRANSACTION_ROLLBACK,
        flag=0,
        born_timestamp=0,
        born_host=_NOBODY,
        store_timestamp=0,
        store_host=_NOBODY,
    )


def is_gap(record: RecordHeader) -> bool:
    """Return whether a record replaces damaged bytes."""
    return (
        transaction_value(record.sys_flag) == TRANSACTION_ROLLBACK
        and record.store_host == _NOBODY
        and _TOPIC.startswith(record.topic)
    )
