"""TLS between Apache's programs and ours: Java's clients on our broker, our clients on Apache's.

Each server accepts TLS only, from clients with a certificate, and each client verifies the server. Apache's own tests
mix plain and encrypted connections.
"""

import asyncio
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from rocket_broker.threaded_broker import ThreadedBroker
from rocket_client import (
    Admin,
    ConsumeContext,
    ConsumeFromWhere,
    Message,
    MessageExt,
    Producer,
    ProducerSettings,
    PushConsumer,
    PushConsumerSettings,
)
from rocket_client.blocking import BlockingClient
from rocket_client.errors import NameServersUnreachableError
from tests.certificates import authority
from tests.peer.apache import ApacheBroker
from tests.peer.artifacts import INTEGRATION_TESTS, VERSIONS, class_path, program
from tests.peer.conftest import require
from tests.peer.java_client import JavaClient
from tests.peer.jvm import java_options
from tests.peer.stage import Stage

pytestmark = pytest.mark.peer

TEST_MODE = {"tls.enable": "true"}
"""Apache's default: the client shows no certificate, and trusts any server."""


APACHES_TESTS = ("TLS_IT", "TLS_Mix_IT", "TLS_Mix2_IT")
"""They send and receive 16 messages: over TLS, sent plain and received over TLS, and the other way round."""


def verified() -> dict[str, str]:
    """Return the system properties of a client that shows a certificate and verifies the server's."""
    ours = authority()
    tls = ours.client(signed_by=ours)
    return {
        "tls.enable": "true",
        "tls.test.mode.enable": "false",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": str(ours.file),
        "tls.client.certPath": str(tls.certificate),
        "tls.client.keyPath": str(tls.key),
    }


def served(demand: str) -> dict[str, str]:
    """Return the settings of servers, and of their own connections."""
    ours = authority()
    tls = ours.server()
    clients = {key: value for key, value in verified().items() if key.startswith("tls.client.")}
    return clients | {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": str(tls.certificate),
        "tls.server.keyPath": str(tls.key),
        "tls.server.need.client.auth": demand,
        "tls.server.authClient": "true",
        "tls.server.trustCertPath": str(ours.file),
    }


@pytest.mark.parametrize(
    ("version", "client", "demand"),
    [*((version, "verified", "require") for version in VERSIONS), ("4.9.7", "test mode", "none")],
)
def test_java_clients_on_our_broker(version: str, client: str, demand: str) -> None:
    """Producer, consumer and mqadmin."""
    require(version)
    properties: Mapping[str, str] = verified() if client == "verified" else TEST_MODE
    with (
        ThreadedBroker(settings=served(demand)) as ours,
        JavaClient(version, system_properties=properties) as java,
        Stage(java, ours.name_server, ours.address, authority().client(signed_by=authority())) as stage,
    ):
        topic = stage.topic()
        stage.producer().send(topic, *"abcd")
        assert sorted(message.text for message in stage.consumer(topic).take(4)) == list("abcd")
        assert "broker-a" in stage.mqadmin("clusterList")


@pytest.mark.parametrize("version", VERSIONS)
def test_our_clients_on_apaches_broker(version: str) -> None:
    """The asyncio and the blocking client; a plain one is refused."""
    require(version)
    tls = authority().client(signed_by=authority())
    properties = served("require") | {"tls.test.mode.enable": "false"}
    with ApacheBroker(version, system_properties=properties) as apache:

        async def main() -> None:
            settings = ProducerSettings(name_servers=apache.name_server, tls=tls)
            received: asyncio.Queue[bytes] = asyncio.Queue()

            async def serve(messages: list[MessageExt], context: ConsumeContext) -> None:
                for message in messages:
                    received.put_nowait(message.body)

            async with Admin(settings) as admin:
                await admin.create_topic("encrypted", 4)
                await admin.await_topic("encrypted", queues=4, timeout=60)
            consumer = PushConsumer(
                "tls-group",
                PushConsumerSettings(
                    name_servers=apache.name_server, tls=tls, consume_from_where=ConsumeFromWhere.FIRST_OFFSET
                ),
            )
            consumer.subscribe("encrypted")
            consumer.listen_concurrently(serve)
            async with Producer("tls-producer", settings) as producer, consumer:
                for number in range(4):
                    await producer.send(Message("encrypted", b"%d" % number))
                await producer.send(Message("encrypted", b"x" * 1_000_000))
                found = [await asyncio.wait_for(received.get(), 60) for _ in range(5)]
                assert sorted(map(len, found)) == [1, 1, 1, 1, 1_000_000]
            plain = Admin(ProducerSettings(name_servers=apache.name_server))
            async with plain:
                with pytest.raises(NameServersUnreachableError):
                    await plain.topics()

        asyncio.run(main())
        with BlockingClient("tls-blocking", ProducerSettings(name_servers=apache.name_server, tls=tls)) as client:
            assert sum(client.max_offset(queue) for queue in client.queues("encrypted")) == 5


def test_apaches_integration_tests_on_our_broker(tmp_path: Path) -> None:
    """As they are, except for the class that starts their servers; their clients trust any server."""
    require(INTEGRATION_TESTS)
    with ThreadedBroker(settings=served("none") | {"tls.server.mode": "permissive"}) as ours:
        done = subprocess.run(
            [
                program("java"),
                *java_options(tmp_path, heap="256m"),
                # A consumer that misses a queue at its start looks again soon.
                "-Drocketmq.client.rebalance.waitInterval=1000",
                f"-Dstreamkit.nameServerPort={ours.name_server.rpartition(':')[2]}",
                "-cp",
                class_path(INTEGRATION_TESTS),
                "org.junit.runner.JUnitCore",
                *(f"org.apache.rocketmq.test.tls.{name}" for name in APACHES_TESTS),
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert f"OK ({len(APACHES_TESTS)} tests)" in done.stdout
