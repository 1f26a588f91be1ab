"""Requests 200, 201, 203, 204, 207, 208, 225, 314, 317, 328 and 352: make, list, measure and delete groups."""

from collections.abc import Iterable

from rocket_broker.client_channel import ClientChannel
from rocket_broker.consumer_offset_table import ConsumerOffsetTable
from rocket_broker.consumer_table import ConsumerTable
from rocket_broker.loop_time import loop_time
from rocket_broker.producer_table import ProducerTable
from rocket_broker.refusal import Refusal, check_config_size, check_group_name
from rocket_broker.settings import MAX_QUEUES
from rocket_broker.store.message_store import MessageStore
from rocket_broker.subscription_group_table import SubscriptionGroupTable
from rocket_broker.topic_table import TopicTable
from rocket_remoting.bodies import Connection as ConnectionBody
from rocket_remoting.bodies import (
    ConsumerConnection,
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
    QuerySubscriptionResponseBody,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    decode_body,
    encode_body,
)
from rocket_remoting.clock import Clock
from rocket_remoting.codes import ResponseCode
from rocket_remoting.command import RemotingCommand
from rocket_remoting.connection import Connection
from rocket_remoting.headers import (
    CloneGroupOffsetRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    GetProducerConnectionListRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
)
from rocket_remoting.message import MessageQueue

__all__ = ["GroupsProcessor"]


class GroupsProcessor:
    """Administers consumer groups, and lists who is connected."""

    def __init__(
        self,
        *,
        broker_name: str,
        broker_address: str,
        clock: Clock,
        store: MessageStore,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        offsets: ConsumerOffsetTable,
        consumers: ConsumerTable,
        producers: ProducerTable,
    ) -> None:
        self._broker_name = broker_name
        self._broker_address = broker_address
        self._clock = clock
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._consumers = consumers
        self._producers = producers

    def update(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200)."""
        config = decode_body(command.body, SubscriptionGroupConfig)
        self._check(config)
        self._groups.update(config, owner=connection.counted_as)
        return RemotingCommand.response(command)

    def update_all(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225): several groups, all or none."""
        configs = decode_body(command.body, SubscriptionGroupList).group_config_list
        for config in configs:
            self._check(config)
        self._groups.update(*configs, owner=connection.counted_as)
        return RemotingCommand.response(command)

    def delete(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """DELETE_SUBSCRIPTIONGROUP (207); its offsets go too when that is asked for."""
        header = command.header(DeleteSubscriptionGroupRequestHeader)
        self._topics.system.check_group_change(header.group_name)
        self._groups.delete(header.group_name)
        if header.remove_offset or header.clean_offset:
            self._offsets.remove_group(header.group_name)
        return RemotingCommand.response(command)

    def all_configs(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201)."""
        return RemotingCommand.response(command, body=encode_body(self._groups.wrapper()))

    def config(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_SUBSCRIPTIONGROUP_CONFIG (352)."""
        config = self._groups.get(command.header(GetSubscriptionGroupConfigRequestHeader).group)
        if config is None:
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        return RemotingCommand.response(command, body=encode_body(config))

    def consumer_connections(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_CONSUMER_CONNECTION_LIST (203): a group's live members and their subscriptions."""
        name = command.header(GetConsumerConnectionListRequestHeader).consumer_group
        group = self._consumers.get(name)
        if group is None:
            raise Refusal(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
        body = ConsumerConnection(
            connection_set=_connections(group.members()),
            subscription_table={topic: known.data for topic, known in group.subscriptions.items()},
            consume_type=group.consume_type,
            message_model=group.message_model,
            consume_from_where=group.consume_from_where,
        )
        return RemotingCommand.response(command, body=encode_body(body))

    def subscription(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """QUERY_SUBSCRIPTION_BY_CONSUMER (345): what a group told of a topic."""
        header = command.header(QuerySubscriptionByConsumerRequestHeader)
        topic = header.topic or ""
        group = self._consumers.get(header.group)
        known = group.subscriptions.get(topic) if group is not None else None
        body = QuerySubscriptionResponseBody(
            group=header.group, topic=topic, subscription_data=known.data if known is not None else None
        )
        return RemotingCommand.response(command, body=encode_body(body))

    def producer_connections(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_PRODUCER_CONNECTION_LIST (204)."""
        group = command.header(GetProducerConnectionListRequestHeader).producer_group
        if group not in self._producers:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
        body = ProducerConnection(connection_set=_connections(self._producers.members(group)))
        return RemotingCommand.response(command, body=encode_body(body))

    def all_producers(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_ALL_PRODUCER_INFO (328)."""
        groups = self._producers.groups().items()
        data = {group: [self._producer(member) for member in members] for group, members in groups}
        return RemotingCommand.response(command, body=encode_body(ProducerTableInfo(data=data)))

    def consume_stats(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_CONSUME_STATS (208): how far a group is, in one topic or in all."""
        header = command.header(GetConsumeStatsRequestHeader)
        group = header.consumer_group
        topics = {header.topic} if header.topic else self._offsets.topics_of(group)
        stats = ConsumeStats(offset_table={})
        for topic in sorted(topics):
            if self._is_consumed(group, topic):
                stats.offset_table.update(self._progress(group, topic))
        return RemotingCommand.response(command, body=encode_body(stats))

    def all_consume_stats(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_CONSUME_STATS (317): how far every group is."""
        only_ordered = command.header(GetConsumeStatsInBrokerHeader).is_order
        groups: list[dict[str, list[ConsumeStats]]] = []
        behind = 0
        consumed = self._offsets.topics_by_group()
        for group in self._groups:
            topics = sorted(t for t in consumed.get(group, ()) if self._is_consumed(group, t, only_ordered))
            stats = [ConsumeStats(offset_table=self._progress(group, topic)) for topic in topics]
            behind += sum(o.broker_offset - o.consumer_offset for s in stats for o in s.offset_table.values())
            groups.append({group: stats})
        body = ConsumeStatsList(
            consume_stats_list=groups, broker_addr=self._broker_address, total_diff=behind
        )
        return RemotingCommand.response(command, body=encode_body(body))

    def clone_offsets(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """CLONE_GROUP_OFFSET (314): give one group the offsets of another."""
        header = command.header(CloneGroupOffsetRequestHeader)
        check_group_name(header.dest_group)
        self._topics.system.check_offsets(header.dest_group, header.topic or "")
        topics = {header.topic} if header.topic else self._offsets.topics_of(header.src_group)
        for topic in topics:
            consumed = header.offline or self._is_consumed(header.src_group, topic)
            consumed = consumed and not self._topics.system.is_internal(topic)
            if consumed:
                self._offsets.clone(header.src_group, header.dest_group, topic, connection)
        return RemotingCommand.response(command)

    def _check(self, config: SubscriptionGroupConfig) -> None:
        """Return if clients may configure the group so.

        Raises:
            Refusal: Its name or its number of retry queues is not possible, or the group is the broker's own.
        """
        check_group_name(config.group_name)
        self._topics.system.check_group_change(config.group_name)
        check_config_size(config.group_name, config)
        if config.retry_queue_nums > MAX_QUEUES:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"a group has at most {MAX_QUEUES} retry queues, not {config.retry_queue_nums}",
            )

    def _is_consumed(self, group: str, topic: str, only_ordered: bool = False) -> bool:
        """Whether the topic exists and the group, if it is alive, still subscribes to it."""
        config = self._topics.get(topic)
        if config is None or (only_ordered and not config.order):
            return False
        live = self._consumers.get(group)
        return live is None or not live.subscriptions or topic in live.subscriptions

    def _progress(self, group: str, topic: str) -> dict[MessageQueue, OffsetWrapper]:
        config = self._topics.get(topic)
        queues = range(config.read_queue_nums if config is not None else 0)
        return {MessageQueue(topic, self._broker_name, q): self._offset(group, topic, q) for q in queues}

    def _offset(self, group: str, topic: str, queue_id: int) -> OffsetWrapper:
        reached = self._offsets.get(group, topic, queue_id) or 0
        stored_at = self._store.store_time(topic, queue_id, reached - 1) if reached > 0 else 0
        return OffsetWrapper(
            broker_offset=max(0, self._store.max_offset(topic, queue_id)),
            consumer_offset=reached,
            pull_offset=reached,
            last_timestamp=max(0, stored_at),
        )

    def _producer(self, member: ClientChannel) -> ProducerInfo:
        return ProducerInfo(
            client_id=member.client_id,
            remote_ip=member.connection.remote_address,
            language=member.language,
            version=member.version,
            last_update_timestamp=self._clock.now_ms() - int((loop_time() - member.seen) * 1000),
        )


def _connections(members: Iterable[ClientChannel]) -> list[ConnectionBody]:
    return [
        ConnectionBody(
            client_id=member.client_id,
            client_addr=member.connection.remote_address,
            language=member.language,
            version=member.version,
        )
        for member in members
    ]
