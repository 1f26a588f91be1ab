"""Requests 41 and 42: lock and unlock queues for ordered consumption.

Locks are kept only for queues that this broker has, so that clients cannot pile up locks on invented queues.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

from rocket_broker.limits.refusal import Refusal
from rocket_broker.processors.broker_context import BrokerContext
from rocket_broker.requests.long_answer import long_answer
from rocket_broker.requests.request_body import MAX_QUEUES_BODY, read_body
from rocket_broker.requests.request_steps import Steps
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
    """Lets only one client of a group consume a queue at a time."""

    def __init__(self, context: BrokerContext) -> None:
        self._locks = context.queue_locks
        self._topics = context.topics
        self._broker_name = context.settings.broker_name

    def lock(self, connection: Connection, command: RemotingCommand) -> Steps:
        """LOCK_BATCH_MQ (41): lock queues for a client; return the queues that the client holds now.

        Apache's clients take each queue that is missing in a successful answer as locked by another client, and ask
        again after 20 seconds. After an error they let the locks that they have expire. So a refusal because of the
        limits is answered as an error only if the client would get no lock at all; otherwise the remark has the
        reason.
        """
        asked = read_body(command, LockBatchRequestBody, most=MAX_QUEUES_BODY)
        for queues in _batched(asked.mq_set):
            for topic in {queue.topic for queue in queues}:
                self._topics.system.check_offsets(asked.consumer_group, topic)
            yield
        held: set[MessageQueue] = set()
        refusal: Refusal | None = None
        for queues in _batched(asked.mq_set):
            locked = self._locks.lock(
                asked.consumer_group, filter(self._exists, queues), asked.client_id, connection.counted_as
            )
            held |= locked.held
            refusal = refusal or locked.refusal
            yield
        if refusal is not None and not held:
            raise refusal
        body = LongBody(LockBatchResponseBody(lock_ok_mq_set=set()), lock_ok_mq_set=Items(held))
        remark = refusal.remark if refusal is not None else None
        return (yield from long_answer(command, body, instead="ask for fewer queues", remark=remark))

    def unlock(self, connection: Connection, command: RemotingCommand) -> Steps:
        """UNLOCK_BATCH_MQ (42): release the client's locks on queues."""
        asked = read_body(command, UnlockBatchRequestBody, most=MAX_QUEUES_BODY)
        for queues in _batched(asked.mq_set):
            self._locks.unlock(asked.consumer_group, queues, asked.client_id)
            yield
        return RemotingCommand.response(command)

    def _exists(self, queue: MessageQueue) -> bool:
        config = self._topics.get(queue.topic) if queue.broker_name == self._broker_name else None
        return config is not None and 0 <= queue.queue_id < max(config.read_queue_nums, config.write_queue_nums)


def _batched(queues: Iterable[MessageQueue]) -> Iterator[list[MessageQueue]]:
    left = iter(queues)
    while some := list(islice(left, QUEUES_AT_ONCE)):
        yield some
