"""Administration of topics, groups, offsets and messages: the part of mqadmin that provisioning and tools need."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from rocket_client.connection import shared_clients
from rocket_client.connection.client import RocketClient
from rocket_client.core import name_server_calls
from rocket_client.core.call import refusal
from rocket_client.core.state import Lifecycle
from rocket_client.core.topic_route import MASTER_ID, TopicRoute
from rocket_client.errors import NoBrokerError, TopicNotFoundError
from rocket_client.settings import ClientSettings
from rocket_remoting.clock import Clock
from rocket_remoting.transports.transport import Transport
from rocket_remoting.wire.bodies import (
    ClusterInfo,
    ConsumerConnection,
    ConsumeStats,
    OffsetWrapper,
    ResetOffsetBody,
    SubscriptionGroupConfig,
    TopicFilterType,
    TopicOffset,
    TopicStatsTable,
    decode_body,
    encode_body,
)
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.compression import decompress
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.ext_fields import Header
from rocket_remoting.wire.headers import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    CreateTopicRequestHeader,
    DeleteKVConfigRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    DeleteTopicRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumeStatsRequestHeader,
    GetTopicStatsInfoRequestHeader,
    PutKVConfigRequestHeader,
    QueryMessageRequestHeader,
    ResetOffsetRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
    ViewMessageRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from rocket_remoting.wire.message import MessageExt, MessageQueue
from rocket_remoting.wire.message_id import parse_offset_id
from rocket_remoting.wire.record import decode_record, decode_records
from rocket_remoting.wire.sys_flag import COMPRESSED, PERM_READ, PERM_WRITE
from rocket_remoting.wire.topics import (
    AUTO_CREATE_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    retry_topic,
    validate_group,
    validate_topic,
)

logger = logging.getLogger(__name__)

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
"""The name servers' namespace of order configurations."""

_FOREVER_MS = (1 << 63) - 1


class Admin:
    """Sends administrative requests to name servers and brokers.

    As in mqadmin, all names are those that brokers know. The namespace of the settings is not applied; `Namespace.wrap`
    adds it.

    Every request raises a `ClientStateError` if the admin is not running, a `ResponseError` if a server refuses, and
    another `RemotingError` if a server cannot be reached or does not answer.

    Args:
        settings: Name servers and timeouts.
        transport: The transport of connections; TCP by default.
        clock: The clock of timestamps; the system clock by default.
    """

    def __init__(
        self, settings: ClientSettings, *, transport: Transport | None = None, clock: Clock | None = None
    ) -> None:
        self.settings = settings
        self._transport = transport
        self._clock = clock
        self._life = Lifecycle("admin")
        self._client: RocketClient

    def __repr__(self) -> str:
        return f"<Admin of {self.settings.name_servers_text}, {self._life.state.value}>"

    async def start(self) -> None:
        """Start the admin. Connections are opened by the first request that needs them.

        Raises:
            ClientStateError: The admin was started before.
            NameServersUnreachableError: The addresses of the name servers could not be fetched.
        """
        self._life.begin()
        self._client = shared_clients.acquire(
            self.settings,
            self._transport,
            self._clock,
            instance_name=self.settings.instance_name,
            is_free=lambda client: True,
        )
        self._client.admins += 1
        try:
            await self._client.name_servers.find()
        except BaseException:
            await self._leave()
            raise
        self._life.succeed()

    async def shutdown(self) -> None:
        """Close the connections that no other member of this process uses."""
        if self._life.end():
            await self._leave()

    async def _leave(self) -> None:
        self._client.admins -= 1
        await shared_clients.release(self._client)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()

    # Cluster and topics

    async def cluster_info(self) -> ClusterInfo:
        """Return the clusters and brokers that the name servers know."""
        self._life.require_running()
        return await self._client.name_servers.call(name_server_calls.cluster_info())

    async def broker_settings(self) -> dict[str, dict[str, str]]:
        """Return the effective settings of each master by broker name; setting names are those of ``broker.conf``.

        Raises:
            NoBrokerError: No master is registered.
            ResponseError: A broker does not show its settings to this client.
        """
        found: dict[str, dict[str, str]] = {}
        for broker_name, address in (await self._masters(None)).items():
            response = await self._client.requests.invoke(address, RequestCode.GET_BROKER_CONFIG)
            lines = bytes(response.body).decode(errors="replace").splitlines()
            pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
            found[broker_name] = {name.strip(): value.strip() for name, _, value in pairs}
        return found

    async def wipe_write_perm(self, broker_name: str) -> int:
        """Remove the broker's write permission from all routes; return the number of its topics.

        Producers stop to choose the broker when they next refresh their routes. The broker itself still accepts
        messages, and consumers continue. A restart of the broker, or a topic created on it, restores the permission.
        """
        header = WipeWritePermOfBrokerRequestHeader(broker_name=broker_name)
        answers = await self._invoke_name_servers(RequestCode.WIPE_WRITE_PERM_OF_BROKER, header)
        return max(answer.header(WipeWritePermOfBrokerResponseHeader).wipe_topic_count for answer in answers)

    async def add_write_perm(self, broker_name: str) -> int:
        """Restore the broker's write permission in all routes; return the number of its topics."""
        header = AddWritePermOfBrokerRequestHeader(broker_name=broker_name)
        answers = await self._invoke_name_servers(RequestCode.ADD_WRITE_PERM_OF_BROKER, header)
        return max(answer.header(AddWritePermOfBrokerResponseHeader).add_topic_count for answer in answers)

    async def topics(self) -> set[str]:
        """Return all topics that the name servers know, including the brokers' own."""
        self._life.require_running()
        found = await self._client.name_servers.call(name_server_calls.topics())
        return set(found)

    async def topic_route(self, topic: str) -> TopicRoute:
        """Ask a name server for the topic's route.

        Raises:
            TopicNotFoundError: The topic does not exist.
        """
        self._life.require_running()
        data = await self._client.name_servers.topic_route(topic)
        if data is None:
            raise TopicNotFoundError(topic, "it does not exist")
        route = TopicRoute(topic, data)
        self._client.routes.put(route)
        return route

    async def create_topic(
        self,
        topic: str,
        queues: int = 4,
        *,
        read_queues: int | None = None,
        perm: int = PERM_READ | PERM_WRITE,
        order: bool = False,
        brokers: Iterable[str] | None = None,
    ) -> None:
        """Create the topic on each broker, or change it if it exists.

        Args:
            topic: The topic's name.
            queues: Number of writable queues on each broker.
            read_queues: Number of readable queues on each broker; by default as many as writable ones.
            perm: The ``PERM_*`` bits of `rocket_remoting.wire.sys_flag`.
            order: Whether an order configuration lists the topic's queues, see `set_order_conf`.
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
            response = await self._client.requests.invoke(
                address, RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader(topic=topic)
            )
            stats |= decode_body(response.body, TopicStatsTable).offset_table
        return stats

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

    async def _invoke_name_servers(self, code: RequestCode, header: Header) -> list[RemotingCommand]:
        self._life.require_running()
        name_servers = self._client.name_servers
        return [await name_servers.invoke(address, code, header) for address in name_servers.addresses]

    async def _invoke_masters(
        self,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        *,
        brokers: Iterable[str] | None = None,
    ) -> None:
        for address in (await self._masters(brokers)).values():
            await self._client.requests.invoke(address, code, header, body)

    # Groups

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
        masters = await self._masters([broker_name] if broker_name is not None else None)
        header = GetConsumerConnectionListRequestHeader(consumer_group=group)
        address = next(iter(masters.values()))
        response = await self._client.requests.invoke(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        return decode_body(response.body, ConsumerConnection)

    # Offsets

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the queue's oldest message."""
        await self._ensure_route(queue.topic)
        return await self._client.requests.min_offset(queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the queue's next message will get."""
        await self._ensure_route(queue.topic)
        return await self._client.requests.max_offset(queue)

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the message stored at a time: on Apache 4.9 the nearest message, on 5.x the next one.

        Args:
            queue: The queue.
            timestamp_ms: The time in milliseconds since the epoch.
        """
        await self._ensure_route(queue.topic)
        return await self._client.requests.search_offset(queue, timestamp_ms)

    async def committed_offset(self, queue: MessageQueue, group: str) -> int | None:
        """Return the offset at which the group begins the queue; None if the group has committed none.

        Without a committed offset, brokers answer 0 for a queue whose first message they have in memory.
        """
        await self._ensure_route(queue.topic)
        return await self._client.requests.committed_offset(queue, group)

    async def commit_offset(self, queue: MessageQueue, group: str, offset: int) -> None:
        """Commit an offset for the group. A member takes it when it next takes the queue over.

        A member that consumes the queue now overwrites the offset; use `reset_offsets` then.
        """
        await self._ensure_route(queue.topic)
        await self._client.requests.commit_offset(queue, group, offset)

    async def reset_offsets(
        self, group: str, topic: str, timestamp_ms: int, *, force: bool = True
    ) -> Mapping[MessageQueue, int]:
        """Reset the group's offsets to the messages stored from a time on; its connected members continue there.

        Args:
            group: The group; it must have connected members.
            topic: The topic.
            timestamp_ms: The time in milliseconds since the epoch; -1 for the end of each queue.
            force: Whether offsets may also move forward.

        Returns:
            The new offset of each queue.

        Raises:
            TopicNotFoundError: The topic does not exist.
        """
        offsets: dict[MessageQueue, int] = {}
        header = ResetOffsetRequestHeader(group=group, topic=topic, timestamp=timestamp_ms, is_force=force)
        for address in await self._brokers_of(topic):
            response = await self._client.requests.invoke(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
            if response.body:
                offsets |= decode_body(response.body, ResetOffsetBody).offset_table
        return offsets

    # Messages

    async def view_message(self, offset_message_id: str) -> MessageExt:
        """Return the message of the record that an offset message id names.

        Raises:
            RemoteProtocolError: The text is not an offset message id. For the id that a producer gave a message, use
                `query_by_unique_key`.
            ResponseError: The broker does not have the record any more.
        """
        self._life.require_running()
        _, _, offset = parse_offset_id(offset_message_id)
        response = await self._client.requests.invoke(
            _broker_of(offset_message_id), RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=offset)
        )
        (message,) = await self._unpacked([decode_record(response.body, decompress=False)])
        return message

    async def resume_transaction(self, offset_message_id: str) -> None:
        """Resume the checks of a transaction that the broker has given up; their number begins anew.

        Args:
            offset_message_id: The `offset_message_id` of the message in topic TRANS_CHECK_MAX_TIME_TOPIC. The broker
                has logged it as well.

        Raises:
            RemoteProtocolError: The text is not an offset message id.
            ResponseError: It is not the id of a message in that topic, or the broker cannot store the message.
        """
        self._life.require_running()
        header = ResumeCheckHalfMessageRequestHeader(topic=TRANS_CHECK_MAX_TIME_TOPIC, msg_id=offset_message_id)
        await self._client.requests.invoke(_broker_of(offset_message_id), RequestCode.RESUME_CHECK_HALF_MESSAGE, header)

    async def query_by_key(
        self, topic: str, key: str, *, max_count: int = 32, begin_ms: int = 0, end_ms: int = _FOREVER_MS
    ) -> list[MessageExt]:
        """Return the topic's messages with a key.

        Args:
            topic: The topic.
            key: The key.
            max_count: Most messages that each broker returns.
            begin_ms: The earliest store time, in milliseconds since the epoch.
            end_ms: The latest store time, in milliseconds since the epoch.

        Raises:
            TopicNotFoundError: The topic does not exist.
        """
        found = await self._query(topic, key, max_count, begin_ms, end_ms, unique=False)
        return [message for message in found if key in (message.keys or "").split(" ")]

    async def query_by_unique_key(self, topic: str, unique_key: str) -> list[MessageExt]:
        """Return the topic's records of the message with a unique id, which a producer gave it.

        Raises:
            TopicNotFoundError: The topic does not exist.
        """
        found = await self._query(topic, unique_key, 32, 0, _FOREVER_MS, unique=True)
        return [message for message in found if message.unique_key == unique_key]

    async def _query(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int, *, unique: bool
    ) -> list[MessageExt]:
        header = QueryMessageRequestHeader(
            topic=topic,
            key=key,
            max_num=max_count,
            begin_timestamp=begin_ms,
            end_timestamp=end_ms,
            unique_key_query=unique,
        )
        messages: list[MessageExt] = []
        for address in await self._brokers_of(topic):
            connection = await self._client.brokers.to(address)
            response = await connection.invoke(
                RequestCode.QUERY_MESSAGE,
                header,
                timeout=self.settings.request_timeout.total_seconds(),
            )
            if response.code == ResponseCode.QUERY_NOT_FOUND:
                continue
            if response.code != ResponseCode.SUCCESS:
                raise refusal(response, address, RequestCode.QUERY_MESSAGE)
            messages += decode_records(response.body, decompress=False)
        return await self._unpacked(messages)

    async def _unpacked(self, messages: list[MessageExt]) -> list[MessageExt]:
        """Return the messages with their bodies decompressed, up to `max_decompressed_size` bytes.

        A body that is damaged or does not fit any more stays compressed, as the message's system flag then says.
        """
        loop, free = asyncio.get_running_loop(), self.settings.max_decompressed_size
        for message in messages:
            if message.sys_flag & COMPRESSED:
                limit = min(free, self.settings.max_decompressed_body_size)
                try:
                    body = await loop.run_in_executor(None, decompress, message.body, message.sys_flag, limit)
                except RemoteProtocolError as error:
                    logger.warning("the body of %r stays compressed: %s", message, error)
                    continue
                message.body = body
                message.sys_flag &= ~COMPRESSED
                free -= len(body)
        return messages

    # Addresses

    async def _masters(self, broker_names: Iterable[str] | None) -> dict[str, str]:
        """Return the addresses of masters by broker name; of all brokers if None are named.

        Raises:
            NoBrokerError: No master is registered.
            ValueError: No master of a named broker is registered.
        """
        table = (await self.cluster_info()).broker_addr_table
        masters = {name: data.broker_addrs[MASTER_ID] for name, data in table.items() if MASTER_ID in data.broker_addrs}
        if broker_names is None:
            if not masters:
                raise NoBrokerError(self._client.name_servers.addresses)
            return masters
        wanted = list(broker_names)
        missing = [name for name in wanted if name not in masters]
        if missing:
            raise ValueError(f"no master of {', '.join(missing)} is known; there are {', '.join(masters) or 'none'}")
        return {name: masters[name] for name in wanted}

    async def _brokers_of(self, topic: str) -> list[str]:
        """Return an address of each broker that has queues of the topic.

        Raises:
            TopicNotFoundError: The topic does not exist.
        """
        route = await self.topic_route(topic)
        addresses: list[str] = []
        for broker in route.data.broker_datas:
            found = self._client.routes.address(broker.broker_name, MASTER_ID)
            if found is not None:
                addresses.append(found[0])
        return addresses

    async def _ensure_route(self, topic: str) -> None:
        self._life.require_running()
        if self._client.routes.get(topic) is None:
            await self.topic_route(topic)


def _broker_of(offset_message_id: str) -> str:
    """Return the address of the broker that gave a message this id.

    Raises:
        RemoteProtocolError: The text is not an offset message id.
    """
    host, port, _ = parse_offset_id(offset_message_id)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
