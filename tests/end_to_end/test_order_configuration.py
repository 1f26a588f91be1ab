"""The name server's order configuration: stored, in routes, sent to brokers."""

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
    """Set a topic's order configuration."""
    header = PutKVConfigRequestHeader(namespace=NAMESPACE, key=topic, value=queues)
    await client.ask_ok(Code.PUT_KV_CONFIG, header)


async def routed(client: RawClient, topic: str) -> str | None:
    """Return the order configuration in the topic's route."""
    header = GetRouteInfoRequestHeader(topic=topic)
    return (await client.fetch(Code.GET_ROUTEINFO_BY_TOPIC, TopicRouteData, header)).order_topic_conf


def test_configuration_is_put_read_listed_and_deleted() -> None:
    """With Apache's codes, also for missing keys."""

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


def test_order_configuration_marks_the_topic_in_route_and_broker() -> None:
    """The route at once, the broker at its next registration; deletion likewise."""

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


def test_order_configuration_survives_a_restart(tmp_path: Path) -> None:
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
