"""Requests 41 and 42: lock queues for consumption in order, and give them up."""

from rocket_broker.queue_locks import QueueLocks
from rocket_remoting.bodies import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
    decode_body,
    encode_body,
)
from rocket_remoting.command import RemotingCommand
from rocket_remoting.connection import Connection

__all__ = ["LocksProcessor"]


class LocksProcessor:
    """Gives each queue to one client of a group at a time."""

    def __init__(self, locks: QueueLocks) -> None:
        self._locks = locks

    def lock(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """LOCK_BATCH_MQ (41): answers the queues the client holds now."""
        asked = decode_body(command.body, LockBatchRequestBody)
        held = self._locks.lock(asked.consumer_group, asked.mq_set, asked.client_id)
        return RemotingCommand.response(command, body=encode_body(LockBatchResponseBody(lock_ok_mq_set=held)))

    def unlock(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """UNLOCK_BATCH_MQ (42)."""
        asked = decode_body(command.body, UnlockBatchRequestBody)
        self._locks.unlock(asked.consumer_group, asked.mq_set, asked.client_id)
        return RemotingCommand.response(command)
