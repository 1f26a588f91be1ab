"""The broker keeps itself registered with its name servers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from rocket_broker.namesrv.server import NameServer
from rocket_broker.namesrv.settings import NameServerSettings
from rocket_broker.registration import Registration
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.settings.properties_file import entries_of
from rocket_broker.tables.topic_table import MOST_RECENT, TopicTable
from rocket_remoting.session.connection import Connection, Handler
from rocket_remoting.transports.memory import MemoryTransport
from rocket_remoting.transports.transport import Server
from rocket_remoting.wire.bodies import TopicConfig
from rocket_remoting.wire.command import RemotingCommand
from streamkit.testing.virtual_time import VirtualTime


class CountingTransport(MemoryTransport):
    """A transport that counts the bytes of the bodies which its servers receive."""

    received = 0

    async def serve(self, host: str, port: int, handler: Handler, **options: Any) -> Server:
        def counted(connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
            self.received += len(command.body)
            return handler(connection, command)

        return await super().serve(host, port, counted, **options)


class Cluster:
    """Two name servers that can be started and stopped, and one broker's registration with both."""

    def __init__(self, root: Path, time: VirtualTime, **keys: str) -> None:
        self.transport = CountingTransport()
        self._root = root
        settings = BrokerSettings.from_entries(
            entries_of(
                {
                    "brokerName": "broker-a",
                    "storePathRootDir": str(root),
                    "namesrvAddr": "127.0.0.1:9876;127.0.0.1:9877",
                }
                | keys,
                "test",
            )
        )
        self.settings = settings
        self.topics = TopicTable(settings, time.clock)
        self.registration = Registration(
            settings,
            self.topics,
            transport=self.transport,
            address="127.0.0.1:10911",
            ha_address="127.0.0.1:10912",
        )

    async def name_server(self, port: int, **more: str) -> NameServer:
        keys = {"listenPort": str(port), "kvConfigPath": str(self._root / f"kv{port}.json")} | more
        server = NameServer(NameServerSettings.from_entries(entries_of(keys, "test")), transport=self.transport)
        await server.start()
        return server


Test = Callable[[Cluster], Awaitable[None]]
Run = Callable[..., None]


@pytest.fixture
def with_cluster(tmp_path: Path) -> Run:
    """Run a test in virtual time."""

    def run(test: Test, **keys: str) -> None:
        with VirtualTime() as time:
            time.run(test(Cluster(tmp_path, time, **keys)))

    return run


def has(server: NameServer, topic: str) -> bool:
    return server.routes.route(topic) is not None


@pytest.mark.parametrize("compressed", ["true", "false"])
def test_start_registers_with_every_name_server(with_cluster: Run, compressed: str) -> None:
    """When start returns, each name server has all routes."""

    async def test(cluster: Cluster) -> None:
        servers = [await cluster.name_server(port) for port in (9876, 9877)]
        await cluster.registration.start()
        assert all(has(server, "TBW102") for server in servers)
        await cluster.registration.stop()
        assert not any(has(server, "TBW102") for server in servers)
        for server in servers:
            await server.stop()

    with_cluster(test, compressedRegister=compressed)


def test_topic_change_is_registered_at_once(with_cluster: Run) -> None:
    """Producers find a new topic's route before the next period."""

    async def test(cluster: Cluster) -> None:
        server = await cluster.name_server(9876)
        await cluster.registration.start()
        for number in range(100):
            cluster.topics.update(TopicConfig(topic_name=f"t{number}"))
        await asyncio.sleep(0.01)
        assert has(server, "t0")
        assert has(server, "t99")
        await cluster.registration.stop()
        await server.stop()

    with_cluster(test)


def test_change_registers_what_has_changed(with_cluster: Run) -> None:
    """A topic more costs the same with ten thousand topics as with ten, and each name server gets what it lacks."""

    async def test(cluster: Cluster) -> None:
        server = await cluster.name_server(9876)
        cluster.topics.update(*(TopicConfig(topic_name=f"old{number}") for number in range(10_000)))
        await cluster.registration.start()
        before = cluster.transport.received
        cluster.topics.update(TopicConfig(topic_name="new", write_queue_nums=3))
        cluster.topics.update(TopicConfig(topic_name="old7", write_queue_nums=5))
        await cluster.registration.until_registered()
        routes = [server.routes.route(topic) for topic in ("new", "old7")]
        assert [queues.write_queue_nums for each in routes if each for queues in each.queue_datas] == [3, 5]
        assert has(server, "old9999")
        assert cluster.transport.received - before < 2_000
        # A second name server, which starts now, has all of them within seconds.
        late = await cluster.name_server(9877)
        await asyncio.sleep(60)
        assert has(late, "old9999")
        assert has(late, "new")
        await cluster.registration.stop()
        for each in (server, late):
            await each.stop()

    with_cluster(test)


def test_removed_topic_and_unknown_answers_are_registered_with_all_topics(with_cluster: Run) -> None:
    """A name server that forgets topics which are not listed keeps those that there are."""

    async def test(cluster: Cluster) -> None:
        server = await cluster.name_server(9876, deleteTopicWithBrokerRegistration="true")
        await cluster.registration.start()
        cluster.topics.update(TopicConfig(topic_name="one"))
        cluster.topics.update(TopicConfig(topic_name="two"))
        await cluster.registration.until_registered()
        assert has(server, "TBW102")
        cluster.topics.delete("one")
        cluster.topics.update(TopicConfig(topic_name="three"))
        await cluster.registration.until_registered()
        assert [has(server, topic) for topic in ("TBW102", "one", "two", "three")] == [True, False, True, True]
        await cluster.registration.stop()
        await server.stop()

    with_cluster(test)


def test_changes_during_an_outage_are_registered_after_it(with_cluster: Run) -> None:
    """More of them than the table can name one by one, too."""

    async def test(cluster: Cluster) -> None:
        server = await cluster.name_server(9876)
        await cluster.registration.start()
        await server.stop()
        cluster.topics.update(TopicConfig(topic_name="during"))
        again = await cluster.name_server(9876)
        await asyncio.sleep(1)
        for number in range(MOST_RECENT + 1):
            cluster.topics.update(TopicConfig(topic_name=f"after{number}"))
        await cluster.registration.until_registered()
        assert all(has(again, topic) for topic in ("TBW102", "during", "after0", f"after{MOST_RECENT}"))
        await cluster.registration.stop()
        await again.stop()

    with_cluster(test)


def test_unavailable_name_server_is_retried_and_logged_once(
    with_cluster: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker registers with the other name servers meanwhile."""

    async def test(cluster: Cluster) -> None:
        server = await cluster.name_server(9876)
        await cluster.registration.start()
        assert has(server, "TBW102")
        await asyncio.sleep(300)
        late = await cluster.name_server(9877)
        await asyncio.sleep(30)
        assert has(late, "TBW102")
        await cluster.registration.stop()
        await server.stop()
        await late.stop()

    with caplog.at_level(logging.INFO):
        with_cluster(test)
    reported = [r.getMessage() for r in caplog.records if r.name.endswith("registration") and "9877" in r.getMessage()]
    assert [text.split(",")[0] for text in reported] == [
        "could not register with name server 127.0.0.1:9877",
        "registered with name server 127.0.0.1:9877",
    ]


def test_restarted_name_server_gets_the_registration_again_within_seconds(with_cluster: Run) -> None:
    """The broker notices that its connection ended and registers again."""

    async def test(cluster: Cluster) -> None:
        server = await cluster.name_server(9876)
        await cluster.registration.start()
        await server.stop()
        again = await cluster.name_server(9876)
        await asyncio.sleep(1)
        assert has(again, "TBW102")
        await cluster.registration.stop()
        await again.stop()

    with_cluster(test)


def test_broker_is_kept_registered_by_its_periodic_registration(with_cluster: Run) -> None:
    """After ten minutes without changes every name server still has its routes."""

    async def test(cluster: Cluster) -> None:
        server = await cluster.name_server(9876)
        await cluster.registration.start()
        await asyncio.sleep(600)
        assert has(server, "TBW102")
        assert server.routes.data_version("127.0.0.1:10911") == cluster.topics.data_version
        await cluster.registration.stop()
        await server.stop()

    with_cluster(test, forceRegister="false")


@pytest.mark.parametrize(("asked", "period"), [("1", 10.0), ("30000", 30.0), ("600000", 60.0)])
def test_registration_period_is_between_ten_and_sixty_seconds(with_cluster: Run, asked: str, period: float) -> None:
    """As in Apache's broker: name servers expire a broker after two minutes."""

    async def test(cluster: Cluster) -> None:
        assert cluster.registration.period == period

    with_cluster(test, registerNameServerPeriod=asked)


def test_read_only_broker_registers_read_only_topics(with_cluster: Run) -> None:
    """brokerPermission=4 makes every topic's route read-only."""

    async def test(cluster: Cluster) -> None:
        server = await cluster.name_server(9876)
        cluster.topics.update(TopicConfig(topic_name="orders"))
        await cluster.registration.start()
        route = server.routes.route("orders")
        assert route is not None
        assert route.queue_datas[0].perm == 4
        await cluster.registration.stop()
        await server.stop()

    with_cluster(test, brokerPermission="4")


def test_order_configuration_comes_from_the_first_name_server(with_cluster: Run) -> None:
    """It marks the broker's ordered topics, and the broker registers the marks."""

    async def test(cluster: Cluster) -> None:
        server = await cluster.name_server(9876)
        other = await cluster.name_server(9877)
        server.kv_config.put("ORDER_TOPIC_CONFIG", "orders", "broker-a:4")
        other.kv_config.put("ORDER_TOPIC_CONFIG", "else", "broker-a:4")
        cluster.topics.update(TopicConfig(topic_name="orders"))
        await cluster.registration.start()
        config = cluster.topics.get("orders")
        assert config is not None
        assert config.order
        await cluster.registration.stop()
        await server.stop()
        await other.stop()

    with_cluster(test)
