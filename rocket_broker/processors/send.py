"""Requests 10, 310 and 320: store one message or a batch.

The answer has the message's offset id, its queue and its queue offset. With SYNC_FLUSH the answer is sent once the
message is on the disk, with SYNC_MASTER once a slave has it; otherwise at once.
"""

import asyncio
import struct
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from functools import partial
from typing import Any

from msgspec import structs

from rocket_broker import put_times
from rocket_broker.limits.refusal import Refusal
from rocket_broker.loop.watchdog import Watchdog
from rocket_broker.processors.batches import BatchPart, read_batch
from rocket_broker.processors.born_host import born_host
from rocket_broker.processors.broker_context import BrokerContext
from rocket_broker.processors.destinations import Destinations, is_exhausted
from rocket_broker.processors.origin_properties import origin_properties
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
from rocket_broker.settings.broker_settings import BrokerRole, BrokerSettings, FlushDiskType
from rocket_broker.store.messages import PutResult, PutStatus, StoredRun
from rocket_broker.writing.batch_head import BatchHead
from rocket_broker.writing.message_writer import properties_text
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import TopicConfig, TopicFilterType
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import Buffer, RemotingCommand
from rocket_remoting.wire.frame_decoder import FrameDecoder
from rocket_remoting.wire.headers import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from rocket_remoting.wire.message_id import pack_ip
from rocket_remoting.wire.properties import (
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
from rocket_remoting.wire.topics import RETRY_PREFIX, SCHEDULE_TOPIC

__all__ = ["SendProcessor", "put_refusal"]

_STORED_CODES = {
    PutStatus.OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
}
"""The codes of answers about messages that are stored."""


class SendProcessor:
    """Stores the messages of producers.

    Attributes:
        is_stopping: Whether further messages are refused, because the broker stops.
        answers_later: Whether answers are sent once the messages are on the disk (SYNC_FLUSH) or on a slave
            (SYNC_MASTER).
        id_prefix: What the offset ids of all messages begin with: the broker's address in hexadecimal digits.
    """

    def __init__(self, context: BrokerContext, destinations: Destinations, waiting: WaitingMessages) -> None:
        self._settings = context.settings
        self._store = context.store
        self._writer = context.writer
        self._waiting = waiting
        self._destinations = destinations
        self._statistics = context.statistics
        self.answers_later = (
            context.settings.flush_disk_type is FlushDiskType.SYNC_FLUSH
            or context.settings.broker_role is BrokerRole.SYNC_MASTER
        )
        self._flushing: set[asyncio.Future[Any]] = set()
        self.is_stopping = False
        host, port = context.writer.store_host
        self.id_prefix = (pack_ip(host) + port.to_bytes(4, "big")).hex().upper()

    def send(self, connection: Connection, command: RemotingCommand) -> Answer:
        """SEND_MESSAGE (10) and SEND_MESSAGE_V2 (310): store a message; either request may carry a batch."""
        header: SendMessageRequestHeader
        if command.code == RequestCode.SEND_MESSAGE_V2:
            header = command.header(SendMessageRequestHeaderV2)
        else:
            header = command.header(SendMessageRequestHeader)
        if header.batch:
            return self._send_batch(connection, command, header)
        # Before anything is created: `topic` below may make a new topic.
        self._check_serving()
        config = self._destinations.topic(connection, header)
        queue_id = self._destinations.queue_id(connection, header, config)
        properties = decode_properties(header.properties or "")
        sys_flag = _sys_flag(header, config)
        waits_in = None
        if sys_flag or not WAITING_PROPERTIES.isdisjoint(properties):
            waits_in = self._waiting.topic(connection, header, properties)
            sys_flag = with_transaction_value(sys_flag, TRANSACTION_NOT)
        properties.update(origin_properties(self._settings))
        topic, stored_queue_id = header.topic, queue_id
        if topic.startswith(RETRY_PREFIX):
            topic, stored_queue_id = self._retried(connection, command, header, queue_id, properties)
        # A message that `_retried` has moved to the dead letters does not wait.
        if waits_in is not None and topic == header.topic:
            properties[PROPERTY_REAL_TOPIC] = topic
            properties[PROPERTY_REAL_QUEUE_ID] = str(queue_id)
            topic, stored_queue_id = waits_in, WAITING_QUEUE
        began = Watchdog.clock()
        result = self._writer.put(
            topic,
            stored_queue_id,
            command.body,
            properties,
            flag=header.flag,
            sys_flag=sys_flag,
            born_timestamp=header.born_timestamp,
            born_host=born_host(connection),
            reconsume_times=header.reconsume_times or 0,
            keep_wait=waits_in is not None,
            may_delay=waits_in is None,
        )
        self._note_time(began, 1)
        ids = NO_IDS
        if waits_in is not None:
            self._waiting.stored(connection, topic, properties, result)
            ids = self._waiting.ids(waits_in, properties)
        elif properties.get(PROPERTY_DELAY_TIME_LEVEL, "0") != "0":
            topic = SCHEDULE_TOPIC
        return self._answer(connection, command, self._stored(result), topic, queue_id, ids=ids)

    def send_batch(self, connection: Connection, command: RemotingCommand) -> Steps:
        """SEND_BATCH_MESSAGE (320): store a batch in steps."""
        return self._send_batch(connection, command, command.header(SendMessageRequestHeaderV2))

    def _send_batch(self, connection: Connection, command: RemotingCommand, header: SendMessageRequestHeader) -> Steps:
        batch = yield from self.read_batch(command.body)
        return (yield from self.put_batch(connection, command, header, batch))

    async def stop(self) -> None:
        """Refuse further messages, and wait until every sender that waits for the disk or a slave has its answer."""
        self.is_stopping = True
        # A loop, because a request that was being handled in steps may still add a task.
        while self._flushing:
            await asyncio.wait(self._flushing)

    def _check_serving(self) -> None:
        if self.is_stopping:
            raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "service not available now: the broker stops")

    def _retried(
        self,
        connection: Connection,
        command: RemotingCommand,
        header: SendMessageRequestHeader,
        queue_id: int,
        properties: dict[str, str],
    ) -> tuple[str, int]:
        """Return topic and queue for a message that a client sends to a retry topic itself.

        That is the retry topic, or the group's dead letter topic once the message's redeliveries are exhausted.
        """
        group = header.topic.removeprefix(RETRY_PREFIX)
        config = self._destinations.group(connection, group)
        if not is_exhausted(command, header.reconsume_times or 0, header.max_reconsume_times, config):
            return header.topic, queue_id
        # A dead letter must not be delayed, whatever level the message was sent with.
        properties[PROPERTY_DELAY_TIME_LEVEL] = "0"
        return self._destinations.dead_letters(connection, group)

    def read_batch(self, body: bytes | memoryview) -> Generator[None, None, list[BatchPart]]:
        """Divide a batch into parts, in steps; return the parts.

        Raises:
            Refusal: The batch is too large or malformed, or the broker stops.
        """
        self._check_serving()
        limit = self._settings.max_message_size
        if len(body) > limit:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the batch has {len(body)} bytes, at most {limit} can be sent at once",
            )
        return (yield from read_batch(body, at_once=self._store.takes_runs))

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
            connection: The sender's connection.
            command: The request with the batch.
            header: The header of the request.
            batch: The parts that `read_batch` returned.
            first: Number of messages to skip at the beginning.
            stored: Called with the result of the last message once all messages are stored.

        Raises:
            Refusal: The batch was refused as a whole, or a message was not stored. In the second case the messages
                before that one are stored.
        """
        config = self._destinations.topic(connection, header)
        queue_id = self._destinations.queue_id(connection, header, config)
        common = decode_properties(header.properties or "")
        refuse_waiting_batch(header, common)
        if common.get(PROPERTY_DELAY_TIME_LEVEL, "0") != "0" or header.topic.startswith(RETRY_PREFIX):
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "a batch can neither be delayed nor be redelivered")
        for part in batch:
            if part.plain is None:
                self._waiting.refuse_timed(part.entries)
                yield
        common.update(origin_properties(self._settings))
        head = BatchHead(
            header.topic,
            queue_id,
            properties_text(common).encode(),
            _sys_flag(header, config),
            header.born_timestamp,
            born_host(connection),
            header.reconsume_times or 0,
        )
        run = yield from self._put_parts(head, batch, first)
        answer = self._answer(connection, command, run, header.topic, queue_id)
        if stored is not None:
            stored(run.last)
        return answer

    def _put_parts(self, head: BatchHead, batch: Sequence[BatchPart], first: int) -> Generator[None, None, StoredRun]:
        """Store the messages of a batch from number ``first`` on; yield after each stored part or message."""
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
        """Store a part at once if all its messages are plain, otherwise message by message."""
        if part.plain is not None and not left_out:
            began = Watchdog.clock()
            run = self._writer.put_plain(head, part.plain)
            if run is not None:
                self._note_time(began, len(part))
                yield run
                return
        for entry in part.entries[left_out:]:
            yield self._stored(self._writer.put_entry(head, entry))

    def _note_time(self, began: float, messages: int) -> None:
        """Note how long storing messages took, if it was not fast."""
        seconds = Watchdog.clock() - began
        if seconds >= put_times.FAST_SECONDS:
            self._statistics.put_times.note(seconds, messages)

    def _stored(self, result: PutResult) -> StoredRun:
        if result.status is not PutStatus.OK:
            self._statistics.put_failures += 1
            raise put_refusal(result.status, self._settings)
        return StoredRun.of(result)

    def _answer(
        self,
        connection: Connection,
        command: RemotingCommand,
        run: StoredRun,
        topic: str,
        queue_id: int,
        *,
        ids: WaitingIds = NO_IDS,
    ) -> RemotingCommand | None:
        """Count the messages and return the answer; None if it is sent later or the request is one-way.

        Args:
            connection: The sender's connection.
            command: The request.
            run: The places of the messages.
            topic: The topic that they are stored in.
            queue_id: The queue that they were sent to.
            ids: The ids of a message that waits.
        """
        self._statistics.puts[topic].count(len(run.offsets), run.size)
        return self.answer_stored(connection, command, run, queue_id, ids)

    def answer_stored(
        self,
        connection: Connection,
        command: RemotingCommand,
        run: StoredRun,
        queue_id: int,
        ids: WaitingIds = NO_IDS,
    ) -> RemotingCommand | None:
        """Return the answer for stored messages; None if it is sent after the flush or the request is one-way."""
        last = run.last
        # One flush answers for the whole run: the log is flushed and copied in order, so with the last message
        # all are on the disk or on the slave.
        if self.answers_later and last.wait_store_ok and not command.is_oneway:
            command.body = b""  # free it: with a slow disk many requests wait here
            self._answer_later(self._answer_when_flushed(connection, command, run, queue_id, ids))
            return None
        if command.is_oneway:
            return None
        return self._success(command, run, queue_id, last.status, ids)

    def answer_when_safe(
        self, connection: Connection, command: RemotingCommand, result: PutResult
    ) -> RemotingCommand | None:
        """Return an empty answer for a message that was stored for its client; None if it is sent later.

        Under SYNC_FLUSH and with a SYNC_MASTER the answer waits as those to sends do, whatever the message's `WAIT` is.
        The message is stored in any case, so the answer is SUCCESS also if disk or slave have not confirmed it in time.
        """
        answer = RemotingCommand.response(command)
        if not self.answers_later or command.is_oneway:
            return answer
        self._answer_later(self._answer_safe(connection, answer, structs.replace(result, wait_store_ok=True)))
        return None

    async def _answer_safe(self, connection: Connection, answer: RemotingCommand, result: PutResult) -> None:
        await self._store.await_flush(result)
        if not connection.is_closed:
            connection.respond(answer)

    def answer_when_flushed(self, last: PutResult, answers: Sequence[tuple[Connection, bytes]]) -> None:
        """Send the answers to messages that were stored together, once they are on the disk or on a slave.

        Args:
            last: The result of the last message.
            answers: For each connection the frames of its answers, if the messages get there in time.
        """
        store = self._store
        if store.replicate is None and store.settings.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            # Without a task for each run: there are many, and most of them are small.
            flushed = store.begin_flush_to(last.commit_log_offset + last.size)
            self._flushing.add(flushed)
            flushed.add_done_callback(partial(self._send_flushed, answers))
        else:
            self._answer_later(self._send_when_flushed(last, answers))

    def _send_flushed(self, answers: Sequence[tuple[Connection, bytes]], flushed: "asyncio.Future[bool]") -> None:
        self._flushing.discard(flushed)
        self._send_stored(PutStatus.OK if flushed.result() else PutStatus.FLUSH_DISK_TIMEOUT, answers)

    async def _send_when_flushed(self, last: PutResult, answers: Sequence[tuple[Connection, bytes]]) -> None:
        self._send_stored(await self._store.await_flush(last), answers)

    @staticmethod
    def _send_stored(status: PutStatus, answers: Sequence[tuple[Connection, bytes]]) -> None:
        for connection, frames in answers:
            connection.respond_encoded(frames if status is PutStatus.OK else _with_code(frames, _STORED_CODES[status]))

    def _answer_later(self, answering: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(answering)
        self._flushing.add(task)
        task.add_done_callback(self._flushing.discard)

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
        code = _STORED_CODES.get(status)
        if code is None:
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
        """Return the offset ids of messages, separated by commas: each has address and offset in hexadecimal."""
        if len(offsets) == 1:
            return f"{self.id_prefix}{offsets[0]:016X}"
        digits = struct.pack(f">{len(offsets)}q", *offsets).hex(",", 8).upper()
        return self.id_prefix + digits.replace(",", f",{self.id_prefix}")


def put_refusal(status: PutStatus, settings: BrokerSettings) -> Refusal:
    """Return the refusal of a message that was not stored."""
    if status in (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED):
        return Refusal(
            ResponseCode.MESSAGE_ILLEGAL,
            "the message is illegal, maybe msg body or properties length not matched. msg body length limit "
            f"{settings.max_message_size}B, msg properties length limit 32KB.",
        )
    if status is PutStatus.SERVICE_NOT_AVAILABLE:
        return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: message {status.value}")
    if status is PutStatus.OS_PAGE_CACHE_BUSY:
        return Refusal(ResponseCode.SYSTEM_ERROR, "[PC_SYNCHRONIZED]broker busy, start flow control for a while")
    return Refusal(ResponseCode.SYSTEM_ERROR, f"message {status.value}")


def _with_code(answers: bytes, code: ResponseCode) -> bytes:
    """Return answers with another code: that the messages are stored, and not on the disk or a slave in time."""
    frames: list[Buffer] = []
    for answer in FrameDecoder().feed(answers):
        answer.code = code
        frames += answer.encode()
    return b"".join(frames)


def _sys_flag(header: SendMessageRequestHeader, config: TopicConfig) -> int:
    return header.sys_flag | MULTI_TAGS if config.topic_filter_type is TopicFilterType.MULTI_TAG else header.sys_flag
