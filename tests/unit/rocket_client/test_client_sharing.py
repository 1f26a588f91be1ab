"""What producers and consumers of one client share: connections, heartbeats and routes, and when each is used."""

import asyncio

import pytest

from rocket_client import Admin, ClientSettings, Credentials, GroupInUseError, Producer
from rocket_client.connection.client import RocketClient
from rocket_client.connection.shared_clients import acquire, release
from rocket_remoting import Message, RequestCode, ResponseCode
from rocket_remoting.wire.bodies import HeartbeatData, decode_body
from rocket_remoting.wire.headers import PutKVConfigRequestHeader, UnregisterClientRequestHeader
from streamkit.testing.virtual_time import VirtualTime
from tests.unit.rocket_client.scripted_cluster import ScriptedCluster


def test_producers_of_one_loop_share_connections(virtual: VirtualTime) -> None:
    """Two groups have one connection to a broker, and one client id in its heartbeat."""

    async def main() -> None:
        async with ScriptedCluster(virtual, brokers=["a"]) as cluster:
            async with cluster.producer("one") as one, cluster.producer("two") as two:
                await one.send(Message("orders", b"x"))
                await two.send(Message("orders", b"x"))
                await asyncio.sleep(2)
                broker = cluster.brokers[0]
                assert broker.connections == 1
                last = [command for command in broker.asked if command.code == RequestCode.HEART_BEAT][-1]
                data = decode_body(last.body, HeartbeatData)
                assert {producer.group_name for producer in data.producer_data_set} == {"one", "two"}
            assert broker.connections == 0

    virtual.run(main())


def test_a_route_stays_up_to_date_for_whoever_is_left(virtual: VirtualTime) -> None:
    """Also if another producer has looked it up first, and has left."""

    async def main() -> None:
        async with ScriptedCluster(virtual, brokers=["a"]) as cluster, cluster.producer("two") as two:
            async with cluster.producer("one") as one:
                await one.send(Message("orders", b"x"))
                await two.send(Message("orders", b"x"))
            asked = sum(server.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) for server in cluster.name_servers)
            await asyncio.sleep(31)
            later = sum(server.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) for server in cluster.name_servers)
            assert later > asked

    virtual.run(main())


def test_second_producer_of_a_group_gets_another_client_id(virtual: VirtualTime) -> None:
    """Without an instance name, each has its own connection."""

    async def main() -> None:
        async with (
            ScriptedCluster(virtual, brokers=["a"]) as cluster,
            cluster.producer() as one,
            cluster.producer() as two,
        ):
            await one.send(Message("orders", b"x"))
            await two.send(Message("orders", b"x"))
            assert cluster.brokers[0].connections == 2

    virtual.run(main())


def test_equal_group_and_instance_name_are_refused(virtual: VirtualTime) -> None:
    """The error names the group, the id, and what to do."""

    async def main() -> None:
        async with ScriptedCluster(virtual) as cluster, cluster.producer(instance_name="me"):
            with pytest.raises(GroupInUseError, match="instance_name") as caught:
                await cluster.producer(instance_name="me").start()
            assert caught.value.group == "shop"
            assert caught.value.client_id.endswith("@me")
            async with cluster.producer("other", instance_name="me"):
                pass

    virtual.run(main())


def test_new_connection_begins_with_a_heartbeat(virtual: VirtualTime) -> None:
    """The broker knows the group before its first message."""

    async def main() -> None:
        async with ScriptedCluster(virtual, brokers=["a"]) as cluster, cluster.producer() as producer:
            await producer.send(Message("orders", b"x"))
            codes = [command.code for command in cluster.brokers[0].asked]
            assert codes == [RequestCode.HEART_BEAT, RequestCode.SEND_MESSAGE_V2]

    virtual.run(main())


def test_refused_heartbeat_is_logged_only(virtual: VirtualTime, caplog: pytest.LogCaptureFixture) -> None:
    """The message is sent all the same."""

    async def main() -> None:
        async with ScriptedCluster(virtual, brokers=["a"]) as cluster, cluster.producer() as producer:
            broker = cluster.brokers[0]
            broker.answers[RequestCode.HEART_BEAT] = lambda command: command.response(
                command, ResponseCode.SYSTEM_ERROR, remark="not today"
            )
            await producer.send(Message("orders", b"x"))

    virtual.run(main())
    assert "refused the heartbeat with 1: not today" in caplog.text


def test_routes_are_refreshed_every_30_seconds(virtual: VirtualTime) -> None:
    """Of the topics in use, from one name server."""

    async def main() -> None:
        async with ScriptedCluster(virtual, brokers=["a"]) as cluster, cluster.producer() as producer:
            await producer.send(Message("orders", b"x"))
            await asyncio.sleep(15)
            servers = cluster.name_servers
            before = sum(server.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) for server in servers)
            await asyncio.sleep(60)
            after = sum(server.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) for server in servers)
            assert after - before == 2
            assert [server.connections for server in servers] in ([1, 0], [0, 1])

    virtual.run(main())


def test_heartbeats_are_sent_every_30_seconds(virtual: VirtualTime) -> None:
    """The first one a second after the start."""

    async def main() -> None:
        async with ScriptedCluster(virtual, brokers=["a"]) as cluster, cluster.producer() as producer:
            await producer.send(Message("orders", b"x"))
            broker = cluster.brokers[0]
            counts = []
            for pause in (0.5, 1, 30, 30):
                await asyncio.sleep(pause)
                counts.append(broker.count(RequestCode.HEART_BEAT))
            assert counts == [1, 2, 3, 4]

    virtual.run(main())


def test_connection_to_a_broker_without_routes_is_closed(virtual: VirtualTime) -> None:
    """At the next heartbeat."""

    async def main() -> None:
        async with ScriptedCluster(virtual) as cluster, cluster.producer() as producer:
            for _ in range(4):
                await producer.send(Message("orders", b"x"))
            first, second = cluster.brokers
            assert (first.connections, second.connections) == (1, 1)
            cluster.routes["orders"] = cluster.route(queues=2, brokers=[first])
            await asyncio.sleep(65)
            assert (first.connections, second.connections) == (1, 0)

    virtual.run(main())


def test_shutdown_unregisters_at_the_brokers(virtual: VirtualTime) -> None:
    """With client id and group."""

    async def main() -> None:
        async with ScriptedCluster(virtual, brokers=["a"]) as cluster:
            async with cluster.producer(instance_name="me") as producer:
                await producer.send(Message("orders", b"x"))
            (reported,) = [
                command for command in cluster.brokers[0].asked if command.code == RequestCode.UNREGISTER_CLIENT
            ]
            header = reported.header(UnregisterClientRequestHeader)
            assert header.client_id.endswith("@me")
            assert header.producer_group == "shop"

    virtual.run(main())


def test_unavailable_broker_does_not_delay_the_shutdown(virtual: VirtualTime) -> None:
    """Only brokers with a connection are notified."""

    async def main() -> None:
        async with ScriptedCluster(virtual, brokers=["a"]) as cluster:
            async with cluster.producer() as producer:
                await producer.send(Message("orders", b"x"))
                await cluster.brokers[0].stop()
                begun = asyncio.get_running_loop().time()
            assert asyncio.get_running_loop().time() == begun

    virtual.run(main())


def test_last_user_closes_the_shared_client(virtual: VirtualTime) -> None:
    """The next one creates a new client."""

    async def main() -> None:
        async with ScriptedCluster(virtual, brokers=["a"]) as cluster:
            for _ in range(2):
                async with cluster.producer(instance_name="me") as producer:
                    await producer.send(Message("orders", b"x"))
                assert cluster.brokers[0].connections == 0
            assert asyncio.all_tasks() == {asyncio.current_task()}

    virtual.run(main())


def test_clients_are_shared_by_equal_settings(virtual: VirtualTime) -> None:
    """Other name servers need another client."""

    async def main() -> None:
        cluster = ScriptedCluster(virtual)

        def of(addresses: str) -> RocketClient:
            settings = ClientSettings(name_servers=addresses)
            return acquire(settings, cluster.transport, virtual.clock, instance_name=None, is_free=lambda client: True)

        first = of("a:1")
        assert of("a:1") is first
        second = of("b:1")
        assert second is not first
        for client in (first, second):
            await release(client)

    virtual.run(main())


def test_admin_shares_the_client_too(virtual: VirtualTime) -> None:
    """And keeps it open for itself."""

    async def main() -> None:
        async with ScriptedCluster(virtual, brokers=["a"]) as cluster:
            settings = cluster.settings()
            async with Admin(settings, transport=cluster.transport, clock=virtual.clock) as admin:
                async with Producer("shop", settings, transport=cluster.transport, clock=virtual.clock) as producer:
                    await producer.send(Message("orders", b"x"))
                assert cluster.brokers[0].connections == 1
                route = await admin.topic_route("orders")
                assert len(route.publish_queues) == 2
            assert cluster.brokers[0].connections == 0

    virtual.run(main())


def test_order_configuration_is_sent_to_every_name_server(virtual: VirtualTime) -> None:
    """Name servers do not replicate it."""

    async def main() -> None:
        async with ScriptedCluster(virtual) as cluster:
            async with Admin(cluster.settings(), transport=cluster.transport, clock=virtual.clock) as admin:
                await admin.set_order_conf("orders", "a:2;b:2")
                await admin.delete_order_conf("orders")
            for server in cluster.name_servers:
                put, delete = server.asked
                assert (put.code, delete.code) == (RequestCode.PUT_KV_CONFIG, RequestCode.DELETE_KV_CONFIG)
                header = put.header(PutKVConfigRequestHeader)
                assert (header.namespace, header.key, header.value) == (
                    "ORDER_TOPIC_CONFIG",
                    "orders",
                    "a:2;b:2",
                )

    virtual.run(main())


def test_all_requests_of_a_client_with_keys_are_signed(virtual: VirtualTime) -> None:
    """Routes, heartbeats, sends with and without an answer, and the requests of its admin."""
    keys = Credentials("shop", "12345678")

    async def main() -> None:
        async with ScriptedCluster(virtual, brokers=["a"]) as cluster:
            settings = cluster.settings(credentials=keys, instance_name="me")
            async with (
                cluster.producer(credentials=keys, instance_name="me") as producer,
                Admin(settings, transport=cluster.transport, clock=virtual.clock) as admin,
            ):
                await producer.send(Message("orders", b"x"))
                await producer.send_oneway(Message("orders", b"y"))
                await admin.set_order_conf("orders", "a:2")
                await asyncio.sleep(2)
                asked = [command for peer in (*cluster.brokers, *cluster.name_servers) for command in peer.asked]
                for command in asked:
                    fields = command.ext_fields
                    assert fields == keys.signed(command.code, fields, command.body), command
                assert {command.code for command in asked} >= {
                    RequestCode.GET_ROUTEINFO_BY_TOPIC,
                    RequestCode.HEART_BEAT,
                    RequestCode.SEND_MESSAGE_V2,
                    RequestCode.PUT_KV_CONFIG,
                }
                assert any(command.is_oneway for command in asked)
                # Keys are part of what a client is: one without them has connections of its own.
                async with cluster.producer("stranger", instance_name="me") as stranger:
                    await stranger.send(Message("orders", b"z"))
                assert "Signature" not in cluster.brokers[0].asked[-1].ext_fields

    virtual.run(main())
