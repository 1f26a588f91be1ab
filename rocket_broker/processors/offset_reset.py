"""Request 222: set a group's offsets in a topic to those of a time, and tell its live members."""

import logging
from collections.abc import Coroutine, Generator, Mapping, Sequence
from typing import Any

from rocket_broker.clients.client_channel import ClientChannel
from rocket_broker.clients.consumer_table import ConsumerTable
from rocket_broker.limits.refusal import Refusal
from rocket_broker.loop.loop_steps import LoopTurns, collected, run_in_steps
from rocket_broker.requests.late_answers import LateAnswers
from rocket_broker.requests.long_answer import MAX_ANSWER, too_long
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.store.message_store import MessageStore
from rocket_broker.tables.consumer_offset_table import ConsumerOffsetTable
from rocket_broker.tables.subscription_group_table import SubscriptionGroupTable
from rocket_broker.tables.topic_table import TopicTable
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import (
    Entries,
    Items,
    LongBody,
    MessageQueueForC,
    ResetOffsetBody,
    ResetOffsetBodyForC,
    encode_in_pieces,
)
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import ResetOffsetRequestHeader
from rocket_remoting.wire.message import MessageQueue

__all__ = ["MAX_TOLD", "OffsetResetProcessor"]

logger = logging.getLogger(__name__)

TO_THE_END = -1
CPP = "CPP"
"""What the C++ client, and those that are built on it, say their language is."""

MAX_TOLD = 128 * 1024 * 1024
"""Bytes that a reset sends to all members of a group together: 1,000 members, and a topic of 1,500 queues."""
_TOLD_A_TURN = 256 * 1024
_STEP = "offsets are reset"

Offsets = Mapping[MessageQueue, int]


class OffsetResetProcessor:
    """Resets offsets.

    A topic may have 65,536 queues, in each of which a time is looked for, and the group thousands of members: that is
    done in steps, and answered later.
    """

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        store: MessageStore,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        offsets: ConsumerOffsetTable,
        consumers: ConsumerTable,
        late: LateAnswers,
    ) -> None:
        self._settings = settings
        self._broker_name = settings.broker_name
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._consumers = consumers
        self._late = late

    def reset(self, connection: Connection, command: RemotingCommand) -> None:
        """INVOKE_BROKER_TO_RESET_OFFSET (222): tell a group's live members where to go on.

        The members store the new offsets themselves; without one there is nobody to tell, and the tool sets
        the offsets by UPDATE_CONSUMER_OFFSET instead. Only tools of 5.x name a queue: they want that one reset,
        and the time they tell beside it is 0.
        """
        header = command.header(ResetOffsetRequestHeader)
        self._topics.system.check_offsets(header.group, header.topic)
        waits = self._settings.use_server_side_reset_offset
        here = waits or header.queue_id >= 0
        handling = self._reset_here(connection, header, waits=waits) if here else self._reset_members(header)
        self._late.begin(connection, command, _answered(command, handling))

    async def _reset_members(self, header: ResetOffsetRequestHeader) -> list[bytes]:
        config = self._topics.get(header.topic)
        if config is None:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"[reset-offset] reset offset failed, no topic in this broker. topic={header.topic}",
            )
        queues = range(config.write_queue_nums)
        table = await run_in_steps(_STEP, self._table(header, queues))
        if not self._members(header.group):
            raise Refusal(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {header.group} Topic: {header.topic} "
                f"Timestamp: {header.timestamp}",
            )
        pieces = await self._written(table)
        await self._tell_members(header, table, pieces)
        logger.info(
            "group %s: offsets in %s reset to those of %d", header.group, header.topic, header.timestamp
        )
        return pieces

    async def _reset_here(
        self, connection: Connection, header: ResetOffsetRequestHeader, *, waits: bool
    ) -> list[bytes]:
        """Set the offsets; whoever pulls next is told where to go on (5.x), or all members are at once."""
        queues = self._queues_here(header)
        table = await run_in_steps(_STEP, self._table_here(header, queues))
        if not table:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "No queues to reset.")
        pieces = await self._written(table)
        await run_in_steps(_STEP, self._set(connection, header, table, waits=waits))
        if not waits:
            await self._tell_members(header, table, pieces)
        logger.info("group %s: offsets of %d queues of %s reset", header.group, len(table), header.topic)
        return pieces

    def _table(
        self, header: ResetOffsetRequestHeader, queues: Sequence[int]
    ) -> Generator[None, None, Offsets]:
        """Return where the group goes on in each queue."""
        table: dict[MessageQueue, int] = {}
        for queue_id in queues:
            reached = self._offsets.get(header.group, header.topic, queue_id)
            if reached is None:
                raise Refusal(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{header.group}> not exist")
            target = self._at_time(header, queue_id)
            if not header.is_force:
                target = min(target, reached)
            table[MessageQueue(header.topic, self._broker_name, queue_id)] = target
            yield
        return table

    def _table_here(
        self, header: ResetOffsetRequestHeader, queues: Sequence[int]
    ) -> Generator[None, None, Offsets]:
        table: dict[MessageQueue, int] = {}
        for queue_id in queues:
            queue = MessageQueue(header.topic, self._broker_name, queue_id)
            table[queue] = self._target_here(header, queue_id)
            yield
        return table

    def _set(
        self, connection: Connection, header: ResetOffsetRequestHeader, table: Offsets, *, waits: bool
    ) -> Generator[None, None, None]:
        keep = self._offsets.reset if waits else self._offsets.commit
        for queue, offset in table.items():
            keep(header.group, header.topic, queue.queue_id, offset, connection)
            yield

    def _queues_here(self, header: ResetOffsetRequestHeader) -> Sequence[int]:
        """Return the queue that is named, or all.

        Raises:
            Refusal: There is no such topic, group or queue; with 5.x's codes.
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
        return [header.queue_id] if header.queue_id >= 0 else range(config.read_queue_nums)

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

    def _at_time(self, header: ResetOffsetRequestHeader, queue_id: int) -> int:
        if header.timestamp == TO_THE_END:
            return self._store.max_offset(header.topic, queue_id)
        return max(0, self._store.offset_by_time(header.topic, queue_id, header.timestamp))

    async def _written(self, table: Offsets) -> list[bytes]:
        """Return the body that tells where to go on, in pieces.

        Raises:
            Refusal: It has more than `MAX_ANSWER` bytes.
        """
        body = LongBody(ResetOffsetBody(offset_table={}), offset_table=Entries(table.items()))
        return await _pieces_of(body)

    async def _tell_members(
        self, header: ResetOffsetRequestHeader, table: Offsets, pieces: list[bytes]
    ) -> None:
        """Send the new offsets to the group's live members, some in each turn of the loop.

        Raises:
            Refusal: That is more than `MAX_TOLD` bytes.
        """
        members = self._members(header.group)
        body, for_c = b"".join(pieces), b""
        if len(body) * len(members) > MAX_TOLD:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"{len(members)} members would be told {len(body)} bytes each, at most {MAX_TOLD} are sent for one "
                "reset: name a queue, or set useServerSideResetOffset=true",
            )
        told = ResetOffsetRequestHeader(
            topic=header.topic, group=header.group, timestamp=header.timestamp, is_force=header.is_force
        )
        turns, size = LoopTurns(_STEP), 0
        for member in members:
            if member.language == CPP and not for_c:
                for_c = b"".join(await _pieces_of(_for_c(table)))
            theirs = for_c if member.language == CPP else body
            if not member.connection.is_closed:
                with turns:
                    member.connection.invoke_oneway(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, told, theirs)
            size += len(theirs)
            if size > _TOLD_A_TURN or turns.is_over:
                size = 0
                await turns.pause()

    def _members(self, name: str) -> list[ClientChannel]:
        group = self._consumers.get(name)
        return [m for m in group.members() if not m.connection.is_closed] if group is not None else []


async def _answered(command: RemotingCommand, handling: Coroutine[Any, Any, list[bytes]]) -> RemotingCommand:
    return RemotingCommand.response(command, parts=await handling)


async def _pieces_of(body: LongBody) -> list[bytes]:
    pieces = await run_in_steps(_STEP, collected(encode_in_pieces(body)))
    if sum(map(len, pieces)) > MAX_ANSWER:
        raise too_long("name a queue")
    return pieces


def _for_c(table: Offsets) -> LongBody:
    """Return offsets in the form that the C++ client reads."""
    queues = (
        MessageQueueForC(
            topic=queue.topic, broker_name=queue.broker_name, queue_id=queue.queue_id, offset=offset
        )
        for queue, offset in table.items()
    )
    return LongBody(ResetOffsetBodyForC(offset_table=[]), offset_table=Items(queues))
