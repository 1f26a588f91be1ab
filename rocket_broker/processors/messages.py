"""Requests 12, 33 and 321: find messages by key or by id, and read entries of a consume queue."""

from itertools import accumulate, islice

from rocket_broker.limits.refusal import Refusal
from rocket_broker.processors.broker_context import BrokerContext
from rocket_broker.requests.long_answer import MAX_ANSWER
from rocket_broker.requests.request_steps import Steps
from rocket_broker.store.message_store import MOST_ENTRIES
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import ConsumeQueueData, QueryConsumeQueueResponseBody, encode_body
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import (
    QueryConsumeQueueRequestHeader,
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)

__all__ = ["MessagesProcessor"]

MAX_QUEUE_ENTRIES = 1024


class MessagesProcessor:
    """Finds messages for people and tools: by key, by id, or by their place in a queue."""

    def __init__(self, context: BrokerContext) -> None:
        self._settings = context.settings
        self._store = context.store
        self._topics = context.topics
        self._consumers = context.consumers

    def query(self, connection: Connection, command: RemotingCommand) -> Steps:
        """QUERY_MESSAGE (12): messages of a topic by key, or by the unique key that their producer gave them.

        As on Apache's broker, a query by key returns as many messages as the request says, up to ``maxMsgsNumBatch``,
        and a query by unique key up to ``defaultQueryMaxNum``. If the messages are too large for one answer, the
        answer has the newest.
        """
        header = command.header(QueryMessageRequestHeader)
        count = self._settings.default_query_max_num if header.unique_key_query else max(header.max_num, 1)
        found = yield from self._store.find(
            header.topic, header.key, count, header.begin_timestamp, header.end_timestamp
        )
        if not found.records:
            remark = "can not find message, maybe time range not correct"
            if not found.is_complete:
                remark += f": {MOST_ENTRIES} entries of the index were looked at, and no older ones"
            raise Refusal(ResponseCode.QUERY_NOT_FOUND, remark)
        timestamp, offset = self._store.index_end
        answer = QueryMessageResponseHeader(index_last_update_timestamp=timestamp, index_last_update_phyoffset=offset)
        return RemotingCommand.response(command, header=answer, parts=_newest(found.records))

    def view(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """VIEW_MESSAGE_BY_ID (33): the record at a commit log offset."""
        offset = command.header(ViewMessageRequestHeader).offset
        record = self._store.message_at(offset)
        if record is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        return RemotingCommand.response(command, parts=[record])

    def consume_queue(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """QUERY_CONSUME_QUEUE (321): entries of a consume queue, and whether the group's tag filter matches each."""
        header = command.header(QueryConsumeQueueRequestHeader)
        topic, queue_id = header.topic, header.queue_id
        config = self._topics.get(topic)
        if config is None or not 0 <= queue_id < max(config.read_queue_nums, config.write_queue_nums):
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        group = self._consumers.get(header.consumer_group) if header.consumer_group else None
        known = group.subscriptions.get(topic) if group is not None else None
        count = min(max(header.count, 0), MAX_QUEUE_ENTRIES)
        entries = islice(self._store.consume_queue_entries(topic, queue_id, header.index, count), count)
        body = QueryConsumeQueueResponseBody(
            subscription_data=known.data if known is not None else None,
            filter_data=f"{header.consumer_group}@{topic} is not online!"
            if header.consumer_group and known is None
            else None,
            queue_data=[
                ConsumeQueueData(
                    physic_offset=position,
                    physic_size=size,
                    tags_code=code,
                    eval=known is not None and (known.filter.codes is None or code in known.filter.codes),
                )
                for _, position, size, code in entries
            ],
            max_queue_index=self._store.max_offset(topic, queue_id),
            min_queue_index=self._store.min_offset(topic, queue_id),
        )
        return RemotingCommand.response(command, body=encode_body(body))


def _newest(records: list[memoryview]) -> list[memoryview]:
    """Return the last records, as many as fit into an answer."""
    sizes = accumulate(map(len, reversed(records)))
    return records[-sum(size <= MAX_ANSWER for size in sizes) :]
