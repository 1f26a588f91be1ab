"""The dispatch table of the broker: which processor's method answers which request code."""

from functools import lru_cache

from rocket_broker.clients.consumer_table import ConsumerTable
from rocket_broker.clients.heartbeat_limits import HeartbeatLimits
from rocket_broker.clients.producer_table import ProducerTable
from rocket_broker.clients.queue_locks import QueueLocks
from rocket_broker.filter.compiling import Compiling
from rocket_broker.filter.consumer_filter_table import ConsumerFilterTable
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
from rocket_broker.processors.topics import TopicsProcessor
from rocket_broker.processors.transaction import TransactionProcessor
from rocket_broker.processors.waiting import WaitingMessages
from rocket_broker.pulling.held_pulls import HeldPulls
from rocket_broker.requests.late_answers import LateAnswers
from rocket_broker.requests.queue_time import QueueTime
from rocket_broker.requests.serving import RequestHandler
from rocket_broker.requests.settings_request import answer_settings, answer_settings_update
from rocket_broker.schedule.delay_service import DelayService
from rocket_broker.schedule.timer_service import TimerService
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.statistics import BrokerStatistics
from rocket_broker.store.message_store import MessageStore
from rocket_broker.tables.consumer_offset_table import ConsumerOffsetTable
from rocket_broker.tables.subscription_group_table import SubscriptionGroupTable
from rocket_broker.tables.topic_table import TopicTable
from rocket_broker.transaction.half_messages import HalfMessages
from rocket_broker.writing.message_writer import MessageWriter
from rocket_broker.writing.new_queues import NewQueues
from rocket_remoting.clock import Clock
from rocket_remoting.session.address import parse_address
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.deduplication import SEND_DEDUPLICATED
from rocket_remoting.wire.message import Host

__all__ = ["STORING", "RequestHandlers"]

STORING = (Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, SEND_DEDUPLICATED)
"""Requests that may store a batch in steps."""


class RequestHandlers:
    """The processors of one broker.

    Attributes:
        table: Request code -> handler.
    """

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        clock: Clock,
        store: MessageStore,
        writer: MessageWriter,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        offsets: ConsumerOffsetTable,
        consumers: ConsumerTable,
        compiling: Compiling,
        filters: ConsumerFilterTable,
        producers: ProducerTable,
        heartbeat_limits: HeartbeatLimits,
        queue_locks: QueueLocks,
        pulls: HeldPulls,
        delays: DelayService,
        timers: TimerService | None,
        halves: HalfMessages,
        statistics: BrokerStatistics,
        queue_time: QueueTime,
        address: str,
    ) -> None:
        name = settings.broker_name
        destinations = Destinations(
            settings=settings,
            clock=clock,
            topics=topics,
            groups=groups,
            new_queues=NewQueues(store),
            host=settings.advertised_host,
        )
        self._sending = sending = SendProcessor(
            settings=settings,
            store=store,
            writer=writer,
            destinations=destinations,
            statistics=statistics,
            waiting=WaitingMessages(
                settings=settings, clock=clock, topics=topics, halves=halves, timers=timers
            ),
            born_host=_host,
        )
        deduplicated = DeduplicatedSends(settings=settings, store=store, sending=sending)
        recall = RecallProcessor(
            settings=settings, clock=clock, writer=writer, topics=topics, born_host=_host
        )
        transaction = TransactionProcessor(
            settings=settings, store=store, halves=halves, statistics=statistics
        )
        send_back = SendBackProcessor(
            settings=settings, store=store, writer=writer, topics=topics, destinations=destinations
        )
        pulling = PullProcessor(
            settings=settings,
            store=store,
            topics=topics,
            groups=groups,
            consumers=consumers,
            compiling=compiling,
            filters=filters,
            offsets=offsets,
            pulls=pulls,
            statistics=statistics,
            host=settings.advertised_host,
        )
        clients = ClientsProcessor(
            settings=settings,
            topics=topics,
            groups=groups,
            consumers=consumers,
            producers=producers,
            compiling=compiling,
            limits=heartbeat_limits,
        )
        locks = LocksProcessor(queue_locks, topics, broker_name=name)
        offset = OffsetsProcessor(
            settings=settings, store=store, topics=topics, groups=groups, offsets=offsets
        )
        messages = MessagesProcessor(settings=settings, store=store, topics=topics, consumers=consumers)
        self._late = late = LateAnswers()
        topic = TopicsProcessor(
            broker_name=name,
            clock=clock,
            store=store,
            topics=topics,
            offsets=offsets,
            consumers=consumers,
            late=late,
        )
        group = GroupsProcessor(
            clock=clock,
            topics=topics,
            groups=groups,
            offsets=offsets,
            consumers=consumers,
            producers=producers,
        )
        stats = ConsumeStatsProcessor(
            broker_name=name,
            broker_address=address,
            store=store,
            topics=topics,
            groups=groups,
            offsets=offsets,
            consumers=consumers,
        )
        self._relay = relay = RelayProcessor(settings=settings, store=store, consumers=consumers)
        resetting = OffsetResetProcessor(
            settings=settings,
            store=store,
            topics=topics,
            groups=groups,
            offsets=offsets,
            consumers=consumers,
            late=late,
        )
        self._replies = replies = ReplyProcessor(
            settings=settings,
            clock=clock,
            writer=writer,
            destinations=destinations,
            producers=producers,
            statistics=statistics,
            born_host=_host,
        )
        runtime = RuntimeProcessor(
            settings=settings,
            clock=clock,
            store=store,
            offsets=offsets,
            delays=delays,
            statistics=statistics,
            queue_time=queue_time,
        )
        self._cleaning = cleaning = CleaningProcessor(store=store)
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
            # Tools to live consumers
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
        """Return when no answer is owed any more."""
        await self._sending.stop()
        await self._late.stop()
        await self._relay.stop()
        await self._replies.stop()
        await self._cleaning.stop()


def _host(connection: Connection) -> Host:
    return _parsed(connection.remote_address)


_parsed = lru_cache(maxsize=4096)(parse_address)
