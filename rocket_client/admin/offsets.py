"""Requests about offsets: those of queues, and those that groups have committed."""

from collections.abc import Mapping

from rocket_client.admin.requests import AdminRequests
from rocket_remoting.wire.bodies import ResetOffsetBody, decode_body
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.headers import ResetOffsetRequestHeader
from rocket_remoting.wire.message import MessageQueue

__all__ = ["OffsetRequests"]


class OffsetRequests(AdminRequests):
    """Requests about offsets."""

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the queue's oldest message."""
        await self._ensure_route(queue.topic)
        return await self._client.requests.min_offset(queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the queue's next message will get."""
        await self._ensure_route(queue.topic)
        return await self._client.requests.max_offset(queue)

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the message stored at a time: on Apache 4.9 the nearest message, on 5.x the next one.

        Args:
            queue: The queue.
            timestamp_ms: The time in milliseconds since the epoch.
        """
        await self._ensure_route(queue.topic)
        return await self._client.requests.search_offset(queue, timestamp_ms)

    async def committed_offset(self, queue: MessageQueue, group: str) -> int | None:
        """Return the offset at which the group begins the queue; None if the group has committed none.

        Without a committed offset, brokers answer 0 for a queue whose first message they have in memory.
        """
        await self._ensure_route(queue.topic)
        return await self._client.requests.committed_offset(queue, group)

    async def commit_offset(self, queue: MessageQueue, group: str, offset: int) -> None:
        """Commit an offset for the group. A member takes it when it next takes the queue over.

        A member that consumes the queue now overwrites the offset; use `reset_offsets` then.
        """
        await self._ensure_route(queue.topic)
        await self._client.requests.commit_offset(queue, group, offset)

    async def reset_offsets(
        self, group: str, topic: str, timestamp_ms: int, *, force: bool = True
    ) -> Mapping[MessageQueue, int]:
        """Reset the group's offsets to the messages stored from a time on; its connected members continue there.

        Args:
            group: The group; it must have connected members.
            topic: The topic.
            timestamp_ms: The time in milliseconds since the epoch; -1 for the end of each queue.
            force: Whether offsets may also move forward.

        Returns:
            The new offset of each queue.

        Raises:
            TopicNotFoundError: The topic does not exist.
        """
        offsets: dict[MessageQueue, int] = {}
        header = ResetOffsetRequestHeader(group=group, topic=topic, timestamp=timestamp_ms, is_force=force)
        for address in await self._brokers_of(topic):
            response = await self._client.requests.invoke(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
            if response.body:
                offsets |= decode_body(response.body, ResetOffsetBody).offset_table
        return offsets
