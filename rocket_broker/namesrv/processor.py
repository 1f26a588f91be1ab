"""The request handlers of the name server, by request code."""

import logging
import re
from collections.abc import Iterable, Iterator

from rocket_broker.access.needs import ADMIN, OPEN, OPERATOR, RENEWED, SIGNED, Served
from rocket_broker.namesrv.kv_config import ORDER_TOPIC_CONFIG, KVConfig
from rocket_broker.namesrv.route_table import RouteTable
from rocket_broker.namesrv.settings import NameServerSettings
from rocket_broker.requests.long_answer import long_answer
from rocket_broker.requests.request_body import read_body
from rocket_broker.requests.request_steps import Steps
from rocket_broker.requests.serving import Answer, RequestHandler
from rocket_broker.requests.settings_request import answer_settings, answer_settings_update, settings_in
from rocket_broker.settings.checks import MASTER_ID
from rocket_broker.settings.server_settings import MAX_QUEUES
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import (
    BrokerData,
    DataVersion,
    Entries,
    Items,
    KVTable,
    LongBody,
    TopicConfig,
    TopicList,
    encode_body,
)
from rocket_remoting.wire.bodies.registration import Registered, read_registration
from rocket_remoting.wire.codes import RequestCode, ResponseCode, Version
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    BrokerHeartbeatRequestHeader,
    DeleteKVConfigRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
    PutKVConfigRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from rocket_remoting.wire.record import body_crc32

__all__ = ["NameServerProcessor"]

logger = logging.getLogger(__name__)

ZLIB = 0x78
"""First byte of a zlib stream, with which JSON never begins."""

_FEW_BROKERS = 16
"""The largest number of brokers of a route that is encoded in one step, of less than half a millisecond."""

MAX_ADDRESS = 300
_LEGAL_NAME = re.compile(r"[^\s\x00-\x1f]{1,255}")
_LEGAL_ADDRESS = re.compile(r"[^\s\x00-\x1f;]{1,255}:[0-9]{1,5}")


class NameServerProcessor:
    """The handlers of all requests that a name server serves.

    Attributes:
        table: The handler of each request code, and what requests need to reach it where access control is on.
    """

    def __init__(self, settings: NameServerSettings, routes: RouteTable, kv_config: KVConfig) -> None:
        self._settings = settings
        self._routes = routes
        self._kv = kv_config
        code = RequestCode
        self.table: dict[int, Served] = {
            code.GET_ROUTEINFO_BY_TOPIC: Served(self.get_route, OPEN),
            code.REGISTER_BROKER: Served(self.register_broker, RENEWED),
            code.UNREGISTER_BROKER: Served(self.unregister_broker, ADMIN),
            code.QUERY_DATA_VERSION: Served(self.query_data_version, RENEWED),
            code.BROKER_HEARTBEAT: Served(self.broker_heartbeat, RENEWED),
            code.GET_BROKER_CLUSTER_INFO: Served(self.get_cluster_info, OPEN),
            code.WIPE_WRITE_PERM_OF_BROKER: Served(self.wipe_write_perm, OPERATOR),
            code.ADD_WRITE_PERM_OF_BROKER: Served(self.add_write_perm, OPERATOR),
            code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: Served(self.get_all_topics, OPEN),
            code.GET_TOPICS_BY_CLUSTER: Served(self.get_topics_by_cluster, OPEN),
            code.GET_SYSTEM_TOPIC_LIST_FROM_NS: Served(self.get_system_topics, OPEN),
            code.GET_UNIT_TOPIC_LIST: Served(self._topics_with_flags(unit=True, unit_sub=None), OPEN),
            code.GET_HAS_UNIT_SUB_TOPIC_LIST: Served(self._topics_with_flags(unit=None, unit_sub=True), OPEN),
            code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: Served(self._topics_with_flags(unit=False, unit_sub=True), OPEN),
            code.DELETE_TOPIC_IN_NAMESRV: Served(self.delete_topic, OPERATOR),
            code.PUT_KV_CONFIG: Served(self.put_kv, OPERATOR),
            code.GET_KV_CONFIG: Served(self.get_kv, OPEN),
            code.DELETE_KV_CONFIG: Served(self.delete_kv, OPERATOR),
            code.GET_KVLIST_BY_NAMESPACE: Served(self.get_kv_namespace, OPEN),
            code.UPDATE_NAMESRV_CONFIG: Served(self.update_settings, OPERATOR.naming(settings_in)),
            code.GET_NAMESRV_CONFIG: Served(self.get_settings, SIGNED),
        }

    # Routes

    def get_route(self, connection: Connection, command: RemotingCommand) -> Answer:
        """Return the route of a topic.

        Clients before 4.9.4 read broker ids without quotes, which standard JSON does not have.
        """
        header = command.header(GetRouteInfoRequestHeader)
        route = self._routes.route(header.topic)
        if route is None:
            remark = f"No topic route info in name server for the topic: {header.topic}"
            return RemotingCommand.response(command, ResponseCode.TOPIC_NOT_EXIST, remark=remark)
        if self._settings.order_message_enable:
            route.order_topic_conf = self._kv.get(ORDER_TOPIC_CONFIG, header.topic)
        standard = command.version >= Version.V4_9_4 or bool(header.accept_standard_json_only)
        if len(route.broker_datas) <= _FEW_BROKERS:
            return RemotingCommand.response(command, body=encode_body(route, standard_json=standard))
        body = LongBody(route, queue_datas=Items(route.queue_datas), broker_datas=Items(map(_long, route.broker_datas)))
        return long_answer(command, body, instead="too many brokers have the topic", standard_json=standard)

    def get_cluster_info(self, connection: Connection, command: RemotingCommand) -> Steps:
        """Return all clusters and brokers."""
        info = self._routes.cluster_info()
        brokers = ((name, _long(broker)) for name, broker in info.broker_addr_table.items())
        clusters = ((cluster, Items(names)) for cluster, names in info.cluster_addr_table.items())
        body = LongBody(info, broker_addr_table=Entries(brokers), cluster_addr_table=Entries(clusters))
        return long_answer(command, body, instead="there are too many brokers to be listed")

    # Brokers

    def register_broker(self, connection: Connection, command: RemotingCommand) -> Answer:
        """Register a broker; return its master's address and the ordered topics."""
        header = command.header(RegisterBrokerRequestHeader)
        # Before the body is read: a registration may have fifty thousand topics, and a stranger's are not
        # worth decoding.
        self._routes.check_owner(header.broker_name, header.broker_id, header.broker_addr, connection)
        body = bytes(command.body)
        if header.body_crc32 and header.body_crc32 != body_crc32(body):
            logger.warning(
                "registration of %s from %s refused: crc32 does not match",
                header.broker_name, connection.remote_address, extra=connection.log_peer,
            )  # fmt: skip
            return RemotingCommand.response(command, ResponseCode.SYSTEM_ERROR, remark="crc32 not match")
        problem = _problem(header)
        if problem is not None:
            logger.warning(
                "registration from %s refused: %s",
                connection.remote_address, problem, extra=connection.log_peer,
            )  # fmt: skip
            return RemotingCommand.response(command, ResponseCode.SYSTEM_ERROR, remark=problem)
        return self._register(connection, command, header, body)

    def _register(
        self,
        connection: Connection,
        command: RemotingCommand,
        header: RegisterBrokerRequestHeader,
        body: bytes,
    ) -> Steps:
        reported: Iterable[Registered] = (DataVersion(timestamp=0, counter=0),)
        if body:
            # Brokers of 5.3 compress the body without a flag: a body that begins like a zlib stream is one.
            reported = read_registration(body, compressed=header.compressed or body[0] == ZLIB)
        self._routes.forget_missing_topics = self._settings.delete_topic_with_broker_registration
        yield from self._routes.register(
            cluster=header.cluster_name,
            name=header.broker_name,
            broker_id=header.broker_id,
            address=header.broker_addr,
            ha_address=header.ha_server_addr or "",
            reported=_usable(header.broker_name, reported),
            connection=connection,
        )
        return self._registered(command, header)

    def _registered(self, command: RemotingCommand, header: RegisterBrokerRequestHeader) -> RemotingCommand:
        answer = RegisterBrokerResponseHeader()
        master = self._routes.master_of(header.broker_name) if header.broker_id != MASTER_ID else None
        if master is not None:
            answer.master_addr, live = master
            answer.ha_server_addr = live.ha_address
        ordered = self._kv.namespace(ORDER_TOPIC_CONFIG)
        tell = ordered is not None and self._settings.return_order_topic_config_to_broker
        return RemotingCommand.response(
            command, header=answer, body=encode_body(KVTable(table=ordered or {})) if tell else b""
        )

    def unregister_broker(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """Remove a broker that stops."""
        header = command.header(UnRegisterBrokerRequestHeader)
        self._routes.unregister(header.broker_name, header.broker_id, header.broker_addr, connection)
        return RemotingCommand.response(command)

    def query_data_version(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """Return whether a broker's topics have changed since its registration; if not, count the request as a sign of
        life."""
        header = command.header(QueryDataVersionRequestHeader)
        changed = self._routes.is_changed(header.broker_addr, read_body(command, DataVersion))
        if not changed:
            self._routes.touch(header.broker_addr, connection)
        known = self._routes.data_version(header.broker_addr)
        body = encode_body(known) if known is not None else b""
        return RemotingCommand.response(command, header=QueryDataVersionResponseHeader(changed=changed), body=body)

    def broker_heartbeat(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """Count the heartbeat of a registered broker of 5.x as a sign of life."""
        self._routes.touch(command.header(BrokerHeartbeatRequestHeader).broker_addr, connection)
        return RemotingCommand.response(command)

    def wipe_write_perm(self, connection: Connection, command: RemotingCommand) -> Steps:
        """Remove the write permission of a broker's topics, so that producers choose others before it is shut down."""
        name = command.header(WipeWritePermOfBrokerRequestHeader).broker_name
        count = yield from self._routes.wipe_write_perm(name)
        logger.info("%s removed the write permission of %d topic(s) of %s", connection.remote_address, count, name)
        return RemotingCommand.response(command, header=WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count))

    def add_write_perm(self, connection: Connection, command: RemotingCommand) -> Steps:
        """Restore the write permission of a broker's topics."""
        name = command.header(AddWritePermOfBrokerRequestHeader).broker_name
        count = yield from self._routes.add_write_perm(name)
        logger.info("%s restored the write permission of %d topic(s) of %s", connection.remote_address, count, name)
        return RemotingCommand.response(command, header=AddWritePermOfBrokerResponseHeader(add_topic_count=count))

    # Topics

    def get_all_topics(self, connection: Connection, command: RemotingCommand) -> Answer:
        """Return the names of all topics."""
        if not self._settings.enable_all_topic_list:
            return RemotingCommand.response(command, ResponseCode.SYSTEM_ERROR, remark="disable")
        return _topics(command, self._routes.topics())

    def get_topics_by_cluster(self, connection: Connection, command: RemotingCommand) -> Answer:
        """Return the names of the topics that a cluster's brokers have."""
        if not self._settings.enable_topic_list:
            return RemotingCommand.response(command, ResponseCode.SYSTEM_ERROR, remark="disable")
        cluster = command.header(GetTopicsByClusterRequestHeader).cluster
        return _topics(command, self._routes.topics(cluster))

    def get_system_topics(self, connection: Connection, command: RemotingCommand) -> Steps:
        """Return the topics that are named after clusters and brokers."""
        names, address = self._routes.system_topics()
        return _topics(command, names, address)

    def _topics_with_flags(self, *, unit: bool | None, unit_sub: bool | None) -> RequestHandler:
        def answer(connection: Connection, command: RemotingCommand) -> Steps:
            return _topics(command, self._routes.topics_with_flags(unit=unit, unit_sub=unit_sub))

        return answer

    def delete_topic(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """Remove a topic that its brokers have deleted."""
        header = command.header(DeleteTopicFromNamesrvRequestHeader)
        self._routes.delete_topic(header.topic, header.cluster_name or None)
        return RemotingCommand.response(command)

    # Key-value configuration

    def put_kv(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """Set a value."""
        header = command.header(PutKVConfigRequestHeader)
        self._kv.put(header.namespace, header.key, header.value, connection.counted_as)
        return RemotingCommand.response(command)

    def get_kv(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """Return a value."""
        header = command.header(GetKVConfigRequestHeader)
        value = self._kv.get(header.namespace, header.key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            return RemotingCommand.response(command, ResponseCode.QUERY_NOT_FOUND, remark=remark)
        return RemotingCommand.response(command, header=GetKVConfigResponseHeader(value=value))

    def delete_kv(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """Delete a value."""
        header = command.header(DeleteKVConfigRequestHeader)
        self._kv.delete(header.namespace, header.key)
        return RemotingCommand.response(command)

    def get_kv_namespace(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """Return all values of a namespace."""
        namespace = command.header(GetKVListByNamespaceRequestHeader).namespace
        values = self._kv.namespace(namespace)
        if values is None:
            remark = f"No config item, Namespace: {namespace}"
            return RemotingCommand.response(command, ResponseCode.QUERY_NOT_FOUND, remark=remark)
        return RemotingCommand.response(command, body=encode_body(KVTable(table=values)))

    # Settings

    def get_settings(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """Return the effective settings as the text of a properties file."""
        return answer_settings(self._settings, command)

    def update_settings(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """Change settings, all or none."""
        return answer_settings_update(self._settings, connection, command)


def _topics(command: RemotingCommand, names: Iterable[str | None], broker_address: str | None = None) -> Steps:
    body = LongBody(TopicList(topic_list=set(), broker_addr=broker_address), topic_list=Items(names))
    return long_answer(command, body, instead="ask for the topics of a cluster (GET_TOPICS_BY_CLUSTER)")


def _long(broker: BrokerData) -> LongBody:
    """Return the encoded broker, made in steps, because it may have thousands of addresses."""
    return LongBody(broker, broker_addrs=Entries(list(broker.broker_addrs.items())))


def _problem(header: RegisterBrokerRequestHeader) -> str | None:
    """Return why the registration would break clients, or None."""
    if not _LEGAL_NAME.fullmatch(header.broker_name) or not _LEGAL_NAME.fullmatch(header.cluster_name):
        return "the broker's and its cluster's names must have 1 to 255 characters and no spaces"
    if not _LEGAL_ADDRESS.fullmatch(header.broker_addr) or header.broker_id < 0:
        return "a broker needs an address host:port and an id from 0"
    if len(header.ha_server_addr or "") > MAX_ADDRESS:
        return f"an address has at most {MAX_ADDRESS} characters"
    return None


def _usable(broker_name: str, reported: Iterable[Registered]) -> Iterator[Registered]:
    """Yield a broker's topics, except those that would break clients; Apache's brokers accept nearly any name."""
    for item in reported:
        if isinstance(item, TopicConfig) and not _is_usable(item):
            logger.warning(
                "topic %r of broker %s gets no route: it has %d queue(s) to read and %d to write; expected a name "
                "without spaces and 0 to %d queues",
                item.topic_name[:255], broker_name, item.read_queue_nums, item.write_queue_nums, MAX_QUEUES,
            )  # fmt: skip
            yield None
        else:
            yield item


def _is_usable(topic: TopicConfig) -> bool:
    queues = (topic.read_queue_nums, topic.write_queue_nums)
    return _LEGAL_NAME.fullmatch(topic.topic_name) is not None and all(0 <= n <= MAX_QUEUES for n in queues)
