"""Requests about consumer groups: their settings, members and progress."""

from collections.abc import Iterable

from rocket_client.admin.topics import TopicRequests
from rocket_remoting.wire.bodies import (
    ConsumerConnection,
    ConsumerRunningInfo,
    ConsumeStats,
    GroupList,
    OffsetWrapper,
    ProducerInfo,
    ProducerTableInfo,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    decode_body,
    encode_body,
)
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.errors import ResponseError
from rocket_remoting.wire.headers import (
    DeleteSubscriptionGroupRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumeStatsRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)
from rocket_remoting.wire.message import MessageQueue
from rocket_remoting.wire.topics import retry_topic, validate_group

__all__ = ["GroupRequests"]


class GroupRequests(TopicRequests):
    """Requests about groups. A group has a topic of its own, so they need those about topics."""

    async def group_configs(self, address: str) -> dict[str, SubscriptionGroupConfig]:
        """Return the settings of all groups of the broker at an address, its own groups included."""
        self._life.require_running()
        response = await self._client.requests.invoke(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return decode_body(response.body, SubscriptionGroupWrapper).subscription_group_table

    async def create_group(self, config: SubscriptionGroupConfig, *, brokers: Iterable[str] | None = None) -> None:
        """Create the group on each broker with these settings, or change it if it exists.

        Args:
            config: The group's name and settings.
            brokers: Names of brokers; by default all.

        Raises:
            NoBrokerError: No master is registered.
            ValueError: The group's name is illegal, or no master of a broker in `brokers` is registered.
        """
        validate_group(config.group_name)
        body = encode_body(config)
        await self._invoke_masters(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body, brokers=brokers)

    async def delete_group(self, group: str) -> None:
        """Delete the group, its offsets and its retry topic from every broker.

        Raises:
            NoBrokerError: No master is registered.
        """
        header = DeleteSubscriptionGroupRequestHeader(group_name=group, remove_offset=True, clean_offset=True)
        await self._invoke_masters(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
        await self.delete_topic(retry_topic(group))

    async def consume_stats(self, group: str, topic: str) -> dict[MessageQueue, OffsetWrapper]:
        """Return the group's committed offset, and the broker's, in each of the topic's queues.

        Raises:
            TopicNotFoundError: The topic does not exist.
        """
        stats: dict[MessageQueue, OffsetWrapper] = {}
        header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
        for address in await self._brokers_of(topic):
            response = await self._client.requests.invoke(address, RequestCode.GET_CONSUME_STATS, header)
            stats |= decode_body(response.body, ConsumeStats).offset_table
        return stats

    async def progress_at(self, address: str, group: str) -> ConsumeStats:
        """Return the group's progress in all queues of the broker at an address whose topic it has committed in."""
        self._life.require_running()
        header = GetConsumeStatsRequestHeader(consumer_group=group)
        response = await self._client.requests.invoke(address, RequestCode.GET_CONSUME_STATS, header)
        return decode_body(response.body, ConsumeStats)

    async def groups_of_topic_at(self, address: str, topic: str) -> set[str]:
        """Return the groups that subscribe to a topic at the broker at an address, or have committed offsets there."""
        self._life.require_running()
        header = QueryTopicConsumeByWhoRequestHeader(topic=topic)
        response = await self._client.requests.invoke(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)
        return decode_body(response.body, GroupList).group_list if response.body else set()

    async def members_at(self, address: str, group: str) -> ConsumerConnection | None:
        """Return the members that are connected to the broker at an address, with their subscriptions; None for none.

        Raises:
            ResponseError: The broker refused, for another reason than that no member is connected.
        """
        self._life.require_running()
        header = GetConsumerConnectionListRequestHeader(consumer_group=group)
        try:
            response = await self._client.requests.invoke(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        except ResponseError as error:
            if error.code == ResponseCode.CONSUMER_NOT_ONLINE:
                return None
            raise
        return decode_body(response.body, ConsumerConnection)

    async def producers_at(self, address: str) -> dict[str, list[ProducerInfo]]:
        """Return the producers that are connected to the broker at an address, by producer group.

        Raises:
            ResponseError: The broker refused; those before 4.9.4 do not know the request.
        """
        self._life.require_running()
        response = await self._client.requests.invoke(address, RequestCode.GET_ALL_PRODUCER_INFO)
        return decode_body(response.body, ProducerTableInfo).data

    async def member_state(self, address: str, group: str, client_id: str) -> ConsumerRunningInfo:
        """Return the settings, subscriptions and process queues of one member, which the broker at an address asks.

        Raises:
            ResponseError: The member is not connected there, or did not answer the broker in time.
        """
        self._life.require_running()
        header = GetConsumerRunningInfoRequestHeader(consumer_group=group, client_id=client_id)
        response = await self._client.requests.invoke(address, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        return decode_body(response.body, ConsumerRunningInfo)

    async def consumer_connections(self, group: str, broker_name: str | None = None) -> ConsumerConnection:
        """Return the group's connected members and their subscriptions, as one broker knows them.

        Args:
            group: The group.
            broker_name: The broker to ask; any master by default.

        Raises:
            NoBrokerError: No master is registered.
            ResponseError: No member is connected (CONSUMER_NOT_ONLINE).
            ValueError: No master of the broker is registered.
        """
        masters = await self.masters([broker_name] if broker_name is not None else None)
        header = GetConsumerConnectionListRequestHeader(consumer_group=group)
        address = next(iter(masters.values()))
        response = await self._client.requests.invoke(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        return decode_body(response.body, ConsumerConnection)
