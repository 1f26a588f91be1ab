"""Reads the number of a topic's partitions from a producer's metadata, without asking the brokers.

`KafkaProducer.partitions_for` waits for the brokers when a topic is not known, which would block the loop that sends.
"""

from typing import Any

__all__ = ["partition_count"]


def partition_count(producer: Any, topic: str) -> int | None:
    """Return the number of a topic's partitions in the producer's metadata; None if the topic is not in it."""
    partitions = producer._metadata.partitions_for_topic(topic)
    return None if partitions is None else len(partitions)
