"""Requests 14, 15, 29 to 32 and 308: consumer offsets of groups, and first and last offsets of queues."""

from rocket_broker.limits.refusal import Refusal
from rocket_broker.processors.broker_context import BrokerContext
from rocket_broker.pulling.memory import is_far_behind
from rocket_broker.requests.long_answer import long_answer
from rocket_broker.requests.request_steps import Steps
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import Entries, LongBody, QueryCorrectionOffsetBody
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    QueryCorrectionOffsetHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)

__all__ = ["OffsetsProcessor"]

_MAX_LONG = 2**63 - 1


class OffsetsProcessor:
    """Answers queries for offsets, and commits consumer offsets."""

    def __init__(self, context: BrokerContext) -> None:
        self._store = context.store
        self._topics = context.topics
        self._groups = context.groups
        self._offsets = context.offsets
        self._settings = context.settings

    def query(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """QUERY_CONSUMER_OFFSET (14): a group's offset in a queue.

        As on Apache's broker, a group without an offset gets 0 if the queue still has its first message and that
        message is recent (see `_is_young`). Otherwise QUERY_NOT_FOUND tells the client to apply its ConsumeFromWhere.
        """
        header = command.header(QueryConsumerOffsetRequestHeader)
        offset = self._offsets.get(header.consumer_group, header.topic, header.queue_id)
        if offset is None:
            if header.set_zero_if_not_found is False:
                raise Refusal(
                    ResponseCode.QUERY_NOT_FOUND, "Not found, do not set to zero, maybe this group boot first"
                )
            if not self._is_young(header.topic, header.queue_id):
                raise Refusal(
                    ResponseCode.QUERY_NOT_FOUND,
                    "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
                )
            offset = 0
        return RemotingCommand.response(command, header=QueryConsumerOffsetResponseHeader(offset=offset))

    def update(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """UPDATE_CONSUMER_OFFSET (15): commit a group's offset; ignored while a reset waits to be pulled."""
        header = command.header(UpdateConsumerOffsetRequestHeader)
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        self._topics.system.check_offsets(group, topic)
        if (self._groups.get(group) or self._groups.find(group, connection.counted_as)) is None:
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
        config = self._topics.get(topic)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        if not 0 <= queue_id < max(config.read_queue_nums, config.write_queue_nums) or header.commit_offset < 0:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"offset {header.commit_offset} of queueId[{queue_id}] is illegal, topic:[{topic}] "
                f"topicConfig.readQueueNums:[{config.read_queue_nums}]",
            )
        # A member that has not pulled since the reset still commits where it was; that must not undo the
        # reset. Apache's 5.3.3 answers the same with useServerSideResetOffset.
        if self._offsets.pending_reset(group, topic, queue_id) is not None:
            return RemotingCommand.response(command, remark="Offset has been previously reset")
        self._offsets.commit(group, topic, queue_id, header.commit_offset, connection)
        return RemotingCommand.response(command)

    def search(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """SEARCH_OFFSET_BY_TIMESTAMP (29): the offset of the message whose store time is nearest to the time."""
        header = command.header(SearchOffsetRequestHeader)
        offset = self._store.offset_by_time(header.topic, header.queue_id, header.timestamp)
        return RemotingCommand.response(command, header=SearchOffsetResponseHeader(offset=offset))

    def max(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_MAX_OFFSET (30): the offset after the queue's last message."""
        header = command.header(GetMaxOffsetRequestHeader)
        offset = self._store.max_offset(header.topic, header.queue_id)
        return RemotingCommand.response(command, header=GetMaxOffsetResponseHeader(offset=offset))

    def min(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_MIN_OFFSET (31): the offset of the queue's first message."""
        header = command.header(GetMinOffsetRequestHeader)
        offset = self._store.min_offset(header.topic, header.queue_id)
        return RemotingCommand.response(command, header=GetMinOffsetResponseHeader(offset=offset))

    def earliest_store_time(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_EARLIEST_MSG_STORETIME (32): store time of the first message in milliseconds; -1 for an empty queue."""
        header = command.header(GetEarliestMsgStoretimeRequestHeader)
        first = self._store.min_offset(header.topic, header.queue_id)
        timestamp = self._store.store_time(header.topic, header.queue_id, first)
        return RemotingCommand.response(command, header=GetEarliestMsgStoretimeResponseHeader(timestamp=timestamp))

    def correction(self, connection: Connection, command: RemotingCommand) -> Steps:
        """QUERY_CORRECTION_OFFSET (308): for each queue the least offset of all groups except the filtered ones.

        If the group to compare with is behind that offset, the answer has Java's Long.MAX_VALUE: nothing to correct.
        """
        header = command.header(QueryCorrectionOffsetHeader)
        topic = header.topic
        left_out = set((header.filter_groups or "").split(","))
        least: dict[int, int] = {}
        for group in self._offsets.groups_of(topic):
            if group in left_out:
                continue
            for queue_id, offset in list(self._offsets.queues(group, topic).items()):
                # As in Apache's queryMinOffsetInAllGroup, offsets before the queue's first message do not
                # count.
                if offset >= self._store.min_offset(topic, queue_id):
                    least[queue_id] = min(offset, least.get(queue_id, _MAX_LONG))
                yield
        for queue_id, offset in list(self._offsets.queues(header.compare_group, topic).items()):
            if least.get(queue_id, 0) > offset:
                least[queue_id] = _MAX_LONG
            yield
        body = LongBody(QueryCorrectionOffsetBody(correction_offsets={}), correction_offsets=Entries(least.items()))
        instead = "ask for single queues (QUERY_CONSUMER_OFFSET)"
        return (yield from long_answer(command, body, instead=instead))

    def _is_young(self, topic: str, queue_id: int) -> bool:
        """Return whether the queue still has its first message, and has it in memory by Apache's rule."""
        # With the first messages deleted, offset 0 would send the group to where nothing is.
        if self._store.min_offset(topic, queue_id) > 0:
            return False
        for entry in self._store.consume_queue_entries(topic, queue_id, 0, 1):
            return not is_far_behind(self._store, self._settings, entry[1])
        return True
