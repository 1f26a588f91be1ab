"""Request 222: reset a group's offsets in a topic to a time, and notify its live members."""

import logging
from collections.abc import Coroutine, Generator, Mapping, Sequence
from typing import Any

from rocket_broker.limits.refusal import Refusal
from rocket_broker.loop.loop_steps import LoopTurns, collected, run_in_steps
from rocket_broker.processors.broker_context import BrokerContext
from rocket_broker.requests.late_answers import LateAnswers
from rocket_broker.requests.long_answer import MAX_ANSWER, too_long
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

__all__ = ["MAX_NOTIFIED_BYTES", "OffsetResetProcessor"]

logger = logging.getLogger(__name__)

TO_THE_END = -1
CPP = "CPP"
"""The language that the C++ client, and the clients built on it, report."""

MAX_NOTIFIED_BYTES = 128 * 1024 * 1024
"""Maximum bytes that one reset sends to all members together: 1,000 members and a topic of 1,500 queues."""
_BYTES_A_TURN = 256 * 1024
_STEP = "resetting offsets"

Offsets = Mapping[MessageQueue, int]


class OffsetResetProcessor:
    """Resets consumer offsets.

    A topic may have 65,536 queues, each searched for the time, and the group may have thousands of members. So a reset
    runs in steps, and the answer is sent later.
    """

    def __init__(self, context: BrokerContext, late: LateAnswers) -> None:
        self._settings = context.settings
        self._broker_name = context.settings.broker_name
        self._store = context.store
        self._topics = context.topics
        self._groups = context.groups
        self._offsets = context.offsets
        self._consumers = context.consumers
        self._late = late

    def reset(self, connection: Connection, command: RemotingCommand) -> None:
        """INVOKE_BROKER_TO_RESET_OFFSET (222): reset the group's offsets to a time.

        ::

            request                               sets the offsets    members learn of it by
            no queueId (tools of 4.x)             the members         RESET_CONSUMER_CLIENT_OFFSET
            queueId (tools of 5.x)                this broker         RESET_CONSUMER_CLIENT_OFFSET
            any, with useServerSideResetOffset    this broker         the answer to their next pull

        In the first case a group without live members is refused, and the tool sets the offsets itself by
        UPDATE_CONSUMER_OFFSET. With a queueId the header's offset counts if it is given, and the timestamp is 0.
        """
        header = command.header(ResetOffsetRequestHeader)
        self._topics.system.check_offsets(header.group, header.topic)
        by_next_pull = self._settings.use_server_side_reset_offset
        on_server = by_next_pull or header.queue_id >= 0
        handling = (
            self._reset_on_server(connection, header, by_next_pull=by_next_pull)
            if on_server
            else self._reset_members(header)
        )
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
        if not self._consumers.open_members(header.group):
            raise Refusal(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {header.group} Topic: {header.topic} "
                f"Timestamp: {header.timestamp}",
            )
        pieces = await self._written(table)
        await self._notify_members(header, table, pieces)
        logger.info("group %s: offsets in topic %s reset to time %d", header.group, header.topic, header.timestamp)
        return pieces

    async def _reset_on_server(
        self, connection: Connection, header: ResetOffsetRequestHeader, *, by_next_pull: bool
    ) -> list[bytes]:
        """Set the offsets in this broker; `by_next_pull`: answer the members' next pulls with them, as in 5.x."""
        queues = self._queues_to_reset(header)
        # The whole table is made before any offset is set: a queue that is refused leaves all offsets as
        # they were.
        table = await run_in_steps(_STEP, self._table_on_server(header, queues))
        if not table:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "No queues to reset.")
        pieces = await self._written(table)
        await run_in_steps(_STEP, self._set(connection, header, table, by_next_pull=by_next_pull))
        if not by_next_pull:
            await self._notify_members(header, table, pieces)
        logger.info("group %s: offsets of %d queue(s) of %s reset", header.group, len(table), header.topic)
        return pieces

    def _table(self, header: ResetOffsetRequestHeader, queues: Sequence[int]) -> Generator[None, None, Offsets]:
        """Return the group's new offset in each queue."""
        table: dict[MessageQueue, int] = {}
        for queue_id in queues:
            reached = self._offsets.get(header.group, header.topic, queue_id)
            if reached is None:
                raise Refusal(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{header.group}> not exist")
            target = self._at_time(header, queue_id)
            if not header.is_force:
                # Without force a reset only goes back; a group that is behind the time already stays where
                # it is.
                target = min(target, reached)
            table[MessageQueue(header.topic, self._broker_name, queue_id)] = target
            yield
        return table

    def _table_on_server(
        self, header: ResetOffsetRequestHeader, queues: Sequence[int]
    ) -> Generator[None, None, Offsets]:
        table: dict[MessageQueue, int] = {}
        for queue_id in queues:
            queue = MessageQueue(header.topic, self._broker_name, queue_id)
            table[queue] = self._target_offset(header, queue_id)
            yield
        return table

    def _set(
        self, connection: Connection, header: ResetOffsetRequestHeader, table: Offsets, *, by_next_pull: bool
    ) -> Generator[None, None, None]:
        keep = self._offsets.reset if by_next_pull else self._offsets.commit
        for queue, offset in table.items():
            keep(header.group, header.topic, queue.queue_id, offset, connection)
            yield

    def _queues_to_reset(self, header: ResetOffsetRequestHeader) -> Sequence[int]:
        """Return the queue that the header names, or all queues.

        Raises:
            Refusal: There is no such topic, group or queue; with the codes of Apache 5.x.
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

    def _target_offset(self, header: ResetOffsetRequestHeader, queue_id: int) -> int:
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
        """Return the body with the new offsets, in pieces.

        Raises:
            Refusal: The body has more than `MAX_ANSWER` bytes.
        """
        body = LongBody(ResetOffsetBody(offset_table={}), offset_table=Entries(table.items()))
        return await _pieces_of(body)

    async def _notify_members(self, header: ResetOffsetRequestHeader, table: Offsets, pieces: list[bytes]) -> None:
        """Send the new offsets to the group's live members, to some of them in each turn of the loop.

        Raises:
            Refusal: All notifications together have more than `MAX_NOTIFIED_BYTES` bytes.
        """
        members = self._consumers.open_members(header.group)
        body, for_c = b"".join(pieces), b""
        # Checked before the first member is notified, so that not only a part of the group learns of the
        # reset.
        if len(body) * len(members) > MAX_NOTIFIED_BYTES:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"{len(members)} members would be sent {len(body)} bytes each, at most {MAX_NOTIFIED_BYTES} are sent "
                "for one reset: name a queue, or set useServerSideResetOffset=true",
            )
        reset = ResetOffsetRequestHeader(
            topic=header.topic, group=header.group, timestamp=header.timestamp, is_force=header.is_force
        )
        turns, size = LoopTurns(_STEP), 0
        for member in members:
            if member.language == CPP and not for_c:
                for_c = b"".join(await _pieces_of(_cpp_body(table)))
            theirs = for_c if member.language == CPP else body
            if not member.connection.is_closed:
                with turns:
                    member.connection.invoke_oneway(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, reset, theirs)
            size += len(theirs)
            if size > _BYTES_A_TURN or turns.is_over:
                size = 0
                await turns.pause()


async def _answered(command: RemotingCommand, handling: Coroutine[Any, Any, list[bytes]]) -> RemotingCommand:
    return RemotingCommand.response(command, parts=await handling)


async def _pieces_of(body: LongBody) -> list[bytes]:
    pieces = await run_in_steps(_STEP, collected(encode_in_pieces(body)))
    if sum(map(len, pieces)) > MAX_ANSWER:
        raise too_long("name a queue")
    return pieces


def _cpp_body(table: Offsets) -> LongBody:
    """Return the body with the offsets in the form that the C++ client reads."""
    queues = (
        MessageQueueForC(topic=queue.topic, broker_name=queue.broker_name, queue_id=queue.queue_id, offset=offset)
        for queue, offset in table.items()
    )
    return LongBody(ResetOffsetBodyForC(offset_table=[]), offset_table=Items(queues))
