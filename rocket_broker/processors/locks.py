"""Requests 41 and 42: lock queues for consumption in order, and give them up.

Locks are kept of queues that this broker has, and of no others: what clients name does not pile up.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from rocket_broker.clients.queue_locks import LockAnswer, QueueLocks
from rocket_broker.limits.refusal import Refusal
from rocket_broker.requests.long_answer import long_answer
from rocket_broker.requests.request_body import MAX_QUEUES_BODY, read_body
from rocket_broker.requests.request_steps import Steps
from rocket_broker.tables.topic_table import TopicTable
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import (
    Items,
    LockBatchRequestBody,
    LockBatchResponseBody,
    LongBody,
    UnlockBatchRequestBody,
)
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.message import MessageQueue

__all__ = ["LocksProcessor"]

QUEUES_AT_ONCE = 256
"""Queues that are locked in one step, which takes half a millisecond."""


class LocksProcessor:
    """Gives each queue to one client of a group at a time."""

    def __init__(self, locks: QueueLocks, topics: TopicTable, *, broker_name: str) -> None:
        self._locks = locks
        self._topics = topics
        self._broker_name = broker_name

    def lock(self, connection: Connection, command: RemotingCommand) -> Steps:
        """LOCK_BATCH_MQ (41): answers the queues the client holds now.

        Apache's clients treat every queue that a successful answer leaves out as another client's, and ask again in 20
        seconds; at an error they let the locks that they have run out. So a wish for which there is no room is an
        error only if it brings the client no lock at all.
        """
        asked = read_body(command, LockBatchRequestBody, most=MAX_QUEUES_BODY)
        for queues in _batched(asked.mq_set):
            for topic in {queue.topic for queue in queues}:
                self._topics.system.check_offsets(asked.consumer_group, topic)
            yield
        held: set[MessageQueue] = set()
        refusal: Refusal | None = None
        for queues in _batched(asked.mq_set):
            locked = self._lock(connection, asked, self._existing(queues))
            held |= locked.held
            refusal = refusal or locked.refusal
            yield
        if refusal is not None and not held:
            raise refusal
        body = LongBody(LockBatchResponseBody(lock_ok_mq_set=set()), lock_ok_mq_set=Items(held))
        remark = refusal.remark if refusal is not None else None
        return (yield from long_answer(command, body, instead="ask for fewer queues", remark=remark))

    def _lock(
        self, connection: Connection, asked: LockBatchRequestBody, queues: Sequence[MessageQueue]
    ) -> LockAnswer:
        return self._locks.lock(asked.consumer_group, queues, asked.client_id, connection.counted_as)

    def unlock(self, connection: Connection, command: RemotingCommand) -> Steps:
        """UNLOCK_BATCH_MQ (42)."""
        asked = read_body(command, UnlockBatchRequestBody, most=MAX_QUEUES_BODY)
        for queues in _batched(asked.mq_set):
            self._locks.unlock(asked.consumer_group, queues, asked.client_id)
            yield
        return RemotingCommand.response(command)

    def _existing(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        return [queue for queue in queues if queue.broker_name == self._broker_name and self._has(queue)]

    def _has(self, queue: MessageQueue) -> bool:
        config = self._topics.get(queue.topic)
        return config is not None and 0 <= queue.queue_id < max(
            config.read_queue_nums, config.write_queue_nums
        )


def _batched(queues: Iterable[MessageQueue]) -> Iterator[list[MessageQueue]]:
    left = iter(queues)
    while some := list(islice(left, QUEUES_AT_ONCE)):
        yield some
