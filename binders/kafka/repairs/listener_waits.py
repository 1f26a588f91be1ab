"""Waits in an asynchronous rebalance listener.

kafka-python awaits the methods of an `AsyncConsumerRebalanceListener` on a loop of its own, in which asyncio's `sleep`
does not work. Its own sleep is a public method of an object that the consumer keeps in `_net`.
"""

from typing import Any

__all__ = ["sleep"]


async def sleep(consumer: Any, seconds: float) -> None:
    """Wait in a rebalance listener, while the consumer's thread does other work."""
    await consumer._net.sleep(seconds)
