"""What a fetch brought, read so that nothing that stands in a partition can stop it.

A broker keeps what a reader does not expect: names of headers in any bytes, batches that compaction has emptied, bytes
that went bad on its disk. kafka-python gives the partition up at the first of them. Here::

    the name of a header is no UTF-8          it has U+FFFD where it is none, as Java's clients have it
    a batch is damaged                        it is fetched once more, since it may have gone bad on its way
    it still is, or it holds no records       it is one record, at the offset of its last, whose value is `Unreadable`
    a marker of a transaction is unreadable   it ends the transaction, whose messages have been passed
    a library for its compression is missing  nothing of the partition is passed: installed, it goes on
    memory is missing                         the same

It takes the place of a part of kafka-python's fetcher, and so it depends on that one's insides.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final, TypeAlias

from binders.kafka.batches import Batch, Batches
from binders.kafka.headers import Record
from binders.kafka.record_size import PollBudget, record_size
from kafka import TopicPartition
from kafka.consumer.fetcher import ConsumerRecord, Fetcher
from kafka.errors import UnsupportedCodecError
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatch
from streamkit.errors import BinderError

__all__ = ["Unreadable", "bound_polls", "read_all"]

logger = logging.getLogger(__name__)

_NO_TIMESTAMP: Final = -1
_FEW_HEADERS: Final = 32
"""Of a record with more, a poll counts what they take in memory, too: they may have no bytes at all."""
_LIBRARIES: Final = {
    DefaultRecordBatch.CODEC_SNAPPY: "python-snappy",
    DefaultRecordBatch.CODEC_LZ4: "lz4",
    DefaultRecordBatch.CODEC_ZSTD: "zstandard",
}

Highwater: TypeAlias = Callable[[TopicPartition], int | None]


class Unreadable(bytes):
    """Bytes of a partition that are no records, as the value of one that stands for them.

    Attributes:
        error: Why they are none.
    """

    error: Exception

    @classmethod
    def of(cls, data: bytes | memoryview, error: Exception) -> "Unreadable":
        """Make one."""
        found = cls(data)
        found.error = error
        return found


def read_all(fetcher: Fetcher, highwater: Highwater, budget: PollBudget | None = None) -> None:
    """Have a consumer's fetcher read whatever stands in its partitions.

    Args:
        fetcher: The fetcher.
        highwater: Tells where a partition ends, as the last fetch told.
        budget: What a poll may bring; unset: what one poll may bring, for all of them.
    """
    fetcher.PartitionRecords = partial(
        _PartitionRecords, damaged={}, highwater=highwater, budget=budget or PollBudget()
    )


def bound_polls(fetcher: Fetcher, budget: PollBudget) -> None:
    """Make a consumer's fetcher end its poll when the poll's budget is spent."""
    append = fetcher._append

    def append_within_budget(drained: object, part: object, max_records: int, update_offsets: bool) -> int:
        count: int = append(drained, part, max_records, update_offsets)
        # Whoever polls asks for further records until there are as many as it wanted.
        return count if budget.left > 0 else max_records

    fetcher._append = append_within_budget


@dataclass(frozen=True, slots=True)
class _Damage:
    """A batch that was found damaged once.

    Attributes:
        begin: Where it begins.
        refused: `Batches.refused`.
    """

    begin: int
    refused: int | None


class _PartitionRecords(Fetcher.PartitionRecords):  # type: ignore[misc]  # as above
    """The records that a fetch brought of one partition."""

    next_fetch_offset: int
    bytes_read: int

    def __init__(
        self,
        fetch_offset: int,
        partition: TopicPartition,
        records: MemoryRecords,
        *,
        damaged: dict[TopicPartition, _Damage],
        highwater: Highwater,
        budget: PollBudget,
        **settings: Any,
    ) -> None:
        """Make them.

        Args:
            fetch_offset: The offset that was asked for; a batch may begin before it.
            partition: The partition.
            records: The batches.
            damaged: The batch that was damaged last, by partitions; kept from fetch to fetch.
            highwater: Tells where a partition ends.
            budget: What a poll may bring.
            settings: kafka-python's.
        """
        self._damaged = damaged
        self._budget = budget
        known = damaged.get(partition)
        batches = Batches(
            records,
            lambda: self.next_fetch_offset,
            partial(highwater, partition),
            refused=known.refused if known is not None and known.begin == fetch_offset else None,
        )
        super().__init__(fetch_offset, partition, batches, **settings)

    def take(self, n: int | None = None) -> list[Record]:
        """Return the next records, as many as the poll may bring."""
        self._maybe_raise_next_inline_exception()
        records: list[Record] = []
        end = self.bytes_read + self._budget.left
        try:
            for record in islice(self.record_iterator, n):
                records.append(record)
                if len(record.headers) > _FEW_HEADERS:
                    end -= record_size(record)
                if self.bytes_read >= end:
                    break
        except Exception as error:
            if not records:
                raise
            self._next_inline_exception = error  # as kafka-python: the next call raises it
        self._budget.left = end - self.bytes_read
        return records

    def _unpack_records(self, partition: TopicPartition, batches: Batches, *more: Any) -> Iterator[Record]:
        try:
            yield from self._unpack_all(partition, batches, *more)
        except Exception:
            # It has nothing more to give, and would be asked again and again.
            self.drain()
            raise

    def _unpack_all(self, partition: TopicPartition, batches: Batches, *more: Any) -> Iterator[Record]:
        while True:
            try:
                yield from super()._unpack_records(partition, batches, *more)
                return
            except MemoryError:  # it says nothing of what stands there
                raise
            except Exception as error:  # whatever it is, the partition must not stop
                self._raise_if_library_is_missing(batches, error)
                known = self._damaged.get(partition)
                if batches.is_damaged and (known is None or known.begin != batches.begin):
                    logger.warning("%s is damaged and is fetched once more: %s", self._place(batches), error)
                    self._damaged[partition] = _Damage(batches.begin, batches.refused)
                    self.drain()
                    return
                yield from self._passed(batches, error)

    def _raise_if_library_is_missing(self, batches: Batches, error: Exception) -> None:
        if isinstance(error, UnsupportedCodecError):
            library = _LIBRARIES.get(batches.batch.compression_type)
            if library is not None:
                raise UnsupportedCodecError(
                    f"{self._place(batches)} is compressed in a way that needs {library}: install it"
                ) from error

    def _passed(self, batches: Batches, error: Exception) -> Iterator[Record]:
        """Go on behind a batch that is none: with one record for what was not read of it."""
        place, begin, batch = self._place(batches), self.next_fetch_offset, batches.batch
        is_marker = isinstance(batch, Batch) and batch.is_control_batch and not batches.is_damaged
        batches.pass_over()
        end = batches.end
        self.next_fetch_offset = max(begin, end)
        if is_marker:
            logger.warning("%s is a marker that cannot be read: %r", place, error)
            self.aborted_producer_ids.discard(batch.producer_id)
            return
        if end <= begin:  # all of it was read, now or by an earlier fetch
            logger.debug("%s is not as it should be: %r", place, error)
            return
        self.bytes_read += len(batches.data)
        reason = BinderError(f"{place} cannot be read: {error}")
        reason.__cause__ = error
        yield self._standing_for(Unreadable.of(batches.data, reason), end - 1)

    def _standing_for(self, data: Unreadable, offset: int) -> Record:
        key = self.topic_partition
        return ConsumerRecord(
            topic=key.topic,
            partition=key.partition,
            leader_epoch=self.leader_epoch,
            offset=offset,
            timestamp=_NO_TIMESTAMP,
            timestamp_type=0,
            key=None,
            value=data,
            headers=[],
            checksum=None,
            serialized_key_size=-1,
            serialized_value_size=len(data),
            serialized_header_size=-1,
        )

    def _place(self, batches: Batches) -> str:
        key = self.topic_partition
        return f"the batch at {key.topic}-{key.partition}, offset {batches.begin},"
