"""The metrics of the bundled broker and name server, scraped over HTTP and read by Prometheus' own parser."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rocket_broker.broker import Broker
from rocket_broker.errors import AddressInUse, SettingError
from rocket_broker.metrics.broker_metrics import TABLE
from rocket_broker.namesrv.metrics import TABLE as OF_NAME_SERVER
from rocket_broker.namesrv.server import NameServer
from rocket_broker.namesrv.settings import NameServerSettings
from rocket_broker.settings.broker_settings import SMALL_STORE, BrokerSettings
from rocket_broker.settings.properties_file import entries_of
from rocket_client import Producer, ProducerSettings, PushConsumer, PushConsumerSettings
from rocket_remoting.clock import SystemClock
from rocket_remoting.transports.tcp import TcpTransport
from rocket_remoting.wire.bodies import TopicConfig
from rocket_remoting.wire.message import Message
from streamkit.exposition import Metric

PROM = {"metricsExporterType": "PROM", "metricsPromExporterPort": "0"}

Samples = dict[str, dict[frozenset[tuple[str, str]], float]]


async def answer_to(address: str, request: str) -> tuple[str, str]:
    """Return the status line and the body of the answer to a request."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(request.encode())
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
        return head.partition("\r\n")[0], body
    finally:
        writer.close()
        await writer.wait_closed()


async def scrape(address: str) -> Samples:
    """Return the values of each metric by labels, without the labels of all samples."""
    status, body = await answer_to(address, f"GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n")
    assert status == "HTTP/1.1 200 OK"
    found: Samples = {}
    for family in text_string_to_metric_families(body):
        for sample in family.samples:
            assert sample.labels.pop("zone") == "a"
            assert {sample.labels.pop(name) for name in ("node_type", "node_id")}
            found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return found


def value(samples: Mapping[frozenset[tuple[str, str]], float], **labels: str) -> float:
    """Return the one value with these labels."""
    (found,) = (value for key, value in samples.items() if labels.items() <= dict(key).items())
    return found


@asynccontextmanager
async def running(root: Path, **keys: str) -> AsyncIterator[tuple[Broker, NameServer]]:
    """Run a broker and its name server, both with metrics on free ports."""
    labelled = {**PROM, "metricsLabel": "zone:a"}
    name_keys = {**labelled, "listenPort": "0", "kvConfigPath": str(root / "kv.json")}
    server = NameServer(NameServerSettings.from_entries(entries_of(name_keys, "test")), transport=TcpTransport())
    await server.start()
    broker_keys = {
        **SMALL_STORE,
        **labelled,
        "storePathRootDir": str(root / "store"),
        "listenPort": "0",
        "namesrvAddr": server.address,
        "brokerIP1": "127.0.0.1",
        **keys,
    }
    settings = BrokerSettings.from_entries(entries_of(broker_keys, "test"))
    broker = Broker(settings, transport=TcpTransport(), clock=SystemClock())
    try:
        await broker.start()
        yield broker, server
    finally:
        await broker.stop()
        await server.stop()


def served_at(server: Broker | NameServer) -> str:
    """Return the address of a server's metrics."""
    assert server.metrics_endpoint is not None
    return server.metrics_endpoint.address


def names(metrics: Sequence[Metric]) -> set[str]:
    return {metric.name for metric in metrics}


def test_what_a_broker_stores_and_delivers_is_counted(tmp_path: Path) -> None:
    """By topic and by group, from 0 on, and with the lag of a group."""

    async def main() -> None:
        async with running(tmp_path) as (broker, server):
            broker.topics.update(TopicConfig(topic_name="orders", read_queue_nums=1, write_queue_nums=1))
            before = await scrape(served_at(broker))
            assert value(before["rocketmq_messages_in_total"], topic="orders", is_system="false") == 0
            assert before.keys() <= names(TABLE.metrics)
            received = asyncio.Event()

            async def listen(messages: object, context: object) -> None:
                received.set()

            consumer = PushConsumer("kitchen", PushConsumerSettings(name_servers=server.address))
            consumer.subscribe("orders", "*")
            consumer.listen_concurrently(listen)
            async with Producer("shop", ProducerSettings(name_servers=server.address)) as producer:
                async with consumer:
                    await producer.send(Message("orders", b"tea"))
                    await asyncio.wait_for(received.wait(), 60)
                await producer.send(Message("orders", b"cake"))
                after = await scrape(served_at(broker))
            assert value(after["rocketmq_messages_in_total"], topic="orders") == 2
            assert value(after["rocketmq_messages_out_total"], topic="orders", consumer_group="kitchen") == 1
            assert value(after["rocketmq_consumer_lag_messages"], topic="orders", consumer_group="kitchen") == 1
            assert value(after["rocketmq_producer_connections"], language="python") == 1
            assert value(after["rocketmq_storage_size"], storage_medium="disk") > 0
            assert value(after["process_start_time_seconds"]) > 1.7e9
            assert "streamkit_broker_slaves" not in after
            of_server = await scrape(served_at(server))
            assert value(of_server["streamkit_namesrv_brokers"], broker="broker-a") == 1
            assert of_server.keys() <= names(OF_NAME_SERVER.metrics)

    asyncio.run(main())


def test_samples_of_a_metric_are_limited(tmp_path: Path) -> None:
    """Further topics are left out, which a metric says; each sample is a step of the scrape."""

    async def main() -> None:
        async with running(tmp_path, metricsOtelCardinalityLimit="5") as (broker, _):
            broker.topics.update(*(TopicConfig(topic_name=f"topic-{number}") for number in range(50)))
            samples = await scrape(served_at(broker))
            assert len(samples["rocketmq_messages_in_total"]) == 5
            left_out = value(samples["streamkit_metrics_samples_left_out"], metric="rocketmq_messages_in_total")
            assert left_out == len(broker.topics) - 5
            assert sum(1 for _ in broker.metrics.scrape()) > 2 * len(broker.topics)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "404 Not Found"),
        ("POST /metrics HTTP/1.1\r\nHost: localhost:1\r\n\r\n", "405 Method Not Allowed"),
        ("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", "400 Bad Request"),
        ("GET /metrics HTTP/1.1\r\n\r\n", "400 Bad Request"),
        (f"GET /metrics HTTP/1.1\r\nX: {'x' * 9000}\r\n\r\n", "431 Request Header Fields Too Large"),
    ],
)
def test_other_requests_are_refused(tmp_path: Path, request_: str, status: str) -> None:
    """With a status; pages of other sites cannot read the metrics."""

    async def main() -> None:
        async with running(tmp_path) as (broker, _):
            assert (await answer_to(served_at(broker), request_))[0] == f"HTTP/1.1 {status}"

    asyncio.run(main())


def test_metrics_beyond_loopback_are_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They need no login."""

    async def main() -> None:
        async with running(tmp_path, metricsPromExporterHost="0.0.0.0"):
            pass

    asyncio.run(main())
    assert "can be read by other machines without a login" in caplog.text


def test_a_port_in_use_names_its_setting(tmp_path: Path) -> None:
    """And the broker does not start."""

    async def main() -> None:
        async with running(tmp_path) as (_, server):
            port = served_at(server).rpartition(":")[2]
            with pytest.raises(AddressInUse, match="choose another port with metricsPromExporterPort"):
                async with running(tmp_path / "second", metricsPromExporterPort=port):
                    pass

    asyncio.run(main())


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("metricsExporterType", "OTLP_GRPC"),
        ("metricsLabel", "zone"),
        ("metricsLabel", "topic:a"),
        ("metricsLabel", "a:b,a:c"),
    ],
)
def test_wrong_settings_are_refused(key: str, text: str) -> None:
    """Metrics are not pushed; labels have names of their own."""
    with pytest.raises(SettingError):
        BrokerSettings.from_entries(entries_of({key: text}, "test"))
