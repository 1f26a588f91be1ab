"""Reads the records of a fetch so that unreadable bytes do not stop the partition.

A partition may hold names of headers that are not UTF-8, batches that compaction has emptied, and bytes that are
damaged on the broker's disk. At the first of these kafka-python raises, at every poll, and the partition stops
(seen in 3.0.10 to 3.0.12; the code is the same in the development version of 3.1, August 2026). Here::

    the name of a header is not UTF-8         wrong bytes become U+FFFD, as in Java's clients
    a batch is damaged                        it is fetched once more: it may have been damaged on its way
    still damaged, or without records         one record at its last offset, whose value is `Unreadable`
    a marker of a transaction is unreadable   it ends the transaction: its contents are not needed
    a library for its compression is missing  the partition waits until the library is installed
    there is not enough memory                the partition waits, too

kafka-python's fetcher makes a `PartitionRecords` object of the bytes of a partition, and takes records from it.
`read_all` replaces that class by one that reads batches itself and uses no private name of kafka-python's class.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import dropwhile, islice
from typing import Any, Final, TypeAlias

from binders.kafka.headers import Record
from binders.kafka.record_size import PollBudget, record_size
from binders.kafka.repairs.batches import Batch, Batches
from binders.kafka.repairs.decompression import library_of
from binders.kafka.unreadable import Unreadable
from kafka import TopicPartition
from kafka.consumer.fetcher import ConsumerRecord, Fetcher
from kafka.errors import CorruptRecordError, UnsupportedCodecError
from kafka.protocol.consumer import IsolationLevel
from kafka.record import MemoryRecords
from kafka.record.legacy_records import LegacyRecordBatch
from streamkit.errors import BinderError

__all__ = ["read_all"]

logger = logging.getLogger(__name__)

_NO_TIMESTAMP: Final = -1
_FEW_HEADERS: Final = 32
"""A poll counts the memory of headers only for records with more headers than this."""

Highwater: TypeAlias = Callable[[TopicPartition], int | None]


def read_all(fetcher: Fetcher, highwater: Highwater, budget: PollBudget | None = None) -> None:
    """Make a consumer's fetcher continue after unreadable bytes.

    Args:
        fetcher: kafka-python's fetcher.
        highwater: Returns the offset behind a partition's last record, as of the last fetch.
        budget: The bytes that each poll may return; unset: the budget of a single poll, never renewed.
    """
    fetcher.PartitionRecords = partial(
        _PartitionRecords, damaged={}, highwater=highwater, budget=budget or PollBudget()
    )


@dataclass(frozen=True, slots=True)
class _Damage:
    """A batch that was found damaged once.

    Attributes:
        begin: Its first offset.
        refused: `Batches.refused` when it was found damaged.
    """

    begin: int
    refused: int | None


class _PartitionRecords(Fetcher.PartitionRecords):  # type: ignore[misc]  # as above
    """The records of one partition in a fetch."""

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
        key_deserializer: Any = None,
        value_deserializer: Any = None,
        **settings: Any,
    ) -> None:
        """Make them.

        Args:
            fetch_offset: The offset that was asked for; a batch may begin before it.
            partition: The partition.
            records: The batches.
            damaged: The batch that was damaged last, by partitions; kept from fetch to fetch.
            highwater: Returns the offset behind a partition's last record.
            budget: What a poll may bring.
            key_deserializer: kafka-python's, for keys.
            value_deserializer: The same for values.
            settings: The other settings that kafka-python gives its own class.
        """
        self._damaged = damaged
        self._budget = budget
        self._deserializers = (key_deserializer, value_deserializer)
        known = damaged.get(partition)
        batches = Batches(
            records,
            lambda: self.next_fetch_offset,
            partial(highwater, partition),
            refused=known.refused if known is not None and known.begin == fetch_offset else None,
        )
        super().__init__(fetch_offset, partition, batches, **settings)
        # In the place of the iterator that kafka-python has just made, and not begun.
        self.record_iterator = dropwhile(lambda record: record.offset < fetch_offset, self._unpacked(batches))

    def take(self, n: int | None = None) -> list[Record]:
        """Return the next records, within the poll's budget.

        Args:
            n: The most; None: all.
        """
        records: list[Record] = []
        end = self.bytes_read + self._budget.left
        try:
            for record in islice(self.record_iterator, n):
                records.append(record)
                if len(record.headers) > _FEW_HEADERS:
                    end -= record_size(record)
                if self.bytes_read >= end:
                    break
        except Exception:
            if not records:
                raise
            # The records come first. The next fetch begins behind them, and meets the error again.
        self._budget.left = end - self.bytes_read
        return records

    def _unpacked(self, batches: Batches) -> Iterator[Record]:
        try:
            yield from self._unpacked_to_the_end(batches)
        except Exception:
            # An iterator that has raised gives nothing more, and would be asked again and again.
            self.drain()
            raise
        self.drain()

    def _unpacked_to_the_end(self, batches: Batches) -> Iterator[Record]:
        while True:
            try:
                last = None
                while (batch := batches.next_batch()) is not None:
                    yield from self._of_batch(batch)
                    last = batch
                if isinstance(last, Batch):
                    # Compaction may have removed its last records; in front of another batch, that one's offset counts.
                    self.next_fetch_offset = last.next_offset
                return
            except MemoryError:  # it says nothing of what stands there
                raise
            except Exception as error:  # whatever it is, the partition must not stop
                self._raise_if_library_is_missing(batches, error)
                known = self._damaged.get(self.topic_partition)
                if batches.is_damaged and (known is None or known.begin != batches.begin):
                    logger.warning("%s is damaged and is fetched once more: %s", self._place(batches), error)
                    self._damaged[self.topic_partition] = _Damage(batches.begin, batches.refused)
                    return
                yield from self._passed(batches, error)

    def _of_batch(self, batch: Any) -> Iterator[Record]:
        if self.check_crcs and not batch.validate_crc():
            raise CorruptRecordError("its checksum is wrong")
        if not isinstance(batch, Batch):
            yield from self._of_legacy_batch(batch)
            return
        self.leader_epoch = batch.leader_epoch
        if self._is_aborted(batch) or batch.is_control_batch:
            self.next_fetch_offset = batch.next_offset
        else:
            yield from self._records(batch)

    def _is_aborted(self, batch: Batch) -> bool:
        """Return whether the batch belongs to an aborted transaction; note where transactions begin and end."""
        if self.isolation_level != IsolationLevel.READ_COMMITTED or batch.producer_id < 0:
            return False
        aborted = self.aborted_transactions
        while aborted and aborted[0].first_offset <= batch.last_offset:
            self.aborted_producer_ids.add(aborted.popleft().producer_id)
        if batch.is_control_batch:
            # Of an aborted transaction there is no other marker, so this one need not be read.
            self.aborted_producer_ids.discard(batch.producer_id)
            return False
        return batch.is_transactional and batch.producer_id in self.aborted_producer_ids

    def _records(self, batch: Batch) -> Iterator[Record]:
        topic, partition = self.topic_partition
        epoch, kind = batch.leader_epoch, batch.timestamp_type
        is_plain = self._deserializers == (None, None)
        for size, offset, timestamp, key, value, headers, header_size in batch.records():
            read_key, read_value = key, value
            if not is_plain:
                read_key, read_value = self._deserialized(headers, key, value)
            self.records_read += 1
            self.bytes_read += size
            self.next_fetch_offset = offset + 1
            yield ConsumerRecord(
                topic,
                partition,
                epoch,
                offset,
                timestamp,
                kind,
                read_key,
                read_value,
                headers,
                None,
                -1 if key is None else len(key),
                -1 if value is None else len(value),
                header_size,
            )

    def _of_legacy_batch(self, batch: LegacyRecordBatch) -> Iterator[Record]:
        topic, partition = self.topic_partition
        for record in batch:
            if self.check_crcs and not record.validate_crc():
                raise CorruptRecordError(f"the checksum of its record at offset {record.offset} is wrong")
            key, value = self._deserialized(record.headers, record.key, record.value)
            self.records_read += 1
            self.bytes_read += record.size_in_bytes
            self.next_fetch_offset = record.offset + 1
            yield ConsumerRecord(
                topic,
                partition,
                self.leader_epoch,
                record.offset,
                record.timestamp,
                record.timestamp_type,
                key,
                value,
                record.headers,
                record.checksum,
                -1 if record.key is None else len(record.key),
                -1 if record.value is None else len(record.value),
                -1,
            )

    def _deserialized(self, headers: Any, *data: bytes | None) -> tuple[Any, ...]:
        """Key and value as deserializers make them, where a customizer of the consumer's configuration has set some."""
        topic = self.topic_partition.topic
        return tuple(
            each if deserializer is None else deserializer.deserialize(topic, headers, each)
            for deserializer, each in zip(self._deserializers, data, strict=True)
        )

    def _raise_if_library_is_missing(self, batches: Batches, error: Exception) -> None:
        if isinstance(error, UnsupportedCodecError):
            library = library_of(batches.batch.compression_type)
            if library is not None:
                raise UnsupportedCodecError(
                    f"{self._place(batches)} is compressed in a way that needs {library}: install it"
                ) from error

    def _passed(self, batches: Batches, error: Exception) -> Iterator[Record]:
        """Move behind a batch that cannot be read; yield one record in place of its unread records."""
        place, begin = self._place(batches), self.next_fetch_offset
        batches.skip()
        end = batches.end
        self.next_fetch_offset = max(begin, end)
        if end <= begin:  # all of it was read, now or by an earlier fetch
            logger.debug("%s is damaged after its last record: %r", place, error)
            return
        self.bytes_read += len(batches.data)
        reason = BinderError(f"{place} cannot be read: {error}")
        reason.__cause__ = error
        yield self._placeholder(Unreadable.of(batches.data, reason), end - 1)

    def _placeholder(self, data: Unreadable, offset: int) -> Record:
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
