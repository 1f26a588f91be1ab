"""Appends a record to its batch with the work done once.

No defect, but dear: `KafkaProducer.send` copies the set of a topic's partitions up to six times, chooses the partition
of a record without key twice, and encodes all headers to learn that the record is far from too large (3.0.10 to
3.0.12). What is not the rule is left to it: whatever it refuses, unknown topics, serializers, other partitioners,
brokers before Kafka 0.11.
"""

import random
from typing import Any, Final, NamedTuple, TypeAlias

from kafka import TopicPartition
from kafka.partitioner import DefaultPartitioner

__all__ = ["Headers", "NewRecord", "append"]

Headers: TypeAlias = list[tuple[str, bytes]]

_MAGIC: Final = 2
_NO_HEADERS: Final[Headers] = []
_DATA: Final = (bytes, type(None))
_OVERHEAD: Final = 128
"""More bytes than a batch and a record without contents have."""
_OF_HEADER: Final = 16
_OF_CHARACTER: Final = 4
_LEADERLESS: Final = -1


class NewRecord(NamedTuple):
    """A record to be sent: the arguments of `KafkaProducer.send`.

    Attributes:
        topic: The topic.
        value: The record's value.
        key: The record's key.
        headers: The record's headers.
        partition: The partition; None: that of the key, else any with a leader.
        timestamp_ms: The record's time in milliseconds since 1970; None: now.
    """

    topic: str
    value: bytes | None
    key: bytes | None
    headers: Headers | None
    partition: int | None
    timestamp_ms: int | None


def append(producer: Any, record: NewRecord) -> Any:
    """Append a record, and return kafka-python's future; None if `KafkaProducer.send` has to.

    Args:
        producer: A `KafkaProducer`.
        record: The record.
    """
    topic, value, key, headers, partition, timestamp_ms = record
    config = producer.config
    headers = headers or _NO_HEADERS
    known = producer._metadata._partitions.get(topic)
    if (
        producer._closed
        or not known
        or (value is None and key is None)
        or not _is_small(value, key, headers, config["max_request_size"])
        or type(config["partitioner"]) is not DefaultPartitioner
        or config["key_serializer"] is not None
        or config["value_serializer"] is not None
        or producer.max_usable_produce_magic(config["api_version"]) != _MAGIC
    ):
        return None
    if partition is None:
        if key is None:
            led = [number for number, each in list(known.items()) if each.leader_id != _LEADERLESS]
            partition = random.choice(led or list(known))
        else:
            partition = config["partitioner"].partition(topic, key, key, value, value, producer._metadata)
    elif partition not in known:
        return None
    place = TopicPartition(topic, partition)
    state = producer._transaction_manager
    if state is not None and state.is_transactional():
        state.maybe_add_partition_to_transaction(place)
    future, is_full, is_new, _ = producer._accumulator.append(place, timestamp_ms, key, value, headers)
    if is_full or is_new:
        producer._sender.wakeup()
    return future


def _is_small(value: bytes | None, key: bytes | None, headers: Headers, limit: int) -> bool:
    """Return whether a record is of the right types, and certainly not larger than a limit in bytes."""
    if type(value) not in _DATA or type(key) not in _DATA:
        return False
    size = _OVERHEAD + len(value or b"") + len(key or b"")
    for name, data in headers:
        if type(name) is not str or type(data) is not bytes:
            return False
        size += _OF_HEADER + _OF_CHARACTER * len(name) + len(data)
    return size <= limit
