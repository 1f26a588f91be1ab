"""The proxy carries every byte, and explains what it carries."""

import asyncio

from rocket_admin.wire.conversation import ExplainedCommand
from rocket_admin.wire.proxy import Unreadable, WireProxy
from rocket_broker.embedded import EmbeddedBroker
from rocket_client import Producer, ProducerSettings, PushConsumer, PushConsumerSettings
from rocket_remoting import Message

TLS_HELLO = bytes.fromhex("160301") + bytes(200)


def test_clients_reach_brokers_through_it() -> None:
    """A message is sent and received; both connections, to the name server and to the broker, are explained."""
    seen: list[ExplainedCommand | Unreadable] = []

    async def scene() -> None:
        received: asyncio.Queue[bytes] = asyncio.Queue()

        async def listen(messages: list[Message], context: object) -> None:
            for message in messages:
                received.put_nowait(message.body)

        async with EmbeddedBroker() as broker, WireProxy(broker.name_server_address, seen.append) as proxy:
            async with Producer("shop", ProducerSettings(name_servers=proxy.address)) as producer:
                await producer.send(Message("orders", b"tea"))
                consumer = PushConsumer("kitchen", PushConsumerSettings(name_servers=proxy.address))
                consumer.subscribe("orders")
                consumer.listen_concurrently(listen)
                async with consumer:
                    assert await received.get() == b"tea"
            servers = {each.server for each in seen}
            assert servers == {broker.name_server_address, broker.broker_address}

    asyncio.run(scene())
    commands = [each for each in seen if isinstance(each, ExplainedCommand)]
    assert len(commands) == len(seen)
    (sent,) = [each for each in commands if each.name == "SEND_MESSAGE_V2"]
    assert sent.by_client
    assert sent.fields["topic"] == "orders"
    (stored,) = [each for each in commands if each.answers == "SEND_MESSAGE_V2"]
    assert stored.name == "SUCCESS"
    found = [each.body for each in commands if each.answers == "PULL_MESSAGE" and each.name == "SUCCESS"]
    assert found == ["message 0"]


def test_what_cannot_be_read_passes_and_is_reported_once() -> None:
    """Encrypted bytes reach the server as they are, and its bytes come back."""
    seen: list[ExplainedCommand | Unreadable] = []

    async def scene() -> None:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(1000):
                writer.write(data)
            writer.close()

        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, WireProxy(f"127.0.0.1:{port}", seen.append) as proxy:
            reader, writer = await asyncio.open_connection(*proxy.address.split(":"))
            for _ in range(3):
                writer.write(TLS_HELLO)
                assert await reader.readexactly(len(TLS_HELLO)) == TLS_HELLO
            writer.close()
            await writer.wait_closed()

    asyncio.run(scene())
    assert [(each.by_client, each.reason) for each in seen if isinstance(each, Unreadable)] == [
        (True, "TLS"),
        (False, "TLS"),
    ]
    assert len(seen) == 2


def test_server_that_is_away_is_reported() -> None:
    """The client's connection ends."""
    seen: list[ExplainedCommand | Unreadable] = []

    async def scene() -> None:
        unused = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        address = f"127.0.0.1:{unused.sockets[0].getsockname()[1]}"
        unused.close()
        await unused.wait_closed()
        async with WireProxy(address, seen.append) as proxy:
            reader, writer = await asyncio.open_connection(*proxy.address.split(":"))
            assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()

    asyncio.run(scene())
    (failure,) = seen
    assert isinstance(failure, Unreadable)
    assert failure.reason.startswith("cannot connect: ")
