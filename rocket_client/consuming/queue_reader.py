"""What consumers of every kind can find out about queues."""

from typing import TypeVar

from rocket_client.connection.group_member import GroupMember
from rocket_client.errors import TopicNotFoundError
from rocket_client.settings import ClientSettings
from rocket_remoting.wire.message import MessageQueue

S = TypeVar("S", bound=ClientSettings)


class QueueReader(GroupMember[S]):
    """A consumer, as far as it asks for queues and offsets."""

    _KIND = "consumer"

    async def fetch_message_queues(self, topic: str) -> list[MessageQueue]:
        """The topic's queues that can be read, in order.

        Raises:
            TopicNotFoundError: There is no such topic.
        """
        self._life.require_running()
        topic = self._namespace.wrap(topic)
        route = await self._client.routes.refresh(topic)
        if route is None or route.provisional:
            raise TopicNotFoundError(topic, "it does not exist")
        return list(map(self._namespace.unwrap_queue, route.subscribe_queues))

    async def min_offset(self, queue: MessageQueue) -> int:
        """Where the oldest message is."""
        return await self._client.requests.min_offset(self._known(queue))

    async def max_offset(self, queue: MessageQueue) -> int:
        """Where the next message will be."""
        return await self._client.requests.max_offset(self._known(queue))

    async def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The message stored at that time: the nearest one on Apache's 4.9, the next one on 5.x."""
        return await self._client.requests.search_offset(self._known(queue), timestamp_ms)

    def _known(self, queue: MessageQueue) -> MessageQueue:
        """The queue as brokers know it, while this consumer runs."""
        self._life.require_running()
        return self._namespace.wrap_queue(queue)
