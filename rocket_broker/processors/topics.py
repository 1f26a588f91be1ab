"""Requests 17, 18, 21, 202, 215, 300, 303, 305, 316, 343 and 351: create, list, inspect and delete topics."""

from collections.abc import Generator, Iterator, Sequence
from functools import partial
from itertools import chain

from msgspec.structs import replace

from rocket_broker.limits.refusal import Refusal, check_config_count, check_config_size, check_topic_name
from rocket_broker.loop.loop_steps import run_in_steps
from rocket_broker.processors.broker_context import BrokerContext
from rocket_broker.requests.late_answers import LateAnswers
from rocket_broker.requests.long_answer import long_answer
from rocket_broker.requests.request_body import read_body
from rocket_broker.requests.request_steps import Steps
from rocket_broker.settings.server_settings import MAX_QUEUES
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import (
    CreateTopicListRequestBody,
    Entries,
    GroupList,
    Items,
    LongBody,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
    TopicConfig,
    TopicFilterType,
    TopicList,
    TopicOffset,
    TopicStatsTable,
    encode_body,
)
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    QueryTopicsByConsumerRequestHeader,
)
from rocket_remoting.wire.message import MessageQueue
from rocket_remoting.wire.sys_flag import PERM_INHERIT, PERM_PRIORITY, PERM_READ, PERM_WRITE
from rocket_remoting.wire.topics import SYSTEM_TOPICS

__all__ = ["TopicsProcessor"]

_SINGLE_QUEUES = "ask for single queues (GET_MIN_OFFSET, GET_MAX_OFFSET, GET_EARLIEST_MSG_STORETIME)"
_PERMISSIONS = PERM_PRIORITY | PERM_READ | PERM_WRITE | PERM_INHERIT


class TopicsProcessor:
    """Administers topics."""

    def __init__(self, context: BrokerContext, late: LateAnswers) -> None:
        self._late = late
        self._broker_name = context.settings.broker_name
        self._clock = context.clock
        self._store = context.store
        self._topics = context.topics
        self._offsets = context.offsets
        self._consumers = context.consumers
        self._statistics = context.statistics

    def update(self, connection: Connection, command: RemotingCommand) -> None:
        """UPDATE_AND_CREATE_TOPIC (17): create a topic or replace its configuration.

        As on Apache's broker, the answer follows when the name servers know the topic: a producer that sent by an old
        route would choose queues that the topic does not have.
        """
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
        self._late.begin(connection, command, self._announced(command))

    async def _announced(self, command: RemotingCommand) -> RemotingCommand:
        await self._topics.until_announced()
        return RemotingCommand.response(command)

    def update_all(self, connection: Connection, command: RemotingCommand) -> None:
        """UPDATE_AND_CREATE_TOPIC_LIST (18): create or replace several topics, all or none of them."""
        changes = read_body(command, CreateTopicListRequestBody).topic_config_list
        check_config_count("topic", len(changes))
        self._late.begin(connection, command, self._update_all(command, changes, connection.counted_as))

    async def _update_all(
        self, command: RemotingCommand, changes: Sequence[TopicConfig], owner: str
    ) -> RemotingCommand:
        await run_in_steps("creating topics", self._change(changes, owner))
        return await self._announced(command)

    def _change(self, changes: Sequence[TopicConfig], owner: str) -> Generator[None, None, None]:
        configs = []
        for change in changes:
            configs.append(self._changed(change))
            self._check(configs[-1])
            yield
        self._topics.update(*configs, owner=owner)

    def _changed(self, config: TopicConfig) -> TopicConfig:
        """Return a topic's new configuration. The attributes in the request are changes, as in request 17."""
        known = self._topics.get(config.topic_name)
        changes = ",".join(f"{name}={value}" if value else name for name, value in config.attributes.items())
        return replace(
            config,
            order=config.order or (known is not None and known.order),
            attributes=_attributes(changes, known.attributes if known is not None else {}),
        )

    def delete(self, connection: Connection, command: RemotingCommand) -> None:
        """DELETE_TOPIC_IN_BROKER (215): delete a topic with its messages and the groups' offsets in it."""
        topic = command.header(DeleteTopicRequestHeader).topic
        self._check_own(topic)
        self._late.begin(connection, command, self._delete(command, topic))

    async def _delete(self, command: RemotingCommand, topic: str) -> RemotingCommand:
        with self._topics.deleting(topic):
            await run_in_steps("deleting the offsets of a topic", self._offsets.remove_topic(topic))
            await self._store.delete_topics([topic])
        self._statistics.forget_topic(topic)
        return RemotingCommand.response(command)

    def delete_unused(self, connection: Connection, command: RemotingCommand) -> None:
        """CLEAN_UNUSED_TOPIC (316): delete the queues of topics that are no longer in the topic table."""
        self._late.begin(connection, command, self._delete_unused(command))

    async def _delete_unused(self, command: RemotingCommand) -> RemotingCommand:
        found = await run_in_steps("searching for unused topics", self._unused())
        # A send may have created a topic again since it was looked at. From here on it is refused.
        unused = [topic for topic in found if topic not in self._topics]
        if unused:
            with self._topics.deleting(*unused):
                await self._store.delete_topics(unused)
        return RemotingCommand.response(command)

    def _unused(self) -> Generator[None, None, list[str]]:
        unused = []
        for topic in self._store.stored_topics():
            if topic not in self._topics and not self._topics.is_system(topic):
                unused.append(topic)
            yield
        return unused

    def all_configs(self, connection: Connection, command: RemotingCommand) -> Steps:
        """GET_ALL_TOPIC_CONFIG (21): the configurations of all topics."""
        instead = "ask for single topics (GET_TOPIC_CONFIG)"
        return long_answer(command, self._topics.body(), instead=instead)

    def config(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_TOPIC_CONFIG (351): the configuration of one topic."""
        topic = command.header(GetTopicConfigRequestHeader).topic
        config = self._topics.get(topic)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
        return RemotingCommand.response(command, body=encode_body(config))

    def stats(self, connection: Connection, command: RemotingCommand) -> Steps:
        """GET_TOPIC_STATS_INFO (202): first offset, end and last store time of each queue."""
        topic = command.header(GetTopicStatsInfoRequestHeader).topic
        queues = range(self._existing(topic).write_queue_nums)
        spans = ((self._queue(topic, queue_id), self._span(topic, queue_id)) for queue_id in queues)
        body = LongBody(TopicStatsTable(offset_table={}), offset_table=Entries(spans))
        return long_answer(command, body, instead=_SINGLE_QUEUES)

    def consumers_of(self, connection: Connection, command: RemotingCommand) -> Steps:
        """QUERY_TOPIC_CONSUME_BY_WHO (300): the groups that subscribe to a topic or have offsets in it."""
        topic = command.header(QueryTopicConsumeByWhoRequestHeader).topic
        body = LongBody(GroupList(group_list=set()), group_list=Items(self._groups_of(topic)))
        return long_answer(command, body, instead="the topic has too many groups to be listed")

    def _groups_of(self, topic: str) -> Iterator[str | None]:
        """Yield each group with offsets in the topic or a subscription to it once; None lets other requests run."""
        found = dict.fromkeys(self._offsets.groups_of(topic))
        yield from found
        yield from (group if group not in found else None for group in self._consumers.groups_of(topic))

    def topics_of_group(self, connection: Connection, command: RemotingCommand) -> Steps:
        """QUERY_TOPICS_BY_CONSUMER (343): the topics in which a group has committed offsets."""
        group = command.header(QueryTopicsByConsumerRequestHeader).group
        topics = Items(self._offsets.topics_of(group))
        body = LongBody(TopicList(topic_list=set()), topic_list=topics)
        return long_answer(command, body, instead="the group has too many topics to be listed")

    def system_topics(self, connection: Connection, command: RemotingCommand) -> Steps:
        """GET_SYSTEM_TOPIC_LIST_FROM_BROKER (305): the broker's own topics."""
        own = (
            topic if topic not in SYSTEM_TOPICS and self._topics.is_system(topic) else None
            for topic in list(self._topics)
        )
        body = LongBody(TopicList(topic_list=set()), topic_list=Items(chain(SYSTEM_TOPICS, own)))
        return long_answer(command, body, instead="there are too many system topics to be listed")

    def time_span(self, connection: Connection, command: RemotingCommand) -> Steps:
        """QUERY_CONSUME_TIME_SPAN (303): store times of each queue's first, last and last consumed message."""
        header = command.header(QueryConsumeTimeSpanRequestHeader)
        queues = range(self._existing(header.topic).write_queue_nums)
        spans = (self._time_span(header.topic, header.group, queue_id) for queue_id in queues)
        body = LongBody(QueryConsumeTimeSpanBody(consume_time_span_set=[]), consume_time_span_set=Items(spans))
        return long_answer(command, body, instead=_SINGLE_QUEUES)

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
        """Check that clients may create the topic with this configuration.

        Raises:
            Refusal: The name, the number of queues or the permission is invalid.
        """
        self._check_own(config.topic_name)
        check_config_size(config.topic_name, config)
        queues = (config.read_queue_nums, config.write_queue_nums)
        if not all(0 <= number <= MAX_QUEUES for number in queues):
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"a topic has 0 to {MAX_QUEUES} queues, not {queues}")
        if config.perm & ~_PERMISSIONS:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"{config.perm} is not a permission: use 2 (write), 4 (read) or 6 (both)",
            )

    def _check_own(self, topic: str) -> None:
        """Check that clients may create, change and delete the topic.

        Raises:
            Refusal: The name is illegal, or the topic is the broker's own.
        """
        check_topic_name(topic)
        self._topics.system.check_topic_change(topic)


def _filter_type(name: str) -> TopicFilterType:
    try:
        return TopicFilterType(name)
    except ValueError:
        raise Refusal(
            ResponseCode.INVALID_PARAMETER, f"{name} is not a topic filter type: use SINGLE_TAG or MULTI_TAG"
        ) from None


def _attributes(changes: str | None, known: dict[str, str]) -> dict[str, str]:
    """Return a topic's attributes after changes written as ``+name=value,-name``.

    Raises:
        Refusal: A change is malformed, or adds an attribute other than ``message.type``.
    """
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
                f"topic attribute {change!r} is not supported: use +message.type=<type> or -message.type",
            )
    return attributes
