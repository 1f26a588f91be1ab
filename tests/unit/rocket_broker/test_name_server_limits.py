"""Brokers and tools that would fill a name server's memory."""

import pytest

from rocket_broker.namesrv import kv_config, route_table
from rocket_broker.namesrv.server import NameServer
from rocket_remoting.bodies import TopicConfig
from rocket_remoting.codes import RequestCode as Code
from rocket_remoting.codes import ResponseCode
from rocket_remoting.headers import DeleteKVConfigRequestHeader, PutKVConfigRequestHeader
from tests.unit.rocket_broker.test_name_server import Peer, Run, with_name_server

__all__ = ["with_name_server"]


def topics(prefix: str, count: int) -> list[TopicConfig]:
    return [
        TopicConfig(topic_name=f"{prefix}-{number}", read_queue_nums=1, write_queue_nums=1)
        for number in range(count)
    ]


def test_a_name_server_knows_so_many_brokers(with_name_server: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more is refused; those it knows register on, and one that goes makes room."""
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


def test_a_name_server_has_so_many_routes(with_name_server: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that registers other topics each time fills it, and the routes that were there stay."""
    monkeypatch.setattr(route_table, "MAX_ROUTES", 5)

    async def scene(server: NameServer, peer: Peer) -> None:
        hostile = await peer.another()
        await peer.register(*topics("honest", 2), name="honest", address="10.0.0.1:1")
        for version in range(1, 4):
            made = topics(f"v{version}", 2)
            await hostile.register(*made, version=version, name="hostile", address="10.0.0.2:1")
        assert len(server.routes.topics()) == 5
        await peer.register(*topics("honest", 2), version=2, name="honest", address="10.0.0.1:1")
        assert await peer.route("honest-1") is not None
        await hostile.connection.close()
        await peer.register(*topics("honest", 4), version=3, name="honest", address="10.0.0.1:1")
        assert await peer.route("honest-3") is not None

    with_name_server(scene)


def test_the_key_value_configuration_is_bounded(
    with_name_server: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its characters; what is there may be changed for something shorter, and deleting makes room."""
    monkeypatch.setattr(kv_config, "MAX_CHARACTERS", 30)

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

    with_name_server(scene)
