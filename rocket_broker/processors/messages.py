"""Requests 12, 33 and 321: find messages by key or by id, and look into a consume queue."""

from itertools import accumulate, islice

from rocket_broker.clients.consumer_table import ConsumerTable
from rocket_broker.limits.refusal import Refusal
from rocket_broker.requests.long_answer import MAX_ANSWER
from rocket_broker.requests.request_steps import Steps
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.store.message_store import MOST_ENTRIES, MessageStore
from rocket_broker.tables.topic_table import TopicTable
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
    """Looks messages up for people and tools."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        store: MessageStore,
        topics: TopicTable,
        consumers: ConsumerTable,
    ) -> None:
        self._settings = settings
        self._store = store
        self._topics = topics
        self._consumers = consumers

    def query(self, connection: Connection, command: RemotingCommand) -> Steps:
        """QUERY_MESSAGE (12): messages of a topic by key, or by the id their producer gave them.

        The number that is asked for counts, as with Apache's broker, up to ``maxMsgsNumBatch``; for the id it is
        ``defaultQueryMaxNum``. Of messages that are too many bytes for an answer, the newest are told.
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
        answer = QueryMessageResponseHeader(
            index_last_update_timestamp=timestamp, index_last_update_phyoffset=offset
        )
        return RemotingCommand.response(command, header=answer, parts=_newest(found.records))

    def view(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """VIEW_MESSAGE_BY_ID (33): the record at a commit log offset."""
        offset = command.header(ViewMessageRequestHeader).offset
        record = self._store.message_at(offset)
        if record is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        return RemotingCommand.response(command, parts=[record])

    def consume_queue(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """QUERY_CONSUME_QUEUE (321): entries of a consume queue, and what a group's filter says of them."""
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
    """Return the last of the records, as many as fit into an answer."""
    sizes = accumulate(map(len, reversed(records)))
    return records[-sum(size <= MAX_ANSWER for size in sizes) :]
