"""Requests 324 and 325: the reply to a request message, forwarded to the client that sent the request.

::

    requester ──SEND_MESSAGE──► broker ──pull──► responder
        ▲                                            │ SEND_REPLY_MESSAGE (its topic: <cluster>_REPLY_TOPIC)
        └───PUSH_REPLY_MESSAGE_TO_CLIENT── broker ◄──┘

The property REPLY_TO_CLIENT of the reply names the requester's client id. The broker pushes the reply over that
client's own connection, stores the reply for inspection (``storeReplyMessageEnable``), and answers the responder when
the client has answered the push.
"""

import asyncio
import logging

from rocket_broker.limits.owner_quota import OwnerQuota
from rocket_broker.limits.refusal import Refusal
from rocket_broker.processors.born_host import born_host
from rocket_broker.processors.broker_context import BrokerContext
from rocket_broker.processors.destinations import Destinations
from rocket_broker.processors.send import put_refusal
from rocket_broker.store.messages import PutStatus
from rocket_broker.writing.message_writer import properties_text
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.codes import RequestCode, ResponseCode, response_name
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import RemotingError
from rocket_remoting.wire.headers import (
    ReplyMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from rocket_remoting.wire.message_id import create_offset_id
from rocket_remoting.wire.properties import (
    PROPERTY_MESSAGE_REPLY_TO_CLIENT,
    PROPERTY_PUSH_REPLY_TIME,
    decode_properties,
)
from rocket_remoting.wire.sys_flag import TRANSACTION_NOT, with_transaction_value

__all__ = ["ReplyProcessor"]

logger = logging.getLogger(__name__)

PUSH_SECONDS = 10.0
MAX_PUSHES = 4096
MAX_PUSHED_BYTES = 64 * 1024 * 1024
"""Bytes of the bodies of all pushes under way, so that clients that do not answer cannot fill the memory. One address
has a quarter of the pushes and of the bytes."""
NOT_STORED = "0"
"""The message id of a reply that is not stored: clients cannot decode an answer without a message id."""


class ReplyProcessor:
    """Forwards replies to the clients that wait for them."""

    def __init__(self, context: BrokerContext, destinations: Destinations) -> None:
        self._settings = context.settings
        self._clock = context.clock
        self._writer = context.writer
        self._destinations = destinations
        self._producers = context.producers
        self._statistics = context.statistics
        self._pushes: set[asyncio.Task[None]] = set()
        self._pushed_bytes = 0
        self._quota = OwnerQuota("replies that wait for clients", lambda: MAX_PUSHES)
        self._byte_quota = OwnerQuota("bytes of replies that wait for clients", lambda: MAX_PUSHED_BYTES)

    def reply(self, connection: Connection, command: RemotingCommand) -> None:
        """SEND_REPLY_MESSAGE (324) and SEND_REPLY_MESSAGE_V2 (325): push the reply; the answer is sent later."""
        header: SendMessageRequestHeader
        if command.code == RequestCode.SEND_REPLY_MESSAGE_V2:
            header = command.header(SendMessageRequestHeaderV2)
        else:
            header = command.header(SendMessageRequestHeader)
        config = self._destinations.topic(connection, header)
        header.queue_id = self._destinations.queue_id(connection, header, config)
        size = len(command.body)
        if size > self._settings.max_message_size:
            raise put_refusal(PutStatus.MESSAGE_ILLEGAL, self._settings)
        if len(self._pushes) >= MAX_PUSHES or self._pushed_bytes + size > MAX_PUSHED_BYTES:
            raise Refusal(
                ResponseCode.SYSTEM_BUSY,
                f"{len(self._pushes)} replies of {self._pushed_bytes} bytes wait for clients that do not answer",
            )
        self._quota.check(1, connection.counted_as, code=ResponseCode.SYSTEM_BUSY)
        self._byte_quota.check(size, connection.counted_as, code=ResponseCode.SYSTEM_BUSY)
        self._count(connection, 1, size)
        task = asyncio.ensure_future(self._carry(connection, command, header))
        self._pushes.add(task)
        task.add_done_callback(self._pushes.discard)
        task.add_done_callback(lambda _: self._count(connection, -1, -size))

    def _count(self, connection: Connection, number: int, size: int) -> None:
        self._pushed_bytes += size
        self._quota.count(number, connection.counted_as)
        self._byte_quota.count(size, connection.counted_as)

    async def stop(self) -> None:
        """Cancel the pushes under way."""
        for push in self._pushes:
            push.cancel()
        await asyncio.gather(*self._pushes, return_exceptions=True)

    async def _carry(self, connection: Connection, command: RemotingCommand, header: SendMessageRequestHeader) -> None:
        problem = await self._push(connection, command, header)
        answer = SendMessageResponseHeader(
            msg_id=NOT_STORED,
            queue_id=header.queue_id,
            queue_offset=0,
            msg_region=self._settings.region_id,
            trace_on=self._settings.trace_on,
        )
        if self._settings.store_reply_message_enable:
            self._store(connection, command, header, answer)
        code = ResponseCode.SUCCESS if problem is None else ResponseCode.SYSTEM_ERROR
        if not command.is_oneway and not connection.is_closed:
            connection.respond(RemotingCommand.response(command, code, answer, remark=problem))

    async def _push(
        self, connection: Connection, command: RemotingCommand, header: SendMessageRequestHeader
    ) -> str | None:
        """Push the reply to the requester; return None on success, or the reason of the failure."""
        properties = decode_properties(header.properties or "")
        asker = properties.get(PROPERTY_MESSAGE_REPLY_TO_CLIENT)
        if asker is None:
            return f"reply message properties[{PROPERTY_MESSAGE_REPLY_TO_CLIENT}] is null"
        client = self._producers.find(asker)
        if client is None or client.connection.is_closed:
            return f"push reply message fail, channel of <{asker}> not found."
        now = self._clock.now_ms()
        pushed = self._pushed(connection, header, properties | {PROPERTY_PUSH_REPLY_TIME: str(now)}, now)
        code = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
        try:
            answer = await client.connection.invoke(code, pushed, bytes(command.body), timeout=PUSH_SECONDS)
        except RemotingError as e:
            logger.warning("reply to %s not delivered: %s", asker, e)
            return f"push reply message to {asker} fail: {e}"
        if answer.code == ResponseCode.SUCCESS:
            return None
        return f"push reply message to {asker} fail: {response_name(answer.code)} {answer.remark or ''}".rstrip()

    def _pushed(
        self, connection: Connection, header: SendMessageRequestHeader, properties: dict[str, str], now: int
    ) -> ReplyMessageRequestHeader:
        born, store = born_host(connection), self._writer.store_host
        return ReplyMessageRequestHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            properties=properties_text(properties),
            reconsume_times=header.reconsume_times,
            unit_mode=header.unit_mode,
            born_host=f"{born[0]}:{born[1]}",
            store_host=f"{store[0]}:{store[1]}",
            store_timestamp=now,
        )

    def _store(
        self,
        connection: Connection,
        command: RemotingCommand,
        header: SendMessageRequestHeader,
        answer: SendMessageResponseHeader,
    ) -> None:
        """Store the reply. The reply counts as delivered by its push, so a failure of the store is only logged."""
        result = self._writer.put(
            header.topic,
            header.queue_id,
            command.body,
            decode_properties(header.properties or ""),
            flag=header.flag,
            sys_flag=with_transaction_value(header.sys_flag, TRANSACTION_NOT),
            born_timestamp=header.born_timestamp,
            born_host=born_host(connection),
            reconsume_times=header.reconsume_times or 0,
            may_delay=False,
        )
        if result.status is not PutStatus.OK:
            logger.warning("a reply to %s: message %s", header.topic, result.status.value)
            return
        self._statistics.puts[header.topic].count(1, result.size)
        host, port = self._writer.store_host
        answer.msg_id = create_offset_id(host, port, result.commit_log_offset)
        answer.queue_offset = result.queue_offset
