"""The name server's order configuration: kept, in routes, told to brokers."""

import asyncio
from pathlib import Path

from rocket_broker.embedded import EmbeddedBroker
from rocket_remoting import MemoryTransport
from rocket_remoting.wire.bodies import KVTable, TopicRouteData
from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.headers import (
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    GetRouteInfoRequestHeader,
    PutKVConfigRequestHeader,
)
from streamkit.testing.virtual_time import VirtualTime
from tests.end_to_end.raw_client import RawClient, with_broker

NAMESPACE = "ORDER_TOPIC_CONFIG"


async def to_name_server(embedded: EmbeddedBroker) -> RawClient:
    """Return a client of the name server."""
    return RawClient(await embedded.broker.transport.connect(embedded.name_server_address), [])


async def put(client: RawClient, topic: str, queues: str) -> None:
    """Set a topic's list of queues."""
    header = PutKVConfigRequestHeader(namespace=NAMESPACE, key=topic, value=queues)
    await client.ask_ok(Code.PUT_KV_CONFIG, header)


async def routed(client: RawClient, topic: str) -> str | None:
    """Return the list of queues that the topic's route has."""
    header = GetRouteInfoRequestHeader(topic=topic)
    return (await client.fetch(Code.GET_ROUTEINFO_BY_TOPIC, TopicRouteData, header)).order_topic_conf


def test_a_configuration_is_put_told_listed_and_deleted() -> None:
    """Under Apache's codes; what is not there is told as such."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        name_server = await to_name_server(embedded)
        listed = GetKVListByNamespaceRequestHeader(namespace=NAMESPACE)
        assert (await name_server.ask(Code.GET_KVLIST_BY_NAMESPACE, listed)).code == ResponseCode.QUERY_NOT_FOUND
        await put(name_server, "orders", "broker-a:4;broker-b:4")
        await put(name_server, "bills", "broker-a:1")
        asked = GetKVConfigRequestHeader(namespace=NAMESPACE, key="orders")
        answer = await name_server.ask_ok(Code.GET_KV_CONFIG, asked)
        assert answer.header(GetKVConfigResponseHeader).value == "broker-a:4;broker-b:4"
        table = (await name_server.fetch(Code.GET_KVLIST_BY_NAMESPACE, KVTable, listed)).table
        assert table == {"orders": "broker-a:4;broker-b:4", "bills": "broker-a:1"}
        deleted = DeleteKVConfigRequestHeader(namespace=NAMESPACE, key="orders")
        await name_server.ask_ok(Code.DELETE_KV_CONFIG, deleted)
        assert (await name_server.ask(Code.GET_KV_CONFIG, asked)).code == ResponseCode.QUERY_NOT_FOUND
        await name_server.connection.close()

    with_broker(scene)


def test_routes_carry_it_and_the_broker_registers_its_topic_as_ordered() -> None:
    """The route at once, the broker when it registers next; a deleted one is taken back as well."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send("orders")
        name_server = await to_name_server(embedded)
        await asyncio.sleep(1)
        assert await routed(name_server, "orders") is None
        await put(name_server, "orders", "broker-a:2")
        assert await routed(name_server, "orders") == "broker-a:2"
        await asyncio.sleep(31)
        config = embedded.broker.topics.get("orders")
        assert config is not None
        assert config.order
        header = DeleteKVConfigRequestHeader(namespace=NAMESPACE, key="orders")
        await name_server.ask_ok(Code.DELETE_KV_CONFIG, header)
        assert await routed(name_server, "orders") is None
        await asyncio.sleep(31)
        assert not config.order
        await name_server.connection.close()

    with_broker(scene)


def test_it_outlives_the_name_server(tmp_path: Path) -> None:
    """In kvConfig.json."""

    async def main(time: VirtualTime) -> None:
        for value in (None, "broker-a:2"):
            async with EmbeddedBroker(tmp_path, transport=MemoryTransport(), clock=time.clock) as embedded:
                name_server = await to_name_server(embedded)
                assert await routed(name_server, "broker-a") == value
                await put(name_server, "broker-a", "broker-a:2")
                await name_server.connection.close()

    with VirtualTime() as time:
        time.run(main(time))
