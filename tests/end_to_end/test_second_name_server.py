"""A broker that comes back at another address, and registers with one of two name servers only."""

import asyncio
import random
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from rocket_broker.broker import Broker
from rocket_broker.namesrv.server import NameServer
from rocket_broker.namesrv.settings import NameServerSettings
from rocket_broker.settings.broker_settings import SMALL_STORE, BrokerSettings
from rocket_broker.settings.properties_file import entries_of
from rocket_client import (
    ConsumeFromWhere,
    Producer,
    ProducerSettings,
    PushConsumer,
    PushConsumerSettings,
    SendError,
)
from rocket_client.blocking import BlockingClient
from rocket_remoting import Message, TcpTransport
from rocket_remoting.clock import SystemClock
from tests.end_to_end.client_stage import RecordingListener

SOON = timedelta(milliseconds=50)


async def name_server(stack: AsyncExitStack, directory: Path) -> str:
    """Start a name server, and return its address."""
    keys = {"listenPort": "0", "kvConfigPath": str(directory / "kvConfig.json")}
    server = NameServer(NameServerSettings.from_entries(entries_of(keys, "test")), transport=TcpTransport())
    stack.push_async_callback(server.stop)
    await server.start()
    return server.address


async def broker(stack: AsyncExitStack, directory: Path, name_server: str) -> Broker:
    """Start a broker at a free port, with the store in the directory."""
    keys = {"brokerIP1": "127.0.0.1", "listenPort": "0", "storePathRootDir": str(directory / "store")}
    settings = BrokerSettings.from_entries(entries_of({**SMALL_STORE, **keys, "namesrvAddr": name_server}, "test"))
    started = Broker(settings, transport=TcpTransport(), clock=SystemClock())
    stack.push_async_callback(started.stop)
    await started.start()
    return started


async def send(producer: Producer, body: bytes) -> None:
    """Send a message again and again until it is stored."""
    while True:
        try:
            await producer.send(Message("orders", body))
        except SendError:
            await asyncio.sleep(0.01)
        else:
            return


def test_clients_follow_a_broker_to_the_other_name_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Producer, consumer and blocking client, when the one that they use says that the topic does not exist."""
    monkeypatch.setattr(random, "choice", lambda among: among[0])  # the name server that clients use first

    async def main() -> None:
        async with AsyncExitStack() as stack:
            former, other = [await name_server(stack, tmp_path) for _ in range(2)]
            master = await broker(stack, tmp_path, former)
            addresses = f"{former};{other}"
            listener = RecordingListener()
            producer = await stack.enter_async_context(
                Producer("shop", ProducerSettings(name_servers=addresses, poll_name_server_interval=SOON))
            )
            consumer = PushConsumer(
                "kitchen",
                PushConsumerSettings(
                    name_servers=addresses,
                    consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
                    poll_name_server_interval=SOON,
                    pull_time_delay_when_exception=SOON,
                ),
            )
            consumer.subscribe("orders")
            consumer.listen_concurrently(listener)
            blocking = stack.enter_context(BlockingClient("report", ProducerSettings(name_servers=addresses)))
            await send(producer, b"before")
            await stack.enter_async_context(consumer)
            await listener.count(1)
            queue = (await asyncio.to_thread(blocking.send, Message("orders", b"blocking before"))).message_queue
            await listener.count(2)

            await master.stop()
            await broker(stack, tmp_path, other)
            assert await asyncio.to_thread(blocking.max_offset, queue) >= 1
            await asyncio.to_thread(blocking.send, Message("orders", b"blocking after"))
            await send(producer, b"after")
            await listener.count(4)
            assert set(listener.bodies) == {b"before", b"blocking before", b"blocking after", b"after"}

    asyncio.run(main())
