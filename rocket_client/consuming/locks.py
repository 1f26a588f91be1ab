"""Locks on queues: in orderly mode a queue is consumed only by the member that has its lock at the broker.

The broker lets a lock expire after 60 s; it is renewed every 20 s, and counts here for 30 s after a
renewal, so that this member stops before another one may begin.
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
    """The locks of one member of one group."""

    def __init__(self, requests: BrokerRequests, group: str, client_id: str) -> None:
        self._requests = requests
        self._group = group
        self._client_id = client_id
        self._loop = asyncio.get_running_loop()
        self._held: set[MessageQueue] = set()
        # Requests for locks that are not answered yet, and the queues they name.
        self._asking: dict[asyncio.Task[list[ProcessQueue]], set[MessageQueue]] = {}

    def __repr__(self) -> str:
        return f"<QueueLocks {self._group} of {self._client_id}: {sorted(self._held)}>"

    async def lock(self, process_queues: Collection[ProcessQueue]) -> list[ProcessQueue]:
        """Lock, or renew; returns those that another member has.

        Raises:
            RemotingError: A broker did not answer; what its locks are is not known.
        """
        by_broker: dict[str, list[ProcessQueue]] = {}
        for process_queue in process_queues:
            by_broker.setdefault(process_queue.message_queue.broker_name, []).append(process_queue)
        # Not cancelled with its caller: what is unlocked before the broker has answered, it might lock after that.
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
        asked_at = self._loop.time()
        address = await self._requests.master(queues[0])
        # Before the answer: without one, we may have been given the locks all the same.
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
        """Let others lock the queues; a broker that cannot be told is logged, its locks expire."""
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
                    "group %s: %s not unlocked at broker %s: %s", self._group, theirs, broker_name, error
                )
            self._held.difference_update(theirs)

    async def unlock_all(self) -> None:
        """Let others lock everything this member may have locked."""
        if self._asking:
            await asyncio.wait(self._asking)
        await self.unlock(list(self._held))


def _take_exception(asking: "asyncio.Future[list[list[ProcessQueue]]]") -> None:
    """Whoever asked may be gone: asyncio would log the failure as one that nobody heard of."""
    if not asking.cancelled():
        asking.exception()
