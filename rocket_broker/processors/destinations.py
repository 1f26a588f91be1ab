"""Where a message goes: topic and queue of what producers send, and a group's dead letters."""

import random

from rocket_broker.limits.refusal import SEE_FAQ, Refusal, check_topic_name
from rocket_broker.perm import READ, WRITE
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.tables.subscription_group_table import SubscriptionGroupTable
from rocket_broker.tables.topic_table import TopicTable
from rocket_broker.writing.new_queues import NewQueues
from rocket_remoting.clock import Clock
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import SubscriptionGroupConfig, TopicConfig
from rocket_remoting.wire.codes import ResponseCode, Version
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import SendMessageRequestHeader
from rocket_remoting.wire.sys_flag import TOPIC_UNIT, TOPIC_UNIT_SUB
from rocket_remoting.wire.topics import RETRY_PREFIX, dlq_topic

__all__ = ["Destinations", "is_exhausted"]

DLQ_QUEUES = 1


class Destinations:
    """Finds topics and queues, making those that may be made."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        clock: Clock,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        new_queues: NewQueues,
        host: str,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._topics = topics
        self._groups = groups
        self._new_queues = new_queues
        self._host = host

    def topic(self, connection: Connection, header: SendMessageRequestHeader) -> TopicConfig:
        """Return the configuration of the topic a message is sent to, the topic created if it may be.

        Raises:
            Refusal: There is no such topic, or it is not for this sender, or nothing may be sent yet.
        """
        settings = self._settings
        not_before = settings.start_accept_send_request_time_stamp
        if not_before and self._clock.now_ms() < not_before:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {not_before}")
        topic = header.topic
        self._topics.system.check_send(topic)
        config = self._topics.get(topic) or self._create_topic(connection, header)
        if not config.perm & WRITE:
            raise Refusal(ResponseCode.NO_PERMISSION, f"the topic[{topic}] sending message is forbidden")
        if config.order and not settings.broker_permission & WRITE:
            # Apache's rule: a broker that loses its write permission still takes what is under way to topics
            # without order; producers learn of it from the route.
            raise Refusal(
                ResponseCode.NO_PERMISSION, f"the broker[{self._host}] sending message is forbidden"
            )
        return config

    def queue_id(self, connection: Connection, header: SendMessageRequestHeader, config: TopicConfig) -> int:
        """Return the queue the sender asked for; any when it asked for none.

        Raises:
            Refusal: The topic has no such queue, or it is a new one, of which the sender's address made too many.
        """
        queue_id = header.queue_id
        if queue_id < 0 and config.write_queue_nums > 0:
            queue_id = random.randrange(config.write_queue_nums)
        elif not 0 <= queue_id < max(config.write_queue_nums, config.read_queue_nums):
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"request queueId[{queue_id}] is illegal, topic:[{config.topic_name}] "
                f"topicConfig.writeQueueNums:[{config.write_queue_nums}] Producer: {connection.remote_address}",
            )
        if connection.counted_as:
            self._new_queues.count(connection, config.topic_name, queue_id)
        return queue_id

    def group(self, connection: Connection, name: str) -> SubscriptionGroupConfig:
        """Return the configuration of a group whose message failed, the group created if it may be.

        Raises:
            Refusal: There is no such group, or it is the broker's own.
        """
        self._topics.system.check_group(name)
        config = self._groups.find(name, connection.counted_as)
        if config is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name} {SEE_FAQ}"
            )
        return config

    def dead_letters(self, connection: Connection, group: str) -> tuple[str, int]:
        """Return topic and queue of the group's dead letters, the topic created if need be."""
        topic = dlq_topic(group)
        self._topics.create_by_send_back(topic, DLQ_QUEUES, READ | WRITE, owner=connection.counted_as)
        return topic, random.randrange(DLQ_QUEUES)

    def _create_topic(self, connection: Connection, header: SendMessageRequestHeader) -> TopicConfig:
        topic = header.topic
        check_topic_name(topic)
        is_retry = topic.startswith(RETRY_PREFIX)
        sys_flag = (TOPIC_UNIT_SUB if is_retry else TOPIC_UNIT) if header.unit_mode else 0
        self._new_queues.check(connection)
        owner = connection.counted_as
        config = self._topics.create_by_send(
            topic,
            header.default_topic,
            header.default_topic_queue_nums,
            sys_flag,
            connection.remote_address,
            owner=owner,
        )
        if config is None and is_retry:
            config = self._topics.create_by_send_back(topic, 1, READ | WRITE, sys_flag, owner=owner)
        if config is None:
            raise Refusal(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!{SEE_FAQ}"
            )
        return config


def is_exhausted(
    command: RemotingCommand, reconsume_times: int, asked: int | None, group: SubscriptionGroupConfig
) -> bool:
    """Whether a message was redelivered as often as its consumer asks, or as its group allows.

    What a consumer asks counts from version 3.4.9 on; older ones do not mean it.
    """
    limit = asked if asked is not None and command.version >= Version.V3_4_9 else group.retry_max_times
    return reconsume_times >= limit
