"""The shared objects of one broker's processors, as Apache's processors have their BrokerController."""

from typing import TYPE_CHECKING

import msgspec

from rocket_broker.access.audit_log import AuditLog
from rocket_broker.access.needs import RequestCheck
from rocket_broker.clients.consumer_table import ConsumerTable
from rocket_broker.clients.heartbeat_limits import HeartbeatLimits
from rocket_broker.clients.producer_table import ProducerTable
from rocket_broker.clients.queue_locks import QueueLocks
from rocket_broker.filter.consumer_filter_table import ConsumerFilterTable
from rocket_broker.filter.filter_compiler import FilterCompiler
from rocket_broker.pulling.pull_request_hold import PullRequestHold
from rocket_broker.requests.fast_failure import FastFailure
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
from rocket_remoting.clock import Clock
from rocket_remoting.wire.command import RemotingCommand

if TYPE_CHECKING:
    from rocket_broker.access.access_control import AccessControl
    from rocket_broker.access.user_directory import UserDirectory
    from rocket_broker.replication.master import SlaveServer
    from rocket_broker.replication.slave import Slave

__all__ = ["BrokerContext"]


class BrokerContext(msgspec.Struct, frozen=True, kw_only=True):
    """The settings, tables and services of one broker.

    Attributes:
        settings: The settings of the broker.
        clock: Wall-clock time.
        store: The message store.
        writer: Stores messages in the message store.
        topics: The topics.
        groups: The consumer groups.
        offsets: The consumer offsets of each group.
        consumers: The live consumers.
        filter_compiler: Compiles the expressions that clients send.
        filters: The property filters of groups, also of groups without a live member.
        producers: The live producers.
        heartbeat_limits: Bounds what clients report in heartbeats.
        queue_locks: The queue locks of ordered consumption.
        pull_request_hold: The pull requests that wait for a message.
        delays: Delivers delayed messages.
        timers: Delivers timed messages; None if timers are off.
        halves: The half messages of transactions.
        slaves: Sends the log to slaves; None if they are not accepted.
        slave: Copies the log of the master; None if this broker is a master.
        statistics: Counts messages and pulls.
        fast_failure: Refuses requests that have waited for too long.
        access: Checks requests; None without access control.
        audit: Records administrative requests; None if they are not recorded.
        accounts: The files of accounts; None unless they are 4.9's access control.
        directory: The users of 5.3's access control; None if none are kept.
        address: The address of the broker in routes.
    """

    settings: BrokerSettings
    clock: Clock
    store: MessageStore
    writer: MessageWriter
    topics: TopicTable
    groups: SubscriptionGroupTable
    offsets: ConsumerOffsetTable
    consumers: ConsumerTable
    filter_compiler: FilterCompiler
    filters: ConsumerFilterTable
    producers: ProducerTable
    heartbeat_limits: HeartbeatLimits
    queue_locks: QueueLocks
    pull_request_hold: PullRequestHold
    delays: DelayService
    timers: TimerService | None
    halves: HalfMessages
    slaves: "SlaveServer | None"
    slave: "Slave | None"
    statistics: BrokerStatistics
    fast_failure: FastFailure
    access: RequestCheck | None
    audit: AuditLog | None
    accounts: "AccessControl | None"
    directory: "UserDirectory | None"
    address: str

    def answered_later(self, command: RemotingCommand, result: RemotingCommand | Exception) -> None:
        """Record in the audit log the result of a request that was answered after its handler returned."""
        if self.audit is not None:
            self.audit.answered(command, result)
