"""Requests for stored messages: to find them, to end and bring back transactions, to recall one, to consume one."""

import asyncio
import logging

from msgspec.structs import replace

from rocket_client.admin.requests import AdminRequests
from rocket_client.core.call import refusal
from rocket_remoting.wire.bodies import ConsumeMessageDirectlyResult, decode_body
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.compression import decompress
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    EndTransactionRequestHeader,
    QueryMessageRequestHeader,
    RecallMessageRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
    ViewMessageRequestHeader,
)
from rocket_remoting.wire.message import MessageExt
from rocket_remoting.wire.message_id import parse_offset_id
from rocket_remoting.wire.message_trace import TraceRecord, TraceType, decode_trace
from rocket_remoting.wire.properties import PROPERTY_PRODUCER_GROUP, PROPERTY_REAL_TOPIC
from rocket_remoting.wire.recall_handle import RecallHandle
from rocket_remoting.wire.record import decode_record, decode_records
from rocket_remoting.wire.sys_flag import COMPRESSED, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from rocket_remoting.wire.topics import TRACE_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC

__all__ = ["MessageRequests"]

logger = logging.getLogger(__name__)

_FOREVER_MS = (1 << 63) - 1


class MessageRequests(AdminRequests):
    """Requests for messages."""

    async def view_message(self, offset_message_id: str) -> MessageExt:
        """Return the message of the record that an offset message id names.

        Raises:
            RemoteProtocolError: The text is not an offset message id. For the id that a producer gave a message, use
                `query_by_unique_key`.
            ResponseError: The broker does not have the record any more.
        """
        self._life.require_running()
        _, _, offset = parse_offset_id(offset_message_id)
        response = await self._client.requests.invoke(
            _broker_of(offset_message_id), RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=offset)
        )
        (message,) = await self._unpacked([decode_record(response.body, decompress=False)])
        return message

    async def resume_transaction(self, offset_message_id: str) -> None:
        """Resume the checks of a transaction that the broker has given up; their count begins at 0 again.

        Args:
            offset_message_id: The `offset_message_id` of the message in topic TRANS_CHECK_MAX_TIME_TOPIC. The broker
                has logged it as well.

        Raises:
            RemoteProtocolError: The text is not an offset message id.
            ResponseError: It is not the id of a message in that topic, or the broker cannot store the message.
        """
        self._life.require_running()
        header = ResumeCheckHalfMessageRequestHeader(topic=TRANS_CHECK_MAX_TIME_TOPIC, msg_id=offset_message_id)
        await self._client.requests.invoke(_broker_of(offset_message_id), RequestCode.RESUME_CHECK_HALF_MESSAGE, header)

    async def end_transaction(self, half: MessageExt, *, commits: bool) -> None:
        """Commit or roll back the transaction of a half message, as its producer would after a check of the broker.

        Apache's brokers deliver the message once more if the transaction has committed before.

        Args:
            half: The record in topic RMQ_SYS_TRANS_HALF_TOPIC, as `view_message` returns it.
            commits: Whether consumers get the message; if not, it is discarded.

        Raises:
            ResponseError: The record's transaction is not open any more, or the broker cannot store its end.
        """
        self._life.require_running()
        header = EndTransactionRequestHeader(
            topic=half.properties.get(PROPERTY_REAL_TOPIC),
            producer_group=half.properties.get(PROPERTY_PRODUCER_GROUP, ""),
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.commit_log_offset,
            commit_or_rollback=TRANSACTION_COMMIT if commits else TRANSACTION_ROLLBACK,
            # Brokers of 5.x refuse a late end of a transaction with a time of its first check, unless it answers one.
            from_transaction_check=True,
            msg_id=half.msg_id,
            transaction_id=half.unique_key,
        )
        await self._client.requests.invoke(_broker_of(half.offset_message_id), RequestCode.END_TRANSACTION, header)

    async def consume_directly(
        self, offset_message_id: str, group: str, client_id: str, *, topic: str | None = None
    ) -> ConsumeMessageDirectlyResult:
        """Deliver one stored message to the listener of one member now, and return the outcome.

        The offsets of the group stay as they are, and a failure causes no redelivery.

        Args:
            offset_message_id: The id of the record.
            group: The group.
            client_id: The member, which is connected to the broker of the record.
            topic: The topic of the record.

        Raises:
            RemoteProtocolError: The text is not an offset message id.
            ResponseError: The broker does not have the record, or the member is not connected or does not answer.
        """
        self._life.require_running()
        header = ConsumeMessageDirectlyResultRequestHeader(
            consumer_group=group, client_id=client_id, msg_id=offset_message_id, topic=topic
        )
        response = await self._client.requests.invoke(
            _broker_of(offset_message_id), RequestCode.CONSUME_MESSAGE_DIRECTLY, header
        )
        return decode_body(response.body, ConsumeMessageDirectlyResult)

    async def recall_message(self, topic: str, unique_key: str, *, due_ms: int, broker_name: str) -> None:
        """Cancel a timed message that waits: nobody receives it. Success says that the broker has stored the request.

        Args:
            topic: The topic that the message is to come into.
            unique_key: The id that the producer gave it.
            due_ms: The time of its delivery, which is its property TIMER_OUT_MS, in milliseconds since 1970.
            broker_name: The broker where it waits.

        Raises:
            ResponseError: The broker does not cancel messages (Apache's do from 5.3 on, if recallMessageEnable is
                true), or the message is due.
            ValueError: No master of the broker is registered.
        """
        address = (await self.masters([broker_name]))[broker_name]
        handle = RecallHandle(topic, broker_name, due_ms + 1, unique_key).encode()
        header = RecallMessageRequestHeader(topic=topic, recall_handle=handle)
        await self._client.requests.invoke(address, RequestCode.RECALL_MESSAGE, header)

    async def query_by_key(
        self, topic: str, key: str, *, max_count: int = 32, begin_ms: int = 0, end_ms: int = _FOREVER_MS
    ) -> list[MessageExt]:
        """Return the topic's messages with a key.

        Args:
            topic: The topic.
            key: The key.
            max_count: Maximum number of messages that each broker returns.
            begin_ms: The earliest store time, in milliseconds since the epoch.
            end_ms: The latest store time, in milliseconds since the epoch.

        Raises:
            TopicNotFoundError: The topic does not exist.
        """
        found = await self._query(topic, key, max_count, begin_ms, end_ms, unique=False)
        return [message for message in found if key in (message.keys or "").split(" ")]

    async def query_by_unique_key(self, topic: str, unique_key: str) -> list[MessageExt]:
        """Return the topic's records of the message with a unique id, which a producer gave it.

        Raises:
            TopicNotFoundError: The topic does not exist.
        """
        found = await self._query(topic, unique_key, 32, 0, _FOREVER_MS, unique=True)
        return [message for message in found if message.unique_key == unique_key]

    async def message_trace(self, msg_id: str, *, topic: str = TRACE_TOPIC, max_count: int = 64) -> list[TraceRecord]:
        """Return the trace of a message: its send, its listener calls and the end of its transaction, oldest first.

        Args:
            msg_id: The unique id that the producer gave the message.
            topic: The topic that the clients write traces to.
            max_count: Maximum number of stored messages with traces that each broker returns.

        Raises:
            TopicNotFoundError: The topic does not exist.
        """
        found: list[TraceRecord] = []
        for message in await self.query_by_key(topic, msg_id, max_count=max_count):
            host, port = message.born_host
            records = decode_trace(bytes(message.body).decode("utf-8", "replace"))
            found += [replace(each, client_host=f"{host}:{port}") for each in records if each.msg_id == msg_id]
        order = list(TraceType)
        return sorted(found, key=lambda record: (record.time_ms, order.index(record.type)))

    async def _query(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int, *, unique: bool
    ) -> list[MessageExt]:
        header = QueryMessageRequestHeader(
            topic=topic,
            key=key,
            max_num=max_count,
            begin_timestamp=begin_ms,
            end_timestamp=end_ms,
            unique_key_query=unique,
        )
        messages: list[MessageExt] = []
        for address in await self._brokers_of(topic):
            connection = await self._client.brokers.to(address)
            response = await connection.invoke(
                RequestCode.QUERY_MESSAGE,
                header,
                timeout=self.settings.request_timeout.total_seconds(),
            )
            if response.code == ResponseCode.QUERY_NOT_FOUND:
                continue
            if response.code != ResponseCode.SUCCESS:
                raise refusal(response, address, RequestCode.QUERY_MESSAGE)
            messages += decode_records(response.body, decompress=False)
        return await self._unpacked(messages)

    async def _unpacked(self, messages: list[MessageExt]) -> list[MessageExt]:
        """Return the messages with their bodies decompressed, up to `max_decompressed_size` bytes.

        A body that is damaged or does not fit any more stays compressed, as the message's system flag then says.
        """
        loop, free = asyncio.get_running_loop(), self.settings.max_decompressed_size
        for message in messages:
            if message.sys_flag & COMPRESSED:
                limit = min(free, self.settings.max_decompressed_body_size)
                try:
                    body = await loop.run_in_executor(None, decompress, message.body, message.sys_flag, limit)
                except RemoteProtocolError as error:
                    logger.warning("the body of %r stays compressed: %s", message, error)
                    continue
                message.body = body
                message.sys_flag &= ~COMPRESSED
                free -= len(body)
        return messages


def _broker_of(offset_message_id: str) -> str:
    """Return the address of the broker that gave a message this id.

    Raises:
        RemoteProtocolError: The text is not an offset message id.
    """
    host, port, _ = parse_offset_id(offset_message_id)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
