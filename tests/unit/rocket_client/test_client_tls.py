"""Clients that encrypt everything: producers, consumers and admins at a cluster that accepts TLS only."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from rocket_broker.embedded import EmbeddedBroker
from rocket_client import (
    Admin,
    ClientSettings,
    ConsumeContext,
    Message,
    MessageExt,
    Producer,
    ProducerSettings,
    PushConsumer,
    PushConsumerSettings,
)
from rocket_client.errors import NameServersUnreachableError
from rocket_remoting import MemoryTransport, TlsError
from streamkit.testing.virtual_time import VirtualTime
from tests.certificates import authority


def cluster(transport: MemoryTransport, time: VirtualTime, mode: str = "enforcing") -> EmbeddedBroker:
    """Return a cluster whose encrypted clients need our certificate."""
    ours = authority()
    server, own = ours.server(), ours.client(signed_by=ours)
    keys = {
        "tls.server.mode": mode,
        "tls.server.certPath": str(server.certificate),
        "tls.server.keyPath": str(server.key),
        "tls.server.need.client.auth": "require",
        "tls.server.trustCertPath": str(ours.file),
        "tls.client.trustCertPath": str(ours.file),
        "tls.client.certPath": str(own.certificate),
        "tls.client.keyPath": str(own.key),
    }
    return EmbeddedBroker(settings=keys, transport=transport, clock=time.clock)


@pytest.mark.parametrize(
    ("mode", "encrypted"),
    [
        ("enforcing", {"producer", "consumer"}),
        ("permissive", {"producer"}),
        ("permissive", {"consumer"}),
        ("permissive", set()),
    ],
    ids=lambda value: value if isinstance(value, str) else "+".join(sorted(value)) or "plain",
)
def test_messages_pass(mode: str, encrypted: set[str]) -> None:
    """From a producer to a consumer, which are members of their groups; an admin sees the topic."""

    async def main() -> None:
        transport = MemoryTransport()
        async with cluster(transport, time, mode) as embedded:
            name_server, ours = embedded.name_server_address, authority().client(signed_by=authority())
            tls = {name: ours if name in encrypted else None for name in ("producer", "consumer")}
            received: asyncio.Queue[bytes] = asyncio.Queue()

            async def serve(messages: list[MessageExt], context: ConsumeContext) -> None:
                for message in messages:
                    received.put_nowait(message.body)

            of_consumer = PushConsumerSettings(name_servers=name_server, tls=tls["consumer"])
            consumer = PushConsumer("kitchen", of_consumer, transport=transport)
            consumer.subscribe("orders")
            consumer.listen_concurrently(serve)
            settings = ProducerSettings(name_servers=name_server, tls=tls["producer"])
            async with consumer, Producer("shop", settings, transport=transport) as producer:
                for number in range(10):
                    await producer.send(Message("orders", b"%d" % number))
                assert sorted([await received.get() for _ in range(10)]) == [b"%d" % n for n in range(10)]
                async with Admin(settings, transport=transport) as admin:
                    assert "orders" in await admin.topics()

    with VirtualTime() as time:
        time.run(main())


def test_wrong_authority_is_named_in_the_error() -> None:
    """Of the first request; a file that cannot be used fails the start already."""

    async def main() -> None:
        transport = MemoryTransport()
        async with cluster(transport, time) as embedded:
            settings = ClientSettings(
                name_servers=embedded.name_server_address, tls=authority("foreign").client(signed_by=authority())
            )
            async with Admin(settings, transport=transport) as admin:
                with pytest.raises(NameServersUnreachableError, match="the certificate is not accepted"):
                    await admin.topics()
            assert settings.tls is not None
            missing = replace(settings.tls, trust_certificates=Path("missing.pem"))
            with pytest.raises(TlsError, match=r"missing\.pem cannot be read"):
                await Admin(replace(settings, tls=missing), transport=transport).start()

    with VirtualTime() as time:
        time.run(main())
