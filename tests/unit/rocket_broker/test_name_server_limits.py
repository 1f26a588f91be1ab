"""Limits on what brokers and tools may store in a name server, and on how long it works for them."""

import asyncio
from typing import Any

import pytest

from rocket_broker.namesrv import kv_config, route_table, topic_routes
from rocket_broker.namesrv.server import NameServer
from rocket_remoting.wire.bodies import TopicConfig
from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.headers import (
    DeleteKVConfigRequestHeader,
    GetKVListByNamespaceRequestHeader,
    GetTopicsByClusterRequestHeader,
    PutKVConfigRequestHeader,
)
from tests.unit.rocket_broker.test_name_server import Peer, Run, with_name_server

__all__ = ["with_name_server"]


def topics(prefix: str, count: int) -> list[TopicConfig]:
    return [
        TopicConfig(topic_name=f"{prefix}-{number}", read_queue_nums=1, write_queue_nums=1) for number in range(count)
    ]


def test_number_of_brokers_is_limited(with_name_server: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more is refused; known brokers still register, and one that leaves frees its place."""
    monkeypatch.setattr(route_table, "MAX_BROKERS", 2)

    async def scene(server: NameServer, peer: Peer) -> None:
        other = await peer.another()
        first = await other.register(name="one", address="10.0.0.1:1")
        second = await peer.register(name="two", address="10.0.0.2:1")
        third = await peer.register(name="three", address="10.0.0.3:1")
        again = await peer.register(name="two", address="10.0.0.2:1")
        cluster = await peer.register(name="two", address="10.0.0.2:1", cluster="D")
        assert [answer.code for answer in (first, second, third, again, cluster)] == [0, 0, 1, 0, 1]
        assert "2 brokers" in (third.remark or "")
        await other.connection.close()
        assert (await peer.register(name="three", address="10.0.0.3:1")).code == ResponseCode.SUCCESS

    with_name_server(scene)


def test_number_of_routes_is_limited(with_name_server: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that registers new topics each time reaches the limit without removing existing routes."""
    monkeypatch.setattr(topic_routes, "MAX_ROUTES", 5)

    async def scene(server: NameServer, peer: Peer) -> None:
        hostile = await peer.another()
        await peer.register(*topics("honest", 2), name="honest", address="10.0.0.1:1")
        for version in range(1, 4):
            made = topics(f"v{version}", 2)
            await hostile.register(*made, version=version, name="hostile", address="10.0.0.2:1")
        assert len([name for name in server.routes.topics() if name]) == 5
        await peer.register(*topics("honest", 2), version=2, name="honest", address="10.0.0.1:1")
        assert await peer.route("honest-1") is not None
        await hostile.connection.close()
        await peer.register(*topics("honest", 4), version=3, name="honest", address="10.0.0.1:1")
        assert await peer.route("honest-3") is not None

    with_name_server(scene)


def test_key_value_configuration_size_is_limited(with_name_server: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in bytes of the file; a shorter value is always accepted, and deletions free space."""
    monkeypatch.setattr(kv_config, "MAX_BYTES", 72)

    async def scene(server: NameServer, peer: Peer) -> None:
        async def put(key: str, value: str) -> int:
            header = PutKVConfigRequestHeader(namespace="ns", key=key, value=value)
            return (await peer.ask(Code.PUT_KV_CONFIG, header)).code

        assert await put("a", "x" * 20) == ResponseCode.SUCCESS
        assert await put("b", "x" * 10) == ResponseCode.SYSTEM_ERROR
        assert await put("a", "x" * 10) == ResponseCode.SUCCESS
        assert await put("b", "x" * 10) == ResponseCode.SUCCESS
        gone = DeleteKVConfigRequestHeader(namespace="ns", key="a")
        await peer.ask(Code.DELETE_KV_CONFIG, gone)
        assert await put("c", "x" * 10) == ResponseCode.SUCCESS
        for text in ("x" * 11, "\u20ac" * 4, "\0\0"):
            assert await put("c", text) == ResponseCode.SYSTEM_ERROR

    with_name_server(scene)


def test_brokers_and_clusters_per_host_are_limited(with_name_server: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over any number of connections; known brokers still register, and one that leaves frees its place."""
    monkeypatch.setattr(route_table, "MAX_BROKERS", 16)

    async def scene(server: NameServer, peer: Peer) -> None:
        hosts = [await peer.another("127.0.0.2") for _ in range(2)]
        answers = [
            await hosts[number % 2].register(name=f"b{number}", address=f"10.0.0.{number}:1") for number in range(5)
        ]
        assert [answer.code for answer in answers] == [0, 0, 0, 0, 1]
        assert "address 127.0.0.2 has 4 brokers" in (answers[4].remark or "")
        clusters = [
            await hosts[0].register(name="b0", address="10.0.0.0:1", cluster=f"c{number}") for number in range(4)
        ]
        assert [answer.code for answer in clusters] == [0, 0, 0, 1]
        assert "address 127.0.0.2 has 4 clusters" in (clusters[3].remark or "")
        honest = await peer.another("127.0.0.3")
        assert (await honest.register(name="honest", address="10.0.1.1:1", cluster="H")).code == ResponseCode.SUCCESS
        await hosts[1].connection.close()
        assert (await hosts[0].register(name="b4", address="10.0.0.4:1")).code == ResponseCode.SUCCESS

    with_name_server(scene)


def test_routes_per_host_are_limited(with_name_server: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Across all brokers of the host; their departure frees the routes."""
    monkeypatch.setattr(topic_routes, "MAX_ROUTES", 20)

    async def scene(server: NameServer, peer: Peer) -> None:
        hostile, honest = await peer.another("127.0.0.2"), await peer.another("127.0.0.3")
        for name in ("one", "two"):
            await hostile.register(*topics(name, 4), name=name, address=f"10.0.0.2:{len(name)}{ord(name[0])}")
        assert len([name for name in server.routes.topics() if name]) == 5
        await honest.register(*topics("honest", 5), name="honest", address="10.0.0.3:1")
        assert len([name for name in server.routes.topics() if name]) == 10
        await hostile.connection.close()
        again = await peer.another("127.0.0.2")
        await again.register(*topics("again", 5), name="one", address="10.0.0.2:1")
        assert await again.route("again-4") is not None

    with_name_server(scene)


def test_renamed_broker_releases_its_former_name(with_name_server: Run) -> None:
    """An address belongs to one broker, so names do not accumulate."""

    async def scene(server: NameServer, peer: Peer) -> None:
        for number in range(100):
            await peer.register(*topics("t", 1), name=f"name-{number}")
        route = await peer.route("t-0")
        assert route is not None
        assert [broker.broker_name for broker in route.broker_datas] == ["name-99"]
        assert server.routes.cluster_info().cluster_addr_table == {"C": {"name-99"}}
        await peer.connection.close()
        assert list(server.routes.topics()) == []
        assert server.routes.cluster_info().broker_addr_table == {}

    with_name_server(scene)


def test_key_value_configuration_size_per_address_is_limited(
    with_name_server: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value that another address replaces or deletes no longer counts; a namespace does."""
    monkeypatch.setattr(kv_config, "MAX_BYTES", 80)
    monkeypatch.setattr(kv_config, "ENTRY_BYTES", 0)

    async def scene(server: NameServer, peer: Peer) -> None:
        async def put(who: Peer, key: str, value: str, namespace: str = "ns") -> int:
            header = PutKVConfigRequestHeader(namespace=namespace, key=key, value=value)
            return (await who.ask(Code.PUT_KV_CONFIG, header)).code

        hostile, honest = await peer.another("127.0.0.2"), await peer.another("127.0.0.3")
        assert await put(hostile, "a", "x" * 17) == ResponseCode.SUCCESS
        assert await put(hostile, "b", "x") == ResponseCode.SYSTEM_ERROR
        assert await put(hostile, "a", "x" * 15) == ResponseCode.SUCCESS
        assert await put(hostile, "b", "x") == ResponseCode.SUCCESS
        assert await put(honest, "c", "x" * 17) == ResponseCode.SUCCESS
        assert await put(honest, "a", "xy") == ResponseCode.SYSTEM_ERROR
        assert await put(honest, "a", "x") == ResponseCode.SUCCESS
        assert await put(hostile, "d", "x" * 15) == ResponseCode.SUCCESS
        await honest.ask(Code.DELETE_KV_CONFIG, DeleteKVConfigRequestHeader(namespace="ns", key="d"))
        assert await put(hostile, "e", "x" * 4, "n" * 10) == ResponseCode.SUCCESS
        await honest.ask(Code.DELETE_KV_CONFIG, DeleteKVConfigRequestHeader(namespace="n" * 10, key="e"))
        assert await put(hostile, "f", "x", "m" * 10) == ResponseCode.SYSTEM_ERROR

    with_name_server(scene)


def test_full_name_server_serves_others_while_it_works(with_name_server: Run) -> None:
    """A broker with 50,000 topics registers and leaves and tools list them, while another client queries routes."""

    async def scene(server: NameServer, peer: Peer) -> None:
        await peer.register(*topics("honest", 1), name="honest", address="10.0.0.1:1")
        large = await peer.another()
        tool = await peer.another()

        async def routes_until(done: "asyncio.Future[Any]") -> int:
            count = 0
            while not done.done():
                assert await peer.route("honest-0") is not None
                count += 1
            return count

        full = topics("full", 50_000)
        registering = asyncio.ensure_future(large.register(*full, name="large", address="10.0.0.2:1"))
        assert await routes_until(registering) >= 3
        assert (await registering).code == ResponseCode.SUCCESS
        for code, header in (
            (Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, None),
            (Code.GET_TOPICS_BY_CLUSTER, GetTopicsByClusterRequestHeader(cluster="C")),
            (Code.GET_HAS_UNIT_SUB_TOPIC_LIST, None),
        ):
            asking = asyncio.ensure_future(tool.ask(code, header))
            assert await routes_until(asking) >= 3
            assert (await asking).code == ResponseCode.SUCCESS
        going = asyncio.ensure_future(large.unregister(name="large", address="10.0.0.2:1"))
        await routes_until(going)
        assert await peer.route("full-49999") is None
        for each in (large, tool):
            await each.connection.close()

    with_name_server(scene)


def test_full_key_value_configuration_is_processed_in_steps(with_name_server: Run) -> None:
    """The test suite's watchdog fails a step of more than 50 ms."""

    async def scene(server: NameServer, peer: Peer) -> None:
        for number in range(100):
            header = PutKVConfigRequestHeader(namespace="ns", key=f"k{number}", value="x" * 20_000)
            assert (await peer.ask(Code.PUT_KV_CONFIG, header)).code == ResponseCode.SUCCESS
        answer = await peer.ask(Code.GET_KVLIST_BY_NAMESPACE, GetKVListByNamespaceRequestHeader(namespace="ns"))
        assert len(answer.body) > 2_000_000

    with_name_server(scene)
