"""Requests 41 and 42: lock queues for consumption in order, and give them up.

Locks are kept of queues that this broker has, and of no others: what clients name does not pile up.
"""

from collections.abc import Iterable

from rocket_broker.queue_locks import QueueLocks
from rocket_broker.topic_table import TopicTable
from rocket_remoting.bodies import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
    decode_body,
    encode_body,
)
from rocket_remoting.command import RemotingCommand
from rocket_remoting.connection import Connection
from rocket_remoting.message import MessageQueue

__all__ = ["LocksProcessor"]


class LocksProcessor:
    """Gives each queue to one client of a group at a time."""

    def __init__(self, locks: QueueLocks, topics: TopicTable, *, broker_name: str) -> None:
        self._locks = locks
        self._topics = topics
        self._broker_name = broker_name

    def lock(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """LOCK_BATCH_MQ (41): answers the queues the client holds now."""
        asked = decode_body(command.body, LockBatchRequestBody)
        held = self._locks.lock(asked.consumer_group, self._existing(asked.mq_set), asked.client_id)
        return RemotingCommand.response(command, body=encode_body(LockBatchResponseBody(lock_ok_mq_set=held)))

    def unlock(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """UNLOCK_BATCH_MQ (42)."""
        asked = decode_body(command.body, UnlockBatchRequestBody)
        self._locks.unlock(asked.consumer_group, asked.mq_set, asked.client_id)
        return RemotingCommand.response(command)

    def _existing(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        return [queue for queue in queues if queue.broker_name == self._broker_name and self._has(queue)]

    def _has(self, queue: MessageQueue) -> bool:
        config = self._topics.get(queue.topic)
        return config is not None and 0 <= queue.queue_id < max(
            config.read_queue_nums, config.write_queue_nums
        )
