"""Writes trace records to the trace topic, in batches and in the background.

A send or a listener call only puts a few values into a queue. Where the queue is full, because the brokers do not take
the traces or the application is faster, records are dropped and counted: traces never delay messages.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable

from rocket_client.connection.client import RocketClient, cancel
from rocket_client.core.outgoing import OutgoingMessages
from rocket_client.settings import ClientSettings, ProducerSettings
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.errors import RemotingError
from rocket_remoting.wire.message import Message
from rocket_remoting.wire.message_trace import TraceRecord, encode_trace
from rocket_remoting.wire.properties import PROPERTY_KEYS
from rocket_remoting.wire.topics import GROUP_MAX_LENGTH

__all__ = ["MOST_WAITING", "TraceWriter"]

logger = logging.getLogger(__name__)

MOST_WAITING = 2048
"""Maximum number of calls whose records wait, as in Apache's client."""

_BATCH = 100
_LONGEST_BODY = 128_000
_FLUSH_SECONDS = 1.0
_SEND_SECONDS = 5.0
_WARNING_SECONDS = 60.0

Records = Callable[[], Iterable[TraceRecord]]
"""Makes the records of one send or call, when they are written."""


class TraceWriter:
    """Writes the traces of one producer or consumer.

    Args:
        client: The client whose connections are used.
        group: The group, for the name of the sending group.
        topic: The topic of the traces.
        settings: The member's settings.

    Attributes:
        topic: The topic of the traces; messages to it are not traced.
        dropped: Number of sends and calls whose records were dropped.
    """

    def __init__(self, client: RocketClient, group: str, topic: str, settings: ClientSettings) -> None:
        # The topic is the cluster's: it is not in the member's namespace.
        self._settings = ProducerSettings(
            name_servers=settings.name_servers, name_server_domain=settings.name_server_domain, namespace=""
        )
        self.topic = topic
        self.dropped = 0
        self._client = client
        self._now = asyncio.get_running_loop().time
        self._outgoing = OutgoingMessages(
            f"_INNER_TRACE_PRODUCER-{group}"[:GROUP_MAX_LENGTH], self._settings, client.clock, client.unique_ids
        )
        self._route_is_doubtful = False
        self._waiting: deque[Records] = deque()
        self._wake = asyncio.Event()
        self._is_closing = False
        self._writing = 0
        self._warned_at = float("-inf")
        self._warned_of = 0
        self._task = client.spawn(self._run(), f"message traces of {group}")

    def add(self, records: Records) -> None:
        """Write records soon; drop them if too many wait."""
        if len(self._waiting) >= MOST_WAITING:
            self._drop(1, "too many wait")
            return
        self._waiting.append(records)
        if len(self._waiting) >= _BATCH:
            self._wake.set()

    async def close(self) -> None:
        """Write what waits, for a few seconds at most, and end."""
        self._is_closing = True
        self._wake.set()
        await asyncio.wait([self._task], timeout=_SEND_SECONDS)
        if not self._task.done():
            await cancel([self._task])
            self._drop(self._writing + len(self._waiting), "the brokers did not take them in time")
            self._waiting.clear()

    async def _run(self) -> None:
        while self._waiting or not self._is_closing:
            try:
                async with asyncio.timeout(_FLUSH_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                pass
            if not self._is_closing:
                self._wake.clear()
            while self._waiting:
                await self._write()

    async def _write(self) -> None:
        """Write a batch: a message for each topic of its records."""
        by_topic: dict[str, list[TraceRecord]] = {}
        self._writing = min(_BATCH, len(self._waiting))
        for _ in range(self._writing):
            for record in self._waiting.popleft()():
                by_topic.setdefault(record.topic, []).append(record)
        for records in by_topic.values():
            await self._send(records)
        self._writing = 0

    async def _send(self, records: list[TraceRecord]) -> None:
        text = encode_trace(records)
        body = text.encode()
        if len(body) > _LONGEST_BODY and len(records) > 1:
            middle = len(records) // 2
            await self._send(records[:middle])
            await self._send(records[middle:])
            return
        keys = " ".join(sorted(set().union(*(record.search_keys for record in records))))
        try:
            async with asyncio.timeout(_SEND_SECONDS):
                await self._store(Message(self.topic, body, properties={PROPERTY_KEYS: keys}))
        except (RemotingError, ValueError, TimeoutError) as error:
            self._route_is_doubtful = True
            self._drop(len(records), str(error) or "no broker answered in time")

    async def _store(self, message: Message) -> None:
        outgoing, routes = self._outgoing.message(message), self._client.routes
        if self._route_is_doubtful:
            await routes.refresh(self.topic)
            self._route_is_doubtful = False
        own = self._settings
        route = await routes.for_publishing(self.topic, own.create_topic_key, own.default_topic_queue_nums)
        queue = route.publish_queues[route.next_index() % len(route.publish_queues)]
        header = self._outgoing.header(outgoing, queue.broker_name, queue.queue_id)
        address = await self._client.requests.master(queue)
        await self._client.requests.invoke(address, RequestCode.SEND_MESSAGE_V2, header, outgoing.body)

    def _drop(self, count: int, why: str) -> None:
        self.dropped += count
        now = self._now()
        if now - self._warned_at >= _WARNING_SECONDS:
            logger.warning(
                "message trace to topic %s: %d record(s) dropped, %d so far: %s",
                self.topic, self.dropped - self._warned_of, self.dropped, why,
            )  # fmt: skip
            self._warned_at, self._warned_of = now, self.dropped

    def __repr__(self) -> str:
        return f"TraceWriter({self.topic!r}, {len(self._waiting)} wait, {self.dropped} dropped)"
