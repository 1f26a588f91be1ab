"""Compare the entries of consume queues with the records that they point to."""

from dataclasses import dataclass

from rocket_broker.store.consume_queue import FILLER_SIZE
from rocket_broker.store.layout import StoreLayout
from rocket_broker.store.log_scan import LogBytes
from rocket_broker.store.queue_files import QueueFiles
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.record import RecordHeader, peek_record, record_check
from rocket_remoting.wire.topics import LMQ_PREFIX

__all__ = ["EntryScan", "EntrySummary"]

_QUEUE_ID_POSITION = 12
"""Position of the queue id in a record."""


@dataclass(slots=True)
class EntrySummary:
    """The entries of a queue's files: those that point into the log, and the number behind the last entry."""

    in_log: int = 0
    end: int = 0


class EntryScan:
    """The entries of all queues, and how many of them each queue has."""

    def __init__(self, layout: StoreLayout) -> None:
        self.files = QueueFiles(layout.root / "consumequeue", layout.queue_file_size)
        self.names = [name for name in self.files.names() if not name[0].startswith(LMQ_PREFIX)]
        self.log = LogBytes(layout)
        self.summaries: dict[tuple[str, int], EntrySummary] = {}
        self._first = int(layout.log[0].name) if layout.log else 0

    def damaged_heads(self) -> dict[int, str]:
        """Return the offsets of records that do not match their queue entry, with the reasons; count the entries."""
        heads: dict[int, str] = {}
        for topic, queue_id in self.names:
            summary = self.summaries[topic, queue_id] = EntrySummary()
            for number, offset, size in self.files.entries(topic, queue_id):
                summary.end = number + 1
                if size != FILLER_SIZE and offset >= self._first:
                    summary.in_log += 1
                    # The first message of a log is number 0 of its queue. So this entry is damaged, not that message:
                    # zeros of a lost sector cover its offset, and end before its size.
                    is_half_zero = offset == 0 and number > 0
                    if not is_half_zero and not self.leads(topic, queue_id, number, offset, size):
                        record = self._record(offset, size)
                        if record is not None and not self._has_entry(record):
                            heads[offset] = (
                                f"the record says it is number {record.queue_offset} of {record.topic} queue "
                                f"{record.queue_id}, but number {number} of {topic} queue {queue_id} leads to it"
                            )
        return heads

    def leads(self, topic: str, queue_id: int, number: int, offset: int, size: int) -> bool:
        """Return whether the log has the record of this message there, whatever its body."""
        data = self.log.at(offset, size)
        return (
            data is not None
            and int.from_bytes(data[_QUEUE_ID_POSITION : _QUEUE_ID_POSITION + 4], "big") == queue_id
            and record_check(topic)(data, number, offset)
        )

    def _record(self, offset: int, size: int) -> RecordHeader | None:
        """Return the record of this size at an offset, None if there is none."""
        data = self.log.at(offset, size)
        try:
            record = peek_record(data) if data is not None else None
        except RemoteProtocolError:
            return None
        return (
            record if record is not None and (record.commit_log_offset, record.total_size) == (offset, size) else None
        )

    def _has_entry(self, record: RecordHeader) -> bool:
        entry = self.files.entry(record.topic, record.queue_id, record.queue_offset)
        return entry is not None and entry[:2] == (record.commit_log_offset, record.total_size)
