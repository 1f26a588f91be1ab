"""Requests about topics: their names, settings, routes and offsets."""

import asyncio
from collections.abc import Iterable

from rocket_client.admin.requests import AdminRequests
from rocket_client.core import name_server_calls
from rocket_client.core.topic_route import TopicRoute
from rocket_remoting.wire.bodies import (
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicFilterType,
    TopicOffset,
    TopicStatsTable,
    decode_body,
)
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.headers import (
    CreateTopicRequestHeader,
    DeleteKVConfigRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicStatsInfoRequestHeader,
    PutKVConfigRequestHeader,
)
from rocket_remoting.wire.message import MessageQueue
from rocket_remoting.wire.sys_flag import PERM_READ, PERM_WRITE
from rocket_remoting.wire.topics import AUTO_CREATE_TOPIC, validate_topic

__all__ = ["ORDER_TOPIC_CONFIG", "TopicRequests"]

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
"""The name servers' namespace of order configurations."""


class TopicRequests(AdminRequests):
    """Requests about topics."""

    async def topics(self) -> set[str]:
        """Return all topics that the name servers know, including the brokers' own."""
        self._life.require_running()
        found = await self._client.name_servers.call(name_server_calls.topics())
        return set(found)

    async def topic_configs(self, address: str) -> dict[str, TopicConfig]:
        """Return the settings of all topics of the broker at an address, its own topics included."""
        self._life.require_running()
        response = await self._client.requests.invoke(address, RequestCode.GET_ALL_TOPIC_CONFIG)
        return decode_body(response.body, TopicConfigSerializeWrapper).topic_config_table

    async def create_topic(
        self,
        topic: str,
        queues: int = 4,
        *,
        read_queues: int | None = None,
        perm: int = PERM_READ | PERM_WRITE,
        order: bool = False,
        message_type: str | None = None,
        brokers: Iterable[str] | None = None,
    ) -> None:
        """Create the topic on each broker, or change it if it exists.

        Args:
            topic: The topic's name.
            queues: Number of writable queues on each broker.
            read_queues: Number of readable queues on each broker; by default as many as writable ones.
            perm: The ``PERM_*`` bits of `rocket_remoting.wire.sys_flag`.
            order: Whether an order configuration lists the topic's queues, see `set_order_conf`.
            message_type: The type of its messages, such as ``FIFO``, that brokers of 5.x check; those of 4.9 ignore it.
            brokers: Names of brokers; by default all.

        Raises:
            NoBrokerError: No master is registered; nothing was created.
            ValueError: The topic's name is illegal, or no master of a broker in `brokers` is registered.
        """
        validate_topic(topic)
        header = CreateTopicRequestHeader(
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=queues if read_queues is None else read_queues,
            write_queue_nums=queues,
            perm=perm,
            topic_filter_type=TopicFilterType.SINGLE_TAG.value,
            topic_sys_flag=0,
            order=order,
            attributes=None if message_type is None else f"+message.type={message_type}",
        )
        await self._invoke_masters(RequestCode.UPDATE_AND_CREATE_TOPIC, header, brokers=brokers)

    async def delete_topic(self, topic: str) -> None:
        """Delete the topic from all brokers and name servers.

        Raises:
            NoBrokerError: No master is registered.
        """
        header = DeleteTopicRequestHeader(topic=topic)
        await self._invoke_masters(RequestCode.DELETE_TOPIC_IN_BROKER, header)
        of_name_servers = DeleteTopicFromNamesrvRequestHeader(topic=topic)
        await self._invoke_name_servers(RequestCode.DELETE_TOPIC_IN_NAMESRV, of_name_servers)
        self._client.routes.forget(topic)

    async def await_topic(self, topic: str, *, queues: int = 1, timeout: float = 10.0) -> TopicRoute:
        """Wait until a name server knows at least `queues` writable queues of the topic; return the route.

        Args:
            topic: The topic.
            queues: Number of writable queues to wait for, over all brokers.
            timeout: Seconds to wait.

        Raises:
            TimeoutError: The name servers did not know that many queues in time.
        """
        self._life.require_running()
        known = 0
        try:
            async with asyncio.timeout(timeout):
                while True:
                    data = await self._client.name_servers.topic_route(topic)
                    if data is not None:
                        route = TopicRoute(topic, data)
                        known = len(route.publish_queues)
                        if known >= queues:
                            self._client.routes.put(route)
                            return route
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise TimeoutError(
                f"after {timeout:g} s the name servers know {known} of {queues} queues of topic {topic!r}"
            ) from None

    async def topic_stats(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """Return minimum and maximum offset of each of the topic's queues.

        Raises:
            TopicNotFoundError: The topic does not exist.
        """
        stats: dict[MessageQueue, TopicOffset] = {}
        for address in await self._brokers_of(topic):
            stats |= await self.topic_stats_at(address, topic)
        return stats

    async def topic_stats_at(self, address: str, topic: str) -> dict[MessageQueue, TopicOffset]:
        """Return minimum and maximum offset of each of the topic's queues at the broker at an address."""
        self._life.require_running()
        header = GetTopicStatsInfoRequestHeader(topic=topic)
        response = await self._client.requests.invoke(address, RequestCode.GET_TOPIC_STATS_INFO, header)
        return decode_body(response.body, TopicStatsTable).offset_table

    async def set_order_conf(self, topic: str, order_conf: str) -> None:
        """Set the queues that clients send a topic's messages to, in this order, whichever brokers are alive.

        Name servers add the configuration to routes only with ``orderMessageEnable=true``.

        Args:
            topic: The topic.
            order_conf: Brokers with their numbers of queues, such as ``broker-a:4;broker-b:4``.
        """
        header = PutKVConfigRequestHeader(namespace=ORDER_TOPIC_CONFIG, key=topic, value=order_conf)
        await self._invoke_name_servers(RequestCode.PUT_KV_CONFIG, header)

    async def delete_order_conf(self, topic: str) -> None:
        """Delete the topic's order configuration: clients send to all writable queues of living brokers again."""
        header = DeleteKVConfigRequestHeader(namespace=ORDER_TOPIC_CONFIG, key=topic)
        await self._invoke_name_servers(RequestCode.DELETE_KV_CONFIG, header)
