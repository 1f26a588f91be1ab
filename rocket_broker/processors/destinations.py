"""The destinations of messages: topic and queue of a sent message, and a group's dead letter topic."""

import random
from collections.abc import Sequence

from rocket_broker.limits.refusal import SEE_FAQ, Refusal, check_topic_name
from rocket_broker.perm import READ, WRITE
from rocket_broker.processors.broker_context import BrokerContext
from rocket_broker.writing.new_queues import NewQueues
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import SubscriptionGroupConfig, TopicConfig, TopicFilterType
from rocket_remoting.wire.codes import ResponseCode, Version
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import SendMessageRequestHeader
from rocket_remoting.wire.sys_flag import TOPIC_UNIT, TOPIC_UNIT_SUB
from rocket_remoting.wire.topics import RETRY_PREFIX, dlq_topic

__all__ = ["Destinations", "is_exhausted"]

DLQ_QUEUES = 1
MOST_PLAIN = 65_536
"""Maximum number of queues that are known to be plain. Beyond it all are forgotten, and examined again."""


class Destinations:
    """Finds topics, queues and groups, and creates those that may be created automatically."""

    def __init__(self, context: BrokerContext) -> None:
        self._settings = context.settings
        self._clock = context.clock
        self._topics = context.topics
        self._groups = context.groups
        self._store = context.store
        self._new_queues = NewQueues(context.store)
        self._host = context.settings.advertised_host
        # Queues whose messages are stored as they are, as long as the topics have this version.
        self._plain: set[tuple[str, int]] = set()
        self._plain_of = context.topics.data_version

    def topic(self, connection: Connection, header: SendMessageRequestHeader) -> TopicConfig:
        """Return the configuration of the topic that a message is sent to; create the topic if that is allowed.

        Raises:
            Refusal: The topic does not exist, the sender may not send to it, or the broker does not accept sends yet.
        """
        return self._known_topic(header.topic) or self._checked(self._create_topic(connection, header))

    def are_plain(self, queues: Sequence[tuple[str, int]]) -> bool:
        """Return whether messages of any producer to these queues are stored as they are.

        That is so if each queue has messages already, and its topic can be written, is not a retry topic and does not
        change its messages.

        Args:
            queues: Topic and queue id of each.
        """
        if self.known_plain.issuperset(queues):
            return True
        try:
            for topic, queue_id in queues:
                if not self._is_plain(topic, queue_id):
                    return False
        except Refusal:
            return False
        return True

    @property
    def known_plain(self) -> set[tuple[str, int]]:
        """Topic and queue id of queues that `are_plain` has found plain since the last change of a topic.

        Queues of ordered topics are not among them. Empty while startAcceptSendRequestTimeStamp is set.
        """
        if self._plain_of is not self._topics.data_version:  # each change of a topic makes a new version
            self._plain_of = self._topics.data_version
            self._plain.clear()
        return set() if self._settings.start_accept_send_request_time_stamp else self._plain

    def _is_plain(self, topic: str, queue_id: int) -> bool:
        config = self._known_topic(topic)
        if config is None or topic.startswith(RETRY_PREFIX) or config.topic_filter_type is TopicFilterType.MULTI_TAG:
            return False
        if not _has_queue(config, queue_id) or not self._store.max_offset(topic, queue_id):
            return False
        if not config.order:  # whether an ordered topic can be written depends on the broker's permission, too
            if len(self._plain) >= MOST_PLAIN:
                self._plain.clear()
            self._plain.add((topic, queue_id))
        return True

    def _known_topic(self, topic: str) -> TopicConfig | None:
        not_before = self._settings.start_accept_send_request_time_stamp
        if not_before and self._clock.now_ms() < not_before:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {not_before}")
        self._topics.system.check_send(topic)
        config = self._topics.get(topic)
        return self._checked(config) if config is not None else None

    def _checked(self, config: TopicConfig) -> TopicConfig:
        topic, settings = config.topic_name, self._settings
        if not config.perm & WRITE:
            raise Refusal(ResponseCode.NO_PERMISSION, f"the topic[{topic}] sending message is forbidden")
        if config.order and not settings.broker_permission & WRITE:
            # As in Apache: a broker without write permission still takes messages for topics without order, while
            # producers learn of the permission from the route.
            raise Refusal(ResponseCode.NO_PERMISSION, f"the broker[{self._host}] sending message is forbidden")
        return config

    def queue_id(self, connection: Connection, header: SendMessageRequestHeader, config: TopicConfig) -> int:
        """Return the queue that the sender asked for; a random one if it asked for none.

        Raises:
            Refusal: The topic has no such queue, or the sender's address has had too many new queues made.
        """
        queue_id = header.queue_id
        if queue_id < 0 and config.write_queue_nums > 0:
            queue_id = random.randrange(config.write_queue_nums)
        elif not _has_queue(config, queue_id):
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"request queueId[{queue_id}] is illegal, topic:[{config.topic_name}] "
                f"topicConfig.writeQueueNums:[{config.write_queue_nums}] Producer: {connection.remote_address}",
            )
        if connection.counted_as:
            self._new_queues.count(connection, config.topic_name, queue_id)
        return queue_id

    def group(self, connection: Connection, name: str) -> SubscriptionGroupConfig:
        """Return the configuration of the group that a failed message belongs to; create the group if that is allowed.

        Raises:
            Refusal: The group does not exist, or is the broker's own.
        """
        self._topics.system.check_group(name)
        config = self._groups.find(name, connection.counted_as)
        if config is None:
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name} {SEE_FAQ}")
        return config

    def dead_letters(self, connection: Connection, group: str) -> tuple[str, int]:
        """Return topic and queue for the group's dead letters; create the topic if it is missing."""
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
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!{SEE_FAQ}")
        return config


def _has_queue(config: TopicConfig, queue_id: int) -> bool:
    return 0 <= queue_id < max(config.write_queue_nums, config.read_queue_nums)


def is_exhausted(
    command: RemotingCommand, reconsume_times: int, asked: int | None, group: SubscriptionGroupConfig
) -> bool:
    """Return whether a message has been redelivered as often as its consumer or its group allows.

    The consumer's limit counts from version 3.4.9 on, as in Apache's broker; for older clients the group's limit
    counts.
    """
    limit = asked if asked is not None and command.version >= Version.V3_4_9 else group.retry_max_times
    return reconsume_times >= limit
