"""Queries about queues and offsets that all consumers have."""

from typing import TypeVar

from rocket_client.connection.group_member import GroupMember
from rocket_client.errors import TopicNotFoundError
from rocket_client.settings import ClientSettings
from rocket_remoting.wire.message import MessageQueue

S = TypeVar("S", bound=ClientSettings)


class QueueReader(GroupMember[S]):
    """Base of the consumers: their queries about queues and offsets."""

    _KIND = "consumer"

    async def fetch_message_queues(self, topic: str) -> list[MessageQueue]:
        """Return the topic's readable queues, sorted.

        Raises:
            ClientStateError: The consumer is not running.
            TopicNotFoundError: The topic does not exist.
        """
        self._life.require_running()
        topic = self._namespace.wrap(topic)
        route = await self._client.routes.refresh(topic)
        if route is None or route.provisional:
            raise TopicNotFoundError(topic, "it does not exist")
        return list(map(self._namespace.unwrap_queue, route.subscribe_queues))

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the queue's oldest message.

        Raises:
            ClientStateError: The consumer is not running.
            RemotingError: No broker was found, or it did not answer, or it refused.
        """
        return await self._client.requests.min_offset(self._broker_queue(queue))

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the queue's next message will get.

        Raises:
            ClientStateError: The consumer is not running.
            RemotingError: No broker was found, or it did not answer, or it refused.
        """
        return await self._client.requests.max_offset(self._broker_queue(queue))

    async def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the message stored at a time: on Apache 4.9 the nearest message, on 5.x the next one.

        Args:
            queue: The queue.
            timestamp_ms: The time in milliseconds since the epoch.

        Raises:
            ClientStateError: The consumer is not running.
            RemotingError: No broker was found, or it did not answer, or it refused.
        """
        return await self._client.requests.search_offset(self._broker_queue(queue), timestamp_ms)

    def _broker_queue(self, queue: MessageQueue) -> MessageQueue:
        """Return the queue as brokers know it, with the namespace.

        Raises:
            ClientStateError: The consumer is not running.
        """
        self._life.require_running()
        return self._namespace.wrap_queue(queue)
