"""Administration: topics, offsets, messages. What provisioning, tests and tools need of mqadmin."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from rocket_client.connection import shared_clients
from rocket_client.connection.client import RocketClient
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
    TopicList,
    TopicOffset,
    TopicStatsTable,
    decode_body,
    encode_body,
)
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.compression import decompress
from rocket_remoting.wire.errors import RemoteProtocolError, ResponseError
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
    ViewMessageRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from rocket_remoting.wire.message import MessageExt, MessageQueue
from rocket_remoting.wire.message_id import parse_offset_id
from rocket_remoting.wire.record import decode_record, decode_records
from rocket_remoting.wire.sys_flag import COMPRESSED, PERM_READ, PERM_WRITE
from rocket_remoting.wire.topics import AUTO_CREATE_TOPIC, retry_topic, validate_group, validate_topic

logger = logging.getLogger(__name__)

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
"""The name servers' namespace of order configurations."""

_FOREVER_MS = (1 << 63) - 1


class Admin:
    """Asks name servers and brokers to change things, and to tell how they are.

    As mqadmin does, it says all names as brokers know them, whatever namespace its settings have: `Namespace.wrap`
    makes them.

    Args:
        settings: Name servers and timeouts.
        transport: TCP unless given.
        clock: The machine's unless given.
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
        return f"<Admin of {', '.join(self.settings.name_server_addresses)}, {self._life.state.value}>"

    async def start(self) -> None:
        """The admin can ask. Connections are made when they are needed."""
        self._life.begin()
        self._client = shared_clients.acquire(
            self.settings,
            self._transport,
            self._clock,
            instance_name=self.settings.instance_name,
            is_free=lambda client: True,
        )
        self._client.admins += 1
        self._life.succeed()

    async def shutdown(self) -> None:
        """Connections nobody else uses are closed."""
        if self._life.end():
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
        """All brokers the name servers know."""
        self._life.require_running()
        response = await self._client.name_servers.invoke(RequestCode.GET_BROKER_CLUSTER_INFO)
        _check(response.code, response.remark, RequestCode.GET_BROKER_CLUSTER_INFO)
        return decode_body(response.body, ClusterInfo)

    async def broker_settings(self) -> dict[str, dict[str, str]]:
        """The settings in effect at each master, by broker name; a setting's name is that of ``broker.conf``.

        Raises:
            ResponseError: A broker does not tell them to this client.
        """
        found: dict[str, dict[str, str]] = {}
        for broker_name, address in (await self._masters(None)).items():
            response = await self._client.requests.ask(address, RequestCode.GET_BROKER_CONFIG)
            lines = bytes(response.body).decode(errors="replace").splitlines()
            pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
            found[broker_name] = {name.strip(): value.strip() for name, _, value in pairs}
        return found

    async def wipe_write_perm(self, broker_name: str) -> int:
        """Producers choose the broker no more, once they look at routes again; returns how many topics it has.

        The broker itself still takes what is sent to it, and consumers go on. A restart of the broker, or a topic
        that is made on it, gives the permission back.
        """
        header, code = (
            WipeWritePermOfBrokerRequestHeader(broker_name=broker_name),
            RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        )
        answers = await self._tell_name_servers(code, header)
        return max(answer.header(WipeWritePermOfBrokerResponseHeader).wipe_topic_count for answer in answers)

    async def add_write_perm(self, broker_name: str) -> int:
        """Producers may choose the broker again; returns how many topics it has."""
        header, code = (
            AddWritePermOfBrokerRequestHeader(broker_name=broker_name),
            RequestCode.ADD_WRITE_PERM_OF_BROKER,
        )
        answers = await self._tell_name_servers(code, header)
        return max(answer.header(AddWritePermOfBrokerResponseHeader).add_topic_count for answer in answers)

    async def topics(self) -> set[str]:
        """All topics the name servers know, the brokers' own among them."""
        self._life.require_running()
        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        response = await self._client.name_servers.invoke(code)
        _check(response.code, response.remark, code)
        return decode_body(response.body, TopicList).topic_list

    async def topic_route(self, topic: str) -> TopicRoute:
        """Where the topic's queues are, asked anew.

        Raises:
            TopicNotFoundError: No such topic is known.
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
        """The topic exists with that many queues on every broker; one that exists is changed to it.

        Args:
            topic: Its name.
            queues: Queues to write to, on each broker.
            read_queues: Queues to read from; as many unless given.
            perm: The ``PERM_*`` bits of `rocket_remoting.wire.sys_flag`.
            order: Whether its queues are listed by the order configuration.
            brokers: Names of the brokers; all unless given.

        Raises:
            NoBrokerError: No broker is registered yet; nothing was created.
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
        for address in (await self._masters(brokers)).values():
            await self._client.requests.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def delete_topic(self, topic: str) -> None:
        """The topic is gone from all brokers and name servers."""
        for address in (await self._masters(None)).values():
            await self._client.requests.ask(
                address, RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=topic)
            )
        gone = DeleteTopicFromNamesrvRequestHeader(topic=topic)
        await self._tell_name_servers(RequestCode.DELETE_TOPIC_IN_NAMESRV, gone)
        self._client.routes.forget(topic)

    async def await_topic(self, topic: str, *, queues: int = 1, timeout: float = 10.0) -> TopicRoute:
        """The topic's route, once name servers know of that many queues to write to.

        Raises:
            TimeoutError: They did not in time.
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
                f"after {timeout:g} s the name servers know of {known} of {queues} queues of topic {topic!r}"
            ) from None

    async def topic_stats(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """First and last offset of each of the topic's queues."""
        stats: dict[MessageQueue, TopicOffset] = {}
        for address in await self._brokers_of(topic):
            response = await self._client.requests.ask(
                address, RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader(topic=topic)
            )
            stats |= decode_body(response.body, TopicStatsTable).offset_table
        return stats

    async def set_order_conf(self, topic: str, order_conf: str) -> None:
        """Clients send to exactly these queues, ``broker-a:4;broker-b:4``, in this order, whoever is alive.

        Name servers put it into routes only with ``orderMessageEnable=true``.
        """
        header = PutKVConfigRequestHeader(namespace=ORDER_TOPIC_CONFIG, key=topic, value=order_conf)
        await self._tell_name_servers(RequestCode.PUT_KV_CONFIG, header)

    async def delete_order_conf(self, topic: str) -> None:
        """Clients send to all queues of the brokers that are alive again."""
        header = DeleteKVConfigRequestHeader(namespace=ORDER_TOPIC_CONFIG, key=topic)
        await self._tell_name_servers(RequestCode.DELETE_KV_CONFIG, header)

    async def _tell_name_servers(self, code: RequestCode, header: Header) -> list[RemotingCommand]:
        self._life.require_running()
        ask, addresses = self._client.name_servers.ask, self.settings.name_server_addresses
        return [await ask(address, code, header) for address in addresses]

    # Groups

    async def create_group(self, config: SubscriptionGroupConfig) -> None:
        """The group has these settings on every broker."""
        validate_group(config.group_name)
        for address in (await self._masters(None)).values():
            await self._client.requests.ask(
                address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, encode_body(config)
            )

    async def delete_group(self, group: str) -> None:
        """The group, its offsets and its retry topic are gone from every broker."""
        header = DeleteSubscriptionGroupRequestHeader(group_name=group, remove_offset=True, clean_offset=True)
        for address in (await self._masters(None)).values():
            await self._client.requests.ask(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
        await self.delete_topic(retry_topic(group))

    async def consume_stats(self, group: str, topic: str) -> dict[MessageQueue, OffsetWrapper]:
        """How far the group is in each of the topic's queues."""
        stats: dict[MessageQueue, OffsetWrapper] = {}
        header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
        for address in await self._brokers_of(topic):
            response = await self._client.requests.ask(address, RequestCode.GET_CONSUME_STATS, header)
            stats |= decode_body(response.body, ConsumeStats).offset_table
        return stats

    async def consumer_connections(self, group: str, broker_name: str | None = None) -> ConsumerConnection:
        """Who of the group is connected, and what it subscribes to.

        Raises:
            ResponseError: Nobody is (CONSUMER_NOT_ONLINE).
        """
        masters = await self._masters([broker_name] if broker_name is not None else None)
        header = GetConsumerConnectionListRequestHeader(consumer_group=group)
        address = next(iter(masters.values()))
        response = await self._client.requests.ask(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        return decode_body(response.body, ConsumerConnection)

    # Offsets

    async def min_offset(self, queue: MessageQueue) -> int:
        """Where the queue's oldest message is."""
        await self._know(queue.topic)
        return await self._client.requests.min_offset(queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Where the queue's next message will be."""
        await self._know(queue.topic)
        return await self._client.requests.max_offset(queue)

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The message stored at that time: the nearest one on Apache's 4.9, the next one on 5.x."""
        await self._know(queue.topic)
        return await self._client.requests.search_offset(queue, timestamp_ms)

    async def committed_offset(self, queue: MessageQueue, group: str) -> int | None:
        """The offset the group has committed; None when it has none."""
        await self._know(queue.topic)
        return await self._client.requests.committed_offset(queue, group)

    async def commit_offset(self, queue: MessageQueue, group: str, offset: int) -> None:
        """The group goes on from there when it next takes the queue; members at work overwrite it."""
        await self._know(queue.topic)
        await self._client.requests.commit_offset(queue, group, offset)

    async def reset_offsets(
        self, group: str, topic: str, timestamp_ms: int, *, force: bool = True
    ) -> Mapping[MessageQueue, int]:
        """The group's members go on with the messages stored from that time on.

        Args:
            group: Whose members must be online.
            topic: Which of its topics.
            timestamp_ms: When; -1 for the end of each queue.
            force: Also forward.
        """
        offsets: dict[MessageQueue, int] = {}
        header = ResetOffsetRequestHeader(group=group, topic=topic, timestamp=timestamp_ms, is_force=force)
        for address in await self._brokers_of(topic):
            response = await self._client.requests.ask(
                address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header
            )
            if response.body:
                offsets |= decode_body(response.body, ResetOffsetBody).offset_table
        return offsets

    # Messages

    async def view_message(self, offset_message_id: str) -> MessageExt:
        """The message whose record the id points at.

        Raises:
            RemoteProtocolError: The text is no such id; the id a producer gave is for `query_by_unique_key`.
            ResponseError: The broker has no such record any more.
        """
        self._life.require_running()
        host, port, offset = parse_offset_id(offset_message_id)
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        response = await self._client.requests.ask(
            address, RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=offset)
        )
        (message,) = await self._unpacked([decode_record(response.body, decompress=False)])
        return message

    async def query_by_key(
        self, topic: str, key: str, *, max_count: int = 32, begin_ms: int = 0, end_ms: int = _FOREVER_MS
    ) -> list[MessageExt]:
        """Messages of the topic that have the key."""
        found = await self._query(topic, key, max_count, begin_ms, end_ms, unique=False)
        return [message for message in found if key in (message.keys or "").split(" ")]

    async def query_by_unique_key(self, topic: str, unique_key: str) -> list[MessageExt]:
        """Records of the message that a producer gave this id."""
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
            _check(response.code, response.remark, RequestCode.QUERY_MESSAGE, address)
            messages += decode_records(response.body, decompress=False)
        return await self._unpacked(messages)

    async def _unpacked(self, messages: list[MessageExt]) -> list[MessageExt]:
        """Return the messages with their bodies decompressed, up to `max_decompressed_size` bytes.

        A body that is damaged, or for which there is no room any more, stays as it is stored; the message's system flag
        says so.
        """
        loop, room = asyncio.get_running_loop(), self.settings.max_decompressed_size
        for message in messages:
            if message.sys_flag & COMPRESSED:
                limit = min(room, self.settings.max_decompressed_body_size)
                try:
                    body = await loop.run_in_executor(None, decompress, message.body, message.sys_flag, limit)
                except RemoteProtocolError as error:
                    logger.warning("%r stays as it is stored: %s", message, error)
                    continue
                message.body = body
                message.sys_flag &= ~COMPRESSED
                room -= len(body)
        return messages

    # Where

    async def _masters(self, broker_names: Iterable[str] | None) -> dict[str, str]:
        """Addresses of masters by broker name.

        Raises:
            NoBrokerError: There is none.
            ValueError: One that is named is not there.
        """
        table = (await self.cluster_info()).broker_addr_table
        masters = {
            name: data.broker_addrs[MASTER_ID]
            for name, data in table.items()
            if MASTER_ID in data.broker_addrs
        }
        if broker_names is None:
            if not masters:
                raise NoBrokerError(self._client.name_servers.addresses)
            return masters
        wanted = list(broker_names)
        missing = [name for name in wanted if name not in masters]
        if missing:
            raise ValueError(
                f"no master of {', '.join(missing)} is known; there are {', '.join(masters) or 'none'}"
            )
        return {name: masters[name] for name in wanted}

    async def _brokers_of(self, topic: str) -> list[str]:
        """An address of each broker that has queues of the topic."""
        route = await self.topic_route(topic)
        addresses: list[str] = []
        for broker in route.data.broker_datas:
            found = self._client.routes.address(broker.broker_name, MASTER_ID)
            if found is not None:
                addresses.append(found[0])
        return addresses

    async def _know(self, topic: str) -> None:
        self._life.require_running()
        if self._client.routes.get(topic) is None:
            await self.topic_route(topic)


def _check(code: int, remark: str | None, request_code: RequestCode, address: str = "") -> None:
    if code != ResponseCode.SUCCESS:
        raise ResponseError(code, remark, address=address, request_code=request_code)
