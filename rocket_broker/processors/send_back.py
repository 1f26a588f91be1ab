"""Request 36: a consumer sends back a message that it failed to consume.

The message is stored again under the group's retry topic, with a delay level that grows with its redeliveries, or
under the group's dead letter topic once its redeliveries are exhausted. The original message stays where it is.
"""

import random

from rocket_broker.limits.refusal import Refusal
from rocket_broker.perm import READ, WRITE
from rocket_broker.processors.broker_context import BrokerContext
from rocket_broker.processors.destinations import Destinations, is_exhausted
from rocket_broker.processors.send import SendProcessor
from rocket_broker.store.messages import PutResult, PutStatus
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import SubscriptionGroupConfig
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import ConsumerSendMsgBackRequestHeader
from rocket_remoting.wire.message import MessageExt
from rocket_remoting.wire.properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_WAIT_STORE_MSG_OK,
)
from rocket_remoting.wire.record import decode_record
from rocket_remoting.wire.sys_flag import TOPIC_UNIT_SUB
from rocket_remoting.wire.topics import SCHEDULE_TOPIC, retry_topic

__all__ = ["SendBackProcessor"]

FIRST_RETRY_LEVEL = 3
"""The delay level of the first redelivery, as in Apache's broker; each further redelivery is one level higher."""


class SendBackProcessor:
    """Stores failed messages again, for a redelivery or as dead letters."""

    def __init__(self, context: BrokerContext, destinations: Destinations, sending: SendProcessor) -> None:
        self._sending = sending
        self._settings = context.settings
        self._store = context.store
        self._writer = context.writer
        self._topics = context.topics
        self._statistics = context.statistics
        self._destinations = destinations

    def send_back(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """CONSUMER_SEND_MSG_BACK (36): store the message for a redelivery, or as a dead letter."""
        header = command.header(ConsumerSendMsgBackRequestHeader)
        group = self._group(connection, header.group)
        if group.retry_queue_nums <= 0:
            return RemotingCommand.response(command)
        topic = retry_topic(header.group)
        self._check_retry_topic(connection, topic, group, header.unit_mode)
        message = self._message(header.group, header.offset)
        queue_id = random.randrange(group.retry_queue_nums)
        exhausted = is_exhausted(command, message.reconsume_times, header.max_reconsume_times, group)
        if exhausted or header.delay_level < 0:
            topic, queue_id = self._destinations.dead_letters(connection, header.group)
            level = 0
        else:
            level = header.delay_level or FIRST_RETRY_LEVEL + message.reconsume_times
        stored = self._store_again(header.group, message, topic, queue_id, level)
        # The consumer commits its offset behind the message then, so its redelivery must be as safe as a sent message.
        return self._sending.answer_when_safe(connection, command, stored)

    def _group(self, connection: Connection, name: str) -> SubscriptionGroupConfig:
        group = self._destinations.group(connection, name)
        if not self._settings.broker_permission & WRITE:
            host = self._writer.store_host[0]
            raise Refusal(ResponseCode.NO_PERMISSION, f"the broker[{host}] sending message is forbidden")
        return group

    def _check_retry_topic(
        self, connection: Connection, topic: str, group: SubscriptionGroupConfig, unit_mode: bool
    ) -> None:
        flag = TOPIC_UNIT_SUB if unit_mode else 0
        config = self._topics.create_by_send_back(
            topic, group.retry_queue_nums, READ | WRITE, flag, owner=connection.counted_as
        )
        if not config.perm & WRITE:
            raise Refusal(ResponseCode.NO_PERMISSION, f"the topic[{topic}] sending message is forbidden")

    def _message(self, group: str, commit_log_offset: int) -> MessageExt:
        """Return the message whose record begins at the offset. Its body stays as stored, for example compressed.

        Raises:
            Refusal: There is no record, or the group may not pull from the message's topic.
        """
        record = self._store.message_at(commit_log_offset)
        if record is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {commit_log_offset}")
        message = decode_record(record, decompress=False)
        self._topics.system.check_pull(group, message.topic)
        return message

    def _store_again(self, group: str, message: MessageExt, topic: str, queue_id: int, level: int) -> PutResult:
        properties = message.properties
        properties.setdefault(PROPERTY_RETRY_TOPIC, message.topic)
        properties.setdefault(PROPERTY_ORIGIN_MESSAGE_ID, message.offset_message_id)
        properties[PROPERTY_WAIT_STORE_MSG_OK] = "false"
        properties[PROPERTY_DELAY_TIME_LEVEL] = str(level)
        result = self._writer.put_again(
            message, topic, queue_id, properties, reconsume_times=message.reconsume_times + 1, may_delay=True
        )
        if result.status is not PutStatus.OK:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"message {result.status.value}")
        self._statistics.puts[SCHEDULE_TOPIC if level else topic].count(1, result.size)
        self._statistics.send_backs[properties[PROPERTY_RETRY_TOPIC], group].count(1, result.size)
        return result
