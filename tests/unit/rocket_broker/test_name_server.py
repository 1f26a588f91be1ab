"""The name server, tested through its protocol."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from rocket_broker.namesrv.processor import NameServerProcessor
from rocket_broker.namesrv.server import NameServer
from rocket_broker.namesrv.settings import NameServerSettings
from rocket_broker.settings.properties_file import entries_of
from rocket_broker.settings.server_settings import MAX_QUEUES
from rocket_remoting.session.connection import Connection
from rocket_remoting.transports.memory import MemoryTransport
from rocket_remoting.wire.bodies import (
    ClusterInfo,
    DataVersion,
    KVTable,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicRouteData,
    decode_body,
    encode_body,
    encode_register_broker_body,
)
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import ConnectionLost
from rocket_remoting.wire.ext_fields import Header
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
from streamkit.testing.virtual_time import VirtualTime

Test = Callable[[NameServer, "Peer"], Awaitable[None]]


class Peer:
    """A client or broker of the name server."""

    def __init__(self, transport: MemoryTransport, address: str) -> None:
        self._transport = transport
        self._address = address
        self.connection: Connection

    async def connect(self) -> "Peer":
        self.connection = await self._transport.connect(self._address)
        return self

    async def another(self, host: str = "127.0.0.1") -> "Peer":
        return await Peer(self._transport.at(host), self._address).connect()

    async def unregister(
        self, name: str = "broker-a", broker_id: int = 0, address: str = "10.0.0.1:10911"
    ) -> RemotingCommand:
        header = UnRegisterBrokerRequestHeader(
            broker_name=name, broker_addr=address, cluster_name="C", broker_id=broker_id
        )
        return await self.ask(RequestCode.UNREGISTER_BROKER, header)

    async def ask(self, code: int, header: Header | None = None, body: bytes = b"") -> RemotingCommand:
        return await self.connection.invoke(code, header, body, timeout=30)

    async def register(
        self,
        *topics: TopicConfig,
        version: int = 1,
        name: str = "broker-a",
        broker_id: int = 0,
        address: str = "10.0.0.1:10911",
        cluster: str = "C",
        compressed: bool = False,
        says_compressed: bool | None = None,
        crc32: int | None = None,
    ) -> RemotingCommand:
        wrapper = TopicConfigSerializeWrapper(
            topic_config_table={topic.topic_name: topic for topic in topics},
            data_version=DataVersion(timestamp=1, counter=version),
        )
        registration = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper)
        body = encode_register_broker_body(registration, compressed=compressed)
        header = RegisterBrokerRequestHeader(
            broker_name=name,
            broker_addr=address,
            cluster_name=cluster,
            ha_server_addr=f"{address}2",
            broker_id=broker_id,
            compressed=compressed if says_compressed is None else says_compressed,
            body_crc32=body_crc32(body) if crc32 is None else crc32,
        )
        return await self.ask(RequestCode.REGISTER_BROKER, header, body)

    async def route(self, topic: str) -> TopicRouteData | None:
        answer = await self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic))
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            assert f"No topic route info in name server for the topic: {topic}" in (answer.remark or "")
            return None
        assert answer.code == ResponseCode.SUCCESS
        return decode_body(answer.body, TopicRouteData)

    async def topics(self, code: int, header: Header | None = None) -> set[str]:
        return decode_body((await self.ask(code, header)).body, TopicList).topic_list


def orders(**fields: int) -> TopicConfig:
    return TopicConfig(topic_name="orders", read_queue_nums=4, write_queue_nums=4, **fields)


@pytest.fixture
def with_name_server(tmp_path: Path) -> Callable[..., None]:
    """Run a test against a started name server, in virtual time."""

    def run(test: Test, **keys: str) -> None:
        keys = {"listenPort": "9876", "kvConfigPath": str(tmp_path / "kvConfig.json")} | keys
        settings = NameServerSettings.from_entries(entries_of(keys, "test"))

        async def main() -> None:
            transport = MemoryTransport()
            server = NameServer(settings, transport=transport)
            await server.start()
            peer = await Peer(transport, server.address).connect()
            await test(server, peer)
            await server.stop()

        with VirtualTime() as time:
            time.run(main())

    return run


Run = Callable[..., None]


@pytest.mark.parametrize(("compressed", "says"), [(False, False), (True, True), (True, False)])
def test_registration_creates_routes(with_name_server: Run, compressed: bool, says: bool) -> None:
    """The route has queues, permission and address by broker id; compressed registrations (5.3) are recognised."""

    async def test(server: NameServer, peer: Peer) -> None:
        answer = await peer.register(orders(perm=6), compressed=compressed, says_compressed=says)
        assert answer.code == ResponseCode.SUCCESS
        route = await peer.route("orders")
        assert route is not None
        (queues,) = route.queue_datas
        (broker,) = route.broker_datas
        assert (queues.broker_name, queues.read_queue_nums, queues.write_queue_nums) == ("broker-a", 4, 4)
        assert (broker.cluster, broker.broker_addrs) == ("C", {0: "10.0.0.1:10911"})
        assert await peer.route("unknown") is None

    with_name_server(test)


@pytest.mark.parametrize(
    ("version", "asked", "form"),
    [
        (0, None, b'{0:"10.0.0.1:10911"}'),
        (400, None, b'{0:"10.0.0.1:10911"}'),
        (400, True, b'{"0":"10.0.0.1:10911"}'),
        (401, None, b'{"0":"10.0.0.1:10911"}'),
        (479, None, b'{"0":"10.0.0.1:10911"}'),
    ],
)
def test_route_json_depends_on_the_client_version(
    with_name_server: Run, version: int, asked: bool | None, form: bytes
) -> None:
    """Clients before 4.9.4 get bare numbers as keys unless they ask for standard JSON."""

    async def test(server: NameServer, peer: Peer) -> None:
        await peer.register(orders())
        header = GetRouteInfoRequestHeader(topic="orders", accept_standard_json_only=asked)
        command = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        command.version = version
        handler = NameServerProcessor(server.settings, server.routes, server.kv_config).get_route
        assert form in bytes(handler(peer.connection, command).body)

    with_name_server(test)


def test_registration_with_a_wrong_checksum_is_refused(with_name_server: Run) -> None:
    """With code 1, as Apache does. A checksum of 0 means that there is none."""

    async def test(server: NameServer, peer: Peer) -> None:
        answer = await peer.register(orders(), crc32=12345)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "crc32 not match")
        assert await peer.route("orders") is None
        await peer.register(orders(), crc32=0)
        assert await peer.route("orders") is not None

    with_name_server(test)


@pytest.mark.parametrize(
    "registration",
    [
        {"name": ""},
        {"name": "two words"},
        {"name": "x" * 256},
        {"cluster": "c\n"},
        {"address": "nowhere"},
        {"address": "a b:1"},
        {"broker_id": -1},
    ],
)
def test_registration_with_illegal_names_or_addresses_is_refused(
    with_name_server: Run, registration: dict[str, object]
) -> None:
    """They never get into routes; the routes of other brokers stay."""

    async def test(server: NameServer, peer: Peer) -> None:
        await peer.register(orders())
        fields: dict[str, object] = {"name": "evil", "address": "10.0.0.66:1"} | registration
        answer = await (await peer.another()).register(TopicConfig(topic_name="t"), **fields)  # type: ignore[arg-type]
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark
        assert await peer.topics(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == {"orders"}

    with_name_server(test)


@pytest.mark.parametrize("body", [b"{", b"[]", b"{}", b"\x00" * 100, b'{"topicConfigSerializeWrapper":7}'])
@pytest.mark.parametrize("compressed", [False, True])
def test_malformed_registration_is_an_error_for_its_sender_only(
    with_name_server: Run, body: bytes, compressed: bool
) -> None:
    """The connection stays open."""

    async def test(server: NameServer, peer: Peer) -> None:
        header = RegisterBrokerRequestHeader(
            broker_name="b",
            broker_addr="h:1",
            cluster_name="C",
            ha_server_addr="",
            broker_id=0,
            compressed=compressed,
        )
        answer = await peer.ask(RequestCode.REGISTER_BROKER, header, body)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        await peer.register(orders())
        assert await peer.route("orders") is not None

    with_name_server(test)


def test_closed_connection_removes_its_broker_at_once(with_name_server: Run) -> None:
    """Clients are not routed to it for two more minutes."""

    async def test(server: NameServer, peer: Peer) -> None:
        broker = await peer.another()
        await broker.register(orders())
        await broker.connection.close()
        await asyncio.sleep(0.01)
        assert await peer.route("orders") is None
        info = decode_body((await peer.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).body, ClusterInfo)
        assert (info.broker_addr_table, info.cluster_addr_table) == ({}, {})

    with_name_server(test)


def test_reconnected_broker_survives_the_close_of_its_old_connection(with_name_server: Run) -> None:
    """Only the connection of its latest registration counts."""

    async def test(server: NameServer, peer: Peer) -> None:
        old = await peer.another()
        await old.register(orders())
        await peer.register(orders())
        await old.connection.close()
        await asyncio.sleep(0.01)
        assert await peer.route("orders") is not None

    with_name_server(test)


def test_silent_broker_is_removed_after_two_minutes(with_name_server: Run) -> None:
    """QUERY_DATA_VERSION counts as a sign of life."""

    async def test(server: NameServer, peer: Peer) -> None:
        broker = await peer.another()
        await broker.register(orders(), version=3)
        await asyncio.sleep(100)
        header = QueryDataVersionRequestHeader(
            broker_name="broker-a", broker_addr="10.0.0.1:10911", cluster_name="C", broker_id=0
        )
        version = encode_body(DataVersion(timestamp=1, counter=3))
        answer = await broker.ask(RequestCode.QUERY_DATA_VERSION, header, version)
        assert answer.header(QueryDataVersionResponseHeader).changed is False
        await asyncio.sleep(115)
        asker = await peer.another()
        assert await asker.route("orders") is not None
        await asyncio.sleep(16)
        assert await asker.route("orders") is None
        assert broker.connection.is_closed

    with_name_server(test)


def test_broker_that_never_registers_again_expires(with_name_server: Run) -> None:
    """Other requests keep its connection but not its routes."""

    async def test(server: NameServer, peer: Peer) -> None:
        broker = await peer.another()
        await broker.register(orders())
        asker = await peer.another()
        for seconds in range(0, 140, 10):
            if seconds <= 110:
                assert await asker.route("orders") is not None
            with suppress(ConnectionLost):
                await broker.route("other")
            await asyncio.sleep(10)
        assert await asker.route("orders") is None
        assert broker.connection.is_closed

    with_name_server(test)


def test_data_version_query_reports_changed_topics(with_name_server: Run) -> None:
    """The answer has the version known to the name server, so that the broker registers again."""

    async def test(server: NameServer, peer: Peer) -> None:
        await peer.register(orders(), version=3)
        header = QueryDataVersionRequestHeader(
            broker_name="broker-a", broker_addr="10.0.0.1:10911", cluster_name="C", broker_id=0
        )
        answer = await peer.ask(
            RequestCode.QUERY_DATA_VERSION, header, encode_body(DataVersion(timestamp=1, counter=4))
        )
        assert answer.header(QueryDataVersionResponseHeader).changed is True
        assert decode_body(answer.body, DataVersion).counter == 3

    with_name_server(test)


def test_heartbeat_of_a_broker_of_5x_keeps_its_route(with_name_server: Run) -> None:
    """Without registering again, for longer than two minutes; that of an unknown broker is answered, too."""

    async def test(server: NameServer, peer: Peer) -> None:
        await peer.register(orders())
        for _ in range(4):
            await asyncio.sleep(50)
            for address in ("10.0.0.1:10911", "10.0.0.9:10911"):
                header = BrokerHeartbeatRequestHeader(cluster_name="C", broker_addr=address, broker_name="broker-a")
                assert (await peer.ask(RequestCode.BROKER_HEARTBEAT, header)).code == ResponseCode.SUCCESS
        assert await peer.route("orders") is not None

    with_name_server(test)


def test_unregistered_broker_is_removed(with_name_server: Run) -> None:
    """With its topics, unless another broker has them."""

    async def test(server: NameServer, peer: Peer) -> None:
        await peer.register(orders(), TopicConfig(topic_name="a-only"))
        await peer.register(orders(), name="broker-b", address="10.0.0.2:10911")
        header = UnRegisterBrokerRequestHeader(
            broker_name="broker-a", broker_addr="10.0.0.1:10911", cluster_name="C", broker_id=0
        )
        assert (await peer.ask(RequestCode.UNREGISTER_BROKER, header)).code == ResponseCode.SUCCESS
        route = await peer.route("orders")
        assert route is not None
        assert [broker.broker_name for broker in route.broker_datas] == ["broker-b"]
        assert await peer.route("a-only") is None

    with_name_server(test)


def test_replica_learns_its_masters_address(with_name_server: Run) -> None:
    """A foreign broker may replicate; its routes show the master's topics."""

    async def test(server: NameServer, peer: Peer) -> None:
        await peer.register(orders())
        answer = await peer.register(TopicConfig(topic_name="x"), broker_id=1, address="10.0.0.9:1")
        header = answer.header(RegisterBrokerResponseHeader)
        assert (header.master_addr, header.ha_server_addr) == ("10.0.0.1:10911", "10.0.0.1:109112")
        assert await peer.route("x") is None
        await peer.register(orders(), address="10.0.0.9:1", version=2)
        route = await peer.route("orders")
        assert route is not None
        assert route.broker_datas[0].broker_addrs == {0: "10.0.0.9:1"}

    with_name_server(test)


def test_write_permission_is_removed_and_restored(with_name_server: Run) -> None:
    """The removal outlasts a registration with unchanged data."""

    async def test(server: NameServer, peer: Peer) -> None:
        async def perm() -> int:
            route = await peer.route("orders")
            assert route is not None
            return route.queue_datas[0].perm

        await peer.register(orders(), TopicConfig(topic_name="t"))
        wiped = await peer.ask(
            RequestCode.WIPE_WRITE_PERM_OF_BROKER, WipeWritePermOfBrokerRequestHeader(broker_name="broker-a")
        )
        assert wiped.header(WipeWritePermOfBrokerResponseHeader).wipe_topic_count == 2
        await peer.register(orders(), TopicConfig(topic_name="t"))
        assert await perm() == 4
        added = await peer.ask(
            RequestCode.ADD_WRITE_PERM_OF_BROKER, AddWritePermOfBrokerRequestHeader(broker_name="broker-a")
        )
        assert added.header(AddWritePermOfBrokerResponseHeader).add_topic_count == 2
        assert await perm() == 6

    with_name_server(test)


def test_topics_are_listed(with_name_server: Run) -> None:
    """All, by cluster, and the system topics."""

    async def test(server: NameServer, peer: Peer) -> None:
        await peer.register(orders(), TopicConfig(topic_name="unit", topic_sys_flag=1))
        await peer.register(
            TopicConfig(topic_name="sub", topic_sys_flag=2), name="b", cluster="D", address="10.0.0.2:1"
        )
        by_cluster = GetTopicsByClusterRequestHeader(cluster="D")
        code = RequestCode
        assert await peer.topics(code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == {"orders", "unit", "sub"}
        assert await peer.topics(code.GET_TOPICS_BY_CLUSTER, by_cluster) == {"sub"}
        assert await peer.topics(code.GET_SYSTEM_TOPIC_LIST_FROM_NS) == {"C", "broker-a", "D", "b"}
        assert await peer.topics(code.GET_UNIT_TOPIC_LIST) == {"unit"}
        assert await peer.topics(code.GET_HAS_UNIT_SUB_TOPIC_LIST) == {"sub"}
        assert await peer.topics(code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST) == {"sub"}

    with_name_server(test)


@pytest.mark.parametrize(("cluster", "left"), [(None, []), ("C", ["b"]), ("X", ["broker-a", "b"])])
def test_deleted_topic_has_no_route(with_name_server: Run, cluster: str | None, left: list[str]) -> None:
    """On all brokers, or on those of one cluster."""

    async def test(server: NameServer, peer: Peer) -> None:
        await peer.register(orders())
        await peer.register(orders(), name="b", cluster="D", address="10.0.0.2:1")
        header = DeleteTopicFromNamesrvRequestHeader(topic="orders", cluster_name=cluster)
        await peer.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
        route = await peer.route("orders")
        assert [q.broker_name for q in route.queue_datas] == left if route else not left

    with_name_server(test)


@pytest.mark.parametrize(("forget", "left"), [("false", {"orders", "t"}), ("true", {"t"})])
def test_topics_missing_from_a_registration_stay_unless_configured(
    with_name_server: Run, forget: str, left: set[str]
) -> None:
    """Until they are deleted (4.9), or at once if the setting says so (5.x)."""

    async def test(server: NameServer, peer: Peer) -> None:
        await peer.register(orders())
        await peer.register(TopicConfig(topic_name="t"), version=2)
        assert await peer.topics(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == left

    with_name_server(test, deleteTopicWithBrokerRegistration=forget)


async def put(peer: Peer, namespace: str, key: str, value: str) -> None:
    header = PutKVConfigRequestHeader(namespace=namespace, key=key, value=value)
    assert (await peer.ask(RequestCode.PUT_KV_CONFIG, header)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    "unusable",
    [
        TopicConfig(topic_name="%RETRY%my group"),
        TopicConfig(topic_name="orders\x01"),
        TopicConfig(topic_name="less", read_queue_nums=-1),
        TopicConfig(topic_name="more", write_queue_nums=MAX_QUEUES + 1),
    ],
)
def test_topic_with_an_illegal_name_does_not_block_its_broker(
    with_name_server: Run, unusable: TopicConfig, caplog: pytest.LogCaptureFixture
) -> None:
    """Apache's brokers accept names that break clients: that topic gets no route, all others do."""

    async def test(server: NameServer, peer: Peer) -> None:
        most = TopicConfig(topic_name="most", read_queue_nums=MAX_QUEUES, write_queue_nums=MAX_QUEUES)
        assert (await peer.register(orders(), unusable, most)).code == ResponseCode.SUCCESS
        assert await peer.route("orders") is not None
        assert await peer.route("most") is not None
        assert await peer.route(unusable.topic_name) is None
        assert repr(unusable.topic_name) in caplog.text

    with_name_server(test)


def test_key_value_configuration_survives_a_restart(with_name_server: Run) -> None:
    """Put, get, list and delete; stored in kvConfig.json."""

    async def write(server: NameServer, peer: Peer) -> None:
        await put(peer, "n", "k", "värde")
        await put(peer, "n", "gone", "x")
        await peer.ask(RequestCode.DELETE_KV_CONFIG, DeleteKVConfigRequestHeader(namespace="n", key="gone"))

    async def read(server: NameServer, peer: Peer) -> None:
        code = RequestCode
        got = await peer.ask(code.GET_KV_CONFIG, GetKVConfigRequestHeader(namespace="n", key="k"))
        assert got.header(GetKVConfigResponseHeader).value == "värde"
        missing = await peer.ask(code.GET_KV_CONFIG, GetKVConfigRequestHeader(namespace="n", key="gone"))
        assert missing.code == ResponseCode.QUERY_NOT_FOUND
        every = await peer.ask(code.GET_KVLIST_BY_NAMESPACE, GetKVListByNamespaceRequestHeader(namespace="n"))
        assert decode_body(every.body, KVTable).table == {"k": "värde"}
        none = await peer.ask(code.GET_KVLIST_BY_NAMESPACE, GetKVListByNamespaceRequestHeader(namespace="m"))
        assert none.code == ResponseCode.QUERY_NOT_FOUND

    with_name_server(write)
    with_name_server(read)


@pytest.mark.parametrize(("enabled", "expected"), [("true", "broker-a:4"), ("false", None)])
def test_order_configuration_is_in_routes_when_enabled(
    with_name_server: Run, enabled: str, expected: str | None
) -> None:
    """orderMessageEnable decides; registrations return it to brokers in either case."""

    async def test(server: NameServer, peer: Peer) -> None:
        assert not (await peer.register(orders())).body
        await put(peer, "ORDER_TOPIC_CONFIG", "orders", "broker-a:4")
        answer = await peer.register(orders())
        assert decode_body(answer.body, KVTable).table == {"orders": "broker-a:4"}
        route = await peer.route("orders")
        assert route is not None
        assert route.order_topic_conf == expected

    with_name_server(test, orderMessageEnable=enabled)


def test_settings_are_read_and_changed_by_requests(with_name_server: Run, tmp_path: Path) -> None:
    """An update is atomic; the paths of the server's own files are fixed."""

    async def test(server: NameServer, peer: Peer) -> None:
        async def change(text: str) -> int:
            return (await peer.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=text.encode())).code

        server.settings.source = tmp_path / "namesrv.conf"
        assert await change("orderMessageEnable=true\n") == ResponseCode.SUCCESS
        assert await change("orderMessageEnable=false\nlistenPort=1\n") == ResponseCode.SYSTEM_ERROR
        assert await change("kvConfigPath=/etc/passwd\n") == ResponseCode.NO_PERMISSION
        assert await change("orderMesageEnable=false\n") == ResponseCode.SYSTEM_ERROR
        shown = bytes((await peer.ask(RequestCode.GET_NAMESRV_CONFIG)).body).decode()
        assert "orderMessageEnable=true\n" in shown
        assert server.settings.source.read_text() == "orderMessageEnable=true\n"

    with_name_server(test)


def test_unknown_request_code_is_answered_as_not_supported(with_name_server: Run) -> None:
    """Code 3, as in 5.x; the name server of 4.9 does not answer and lets the client time out."""

    async def test(server: NameServer, peer: Peer) -> None:
        answer = await peer.ask(9_999)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert "9999" in (answer.remark or "")

    with_name_server(test)


def test_request_without_its_header_fields_is_an_error(with_name_server: Run) -> None:
    """The remark names the request and the field."""

    async def test(server: NameServer, peer: Peer) -> None:
        answer = await peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "GET_ROUTEINFO_BY_TOPIC" in (answer.remark or "")
        assert "topic" in (answer.remark or "")

    with_name_server(test)
