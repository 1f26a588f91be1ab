"""The dispatch table of the broker: request codes, the processors' methods that answer them, and what requests need.

Apache's broker of 4.9 checks rights for some of these requests only; each request is checked here. Requests that change
the broker, and those that read what belongs to all accounts, are for administrators.
"""

from collections.abc import Iterator, Mapping
from functools import partial

from rocket_broker.access.account import PUB, SUB, Right
from rocket_broker.access.needs import (
    ADMIN,
    CREATES_GROUP,
    CREATES_GROUPS,
    CREATES_TOPIC,
    CREATES_TOPICS,
    DELETES_GROUP,
    DELETES_TOPIC,
    HEARTBEAT,
    LOCKS,
    READS_CLUSTER,
    SIGNED,
    UNLOCKS,
    Needs,
    Served,
    administers,
    as_producer,
    asks_about,
    consumes,
    on_topic,
    refused,
    sends,
)
from rocket_broker.access.policies import Action
from rocket_broker.limits.refusal import Refusal
from rocket_broker.processors.accounts import AccountsProcessor
from rocket_broker.processors.acls import AclsProcessor, resources_in
from rocket_broker.processors.broker_context import BrokerContext
from rocket_broker.processors.broker_stats import BrokerStatsProcessor
from rocket_broker.processors.cleaning import CleaningProcessor
from rocket_broker.processors.clients import ClientsProcessor
from rocket_broker.processors.consume_stats import ConsumeStatsProcessor
from rocket_broker.processors.deduplicated import DeduplicatedSends
from rocket_broker.processors.destinations import Destinations
from rocket_broker.processors.groups import GroupsProcessor
from rocket_broker.processors.known_pulls import KnownPulls
from rocket_broker.processors.locks import LocksProcessor
from rocket_broker.processors.messages import MessagesProcessor
from rocket_broker.processors.offset_reset import OffsetResetProcessor
from rocket_broker.processors.offsets import OffsetsProcessor
from rocket_broker.processors.pull import PullProcessor
from rocket_broker.processors.recall import RecallProcessor
from rocket_broker.processors.relay import RelayProcessor
from rocket_broker.processors.replication import ReplicationProcessor
from rocket_broker.processors.reply import ReplyProcessor
from rocket_broker.processors.runtime import RuntimeProcessor
from rocket_broker.processors.send import SendProcessor
from rocket_broker.processors.send_back import SendBackProcessor
from rocket_broker.processors.send_runs import SendRuns
from rocket_broker.processors.topics import TopicsProcessor
from rocket_broker.processors.transaction import TransactionProcessor
from rocket_broker.processors.users import UsersProcessor, kind_in
from rocket_broker.processors.waiting import WaitingMessages
from rocket_broker.requests.late_answers import LateAnswers
from rocket_broker.requests.request_body import read_body
from rocket_broker.requests.settings_request import answer_settings, answer_settings_update, settings_in
from rocket_broker.store.message_store import MessageStore
from rocket_broker.transaction.half_messages import HalfMessages
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import CreateTopicListRequestBody, SubscriptionGroupConfig, SubscriptionGroupList
from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.deduplication import SEND_DEDUPLICATED
from rocket_remoting.wire.headers import (
    CloneGroupOffsetRequestHeader,
    ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerListByGroupRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    GetConsumeStatsRequestHeader,
    GetEarliestMsgStoretimeRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
    PullMessageRequestHeader,
    QueryConsumeQueueRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryCorrectionOffsetHeader,
    QueryMessageRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    QueryTopicsByConsumerRequestHeader,
    RecallMessageRequestHeader,
    ResetOffsetRequestHeader,
    SearchOffsetRequestHeader,
    SendDeduplicatedRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    UnregisterClientRequestHeader,
    UpdateConsumerOffsetRequestHeader,
    ViewMessageRequestHeader,
)
from rocket_remoting.wire.properties import PROPERTY_PRODUCER_GROUP, PROPERTY_REAL_TOPIC, decode_stored_properties
from rocket_remoting.wire.record import peek_record
from rocket_remoting.wire.topics import REPLY_TOPIC_POSTFIX, TOPICS_CLOSED_TO_CLIENTS

__all__ = ["STORING", "RequestHandlers"]

STORING = (Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, SEND_DEDUPLICATED)
"""Requests that may store a batch in several steps."""


MASTER_ONLY = frozenset({
    *STORING, Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2, Code.CONSUMER_SEND_MSG_BACK, Code.RECALL_MESSAGE,
    Code.END_TRANSACTION, Code.RESUME_CHECK_HALF_MESSAGE, Code.UPDATE_AND_CREATE_TOPIC,
    Code.UPDATE_AND_CREATE_TOPIC_LIST, Code.DELETE_TOPIC_IN_BROKER, Code.CLEAN_UNUSED_TOPIC,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    Code.DELETE_SUBSCRIPTIONGROUP, Code.CLONE_GROUP_OFFSET, Code.INVOKE_BROKER_TO_RESET_OFFSET,
})  # fmt: skip
"""Requests that a slave refuses: they store messages, or change tables that the slave copies from its master."""


class RequestHandlers:
    """The processors of one broker.

    Attributes:
        table: The handler of each request code, and what requests need to reach it where access control is on.
        send_runs: Handles the plain sends of a connection together.
        known_pulls: Handles pull requests that are like earlier ones, without access control.
    """

    def __init__(self, context: BrokerContext) -> None:
        settings, destinations = context.settings, Destinations(context)
        self._late = late = LateAnswers(context.answered_later)
        self._sending = sending = SendProcessor(context, destinations, WaitingMessages(context))
        send_needs = sends(SendMessageRequestHeaderV2)
        self.send_runs = SendRuns(context, destinations, sending, send_needs)
        self._replies = replies = ReplyProcessor(context, destinations)
        self._relay = relay = RelayProcessor(context)
        self._cleaning = cleaning = CleaningProcessor(context)
        deduplicated = DeduplicatedSends(context, sending)
        send_back = SendBackProcessor(context, destinations, sending)
        recall = RecallProcessor(context)
        transaction = TransactionProcessor(context)
        pulling = PullProcessor(context)
        clients = ClientsProcessor(context)
        locks = LocksProcessor(context)
        offset = OffsetsProcessor(context)
        messages = MessagesProcessor(context)
        topic = TopicsProcessor(context, late)
        group = GroupsProcessor(context)
        stats = ConsumeStatsProcessor(context)
        resetting = OffsetResetProcessor(context, late)
        runtime = RuntimeProcessor(context)
        broker_stats = BrokerStatsProcessor(context)
        accounts = AccountsProcessor(context)
        users = UsersProcessor(context)
        acls = AclsProcessor(context)
        reads, asks = (Action.SUB, Action.GET), (Action.PUB, Action.SUB, Action.GET)
        view_needs = Needs(rights=partial(_message_rights, context.store, ViewMessageRequestHeader), actions=reads)
        send_back_needs = consumes(ConsumerSendMsgBackRequestHeader).and_rights(
            partial(_message_rights, context.store, ConsumerSendMsgBackRequestHeader)
        )
        # A reply is also stored, in the topic that its header names.
        reply_topic = f"{settings.broker_cluster_name}_{REPLY_TOPIC_POSTFIX}"
        end_needs = sends(EndTransactionRequestHeader).and_rights(partial(_transaction_rights, context.halves))
        self.known_pulls = KnownPulls(context, pulling)
        self.table: dict[int, Served] = {
            Code.SEND_MESSAGE: Served(sending.send, sends(SendMessageRequestHeader)),
            Code.SEND_MESSAGE_V2: Served(sending.send, send_needs),
            Code.SEND_BATCH_MESSAGE: Served(sending.send_batch, send_needs),
            SEND_DEDUPLICATED: Served(deduplicated.send, sends(SendDeduplicatedRequestHeader)),
            Code.SEND_REPLY_MESSAGE: Served(replies.reply, sends(SendMessageRequestHeader, free=reply_topic)),
            Code.SEND_REPLY_MESSAGE_V2: Served(replies.reply, sends(SendMessageRequestHeaderV2, free=reply_topic)),
            Code.CONSUMER_SEND_MSG_BACK: Served(send_back.send_back, send_back_needs),
            Code.RECALL_MESSAGE: Served(recall.recall, sends(RecallMessageRequestHeader)),
            Code.END_TRANSACTION: Served(transaction.end, end_needs),
            Code.RESUME_CHECK_HALF_MESSAGE: Served(transaction.resume, ADMIN),
            Code.PULL_MESSAGE: Served(pulling.pull, consumes(PullMessageRequestHeader)),
            Code.LITE_PULL_MESSAGE: Served(pulling.pull, consumes(PullMessageRequestHeader)),
            # Clients
            Code.HEART_BEAT: Served(clients.heartbeat, HEARTBEAT),
            Code.UNREGISTER_CLIENT: Served(clients.unregister, consumes(UnregisterClientRequestHeader)),
            Code.CHECK_CLIENT_CONFIG: Served(clients.check_config, SIGNED),
            Code.GET_CONSUMER_LIST_BY_GROUP: Served(
                clients.consumer_list, consumes(GetConsumerListByGroupRequestHeader, *reads)
            ),
            Code.LOCK_BATCH_MQ: Served(locks.lock, LOCKS),
            Code.UNLOCK_BATCH_MQ: Served(locks.unlock, UNLOCKS),
            # Offsets
            Code.QUERY_CONSUMER_OFFSET: Served(offset.query, consumes(QueryConsumerOffsetRequestHeader, *reads)),
            Code.UPDATE_CONSUMER_OFFSET: Served(
                offset.update, consumes(UpdateConsumerOffsetRequestHeader, Action.SUB, Action.UPDATE)
            ),
            Code.SEARCH_OFFSET_BY_TIMESTAMP: Served(offset.search, asks_about(SearchOffsetRequestHeader, *asks)),
            Code.GET_MAX_OFFSET: Served(offset.max, asks_about(GetMaxOffsetRequestHeader, *asks)),
            Code.GET_MIN_OFFSET: Served(offset.min, asks_about(GetMinOffsetRequestHeader, *asks)),
            Code.QUERY_CORRECTION_OFFSET: Served(offset.correction, consumes(QueryCorrectionOffsetHeader, Action.GET)),
            Code.GET_EARLIEST_MSG_STORETIME: Served(
                offset.earliest_store_time, asks_about(GetEarliestMsgStoretimeRequestHeader, *asks)
            ),
            # Messages
            Code.QUERY_MESSAGE: Served(messages.query, consumes(QueryMessageRequestHeader, *reads)),
            Code.VIEW_MESSAGE_BY_ID: Served(messages.view, view_needs),
            Code.QUERY_CONSUME_QUEUE: Served(
                messages.consume_queue, consumes(QueryConsumeQueueRequestHeader, Action.GET)
            ),
            # Topics
            Code.UPDATE_AND_CREATE_TOPIC: Served(topic.update, CREATES_TOPIC),
            Code.UPDATE_AND_CREATE_TOPIC_LIST: Served(topic.update_all, CREATES_TOPICS.naming(_topics_in)),
            Code.DELETE_TOPIC_IN_BROKER: Served(topic.delete, DELETES_TOPIC),
            Code.CLEAN_UNUSED_TOPIC: Served(topic.delete_unused, ADMIN),
            Code.GET_ALL_TOPIC_CONFIG: Served(topic.all_configs, SIGNED),
            Code.GET_TOPIC_CONFIG: Served(topic.config, asks_about(GetTopicConfigRequestHeader, Action.GET)),
            Code.GET_TOPIC_STATS_INFO: Served(topic.stats, asks_about(GetTopicStatsInfoRequestHeader, Action.GET)),
            Code.QUERY_TOPIC_CONSUME_BY_WHO: Served(
                topic.consumers_of, asks_about(QueryTopicConsumeByWhoRequestHeader, Action.GET)
            ),
            Code.QUERY_TOPICS_BY_CONSUMER: Served(
                topic.topics_of_group, consumes(QueryTopicsByConsumerRequestHeader, Action.GET)
            ),
            Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: Served(topic.system_topics, SIGNED),
            Code.QUERY_CONSUME_TIME_SPAN: Served(
                topic.time_span, consumes(QueryConsumeTimeSpanRequestHeader, Action.GET)
            ),
            # Groups
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Served(group.update, CREATES_GROUP.naming(_group_in)),
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: Served(group.update_all, CREATES_GROUPS.naming(_groups_in)),
            Code.DELETE_SUBSCRIPTIONGROUP: Served(group.delete, DELETES_GROUP),
            Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Served(group.all_configs, SIGNED),
            Code.GET_SUBSCRIPTIONGROUP_CONFIG: Served(
                group.config, consumes(GetSubscriptionGroupConfigRequestHeader, Action.GET)
            ),
            Code.GET_CONSUMER_CONNECTION_LIST: Served(
                group.consumer_connections, consumes(GetConsumerConnectionListRequestHeader, Action.GET)
            ),
            Code.QUERY_SUBSCRIPTION_BY_CONSUMER: Served(
                group.subscription, consumes(QuerySubscriptionByConsumerRequestHeader, Action.GET)
            ),
            Code.GET_PRODUCER_CONNECTION_LIST: Served(group.producer_connections, READS_CLUSTER),
            Code.GET_ALL_PRODUCER_INFO: Served(group.all_producers, READS_CLUSTER),
            Code.GET_CONSUME_STATS: Served(stats.of_group, consumes(GetConsumeStatsRequestHeader, Action.GET)),
            Code.GET_BROKER_CONSUME_STATS: Served(stats.of_all, READS_CLUSTER),
            Code.CLONE_GROUP_OFFSET: Served(stats.clone, consumes(CloneGroupOffsetRequestHeader, Action.UPDATE)),
            # Requests of tools to live consumers
            Code.INVOKE_BROKER_TO_RESET_OFFSET: Served(
                resetting.reset, consumes(ResetOffsetRequestHeader, Action.UPDATE)
            ),
            Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: Served(
                relay.consumer_status, consumes(GetConsumerStatusRequestHeader, Action.GET)
            ),
            Code.GET_CONSUMER_RUNNING_INFO: Served(
                relay.running_info, consumes(GetConsumerRunningInfoRequestHeader, Action.GET)
            ),
            Code.CONSUME_MESSAGE_DIRECTLY: Served(relay.consume_directly, ADMIN),
            # Accounts
            Code.UPDATE_AND_CREATE_ACL_CONFIG: Served(accounts.update, ADMIN),
            Code.DELETE_ACL_CONFIG: Served(accounts.delete, ADMIN),
            Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: Served(accounts.update_white_list, ADMIN),
            Code.GET_BROKER_CLUSTER_ACL_INFO: Served(accounts.version, SIGNED),
            Code.GET_BROKER_CLUSTER_ACL_CONFIG: Served(accounts.config, administers(Action.GET)),
            # Users and policies (5.3)
            Code.AUTH_CREATE_USER: Served(users.create, ADMIN.naming(kind_in)),
            Code.AUTH_UPDATE_USER: Served(users.update, ADMIN.naming(kind_in)),
            Code.AUTH_DELETE_USER: Served(users.delete, ADMIN),
            Code.AUTH_GET_USER: Served(users.user, administers(Action.GET)),
            Code.AUTH_LIST_USER: Served(users.users, administers(Action.GET)),
            Code.AUTH_CREATE_ACL: Served(acls.merge, ADMIN.naming(resources_in)),
            Code.AUTH_UPDATE_ACL: Served(acls.merge, ADMIN.naming(resources_in)),
            Code.AUTH_DELETE_ACL: Served(acls.delete, ADMIN),
            Code.AUTH_GET_ACL: Served(acls.acl, administers(Action.GET)),
            Code.AUTH_LIST_ACL: Served(acls.acls, administers(Action.GET)),
            # The broker itself
            Code.GET_BROKER_RUNTIME_INFO: Served(runtime.info, SIGNED),
            Code.VIEW_BROKER_STATS_DATA: Served(broker_stats.view, READS_CLUSTER),
            Code.GET_BROKER_HA_STATUS: Served(ReplicationProcessor(context).status, READS_CLUSTER),
            Code.GET_ALL_CONSUMER_OFFSET: Served(runtime.consumer_offsets, administers(Action.GET)),
            Code.GET_ALL_DELAY_OFFSET: Served(runtime.delay_offsets, administers(Action.GET)),
            Code.GET_TIMER_CHECK_POINT: Served(runtime.timer_checkpoint, administers(Action.GET)),
            Code.CLEAN_EXPIRED_CONSUMEQUEUE: Served(cleaning.clean_queues, ADMIN),
            Code.DELETE_EXPIRED_COMMITLOG: Served(cleaning.delete_expired, ADMIN),
            Code.GET_BROKER_CONFIG: Served(lambda _, command: answer_settings(settings, command), SIGNED),
            Code.UPDATE_BROKER_CONFIG: Served(
                lambda who, command: answer_settings_update(settings, who, command), ADMIN.naming(settings_in)
            ),
        }

    async def stop(self) -> None:
        """Wait until each processor has sent, or given up, the answers that it still owes."""
        await self._sending.stop()
        await self._late.stop()
        await self._relay.stop()
        await self._replies.stop()
        await self._cleaning.stop()


def slave_table(table: Mapping[int, Served], broker_name: str) -> dict[int, Served]:
    """Return the handlers of a slave: requests in `MASTER_ONLY` are refused."""

    def refuse(connection: Connection, command: RemotingCommand) -> RemotingCommand:
        remark = f"service not available now: this broker is a slave, only the master of {broker_name} does that"
        raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, remark)

    return {code: Served(refuse, served.needs) if code in MASTER_ONLY else served for code, served in table.items()}


def _topics_in(command: RemotingCommand) -> Iterator[str]:
    return (topic.topic_name for topic in read_body(command, CreateTopicListRequestBody).topic_config_list)


def _group_in(command: RemotingCommand) -> list[str]:
    return [read_body(command, SubscriptionGroupConfig).group_name]


def _groups_in(command: RemotingCommand) -> Iterator[str]:
    return (group.group_name for group in read_body(command, SubscriptionGroupList).group_config_list)


def _message_rights(
    store: MessageStore,
    header: type[ViewMessageRequestHeader] | type[ConsumerSendMsgBackRequestHeader],
    command: RemotingCommand,
) -> Iterator[Right]:
    """Yield the right to read the stored message that a request names by its offset, whatever topic the request has.

    Raises:
        Refusal: A record begins there, but no queue has it: it may be part of a message's body, and then it may reach
            over messages of other topics.
    """
    offset = command.header(header).offset
    record = store.message_at(offset)
    if record is None:
        return
    message = peek_record(record)
    if not store.leads_to(message.topic, message.queue_id, message.queue_offset, offset):
        raise refused(f"No message is stored at the offset {offset}")
    # A message that waits in one of the broker's own topics is of the topic that it waits for.
    waits_for = None
    if message.topic in TOPICS_CLOSED_TO_CLIENTS:
        waits_for = decode_stored_properties(message.properties).get(PROPERTY_REAL_TOPIC)
    yield Right(waits_for or message.topic, SUB)


def _transaction_rights(halves: HalfMessages, command: RemotingCommand) -> Iterator[Right]:
    """Yield the rights on topic and group of the half message that a request ends, whatever the request says."""
    half = halves.find(command.header(EndTransactionRequestHeader).commit_log_offset)
    if half is not None:
        yield from on_topic(half.properties.get(PROPERTY_REAL_TOPIC), PUB)
        yield from as_producer(half.properties.get(PROPERTY_PRODUCER_GROUP))
