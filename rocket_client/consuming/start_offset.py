"""The offset at which a member begins to pull a queue that it takes over.

::

    the group has an offset    there
    FIRST_OFFSET               at 0
    LAST_OFFSET                at the end; at 0 if the queue is young, which the broker decides
    TIMESTAMP                  at the first message stored at or after `consume_timestamp`, in a young queue too

A queue is young if the broker still has its first message in memory. To a query for the offset of a group without one
it answers 0 then. Brokers of 5.x can be asked not to (``setZeroIfNotFound=false``). Those of 4.9 cannot: only their
table of all offsets shows whether 0 is the group's offset.
"""

from datetime import UTC, datetime, timedelta

from rocket_client.connection.client import RocketClient
from rocket_client.consuming.offsets import OffsetStore
from rocket_client.core.pull_request import pull_header
from rocket_client.core.subscription import ALL, tag_subscription
from rocket_client.settings import ConsumeFromWhere, ConsumerSettings
from rocket_remoting.wire.message import MessageQueue
from rocket_remoting.wire.record import decode_records
from rocket_remoting.wire.topics import is_retry_topic

_HALF_AN_HOUR_MS = 30 * 60 * 1000
_BATCH = 32
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class StartOffsets:
    """Finds the offset at which one group's member begins a queue."""

    def __init__(self, client: RocketClient, group: str, settings: ConsumerSettings, offsets: OffsetStore) -> None:
        self._client = client
        self._group = group
        self._settings = settings
        self._offsets = offsets

    def __repr__(self) -> str:
        return f"<StartOffsets of {self._group}: {self._settings.consume_from_where.value}>"

    async def find(self, queue: MessageQueue) -> int:
        """Return the offset of the first message to pull.

        Raises:
            RemotingError: No broker was found, or it did not answer, or it refused.
        """
        where, is_retry = self._settings.consume_from_where, is_retry_topic(queue.topic)
        by_time = where is ConsumeFromWhere.TIMESTAMP and not is_retry
        committed = await self._offsets.fetch(queue, zero_if_young=not by_time)
        if committed is not None and committed > 0:
            return committed
        if by_time:
            begin = await self._stored_since(queue, self._moment_ms())
            if committed is None or begin == 0:
                return begin
            # Asked last, because it is expensive: whether 0 was committed matters only if messages would be skipped.
            if not await self._offsets.is_stored(queue):
                self._offsets.remove(queue)  # `fetch` has noted the broker's 0, which must not be committed
                return begin
        if committed is not None:
            return committed
        # The retry topic has redeliveries of this group. None of them may be missed, unless `consume_from_where` asks
        # for a point in time. If the queue's first messages are deleted, the first pull is answered with OFFSET_ILLEGAL
        # and the smallest offset.
        if where is ConsumeFromWhere.FIRST_OFFSET or (is_retry and where is ConsumeFromWhere.LAST_OFFSET):
            return 0
        return await self._client.requests.max_offset(queue)

    def _moment_ms(self) -> int:
        stamp = self._settings.consume_timestamp
        if stamp is None:
            return self._client.started_at_ms - _HALF_AN_HOUR_MS
        return (stamp.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)

    async def _stored_since(self, queue: MessageQueue, moment_ms: int) -> int:
        """Return the offset of the first message stored at or after a time; the queue's end if there is none.

        Brokers of 4.9 answer with the nearest message, which may be one stored before, and of several with the same
        time with any. A search for the millisecond before never passes the first message, so only messages stored
        before have to be stepped over.
        """
        requests = self._client.requests
        offset = await requests.search_offset(queue, moment_ms - 1)
        address = await requests.master(queue)
        subscription = tag_subscription(queue.topic, ALL, 0)
        timeout = self._settings.request_timeout.total_seconds()
        while True:
            header = pull_header(self._group, queue, offset, subscription, max_messages=_BATCH, hold_ms=0)
            answer = await requests.pull(address, header, timeout)
            messages = decode_records(answer.records, decompress=False)
            for message in messages:
                if message.store_timestamp >= moment_ms:
                    return message.queue_offset
            if not messages:
                return offset
            offset = messages[-1].queue_offset + 1
