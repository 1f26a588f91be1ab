"""Requests 223, 307 and 309: requests of tools to consumers, relayed by the broker.

The broker sends the request to the consumer over the consumer's own connection, and answers the tool when the
consumer has answered.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from rocket_broker.clients.client_channel import ClientChannel
from rocket_broker.limits.owner_quota import OwnerQuota
from rocket_broker.limits.refusal import Refusal
from rocket_broker.loop.loop_steps import collected, run_in_steps
from rocket_broker.processors.broker_context import BrokerContext
from rocket_broker.requests.long_answer import MAX_ANSWER
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import (
    Entries,
    GetConsumerStatusBody,
    LongBody,
    decode_steps,
    encode_in_pieces,
)
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import RemoteProtocolError, RemotingError, RequestTimeout
from rocket_remoting.wire.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    Header,
)
from rocket_remoting.wire.message import MessageQueue
from rocket_remoting.wire.message_id import parse_offset_id

__all__ = ["RelayProcessor"]

logger = logging.getLogger(__name__)

STATUS_SECONDS = 5.0
CALL_SECONDS = 10.0
ASKED_AT_ONCE = 32
"""Group members that are asked in one turn of the loop, which takes one or two milliseconds."""
MAX_STATUS = 1024 * 1024
"""Maximum bytes of a consumer's answer about its offsets, some 12,000 queues. One answer to the tool holds all."""
MAX_CALLS = 256
"""Maximum number of relayed requests under way, since each may carry a message. One address has a quarter at most."""


class RelayProcessor:
    """Relays tools' requests to live consumers."""

    def __init__(self, context: BrokerContext) -> None:
        self._broker_name = context.settings.broker_name
        self._store = context.store
        self._consumers = context.consumers
        self._answered = context.answered_later
        self._calls: set[asyncio.Task[None]] = set()
        self._quota = OwnerQuota("requests to consumers under way", lambda: MAX_CALLS)

    def consumer_status(self, connection: Connection, command: RemotingCommand) -> None:
        """INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223): the offsets that each live member has in memory.

        Members that do not answer within `STATUS_SECONDS` are left out.
        """
        header = command.header(GetConsumerStatusRequestHeader)
        members = self._consumers.open_members(header.group)
        if header.client_addr:
            members = [member for member in members if member.client_id == header.client_addr]
        if not members:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{header.group}]")
        self._check_capacity(connection)
        self._start(connection, self._answer_status(connection, command, header, members))

    def running_info(self, connection: Connection, command: RemotingCommand) -> None:
        """GET_CONSUMER_RUNNING_INFO (307): relay a consumer's own report."""
        header = command.header(GetConsumerRunningInfoRequestHeader)
        self._check_capacity(connection)
        member = self._member(header.consumer_group, header.client_id)
        self._start(connection, self._answer_call(connection, command, member, header, command.body))

    def consume_directly(self, connection: Connection, command: RemotingCommand) -> None:
        """CONSUME_MESSAGE_DIRECTLY (309): have one consumer handle one stored message now."""
        self._check_capacity(connection)
        header = command.header(ConsumeMessageDirectlyResultRequestHeader)
        member = self._member(header.consumer_group, header.client_id or "")
        header.broker_name = self._broker_name
        try:
            _, _, offset = parse_offset_id(header.msg_id or "")
        except RemoteProtocolError as e:
            raise Refusal(ResponseCode.SYSTEM_ERROR, str(e)) from None
        record = self._store.message_at(offset)
        if record is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        self._start(connection, self._answer_call(connection, command, member, header, bytes(record)))

    async def stop(self) -> None:
        """Cancel the relayed requests under way."""
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    def _member(self, group_name: str, client_id: str) -> ClientChannel:
        group = self._consumers.get(group_name)
        member = group.find(client_id) if group is not None else None
        if member is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group_name}> <{client_id}> not online")
        if member.connection.is_stalled:  # a further frame could close its connection
            raise Refusal(
                ResponseCode.SYSTEM_BUSY,
                f"The Consumer <{group_name}> <{client_id}> does not read its connection",
            )
        return member

    def _check_capacity(self, connection: Connection) -> None:
        if len(self._calls) >= MAX_CALLS:
            raise Refusal(
                ResponseCode.SYSTEM_BUSY,
                f"broker busy: {MAX_CALLS} requests of tools wait for answers of consumers",
            )
        self._quota.check(1, connection.counted_as, code=ResponseCode.SYSTEM_BUSY)

    def _start(self, connection: Connection, call: Coroutine[Any, Any, None]) -> None:
        owner = connection.counted_as
        self._quota.count(1, owner)
        task = asyncio.ensure_future(call)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        task.add_done_callback(lambda _: self._quota.count(-1, owner))

    async def _answer_status(
        self,
        connection: Connection,
        command: RemotingCommand,
        header: GetConsumerStatusRequestHeader,
        members: list[ClientChannel],
    ) -> None:
        asked = GetConsumerStatusRequestHeader(topic=header.topic, group=header.group)
        budget = _ByteBudget(MAX_ANSWER)
        asking: list[asyncio.Task[dict[MessageQueue, int] | None]] = []
        for number, member in enumerate(members, 1):
            asking.append(asyncio.ensure_future(self._status(member, asked, budget)))
            if not number % ASKED_AT_ONCE:
                await asyncio.sleep(0)
        answers = await asyncio.gather(*asking)
        tables = ((m.client_id, answer) for m, answer in zip(members, answers, strict=True))
        found = {client_id: Entries(answer.items()) for client_id, answer in tables if answer is not None}
        body = LongBody(GetConsumerStatusBody(), consumer_table=Entries(found.items()))
        pieces = await run_in_steps("encoding the status of consumers", collected(encode_in_pieces(body)))
        connection.respond(RemotingCommand.response(command, parts=pieces))

    async def _status(
        self, member: ClientChannel, header: GetConsumerStatusRequestHeader, budget: "_ByteBudget"
    ) -> dict[MessageQueue, int] | None:
        code = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
        try:
            answer = await member.connection.invoke(code, header, timeout=STATUS_SECONDS)
            if not budget.take(min(len(answer.body), MAX_STATUS + 1)) or len(answer.body) > MAX_STATUS:
                logger.warning("no status from %r: its answer has %d bytes", member, len(answer.body))
                return None
            steps = decode_steps(answer.body, GetConsumerStatusBody)
            return (await run_in_steps("decoding the status of a consumer", steps)).message_queue_table
        except RemotingError as e:
            logger.warning("no status from %r: %s", member, e)
            return None

    async def _answer_call(
        self,
        connection: Connection,
        command: RemotingCommand,
        member: ClientChannel,
        header: Header,
        body: bytes | memoryview,
    ) -> None:
        who = f"consumer <{member.client_id}>"
        try:
            answer = await member.connection.invoke(command.code, header, body, timeout=CALL_SECONDS)
            response = RemotingCommand.response(
                command, answer.code, body=answer.body, remark=answer.remark, ext_fields=answer.ext_fields
            )
        except RequestTimeout as e:
            refusal = Refusal(ResponseCode.CONSUME_MSG_TIMEOUT, f"{who} Timeout: {e}")
            response = refusal.answer(command)
        except RemotingError as e:
            response = Refusal(ResponseCode.SYSTEM_ERROR, f"invoke {who} Exception: {e}").answer(command)
        self._answered(command, response)
        connection.respond(response)


class _ByteBudget:
    """The bytes of consumers' answers that may still be read for one request."""

    def __init__(self, size: int) -> None:
        self._left = size

    def take(self, size: int) -> bool:
        """Take bytes off the budget; return False if fewer are left."""
        if size > self._left:
            return False
        self._left -= size
        return True
