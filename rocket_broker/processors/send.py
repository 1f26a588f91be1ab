"""Requests 10, 310 and 320: store one message, or a batch of them.

The answer tells where the message lies (its offset id), its queue and its number there. Under SYNC_FLUSH it
is given when the disk has the message; otherwise in the same step.
"""

import asyncio
import struct
from collections.abc import Callable, Generator, Iterator, Sequence

from rocket_broker.limits.refusal import Refusal
from rocket_broker.processors.batches import BatchPart, read_batch
from rocket_broker.processors.destinations import Destinations, is_exhausted
from rocket_broker.processors.waiting import (
    NO_IDS,
    WAITING_PROPERTIES,
    WAITING_QUEUE,
    WaitingIds,
    WaitingMessages,
    refuse_waiting_batch,
)
from rocket_broker.requests.request_steps import Steps
from rocket_broker.requests.serving import Answer
from rocket_broker.settings.broker_settings import BrokerSettings, FlushDiskType
from rocket_broker.statistics import BrokerStatistics
from rocket_broker.store.message_store import MessageStore
from rocket_broker.store.messages import PutResult, PutStatus, StoredRun
from rocket_broker.writing.batch_head import BatchHead
from rocket_broker.writing.message_writer import MessageWriter, properties_text
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import TopicConfig, TopicFilterType
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from rocket_remoting.wire.message import Host
from rocket_remoting.wire.message_id import pack_ip
from rocket_remoting.wire.properties import (
    PROPERTY_CLUSTER,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    decode_properties,
)
from rocket_remoting.wire.sys_flag import (
    MULTI_TAGS,
    TRANSACTION_NOT,
    with_transaction_value,
)
from rocket_remoting.wire.topics import RETRY_PREFIX

__all__ = ["SendProcessor", "put_refusal"]


class SendProcessor:
    """Stores what producers send."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        store: MessageStore,
        writer: MessageWriter,
        destinations: Destinations,
        statistics: BrokerStatistics,
        waiting: WaitingMessages,
        born_host: Callable[[Connection], Host],
    ) -> None:
        self._settings = settings
        self._store = store
        self._writer = writer
        self._waiting = waiting
        self._destinations = destinations
        self._statistics = statistics
        self._born_host = born_host
        self._waits_for_disk = settings.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._flushing: set[asyncio.Task[None]] = set()
        self._is_stopping = False
        host, port = writer.store_host
        self._id_prefix = (pack_ip(host) + port.to_bytes(4, "big")).hex().upper()

    def send(self, connection: Connection, command: RemotingCommand) -> Answer:
        """SEND_MESSAGE (10) and SEND_MESSAGE_V2 (310), either of which may carry a batch."""
        header: SendMessageRequestHeader
        if command.code == RequestCode.SEND_MESSAGE_V2:
            header = command.header(SendMessageRequestHeaderV2)
        else:
            header = command.header(SendMessageRequestHeader)
        if header.batch:
            return self._send_batch(connection, command, header)
        self._check_serving()
        config = self._destinations.topic(connection, header)
        queue_id = self._destinations.queue_id(connection, header, config)
        properties = decode_properties(header.properties or "")
        sys_flag = _sys_flag(header, config)
        waits_in = None
        if sys_flag or not WAITING_PROPERTIES.isdisjoint(properties):
            waits_in = self._waiting.topic(connection, header, properties)
            sys_flag = with_transaction_value(sys_flag, TRANSACTION_NOT)
        properties[PROPERTY_CLUSTER] = self._settings.broker_cluster_name
        topic, stored_queue_id = header.topic, queue_id
        if topic.startswith(RETRY_PREFIX):
            topic, stored_queue_id = self._retried(connection, command, header, queue_id, properties)
        if waits_in is not None and topic == header.topic:
            properties[PROPERTY_REAL_TOPIC] = topic
            properties[PROPERTY_REAL_QUEUE_ID] = str(queue_id)
            topic, stored_queue_id = waits_in, WAITING_QUEUE
        result = self._writer.put(
            topic,
            stored_queue_id,
            command.body,
            properties,
            flag=header.flag,
            sys_flag=sys_flag,
            born_timestamp=header.born_timestamp,
            born_host=self._born_host(connection),
            reconsume_times=header.reconsume_times or 0,
            keep_wait=waits_in is not None,
            may_delay=waits_in is None,
        )
        ids = NO_IDS
        if waits_in is not None:
            self._waiting.stored(connection, topic, properties, result)
            ids = self._waiting.ids(waits_in, properties)
        return self._answer(connection, command, self._stored(result), queue_id, ids)

    def send_batch(self, connection: Connection, command: RemotingCommand) -> Steps:
        """SEND_BATCH_MESSAGE (320)."""
        return self._send_batch(connection, command, command.header(SendMessageRequestHeaderV2))

    def _send_batch(
        self, connection: Connection, command: RemotingCommand, header: SendMessageRequestHeader
    ) -> Steps:
        batch = yield from self.read_batch(command.body)
        return (yield from self.put_batch(connection, command, header, batch))

    async def stop(self) -> None:
        """Refuse what is sent from now on; return when every sender that waits for the disk has its answer."""
        self._is_stopping = True
        while self._flushing:
            await asyncio.wait(self._flushing)

    def _check_serving(self) -> None:
        if self._is_stopping:
            raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "service not available now: the broker stops")

    def _retried(
        self,
        connection: Connection,
        command: RemotingCommand,
        header: SendMessageRequestHeader,
        queue_id: int,
        properties: dict[str, str],
    ) -> tuple[str, int]:
        """Return topic and queue of a message that a client gives back itself: its own, or the dead letters'."""
        group = header.topic.removeprefix(RETRY_PREFIX)
        config = self._destinations.group(connection, group)
        if not is_exhausted(command, header.reconsume_times or 0, header.max_reconsume_times, config):
            return header.topic, queue_id
        properties[PROPERTY_DELAY_TIME_LEVEL] = "0"
        return self._destinations.dead_letters(connection, group)

    def read_batch(self, body: bytes | memoryview) -> Generator[None, None, list[BatchPart]]:
        """Read a batch in steps; return its parts.

        Raises:
            Refusal: It is too large or malformed, or the broker stops.
        """
        self._check_serving()
        limit = self._settings.max_message_size
        if len(body) > limit:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the batch has {len(body)} bytes, at most {limit} can be sent at once",
            )
        return (yield from read_batch(body, by_columns=self._store.takes_runs))

    def put_batch(
        self,
        connection: Connection,
        command: RemotingCommand,
        header: SendMessageRequestHeader,
        batch: Sequence[BatchPart],
        *,
        first: int = 0,
        stored: Callable[[PutResult], None] | None = None,
    ) -> Steps:
        """Store the messages of a batch in steps, and answer.

        Args:
            connection: Where the batch came from.
            command: The request with the batch.
            header: Its header.
            batch: What `read_batch` returned.
            first: How many messages at the begin are left out.
            stored: Called when all are stored, with where the last one is.

        Raises:
            Refusal: A message was not stored. Those before it are, unless the batch itself is refused.
        """
        config = self._destinations.topic(connection, header)
        queue_id = self._destinations.queue_id(connection, header, config)
        common = decode_properties(header.properties or "")
        refuse_waiting_batch(header, common)
        if common.get(PROPERTY_DELAY_TIME_LEVEL, "0") != "0" or header.topic.startswith(RETRY_PREFIX):
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "a batch can neither be delayed nor be redelivered")
        for part in batch:
            if part.columns is None:
                self._waiting.refuse_timed(part.entries)
                yield
        common[PROPERTY_CLUSTER] = self._settings.broker_cluster_name
        head = BatchHead(
            header.topic,
            queue_id,
            properties_text(common).encode(),
            _sys_flag(header, config),
            header.born_timestamp,
            self._born_host(connection),
            header.reconsume_times or 0,
        )
        run = yield from self._put_parts(head, batch, first)
        answer = self._answer(connection, command, run, queue_id)
        if stored is not None:
            stored(run.last)
        return answer

    def _put_parts(
        self, head: BatchHead, batch: Sequence[BatchPart], first: int
    ) -> Generator[None, None, StoredRun]:
        """Store the messages of a batch from the ``first`` on; yield after each part, or message."""
        run: StoredRun | None = None
        for part in batch:
            left_out = min(first, len(part))
            first -= left_out
            for stored in self._put_part(head, part, left_out):
                if run is None:
                    run = stored
                else:
                    run.extend(stored)
                yield
        assert run is not None, "a batch of which everything is left out is not stored"
        return run

    def _put_part(self, head: BatchHead, part: BatchPart, left_out: int) -> Iterator[StoredRun]:
        """Store a part in one go if that is possible, else message by message."""
        if part.columns is not None and not left_out:
            run = self._writer.put_columns(head, part.columns)
            if run is not None:
                yield run
                return
        for entry in part.entries[left_out:]:
            yield self._stored(self._writer.put_entry(head, entry))

    def _stored(self, result: PutResult) -> StoredRun:
        if result.status is not PutStatus.OK:
            raise put_refusal(result.status, self._settings)
        return StoredRun.of(result)

    def _answer(
        self,
        connection: Connection,
        command: RemotingCommand,
        run: StoredRun,
        queue_id: int,
        ids: WaitingIds = NO_IDS,
    ) -> RemotingCommand | None:
        """Return the answer; None when the sender wants none, or gets it when the disk has the messages."""
        self._statistics.put_bytes += run.size
        self._statistics.put_messages += len(run.offsets)
        return self.answer_stored(connection, command, run, queue_id, ids)

    def answer_stored(
        self,
        connection: Connection,
        command: RemotingCommand,
        run: StoredRun,
        queue_id: int,
        ids: WaitingIds = NO_IDS,
    ) -> RemotingCommand | None:
        """Return the answer to messages that are stored; None as in `send`."""
        last = run.last
        if self._waits_for_disk and last.wait_store_ok and not command.is_oneway:
            command.body = b""  # it is stored: many wait for a slow disk
            task = asyncio.ensure_future(self._answer_when_flushed(connection, command, run, queue_id, ids))
            self._flushing.add(task)
            task.add_done_callback(self._flushing.discard)
            return None
        if command.is_oneway:
            return None
        return self._success(command, run, queue_id, last.status, ids)

    async def _answer_when_flushed(
        self,
        connection: Connection,
        command: RemotingCommand,
        run: StoredRun,
        queue_id: int,
        ids: WaitingIds,
    ) -> None:
        status = await self._store.await_flush(run.last)
        try:
            response = self._success(command, run, queue_id, status, ids)
        except Refusal as refusal:
            response = refusal.answer(command)
        if not connection.is_closed:
            connection.respond(response)

    def _success(
        self,
        command: RemotingCommand,
        run: StoredRun,
        queue_id: int,
        status: PutStatus,
        ids: WaitingIds,
    ) -> RemotingCommand:
        if status is PutStatus.OK:
            code = ResponseCode.SUCCESS
        elif status is PutStatus.FLUSH_DISK_TIMEOUT:
            code = ResponseCode.FLUSH_DISK_TIMEOUT
        else:
            raise put_refusal(status, self._settings)
        header = SendMessageResponseHeader(
            msg_id=self._offset_ids(run.offsets),
            queue_id=queue_id,
            queue_offset=run.queue_offset,
            transaction_id=ids.transaction_id,
            recall_handle=ids.recall_handle,
            msg_region=self._settings.region_id,
            trace_on=self._settings.trace_on,
        )
        return RemotingCommand.response(command, code, header)

    def _offset_ids(self, offsets: Sequence[int]) -> str:
        """Return the offset ids of messages: address and offset of each in hexadecimal, commas between them."""
        if len(offsets) == 1:
            return f"{self._id_prefix}{offsets[0]:016X}"
        digits = struct.pack(f">{len(offsets)}q", *offsets).hex(",", 8).upper()
        return self._id_prefix + digits.replace(",", f",{self._id_prefix}")


def put_refusal(status: PutStatus, settings: BrokerSettings) -> Refusal:
    """Return how a message that was not stored is refused."""
    if status in (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED):
        return Refusal(
            ResponseCode.MESSAGE_ILLEGAL,
            "the message is illegal, maybe msg body or properties length not matched. msg body length limit "
            f"{settings.max_message_size}B, msg properties length limit 32KB.",
        )
    if status is PutStatus.SERVICE_NOT_AVAILABLE:
        return Refusal(
            ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: message {status.value}"
        )
    if status is PutStatus.OS_PAGE_CACHE_BUSY:
        return Refusal(
            ResponseCode.SYSTEM_ERROR, "[PC_SYNCHRONIZED]broker busy, start flow control for a while"
        )
    return Refusal(ResponseCode.SYSTEM_ERROR, f"message {status.value}")


def _sys_flag(header: SendMessageRequestHeader, config: TopicConfig) -> int:
    return (
        header.sys_flag | MULTI_TAGS
        if config.topic_filter_type is TopicFilterType.MULTI_TAG
        else header.sys_flag
    )
