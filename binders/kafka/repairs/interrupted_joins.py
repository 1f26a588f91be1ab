"""Continues joins of a group that a short poll has interrupted.

When the partitions of a topic change, the member that deals them out joins its group anew. If the poll's time is over
before the brokers have answered, kafka-python no longer sees the change at the next poll, and does not join again: the
member has no partitions and sends no heartbeats, for good (seen in 3.0.10 to 3.0.12). Java's client had the same defect
(KAFKA-9815) and was repaired in the same way: it notes that a join is needed.

`ConsumerCoordinator.rejoining` says that a join has begun, `request_rejoin` asks for one.
"""

from typing import Any, Final

__all__ = ["continue_join"]

_JOIN_MS: Final = 1000


def continue_join(consumer: Any, timeout_ms: int) -> int:
    """Continue a join that the last poll did not finish; return the timeout of the next poll.

    Args:
        consumer: A `KafkaConsumer`, before its poll.
        timeout_ms: How long the poll is to take otherwise, in milliseconds.
    """
    coordinator = consumer._coordinator
    if not coordinator.rejoining:
        return timeout_ms
    coordinator.request_rejoin()
    return max(timeout_ms, _JOIN_MS)
