"""Locks on queues: in orderly mode only the member that has a queue's lock at the broker consumes the queue.

::

    renewal   0 s        20 s       30 s                       60 s
              |          |          |                          |
              |          next renewal                          the broker lets the lock expire;
              |                     this member begins         another member may get it
              |                     no more calls

A lock's time begins when the request was sent, not when the answer came: the broker's time cannot begin earlier. So
this member stops at least 30 s before another one can begin.

Locks are in the memory of the master. When the connection to it is lost, or another broker becomes the master, they may
be gone: then this member asks again before its next call (`Rebalancer.void_locks`).
"""

import asyncio
import logging
from collections.abc import Collection

from rocket_client.connection.broker_requests import BrokerRequests
from rocket_client.core.process_queue import ProcessQueue
from rocket_remoting.wire.errors import RemotingError
from rocket_remoting.wire.message import MessageQueue

logger = logging.getLogger(__name__)


class QueueLocks:
    """The queue locks of one member of a group."""

    def __init__(self, requests: BrokerRequests, group: str, client_id: str) -> None:
        self._requests = requests
        self._group = group
        self._client_id = client_id
        self._loop = asyncio.get_running_loop()
        self._held: set[MessageQueue] = set()
        # Lock requests that are not answered yet, with their queues.
        self._asking: dict[asyncio.Task[list[ProcessQueue]], set[MessageQueue]] = {}

    def __repr__(self) -> str:
        return f"<QueueLocks {self._group} of {self._client_id}: {sorted(self._held)}>"

    async def lock(self, process_queues: Collection[ProcessQueue]) -> list[ProcessQueue]:
        """Lock queues or renew their locks; return the queues that another member has locked.

        Raises:
            RemotingError: A broker did not answer; whether its queues are locked is not known.
        """
        by_broker: dict[str, list[ProcessQueue]] = {}
        for process_queue in process_queues:
            by_broker.setdefault(process_queue.message_queue.broker_name, []).append(process_queue)
        # Not cancelled with its caller, so that `unlock` can wait for it: the broker might otherwise handle the lock
        # request after the unlock request.
        asking = asyncio.gather(*map(self._begin, by_broker.values()))
        asking.add_done_callback(_take_exception)
        refused = await asyncio.shield(asking)
        return [process_queue for theirs in refused for process_queue in theirs]

    def _begin(self, process_queues: Collection[ProcessQueue]) -> asyncio.Task[list[ProcessQueue]]:
        asking = asyncio.create_task(self._lock_at_broker(process_queues), name=f"lock of {self._group}")
        self._asking[asking] = {process_queue.message_queue for process_queue in process_queues}
        asking.add_done_callback(self._asking.pop)
        return asking

    async def _lock_at_broker(self, process_queues: Collection[ProcessQueue]) -> list[ProcessQueue]:
        queues = [process_queue.message_queue for process_queue in process_queues]
        # Apache's RebalanceImpl notes the time of the answer, which may be later than the time of the broker's lock.
        asked_at = self._loop.time()
        address = await self._requests.master(queues[0])
        # Noted before the answer: if none comes, the broker may have locked the queues all the same.
        self._held.update(queues)
        locked = await self._requests.lock(address, self._group, self._client_id, queues)
        refused: list[ProcessQueue] = []
        for process_queue in process_queues:
            if process_queue.message_queue in locked:
                process_queue.locked_at = asked_at
            else:
                process_queue.locked_at = None
                self._held.discard(process_queue.message_queue)
                refused.append(process_queue)
        return refused

    async def unlock(self, queues: Collection[MessageQueue]) -> None:
        """Unlock queues. A failure is logged, not raised: the lock then expires at the broker after 60 s."""
        # A loop, because further lock requests for the same queues may begin while these are awaited.
        while asking := [task for task, named in self._asking.items() if not named.isdisjoint(queues)]:
            await asyncio.wait(asking)
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            by_broker.setdefault(queue.broker_name, []).append(queue)
        for broker_name, theirs in by_broker.items():
            try:
                address = await self._requests.master(theirs[0])
                await self._requests.unlock(address, self._group, self._client_id, theirs)
            except RemotingError as error:
                logger.warning(
                    "group %s: could not unlock %s at broker %s: %s", self._group, theirs, broker_name, error
                )
            self._held.difference_update(theirs)

    async def unlock_all(self) -> None:
        """Unlock all queues that this member may have locked."""
        if self._asking:
            await asyncio.wait(self._asking)
        await self.unlock(list(self._held))


def _take_exception(asking: "asyncio.Future[list[list[ProcessQueue]]]") -> None:
    """Mark the exception as retrieved: if the caller was cancelled, asyncio would log it as never retrieved."""
    if not asking.cancelled():
        asking.exception()
