"""Requests 17, 18, 21, 202, 215, 300, 303, 305, 316, 343 and 351: make, list, measure and delete topics."""

from functools import partial

from msgspec.structs import replace

from rocket_broker.consumer_offset_table import ConsumerOffsetTable
from rocket_broker.consumer_table import ConsumerTable
from rocket_broker.refusal import Refusal, check_config_size, check_topic_name
from rocket_broker.settings import MAX_QUEUES
from rocket_broker.store.message_store import MessageStore
from rocket_broker.topic_table import TopicTable
from rocket_remoting.bodies import (
    CreateTopicListRequestBody,
    GroupList,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
    TopicConfig,
    TopicFilterType,
    TopicList,
    TopicOffset,
    TopicStatsTable,
    decode_body,
    encode_body,
)
from rocket_remoting.clock import Clock
from rocket_remoting.codes import ResponseCode
from rocket_remoting.command import RemotingCommand
from rocket_remoting.connection import Connection
from rocket_remoting.headers import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    QueryTopicsByConsumerRequestHeader,
)
from rocket_remoting.message import MessageQueue
from rocket_remoting.sys_flag import PERM_INHERIT, PERM_PRIORITY, PERM_READ, PERM_WRITE
from rocket_remoting.topics import SYSTEM_TOPICS

__all__ = ["TopicsProcessor"]

_PERMISSIONS = PERM_PRIORITY | PERM_READ | PERM_WRITE | PERM_INHERIT


class TopicsProcessor:
    """Administers topics."""

    def __init__(
        self,
        *,
        broker_name: str,
        clock: Clock,
        store: MessageStore,
        topics: TopicTable,
        offsets: ConsumerOffsetTable,
        consumers: ConsumerTable,
    ) -> None:
        self._broker_name = broker_name
        self._clock = clock
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._consumers = consumers

    def update(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """UPDATE_AND_CREATE_TOPIC (17)."""
        header = command.header(CreateTopicRequestHeader)
        known = self._topics.get(header.topic)
        config = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=_filter_type(header.topic_filter_type),
            topic_sys_flag=header.topic_sys_flag or 0,
            order=bool(header.order) or (known is not None and known.order),
            attributes=_attributes(header.attributes, known.attributes if known is not None else {}),
        )
        self._check(config)
        self._topics.update(config, owner=connection.counted_as)
        return RemotingCommand.response(command)

    def update_all(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """UPDATE_AND_CREATE_TOPIC_LIST (18): several topics, all or none."""
        told = decode_body(command.body, CreateTopicListRequestBody).topic_config_list
        configs = [self._changed(config) for config in told]
        for config in configs:
            self._check(config)
        self._topics.update(*configs, owner=connection.counted_as)
        return RemotingCommand.response(command)

    def _changed(self, told: TopicConfig) -> TopicConfig:
        """Return a topic as it is to be: what is told of its attributes are changes, as in request 17."""
        known = self._topics.get(told.topic_name)
        changes = ",".join(f"{name}={value}" if value else name for name, value in told.attributes.items())
        return replace(
            told,
            order=told.order or (known is not None and known.order),
            attributes=_attributes(changes, known.attributes if known is not None else {}),
        )

    def delete(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """DELETE_TOPIC_IN_BROKER (215): its messages and what groups consumed of it go too."""
        topic = command.header(DeleteTopicRequestHeader).topic
        self._check_own(topic)
        self._topics.delete(topic)
        self._offsets.remove_topic(topic)
        self._store.delete_topic(topic)
        return RemotingCommand.response(command)

    def delete_unused(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """CLEAN_UNUSED_TOPIC (316): delete the queues of topics that are no more in the table."""
        for topic in self._store.topics_with_queues():
            if topic not in self._topics and not self._topics.is_system(topic):
                self._store.delete_topic(topic)
        return RemotingCommand.response(command)

    def all_configs(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_ALL_TOPIC_CONFIG (21)."""
        return RemotingCommand.response(command, body=encode_body(self._topics.wrapper()))

    def config(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_TOPIC_CONFIG (351)."""
        topic = command.header(GetTopicConfigRequestHeader).topic
        config = self._topics.get(topic)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
        return RemotingCommand.response(command, body=encode_body(config))

    def stats(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_TOPIC_STATS_INFO (202): first and last offset of each queue, and when it last grew."""
        topic = command.header(GetTopicStatsInfoRequestHeader).topic
        config = self._existing(topic)
        table = {
            self._queue(topic, queue): self._span(topic, queue) for queue in range(config.write_queue_nums)
        }
        return RemotingCommand.response(command, body=encode_body(TopicStatsTable(offset_table=table)))

    def consumers_of(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """QUERY_TOPIC_CONSUME_BY_WHO (300): the groups that consume a topic, or did."""
        topic = command.header(QueryTopicConsumeByWhoRequestHeader).topic
        groups = self._consumers.groups_of(topic) | self._offsets.groups_of(topic)
        return RemotingCommand.response(command, body=encode_body(GroupList(group_list=groups)))

    def topics_of_group(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """QUERY_TOPICS_BY_CONSUMER (343): the topics a group has committed offsets in."""
        group = command.header(QueryTopicsByConsumerRequestHeader).group
        body = TopicList(topic_list=self._offsets.topics_of(group))
        return RemotingCommand.response(command, body=encode_body(body))

    def system_topics(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_SYSTEM_TOPIC_LIST_FROM_BROKER (305)."""
        own = {topic for topic in self._topics if self._topics.is_system(topic)}
        return RemotingCommand.response(command, body=encode_body(TopicList(topic_list=own | SYSTEM_TOPICS)))

    def time_span(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """QUERY_CONSUME_TIME_SPAN (303): from when to when a topic's messages are, and where a group is."""
        header = command.header(QueryConsumeTimeSpanRequestHeader)
        config = self._existing(header.topic)
        spans = [self._time_span(header.topic, header.group, q) for q in range(config.write_queue_nums)]
        body = QueryConsumeTimeSpanBody(consume_time_span_set=spans)
        return RemotingCommand.response(command, body=encode_body(body))

    def _time_span(self, topic: str, group: str, queue_id: int) -> QueueTimeSpan:
        stored_at = partial(self._store.store_time, topic, queue_id)
        first, end = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        reached = self._offsets.get(group, topic, queue_id) or 0
        behind = stored_at(reached) if reached < end else 0
        return QueueTimeSpan(
            message_queue=self._queue(topic, queue_id),
            min_time_stamp=stored_at(first),
            max_time_stamp=stored_at(end - 1),
            consume_time_stamp=stored_at(reached - 1) if reached > 0 else stored_at(first),
            delay_time=self._clock.now_ms() - behind if behind > 0 else 0,
        )

    def _span(self, topic: str, queue_id: int) -> TopicOffset:
        end = max(0, self._store.max_offset(topic, queue_id))
        return TopicOffset(
            min_offset=max(0, self._store.min_offset(topic, queue_id)),
            max_offset=end,
            last_update_timestamp=self._store.store_time(topic, queue_id, end - 1) if end else 0,
        )

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self._broker_name, queue_id)

    def _existing(self, topic: str) -> TopicConfig:
        config = self._topics.get(topic)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        return config

    def _check(self, config: TopicConfig) -> None:
        """Return when the topic may be made so.

        Raises:
            Refusal: Its name, its number of queues or its permission is not possible.
        """
        self._check_own(config.topic_name)
        check_config_size(config.topic_name, config)
        queues = (config.read_queue_nums, config.write_queue_nums)
        if not all(0 <= number <= MAX_QUEUES for number in queues):
            raise Refusal(
                ResponseCode.INVALID_PARAMETER, f"a topic has 0 to {MAX_QUEUES} queues, not {queues}"
            )
        if config.perm & ~_PERMISSIONS:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"{config.perm} is no permission: 2 W, 4 R, 6 RW")

    def _check_own(self, topic: str) -> None:
        """Return when the topic is one that users make and delete.

        Raises:
            Refusal: Its name is illegal, or it is the broker's own.
        """
        check_topic_name(topic)
        self._topics.system.check_topic_change(topic)


def _filter_type(name: str) -> TopicFilterType:
    try:
        return TopicFilterType(name)
    except ValueError:
        raise Refusal(
            ResponseCode.INVALID_PARAMETER, f"{name} is no topic filter type: SINGLE_TAG or MULTI_TAG"
        ) from None


def _attributes(changes: str | None, known: dict[str, str]) -> dict[str, str]:
    """Return a topic's attributes after changes written as ``+name=value,-name``."""
    attributes = dict(known)
    for change in filter(None, (part.strip() for part in (changes or "").split(","))):
        name, separator, value = change[1:].partition("=")
        if change[0] == "+" and separator and name == "message.type":
            attributes[name] = value
        elif change[0] == "-" and name:
            attributes.pop(name, None)
        else:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"topic attribute {change!r} is not served: +message.type=<type> or -message.type",
            )
    return attributes
