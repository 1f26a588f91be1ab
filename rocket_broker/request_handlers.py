"""The dispatch table of the broker: request codes and the processors' methods that answer them."""

from rocket_broker.processors.broker_context import BrokerContext
from rocket_broker.processors.cleaning import CleaningProcessor
from rocket_broker.processors.clients import ClientsProcessor
from rocket_broker.processors.consume_stats import ConsumeStatsProcessor
from rocket_broker.processors.deduplicated import DeduplicatedSends
from rocket_broker.processors.destinations import Destinations
from rocket_broker.processors.groups import GroupsProcessor
from rocket_broker.processors.locks import LocksProcessor
from rocket_broker.processors.messages import MessagesProcessor
from rocket_broker.processors.offset_reset import OffsetResetProcessor
from rocket_broker.processors.offsets import OffsetsProcessor
from rocket_broker.processors.pull import PullProcessor
from rocket_broker.processors.recall import RecallProcessor
from rocket_broker.processors.relay import RelayProcessor
from rocket_broker.processors.reply import ReplyProcessor
from rocket_broker.processors.runtime import RuntimeProcessor
from rocket_broker.processors.send import SendProcessor
from rocket_broker.processors.send_back import SendBackProcessor
from rocket_broker.processors.send_runs import SendRuns
from rocket_broker.processors.topics import TopicsProcessor
from rocket_broker.processors.transaction import TransactionProcessor
from rocket_broker.processors.waiting import WaitingMessages
from rocket_broker.requests.late_answers import LateAnswers
from rocket_broker.requests.serving import RequestHandler
from rocket_broker.requests.settings_request import answer_settings, answer_settings_update
from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.deduplication import SEND_DEDUPLICATED

__all__ = ["STORING", "RequestHandlers"]

STORING = (Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, SEND_DEDUPLICATED)
"""Requests that may store a batch in several steps."""


class RequestHandlers:
    """The processors of one broker.

    Attributes:
        table: The handler of each request code.
        send_runs: Handles the plain sends of a connection together.
    """

    def __init__(self, context: BrokerContext) -> None:
        settings, destinations = context.settings, Destinations(context)
        self._late = late = LateAnswers()
        self._sending = sending = SendProcessor(context, destinations, WaitingMessages(context))
        self.send_runs = SendRuns(context, destinations, sending)
        self._replies = replies = ReplyProcessor(context, destinations)
        self._relay = relay = RelayProcessor(context)
        self._cleaning = cleaning = CleaningProcessor(context)
        deduplicated = DeduplicatedSends(context, sending)
        send_back = SendBackProcessor(context, destinations)
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
        self.table: dict[int, RequestHandler] = {
            Code.SEND_MESSAGE: sending.send,
            Code.SEND_MESSAGE_V2: sending.send,
            Code.SEND_BATCH_MESSAGE: sending.send_batch,
            SEND_DEDUPLICATED: deduplicated.send,
            Code.SEND_REPLY_MESSAGE: replies.reply,
            Code.SEND_REPLY_MESSAGE_V2: replies.reply,
            Code.CONSUMER_SEND_MSG_BACK: send_back.send_back,
            Code.RECALL_MESSAGE: recall.recall,
            Code.END_TRANSACTION: transaction.end,
            Code.RESUME_CHECK_HALF_MESSAGE: transaction.resume,
            Code.PULL_MESSAGE: pulling.pull,
            Code.LITE_PULL_MESSAGE: pulling.pull,
            # Clients
            Code.HEART_BEAT: clients.heartbeat,
            Code.UNREGISTER_CLIENT: clients.unregister,
            Code.CHECK_CLIENT_CONFIG: clients.check_config,
            Code.GET_CONSUMER_LIST_BY_GROUP: clients.consumer_list,
            Code.LOCK_BATCH_MQ: locks.lock,
            Code.UNLOCK_BATCH_MQ: locks.unlock,
            # Offsets
            Code.QUERY_CONSUMER_OFFSET: offset.query,
            Code.UPDATE_CONSUMER_OFFSET: offset.update,
            Code.SEARCH_OFFSET_BY_TIMESTAMP: offset.search,
            Code.GET_MAX_OFFSET: offset.max,
            Code.GET_MIN_OFFSET: offset.min,
            Code.QUERY_CORRECTION_OFFSET: offset.correction,
            Code.GET_EARLIEST_MSG_STORETIME: offset.earliest_store_time,
            # Messages
            Code.QUERY_MESSAGE: messages.query,
            Code.VIEW_MESSAGE_BY_ID: messages.view,
            Code.QUERY_CONSUME_QUEUE: messages.consume_queue,
            # Topics
            Code.UPDATE_AND_CREATE_TOPIC: topic.update,
            Code.UPDATE_AND_CREATE_TOPIC_LIST: topic.update_all,
            Code.DELETE_TOPIC_IN_BROKER: topic.delete,
            Code.CLEAN_UNUSED_TOPIC: topic.delete_unused,
            Code.GET_ALL_TOPIC_CONFIG: topic.all_configs,
            Code.GET_TOPIC_CONFIG: topic.config,
            Code.GET_TOPIC_STATS_INFO: topic.stats,
            Code.QUERY_TOPIC_CONSUME_BY_WHO: topic.consumers_of,
            Code.QUERY_TOPICS_BY_CONSUMER: topic.topics_of_group,
            Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: topic.system_topics,
            Code.QUERY_CONSUME_TIME_SPAN: topic.time_span,
            # Groups
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: group.update,
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: group.update_all,
            Code.DELETE_SUBSCRIPTIONGROUP: group.delete,
            Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: group.all_configs,
            Code.GET_SUBSCRIPTIONGROUP_CONFIG: group.config,
            Code.GET_CONSUMER_CONNECTION_LIST: group.consumer_connections,
            Code.QUERY_SUBSCRIPTION_BY_CONSUMER: group.subscription,
            Code.GET_PRODUCER_CONNECTION_LIST: group.producer_connections,
            Code.GET_ALL_PRODUCER_INFO: group.all_producers,
            Code.GET_CONSUME_STATS: stats.of_group,
            Code.GET_BROKER_CONSUME_STATS: stats.of_all,
            Code.CLONE_GROUP_OFFSET: stats.clone,
            # Requests of tools to live consumers
            Code.INVOKE_BROKER_TO_RESET_OFFSET: resetting.reset,
            Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: relay.consumer_status,
            Code.GET_CONSUMER_RUNNING_INFO: relay.running_info,
            Code.CONSUME_MESSAGE_DIRECTLY: relay.consume_directly,
            # The broker itself
            Code.GET_BROKER_RUNTIME_INFO: runtime.info,
            Code.GET_ALL_CONSUMER_OFFSET: runtime.consumer_offsets,
            Code.GET_ALL_DELAY_OFFSET: runtime.delay_offsets,
            Code.CLEAN_EXPIRED_CONSUMEQUEUE: cleaning.clean_queues,
            Code.DELETE_EXPIRED_COMMITLOG: cleaning.delete_expired,
            Code.GET_BROKER_CONFIG: lambda _, command: answer_settings(settings, command),
            Code.UPDATE_BROKER_CONFIG: lambda who, command: answer_settings_update(settings, who, command),
        }

    async def stop(self) -> None:
        """Wait until each processor has sent, or given up, the answers that it still owes."""
        await self._sending.stop()
        await self._late.stop()
        await self._relay.stop()
        await self._replies.stop()
        await self._cleaning.stop()
