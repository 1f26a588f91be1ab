"""Requests 41 and 42: lock queues for consumption in order, and give them up.

Locks are kept of queues that this broker has, and of no others: what clients name does not pile up.
"""

from collections.abc import Iterable, Sequence

from rocket_broker.queue_locks import LockAnswer, QueueLocks
from rocket_broker.refusal import Refusal
from rocket_broker.request_steps import Steps
from rocket_broker.serving import Answer
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

QUEUES_AT_ONCE = 256
"""Queues that are locked in one step, which takes half a millisecond."""


class LocksProcessor:
    """Gives each queue to one client of a group at a time."""

    def __init__(self, locks: QueueLocks, topics: TopicTable, *, broker_name: str) -> None:
        self._locks = locks
        self._topics = topics
        self._broker_name = broker_name

    def lock(self, connection: Connection, command: RemotingCommand) -> Answer:
        """LOCK_BATCH_MQ (41): answers the queues the client holds now.

        Apache's clients treat every queue that a successful answer leaves out as another client's, and ask again in 20
        seconds; at an error they let the locks that they have run out. So a wish for which there is no room is an
        error only if it brings the client no lock at all.
        """
        asked = decode_body(command.body, LockBatchRequestBody)
        for topic in {queue.topic for queue in asked.mq_set}:
            self._topics.system.check_offsets(asked.consumer_group, topic)
        queues = self._existing(asked.mq_set)
        if len(queues) > QUEUES_AT_ONCE:
            return self._lock_many(connection, command, asked, queues)
        return _answer(command, self._lock(connection, asked, queues))

    def _lock_many(
        self,
        connection: Connection,
        command: RemotingCommand,
        asked: LockBatchRequestBody,
        queues: Sequence[MessageQueue],
    ) -> Steps:
        held: set[MessageQueue] = set()
        refusal: Refusal | None = None
        for first in range(0, len(queues), QUEUES_AT_ONCE):
            locked = self._lock(connection, asked, queues[first : first + QUEUES_AT_ONCE])
            held |= locked.held
            refusal = refusal or locked.refusal
            yield
        return _answer(command, LockAnswer(held, refusal))

    def _lock(
        self, connection: Connection, asked: LockBatchRequestBody, queues: Sequence[MessageQueue]
    ) -> LockAnswer:
        return self._locks.lock(asked.consumer_group, queues, asked.client_id, connection.counted_as)

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


def _answer(command: RemotingCommand, locked: LockAnswer) -> RemotingCommand:
    """Return the answer to a wish for locks.

    Raises:
        Refusal: There was no room for any of them.
    """
    held, refusal = locked
    if refusal is not None and not held:
        raise refusal
    body = encode_body(LockBatchResponseBody(lock_ok_mq_set=held))
    return RemotingCommand.response(
        command, body=body, remark=refusal.remark if refusal is not None else None
    )
