"""What is asked for and what comes back when messages are pulled."""

from typing import NamedTuple

from rocket_client.pull_answer import PullStatus
from rocket_remoting.message import MessageExt, MessageQueue
from rocket_remoting.record import decode_records


class PullRequest(NamedTuple):
    """Messages of a queue from an offset on."""

    queue: MessageQueue
    offset: int
    max_messages: int = 32


class PullResult(NamedTuple):
    """What a queue gave.

    Attributes:
        request: What was asked for.
        status: Whether there were messages, and if not, why.
        next_offset: Where to pull next.
        min_offset: Where the oldest message is.
        max_offset: Where the next message will be.
        records: The messages as the broker stores them, one after the other.
        tags: The tags asked for; empty for all.
    """

    request: PullRequest
    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    records: bytes | memoryview
    tags: frozenset[str] = frozenset()

    def messages(self) -> list[MessageExt]:
        """The messages. The broker tells tags by their hash codes alone; here they are compared."""
        messages = decode_records(self.records)
        if self.tags:
            messages = [message for message in messages if message.tags in self.tags]
        broker_name = self.request.queue.broker_name
        for message in messages:
            message.broker_name = broker_name
        return messages
