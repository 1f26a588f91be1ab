"""Requests 222, 223, 307 and 309: what tools ask of consumers, asked through their broker.

The broker pushes the request to the consumer over the consumer's own connection, and answers when the
consumer has.
"""

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from typing import Any

from rocket_broker.client_channel import ClientChannel
from rocket_broker.consumer_offset_table import ConsumerOffsetTable
from rocket_broker.consumer_table import ConsumerTable
from rocket_broker.refusal import Refusal
from rocket_broker.settings import BrokerSettings
from rocket_broker.shares import Shares
from rocket_broker.store.message_store import MessageStore
from rocket_broker.subscription_group_table import SubscriptionGroupTable
from rocket_broker.topic_table import TopicTable
from rocket_remoting.bodies import (
    GetConsumerStatusBody,
    MessageQueueForC,
    ResetOffsetBody,
    ResetOffsetBodyForC,
    decode_body,
    encode_body,
)
from rocket_remoting.codes import RequestCode, ResponseCode
from rocket_remoting.command import RemotingCommand
from rocket_remoting.connection import Connection
from rocket_remoting.errors import RemoteProtocolError, RemotingError, RequestTimeout
from rocket_remoting.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    Header,
    ResetOffsetRequestHeader,
)
from rocket_remoting.message import MessageQueue
from rocket_remoting.message_id import parse_offset_id

__all__ = ["RelayProcessor"]

_log = logging.getLogger(__name__)

STATUS_SECONDS = 5.0
CALL_SECONDS = 10.0
TO_THE_END = -1
CPP = "CPP"
"""What the C++ client, and those that are built on it, say their language is."""
MAX_CALLS = 256
"""Under way, of all tools: each may carry a message. One address has a quarter at most."""


class RelayProcessor:
    """Carries tools' requests to live consumers."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        store: MessageStore,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        offsets: ConsumerOffsetTable,
        consumers: ConsumerTable,
    ) -> None:
        self._settings = settings
        self._broker_name = settings.broker_name
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._consumers = consumers
        self._calls: set[asyncio.Task[None]] = set()
        self._shares = Shares("requests to consumers under way", lambda: MAX_CALLS)

    def reset_offset(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """INVOKE_BROKER_TO_RESET_OFFSET (222): tell a group's live members where to go on.

        The members store the new offsets themselves; without one there is nobody to tell, and the tool sets
        the offsets by UPDATE_CONSUMER_OFFSET instead. Only tools of 5.x name a queue: they want that one reset,
        and the time they tell beside it is 0.
        """
        header = command.header(ResetOffsetRequestHeader)
        self._topics.system.check_offsets(header.group, header.topic)
        if self._settings.use_server_side_reset_offset or header.queue_id >= 0:
            return self._reset_here(connection, command, header)
        config = self._topics.get(header.topic)
        if config is None:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"[reset-offset] reset offset failed, no topic in this broker. topic={header.topic}",
            )
        queues = range(config.write_queue_nums)
        table = {MessageQueue(header.topic, self._broker_name, q): self._target(header, q) for q in queues}
        if not self._members(header.group):
            raise Refusal(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {header.group} Topic: {header.topic} "
                f"Timestamp: {header.timestamp}",
            )
        body = self._tell_offsets(header, table)
        _log.info(
            "group %s: offsets in %s reset to those of %d", header.group, header.topic, header.timestamp
        )
        return RemotingCommand.response(command, body=body)

    def _tell_offsets(self, header: ResetOffsetRequestHeader, table: dict[MessageQueue, int]) -> bytes:
        """Tell the group's live members where to go on; return the body that does so."""
        body = encode_body(ResetOffsetBody(offset_table=table))
        told = ResetOffsetRequestHeader(
            topic=header.topic, group=header.group, timestamp=header.timestamp, is_force=header.is_force
        )
        for member in self._members(header.group):
            theirs = _for_c(table) if member.language == CPP else body
            member.connection.invoke_oneway(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, told, theirs)
        return body

    def consumer_status(self, connection: Connection, command: RemotingCommand) -> None:
        """INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223): the offsets that each live member has in memory."""
        header = command.header(GetConsumerStatusRequestHeader)
        members = self._members(header.group)
        if header.client_addr:
            members = [member for member in members if member.client_id == header.client_addr]
        if not members:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{header.group}]"
            )
        self._check_room(connection)
        self._start(connection, self._answer_status(connection, command, header, members))

    def running_info(self, connection: Connection, command: RemotingCommand) -> None:
        """GET_CONSUMER_RUNNING_INFO (307)."""
        header = command.header(GetConsumerRunningInfoRequestHeader)
        self._check_room(connection)
        member = self._member(header.consumer_group, header.client_id)
        self._start(connection, self._answer_call(connection, command, member, header, command.body))

    def consume_directly(self, connection: Connection, command: RemotingCommand) -> None:
        """CONSUME_MESSAGE_DIRECTLY (309): let one consumer handle one stored message now."""
        self._check_room(connection)
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

    def _reset_here(
        self, connection: Connection, command: RemotingCommand, header: ResetOffsetRequestHeader
    ) -> RemotingCommand:
        """Set the offsets; whoever pulls next is told where to go on (5.x), or all members are at once."""
        topic, group = header.topic, header.group
        waits = self._settings.use_server_side_reset_offset
        keep = self._offsets.reset if waits else self._offsets.commit
        targets = self._targets_here(header)
        for queue_id, offset in targets.items():
            keep(group, topic, queue_id, offset, connection)
        _log.info("group %s: offsets in %s reset at the broker: %s", group, topic, targets)
        table = {
            MessageQueue(topic, self._broker_name, queue_id): offset for queue_id, offset in targets.items()
        }
        body = (
            encode_body(ResetOffsetBody(offset_table=table)) if waits else self._tell_offsets(header, table)
        )
        return RemotingCommand.response(command, body=body)

    def _targets_here(self, header: ResetOffsetRequestHeader) -> dict[int, int]:
        """Return where the group goes on in the queue that is named, or in all.

        Raises:
            Refusal: There is no such topic, group, queue or offset; with 5.x's codes.
        """
        topic, group = header.topic, header.group
        config = self._topics.get(topic)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} does not exist")
        if group not in self._groups:
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist")
        if header.queue_id >= config.read_queue_nums:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{header.queue_id}] is illegal, topic:[{topic}] "
                f"topicConfig.readQueueNums:[{config.read_queue_nums}]",
            )
        queues = [header.queue_id] if header.queue_id >= 0 else range(config.read_queue_nums)
        targets = {queue_id: self._target_here(header, queue_id) for queue_id in queues}
        if not targets:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "No queues to reset.")
        return targets

    def _target_here(self, header: ResetOffsetRequestHeader, queue_id: int) -> int:
        first = self._store.min_offset(header.topic, queue_id)
        end = self._store.max_offset(header.topic, queue_id)
        offset = header.offset
        if header.queue_id >= 0 and offset is not None and offset != TO_THE_END:
            if not first <= offset <= end:
                raise Refusal(
                    ResponseCode.SYSTEM_ERROR,
                    f"Target offset {offset} not in consume queue range [{first}-{end}]",
                )
            return offset
        return self._at_time(header, queue_id)

    async def stop(self) -> None:
        """Give up the calls under way."""
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    def _target(self, header: ResetOffsetRequestHeader, queue_id: int) -> int:
        """Return where the group goes on in the queue."""
        reached = self._offsets.get(header.group, header.topic, queue_id)
        if reached is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{header.group}> not exist")
        target = self._at_time(header, queue_id)
        return target if header.is_force or target < reached else reached

    def _at_time(self, header: ResetOffsetRequestHeader, queue_id: int) -> int:
        if header.timestamp == TO_THE_END:
            return self._store.max_offset(header.topic, queue_id)
        return max(0, self._store.offset_by_time(header.topic, queue_id, header.timestamp))

    def _members(self, name: str) -> list[ClientChannel]:
        group = self._consumers.get(name)
        return [m for m in group.members() if not m.connection.is_closed] if group is not None else []

    def _member(self, group_name: str, client_id: str) -> ClientChannel:
        group = self._consumers.get(group_name)
        member = group.find(client_id) if group is not None else None
        if member is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group_name}> <{client_id}> not online")
        if member.connection.is_stalled:  # what more is pushed to it would cost it its connection
            raise Refusal(
                ResponseCode.SYSTEM_BUSY, f"The Consumer <{group_name}> <{client_id}> reads nothing"
            )
        return member

    def _check_room(self, connection: Connection) -> None:
        if len(self._calls) >= MAX_CALLS:
            raise Refusal(
                ResponseCode.SYSTEM_BUSY,
                f"broker busy: consumers have {MAX_CALLS} requests of tools to answer",
            )
        self._shares.check(1, connection.counted_as, code=ResponseCode.SYSTEM_BUSY)

    def _start(self, connection: Connection, call: Coroutine[Any, Any, None]) -> None:
        owner = connection.counted_as
        self._shares.count(1, owner)
        task = asyncio.ensure_future(call)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        task.add_done_callback(lambda _: self._shares.count(-1, owner))

    async def _answer_status(
        self,
        connection: Connection,
        command: RemotingCommand,
        header: GetConsumerStatusRequestHeader,
        members: list[ClientChannel],
    ) -> None:
        asked = GetConsumerStatusRequestHeader(topic=header.topic, group=header.group)
        answers = await asyncio.gather(*(self._status(member, asked) for member in members))
        table = {
            m.client_id: answer for m, answer in zip(members, answers, strict=True) if answer is not None
        }
        body = encode_body(GetConsumerStatusBody(consumer_table=table))
        connection.respond(RemotingCommand.response(command, body=body))

    async def _status(
        self, member: ClientChannel, header: GetConsumerStatusRequestHeader
    ) -> dict[MessageQueue, int] | None:
        code = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
        try:
            answer = await member.connection.invoke(code, header, timeout=STATUS_SECONDS)
            return decode_body(answer.body, GetConsumerStatusBody).message_queue_table
        except RemotingError as e:
            _log.warning("no status from %r: %s", member, e)
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
        connection.respond(response)


def _for_c(table: Mapping[MessageQueue, int]) -> bytes:
    """Return offsets in the form that the C++ client reads."""
    return encode_body(
        ResetOffsetBodyForC(
            offset_table=[
                MessageQueueForC(
                    topic=queue.topic, broker_name=queue.broker_name, queue_id=queue.queue_id, offset=offset
                )
                for queue, offset in table.items()
            ]
        )
    )
