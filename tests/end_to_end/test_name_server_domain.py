"""Clients and binders that fetch the addresses of the name servers over HTTP."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest

from binders.rocket.binder import RocketBinder
from rocket_broker.threaded_broker import ThreadedBroker
from rocket_client import (
    AddressFetchError,
    Admin,
    ClientSettings,
    LitePullConsumer,
    LitePullConsumerSettings,
    Message,
    NameServersUnreachableError,
    Producer,
    ProducerSettings,
    PullConsumer,
    PullConsumerSettings,
    PushConsumer,
    PushConsumerSettings,
    SendStatus,
)
from rocket_client.blocking import BlockingClient
from streamkit import StreamApplication
from streamkit.binder.binder import BinderContext
from streamkit.binder.binding import InputBinding
from streamkit.clock import SystemClock
from streamkit.config.environment import Environment
from streamkit.errors import BinderError, BinderUnavailable
from streamkit.plugins.application_plugins import ApplicationPlugins
from tests.address_server import AddressHttpServer, running_address_server

SOON = timedelta(milliseconds=5)
BINDER = "spring.cloud.stream.rocketmq.binder"


@pytest.fixture(scope="module")
def brokers() -> Iterator[tuple[ThreadedBroker, ThreadedBroker]]:
    """Two clusters, each of a name server and a broker: `one` and `two`."""
    with ExitStack() as running:
        one, two = (running.enter_context(ThreadedBroker(settings={"brokerName": name})) for name in ("one", "two"))
        yield one, two


@pytest.fixture
def server(brokers: tuple[ThreadedBroker, ThreadedBroker]) -> Iterator[AddressHttpServer]:
    """A server that answers with the name server of the first cluster."""
    with running_address_server(brokers[0].name_server) as running:
        yield running


async def fetched_again(server: AddressHttpServer) -> None:
    """Wait until the client has used an answer that the server gave after this call."""
    while not server.asked.empty():
        server.asked.get()
    # One request may have been answered just now; the third follows when the second answer has been used.
    for _ in range(3):
        await asyncio.to_thread(server.asked.get)


def test_asyncio_clients_find_the_name_servers(server: AddressHttpServer) -> None:
    """Each kind of client does, and clients that share connections fetch the addresses once."""

    async def main() -> None:
        domain = server.domain
        async with Producer("shop", ProducerSettings(name_server_domain=domain)) as producer:
            assert (await producer.send(Message("orders", b"x"))).status is SendStatus.SEND_OK
            consumer = PushConsumer("kitchen", PushConsumerSettings(name_server_domain=domain))
            lite = LitePullConsumer("office", LitePullConsumerSettings(name_server_domain=domain))
            consumer.subscribe("orders")
            lite.subscribe("orders")

            @consumer.listen_concurrently
            async def listen(messages: object, context: object) -> None:
                pass

            async with consumer, lite, PullConsumer("bar", PullConsumerSettings(name_server_domain=domain)) as pull:
                assert await pull.fetch_message_queues("orders")
            async with Admin(ClientSettings(name_server_domain=domain)) as admin:
                assert list((await admin.cluster_info()).broker_addr_table) == ["one"]
        assert [server.asked.get(), server.asked.empty()] == ["/rocketmq/nsaddr", True]

    asyncio.run(main())


def test_blocking_client_finds_the_name_servers(server: AddressHttpServer) -> None:
    """At its first request, and not again before two minutes have passed."""
    settings = ProducerSettings(name_server_domain=server.domain, unit_name="unit")
    with BlockingClient("report", settings) as client:
        assert client.send(Message("orders", b"x")).status is SendStatus.SEND_OK
        assert client.brokers() == {"one"}
    assert [server.asked.get(), server.asked.empty()] == ["/rocketmq/nsaddr-unit?nofix=1", True]


def test_asyncio_client_follows_the_server(
    server: AddressHttpServer, brokers: tuple[ThreadedBroker, ThreadedBroker]
) -> None:
    """Failures of the server change nothing."""

    async def main() -> None:
        settings = ClientSettings(name_server_domain=server.domain, name_server_refresh_interval=SOON)
        async with Admin(settings) as admin:

            async def known() -> list[str]:
                await fetched_again(server)
                return list((await admin.cluster_info()).broker_addr_table)

            assert await known() == ["one"]
            server.body = brokers[1].name_server.encode()
            assert await known() == ["two"]
            server.body = b""
            assert await known() == ["two"]
            server.body, server.status = brokers[0].name_server.encode(), 503
            assert await known() == ["two"]
            server.status = 200
            assert await known() == ["one"]

    asyncio.run(main())


def test_blocking_client_follows_the_server(
    server: AddressHttpServer, brokers: tuple[ThreadedBroker, ThreadedBroker]
) -> None:
    """Failures of the server change nothing."""
    settings = ProducerSettings(
        name_server_domain=server.domain, name_server_refresh_interval=timedelta(microseconds=1)
    )
    with BlockingClient("report", settings) as client:
        assert client.brokers() == {"one"}
        server.body = brokers[1].name_server.encode()
        assert client.brokers() == {"two"}
        server.body = b"nonsense"
        assert client.brokers() == {"two"}
        server.body, server.status = brokers[0].name_server.encode(), 503
        assert client.brokers() == {"two"}
        server.status = 200
        assert client.brokers() == {"one"}


async def start_producer(settings: ProducerSettings) -> None:
    """Start a producer, and stop it."""
    async with Producer("shop", settings):
        pass


def failure(**settings: Any) -> tuple[str, str]:
    """Return the texts of the errors with which both clients fail."""
    texts = []
    made = ProducerSettings(instance_name="one", **settings)
    with pytest.raises(NameServersUnreachableError) as caught:
        asyncio.run(start_producer(made))
    assert isinstance(caught.value.__cause__, AddressFetchError)
    texts.append(str(caught.value))
    with BlockingClient("report", made) as client, pytest.raises(NameServersUnreachableError) as caught:
        client.brokers()
    assert isinstance(caught.value.__cause__, AddressFetchError)
    texts.append(str(caught.value))
    return texts[0], texts[1]


def test_answer_of_nonsense_is_an_error_with_the_url(server: AddressHttpServer) -> None:
    """With the beginning of the answer."""
    server.body = b"<html>" * 10_000_000
    error = f"no name server is known: cannot fetch the addresses of the name servers from http://{server.domain}"
    assert all(text.startswith(error) and "65536 bytes" in text for text in failure(name_server_domain=server.domain))
    server.body = b"<html>"
    assert all(text.endswith("addresses: '<html>'") for text in failure(name_server_domain=server.domain))


def test_unreachable_server_is_an_error_with_the_url() -> None:
    """Whether the server refuses the connection or does not answer."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        domain = f"127.0.0.1:{closed.getsockname()[1]}"
        url = f"http://{domain}/rocketmq/nsaddr"
        for text in failure(name_server_domain=domain):
            assert f"{url}: " in text
            assert text.endswith("Connection refused")
        closed.listen()
        for text in failure(name_server_domain=domain, request_timeout=timedelta(milliseconds=50)):
            assert text.endswith(f"{url}: no answer within 0.05 s")


def test_failed_start_leaves_nothing_behind(server: AddressHttpServer) -> None:
    """A new producer of the group can be started under the same client id."""

    async def main() -> None:
        settings = ProducerSettings(name_server_domain=server.domain, instance_name="one")
        server.status = 503
        with pytest.raises(NameServersUnreachableError, match="the answer is 503"):
            await start_producer(settings)
        assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
        server.status = 200
        await start_producer(settings)

    asyncio.run(main())


def test_binder_fetches_the_addresses_and_starts_no_broker(server: AddressHttpServer) -> None:
    """Messages go through the cluster; Spark, which needs the addresses, is refused."""

    async def main() -> None:
        app = StreamApplication(
            config_location="optional:/none",
            properties={
                f"{BINDER}.name-server-domain": server.domain,
                f"{BINDER}.name-server-subgroup": "mine",
                "spring.cloud.stream.default-binder": "rocketmq",
                "spring.cloud.stream.bindings.in.destination": "meals",
                "spring.cloud.stream.bindings.in.group": "g",
                "spring.cloud.stream.bindings.out.destination": "meals",
                "spring.cloud.stream.output-bindings": "out",
            },
        )
        received: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        @app.stream_listener("in")
        async def listen(meal: str) -> None:
            received.set_result(meal)

        async with app:
            binding = app.binding("in")
            assert isinstance(binding, InputBinding)
            binder = binding.binder.binder
            assert isinstance(binder, RocketBinder)
            assert binder.address == server.domain
            assert (await binder.health()).details == {"nameServer": server.domain, "brokers": "one", "lag.in": "0"}
            with pytest.raises(BinderError, match=r"set spring\.cloud\.stream\.rocketmq\.binder\.name-server$"):
                binder.spark_source(binding.consumer_destinations[0])
            await app.bridge.asend("out", "soup")
            assert await received == "soup"
        assert server.asked.get() == "/rocketmq/mine"

    asyncio.run(main())


def test_binder_without_addresses_does_not_start(server: AddressHttpServer) -> None:
    """The error names the URL; no broker is started in the place of the cluster."""
    server.status = 503
    environment = Environment.load(overrides={f"{BINDER}.name-server-domain": server.domain}, variables={})
    models = ApplicationPlugins().binder_types().extended_models
    binder = RocketBinder("shop", BinderContext(environment, SystemClock(), "shop", models))

    async def main() -> None:
        try:
            await binder.start()
        finally:
            await binder.stop()

    url = f"http://{server.domain}/rocketmq/nsaddr"
    with pytest.raises(BinderUnavailable, match=f"^binder 'shop' cannot reach .* from {url}: the answer is 503"):
        asyncio.run(main())
    assert binder.address == server.domain
