"""Closes producers although messages are not acknowledged.

`KafkaProducer.close(timeout)` first waits for messages that are not acknowledged (dpkp/kafka-python pull request 2537).
When the time is over it raises a `KafkaTimeoutError` and does nothing more: the producer's thread goes on, and tries to
send for ever (seen in 3.0.10 to 3.0.12).
"""

from typing import Any

__all__ = ["force_close"]


def force_close(producer: Any) -> None:
    """Close a producer whose `close` has raised; messages that are not acknowledged fail."""
    producer._sender.force_close()
    producer._closed = True
