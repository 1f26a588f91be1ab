"""Requests that brokers send to this client, most of them on behalf of an administrator.

::

    39   CHECK_TRANSACTION_STATE           ask for the outcome of a half message's local transaction
    40   NOTIFY_CONSUMER_IDS_CHANGED       a member has joined or left: rebalance now
    220  RESET_CONSUMER_CLIENT_OFFSET      continue at other offsets
    221  GET_CONSUMER_STATUS_FROM_CLIENT   return the offsets that this member knows
    307  GET_CONSUMER_RUNNING_INFO         return settings, subscriptions and process queues
    309  CONSUME_MESSAGE_DIRECTLY          call the listener with this message and return its outcome
    326  PUSH_REPLY_MESSAGE_TO_CLIENT      deliver the reply to a request message
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Protocol

from rocket_client.connection.name_servers import NameServers
from rocket_client.connection.request_reply import Replies
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerData,
    ConsumerRunningInfo,
    GetConsumerStatusBody,
    ResetOffsetBody,
    decode_body,
    encode_body,
)
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import (
    CheckTransactionStateRequestHeader,
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
    ReplyMessageRequestHeader,
    ResetOffsetRequestHeader,
)
from rocket_remoting.wire.message import MessageExt, MessageQueue
from rocket_remoting.wire.properties import PROPERTY_PRODUCER_GROUP
from rocket_remoting.wire.record import decode_record

logger = logging.getLogger(__name__)


class ConsumerMember(Protocol):
    """A consumer, as the client and brokers' requests use it."""

    group: str

    def heartbeat_data(self) -> ConsumerData:
        """Return the group's part of a heartbeat."""

    def subscribed_topics(self) -> Collection[str]:
        """Return the topics that the consumer reads."""

    async def persist_offsets(self) -> None:
        """Commit the settled offsets."""

    def master_lost(self, broker_name: str) -> None:
        """Note that a master cannot be reached, or has been replaced: what it knew of this consumer may be gone."""

    def rebalance_soon(self) -> None:
        """Rebalance in the background, without delay."""

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue the topic's queues at the given offsets."""

    def known_offsets(self, topic: str) -> dict[MessageQueue, int]:
        """Return the topic's offsets as this member knows them."""

    def running_info(self, name_servers: Sequence[str]) -> ConsumerRunningInfo:
        """Return settings, subscriptions and process queues of the consumer."""

    async def consume_directly(self, message: MessageExt) -> ConsumeMessageDirectlyResult:
        """Call the listener with this message and return the outcome."""


class ProducerMember(Protocol):
    """A producer, as the client and brokers' requests use it."""

    group: str

    def publish_topics(self) -> Collection[str]:
        """Return the topics that the producer sends to."""

    def check_transaction(
        self, connection: Connection, header: CheckTransactionStateRequestHeader, message: MessageExt
    ) -> None:
        """Send the outcome of the half message's local transaction to the broker, over this connection."""


class ClientRemotingProcessor:
    """Handles brokers' requests for all producers and consumers of a client."""

    def __init__(
        self,
        producers: Mapping[str, ProducerMember],
        consumers: Mapping[str, ConsumerMember],
        replies: Replies,
        name_servers: NameServers,
        spawn: Callable[[Coroutine[object, object, None], str], asyncio.Task[None]],
    ) -> None:
        self._producers = producers
        self._consumers = consumers
        self._replies = replies
        self._name_servers = name_servers
        self._spawn = spawn
        self._handlers = {
            int(RequestCode.CHECK_TRANSACTION_STATE): self._check_transaction,
            int(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED): self._notify_consumer_ids_changed,
            int(RequestCode.RESET_CONSUMER_CLIENT_OFFSET): self._reset_offset,
            int(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT): self._consumer_status,
            int(RequestCode.GET_CONSUMER_RUNNING_INFO): self._running_info,
            int(RequestCode.CONSUME_MESSAGE_DIRECTLY): self._consume_directly,
            int(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT): self._take_reply,
        }

    def handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """Return the response; None if there is none, or if it is sent later."""
        handler = self._handlers.get(command.code)
        if handler is None:
            return RemotingCommand.response(
                command,
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                remark=f"request type {command.code} not supported",
            )
        return handler(connection, command)

    def _check_transaction(self, connection: Connection, command: RemotingCommand) -> None:
        message = decode_record(command.body, decompress=False)
        group = message.properties.get(PROPERTY_PRODUCER_GROUP, "")
        producer = self._producers.get(group)
        if producer is None:
            logger.info(
                "%s checks a transaction of group %r, which has no producer here",
                connection.remote_address,
                group,
            )
            return
        producer.check_transaction(connection, command.header(CheckTransactionStateRequestHeader), message)

    def _take_reply(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        self._replies.take(command.header(ReplyMessageRequestHeader), bytes(command.body))
        return RemotingCommand.response(command)

    def _notify_consumer_ids_changed(self, connection: Connection, command: RemotingCommand) -> None:
        group = command.header(NotifyConsumerIdsChangedRequestHeader).consumer_group
        consumer = self._consumers.get(group)
        if consumer is not None:
            consumer.rebalance_soon()

    def _reset_offset(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        header = command.header(ResetOffsetRequestHeader)
        consumer = self._consumers.get(header.group)
        if consumer is None:
            return _no_such_group(command, header.group)
        offsets = decode_body(command.body, ResetOffsetBody).offset_table
        logger.info(
            "%s resets group %s in topic %s to %s",
            connection.remote_address,
            header.group,
            header.topic,
            offsets,
        )
        # Not awaited: the reset waits up to 10 s for listener calls. So the response only says that it has begun.
        self._spawn(consumer.reset_offsets(header.topic, offsets), "reset offsets")
        return RemotingCommand.response(command)

    def _consumer_status(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = command.header(GetConsumerStatusRequestHeader)
        consumer = self._consumers.get(header.group)
        offsets = consumer.known_offsets(header.topic) if consumer is not None else {}
        return RemotingCommand.response(command, body=encode_body(GetConsumerStatusBody(message_queue_table=offsets)))

    def _running_info(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        group = command.header(GetConsumerRunningInfoRequestHeader).consumer_group
        consumer = self._consumers.get(group)
        if consumer is None:
            return _no_such_group(command, group)
        return RemotingCommand.response(command, body=encode_body(consumer.running_info(self._name_servers.addresses)))

    def _consume_directly(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        header = command.header(ConsumeMessageDirectlyResultRequestHeader)
        consumer = self._consumers.get(header.consumer_group)
        if consumer is None:
            return _no_such_group(command, header.consumer_group)
        message = decode_record(command.body, decompress=False)
        message.broker_name = header.broker_name or ""

        async def consume() -> None:
            result = await consumer.consume_directly(message)
            connection.respond(RemotingCommand.response(command, body=encode_body(result)))

        self._spawn(consume(), "consume directly")
        return None


def _no_such_group(command: RemotingCommand, group: str) -> RemotingCommand:
    return RemotingCommand.response(
        command, ResponseCode.SYSTEM_ERROR, remark=f"The Consumer Group <{group}> not exist in this consumer"
    )
