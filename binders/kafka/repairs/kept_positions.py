"""Resets the positions of partitions that another member had in between.

A partition that a rebalance takes from a member and a later one gives back begins where the group has committed, since
another member may have handled its messages. kafka-python keeps the member's own position if the member did not hear of
the rebalance in between (seen in 3.0.10 to 3.0.12). It has nothing public to forget a position with: `seek` needs an
offset, and asking for the committed one would wait for the brokers on the thread that has to answer.
"""

from typing import Any

from kafka import TopicPartition
from kafka.consumer.subscription_state import TopicPartitionState

__all__ = ["forget_positions", "position_of"]


def forget_positions(consumer: Any) -> None:
    """Make each partition begin at the group's committed offset; called in a rebalance listener."""
    assignment = consumer._subscription.assignment
    for key in assignment:
        assignment[key] = TopicPartitionState()


def position_of(consumer: Any, key: TopicPartition) -> int | None:
    """Return the offset at which the next fetch of a partition begins; None if unknown.

    `KafkaConsumer.position` would ask the brokers.
    """
    state = consumer._subscription.assignment.get(key)
    return None if state is None or state.position is None else int(state.position.offset)
