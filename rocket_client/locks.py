"""Locks on queues: in orderly mode a queue is consumed only by the member that has its lock at the broker.

The broker lets a lock expire after 60 s; it is renewed every 20 s, and counts here for 30 s after a
renewal, so that this member stops before another one may begin.
"""

import asyncio
import logging
from collections.abc import Collection

from rocket_client.broker_requests import BrokerRequests
from rocket_client.process_queue import ProcessQueue
from rocket_remoting.errors import RemotingError
from rocket_remoting.message import MessageQueue

_LOG = logging.getLogger(__name__)


class QueueLocks:
    """The locks of one member of one group."""

    def __init__(self, requests: BrokerRequests, group: str, client_id: str) -> None:
        self._requests = requests
        self._group = group
        self._client_id = client_id
        self._loop = asyncio.get_running_loop()
        self._held: set[MessageQueue] = set()

    def __repr__(self) -> str:
        return f"<QueueLocks {self._group} of {self._client_id}: {sorted(self._held)}>"

    async def lock(self, process_queues: Collection[ProcessQueue]) -> list[ProcessQueue]:
        """Lock, or renew; returns those that another member has.

        Raises:
            RemotingError: A broker did not answer; what its locks are is not known.
        """
        refused: list[ProcessQueue] = []
        for broker_name in {queue.message_queue.broker_name for queue in process_queues}:
            here = [queue for queue in process_queues if queue.message_queue.broker_name == broker_name]
            queues = [queue.message_queue for queue in here]
            asked_at = self._loop.time()
            address = await self._requests.master(queues[0])
            # Before the answer: cancelled while we wait, we may have been given the locks all the same.
            self._held.update(queues)
            locked = await self._requests.lock(address, self._group, self._client_id, queues)
            for process_queue in here:
                if process_queue.message_queue in locked:
                    process_queue.locked_at = asked_at
                else:
                    process_queue.locked_at = None
                    self._held.discard(process_queue.message_queue)
                    refused.append(process_queue)
        return refused

    async def unlock(self, queues: Collection[MessageQueue]) -> None:
        """Let others lock the queues; a broker that cannot be told is logged, its locks expire."""
        self._held.difference_update(queues)
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            by_broker.setdefault(queue.broker_name, []).append(queue)
        for broker_name, theirs in by_broker.items():
            try:
                address = await self._requests.master(theirs[0])
                await self._requests.unlock(address, self._group, self._client_id, theirs)
            except RemotingError as error:
                _LOG.warning(
                    "group %s: %s not unlocked at broker %s: %s", self._group, theirs, broker_name, error
                )

    async def unlock_all(self) -> None:
        """Let others lock everything this member may have locked."""
        await self.unlock(list(self._held))
