"""Ends the waits of transactions when their producer is closed.

`commit_transaction`, `abort_transaction` and `send_offsets_to_transaction` of `KafkaProducer` wait for the brokers'
answer without a timeout, also once another thread has closed the producer (seen in 3.0.10 to 3.0.12). The same requests
are made here, and the wait ends when the producer is closed.
"""

from typing import Any, Final

from kafka.errors import KafkaTimeoutError

__all__ = ["abort", "commit", "send_offsets"]

_LOOK_MS: Final = 100
"""The milliseconds between two checks of whether the producer was closed."""


def commit(producer: Any) -> None:
    """Commit a producer's transaction; blocks until the brokers have answered.

    Raises:
        KafkaError: The brokers refuse, or the producer was closed.
    """
    _wait(producer, producer._transaction_manager.begin_commit())


def abort(producer: Any) -> None:
    """Abort a producer's transaction; blocks until the brokers have answered.

    Raises:
        KafkaError: As `commit`.
    """
    _wait(producer, producer._transaction_manager.begin_abort())


def send_offsets(producer: Any, offsets: object, group_metadata: object) -> None:
    """Make offsets part of a producer's transaction; blocks until the brokers have answered.

    Args:
        producer: A `KafkaProducer`.
        offsets: `OffsetAndMetadata` by `TopicPartition`.
        group_metadata: The consumer's `group_metadata()`.

    Raises:
        KafkaError: As `commit`.
    """
    _wait(producer, producer._transaction_manager.send_offsets_to_transaction(offsets, group_metadata))


def _wait(producer: Any, result: Any) -> None:
    producer._sender.wakeup()
    while not result.wait(_LOOK_MS):
        if producer._closed:
            raise KafkaTimeoutError("the producer was closed before the brokers answered")
