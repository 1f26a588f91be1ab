"""Requests 200, 201, 203, 204, 207, 225, 328, 345 and 352: administer groups, and list connected clients."""

from collections.abc import Iterable, Iterator

from rocket_broker.clients.client_channel import ClientChannel
from rocket_broker.limits.refusal import Refusal, check_config_count, check_config_size, check_group_name
from rocket_broker.loop.loop_time import loop_time
from rocket_broker.processors.broker_context import BrokerContext
from rocket_broker.requests.long_answer import long_answer
from rocket_broker.requests.request_body import read_body
from rocket_broker.requests.request_steps import Steps
from rocket_broker.settings.server_settings import MAX_QUEUES
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import Connection as ConnectionBody
from rocket_remoting.wire.bodies import (
    ConsumerConnection,
    Entries,
    Items,
    LongBody,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
    QuerySubscriptionResponseBody,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    encode_body,
)
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import (
    DeleteSubscriptionGroupRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetProducerConnectionListRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
)

__all__ = ["GroupsProcessor"]

_FEWER_MEMBERS = "the group has too many members to be listed"


class GroupsProcessor:
    """Administers consumer groups, and lists the connected members of groups."""

    def __init__(self, context: BrokerContext) -> None:
        self._clock = context.clock
        self._topics = context.topics
        self._groups = context.groups
        self._offsets = context.offsets
        self._consumers = context.consumers
        self._producers = context.producers
        self._statistics = context.statistics

    def update(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200): create a group or replace its configuration."""
        config = read_body(command, SubscriptionGroupConfig)
        self._check(config)
        self._groups.update(config, owner=connection.counted_as)
        return RemotingCommand.response(command)

    def update_all(self, connection: Connection, command: RemotingCommand) -> Steps:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225): create or replace several groups, all or none of them."""
        configs = read_body(command, SubscriptionGroupList).group_config_list
        check_config_count("group", len(configs))
        for config in configs:
            self._check(config)
            yield
        self._groups.update(*configs, owner=connection.counted_as)
        return RemotingCommand.response(command)

    def delete(self, connection: Connection, command: RemotingCommand) -> Steps:
        """DELETE_SUBSCRIPTIONGROUP (207): delete a group, and its offsets too if the request says so."""
        header = command.header(DeleteSubscriptionGroupRequestHeader)
        self._topics.system.check_group_change(header.group_name)
        self._groups.delete(header.group_name)
        self._statistics.forget_group(header.group_name)
        if header.remove_offset or header.clean_offset:
            yield from self._offsets.remove_group(header.group_name)
        return RemotingCommand.response(command)

    def all_configs(self, connection: Connection, command: RemotingCommand) -> Steps:
        """GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201): the configurations of all groups."""
        return long_answer(command, self._groups.body(), instead="ask for single groups (GET_SUBSCRIPTIONGROUP_CONFIG)")

    def config(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_SUBSCRIPTIONGROUP_CONFIG (352): the configuration of one group."""
        config = self._groups.get(command.header(GetSubscriptionGroupConfigRequestHeader).group)
        if config is None:
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        return RemotingCommand.response(command, body=encode_body(config))

    def consumer_connections(self, connection: Connection, command: RemotingCommand) -> Steps:
        """GET_CONSUMER_CONNECTION_LIST (203): a group's live members and their subscriptions."""
        name = command.header(GetConsumerConnectionListRequestHeader).consumer_group
        group = self._consumers.get(name)
        if group is None:
            raise Refusal(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
        body = ConsumerConnection(
            connection_set=[],
            consume_type=group.consume_type,
            message_model=group.message_model,
            consume_from_where=group.consume_from_where,
        )
        fields: dict[str, Entries | Items] = {"connection_set": Items(_connections(group.members()))}
        if group.subscriptions:
            subscriptions = list(group.subscriptions.items())
            fields["subscription_table"] = Entries((topic, known.data) for topic, known in subscriptions)
        return long_answer(
            command, LongBody(body, **fields), instead="ask for one topic (QUERY_SUBSCRIPTION_BY_CONSUMER)"
        )

    def subscription(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """QUERY_SUBSCRIPTION_BY_CONSUMER (345): a group's subscription to a topic."""
        header = command.header(QuerySubscriptionByConsumerRequestHeader)
        topic = header.topic or ""
        group = self._consumers.get(header.group)
        known = group.subscriptions.get(topic) if group is not None else None
        body = QuerySubscriptionResponseBody(
            group=header.group, topic=topic, subscription_data=known.data if known is not None else None
        )
        return RemotingCommand.response(command, body=encode_body(body))

    def producer_connections(self, connection: Connection, command: RemotingCommand) -> Steps:
        """GET_PRODUCER_CONNECTION_LIST (204): the live members of a producer group."""
        group = command.header(GetProducerConnectionListRequestHeader).producer_group
        if group not in self._producers:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
        body = ProducerConnection(connection_set=[])
        members = Items(_connections(self._producers.members(group)))
        return long_answer(command, LongBody(body, connection_set=members), instead=_FEWER_MEMBERS)

    def all_producers(self, connection: Connection, command: RemotingCommand) -> Steps:
        """GET_ALL_PRODUCER_INFO (328): the live members of all producer groups."""
        groups = (
            (group, Items(map(self._producer, self._producers.members(group)))) for group in list(self._producers)
        )
        body = LongBody(ProducerTableInfo(data={}), data=Entries(groups))
        return long_answer(command, body, instead="ask for single groups (GET_PRODUCER_CONNECTION_LIST)")

    def _check(self, config: SubscriptionGroupConfig) -> None:
        """Check that clients may configure the group so.

        Raises:
            Refusal: The name or the number of retry queues is invalid, or the group is the broker's own.
        """
        check_group_name(config.group_name)
        self._topics.system.check_group_change(config.group_name)
        check_config_size(config.group_name, config)
        if config.retry_queue_nums > MAX_QUEUES:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"a group has at most {MAX_QUEUES} retry queues, not {config.retry_queue_nums}",
            )

    def _producer(self, member: ClientChannel) -> ProducerInfo:
        return ProducerInfo(
            client_id=member.client_id,
            remote_ip=member.connection.remote_address,
            language=member.language,
            version=member.version,
            last_update_timestamp=self._clock.now_ms() - int((loop_time() - member.seen) * 1000),
        )


def _connections(members: Iterable[ClientChannel]) -> Iterator[ConnectionBody]:
    for member in members:
        yield ConnectionBody(
            client_id=member.client_id,
            client_addr=member.connection.remote_address,
            language=member.language,
            version=member.version,
        )
