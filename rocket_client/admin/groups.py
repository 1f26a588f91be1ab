"""Requests about consumer groups: their settings, members and progress."""

from rocket_client.admin.topics import TopicRequests
from rocket_remoting.wire.bodies import (
    ConsumerConnection,
    ConsumeStats,
    OffsetWrapper,
    SubscriptionGroupConfig,
    decode_body,
    encode_body,
)
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.headers import (
    DeleteSubscriptionGroupRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumeStatsRequestHeader,
)
from rocket_remoting.wire.message import MessageQueue
from rocket_remoting.wire.topics import retry_topic, validate_group

__all__ = ["GroupRequests"]


class GroupRequests(TopicRequests):
    """Requests about groups. A group has a topic of its own, so they need those about topics."""

    async def create_group(self, config: SubscriptionGroupConfig) -> None:
        """Create the group on every broker with these settings, or change it if it exists.

        Raises:
            NoBrokerError: No master is registered.
            ValueError: The group's name is illegal.
        """
        validate_group(config.group_name)
        body = encode_body(config)
        await self._invoke_masters(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)

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
