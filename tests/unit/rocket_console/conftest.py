"""One broker and one console for all tests of a module."""

import asyncio
from collections.abc import Iterator

import pytest

from rocket_broker.threaded_broker import ThreadedBroker
from rocket_client import Admin, ClientSettings, Producer, ProducerSettings
from rocket_remoting import Message
from rocket_remoting.wire.bodies import SubscriptionGroupConfig
from tests.unit.rocket_admin.cluster import commit
from tests.unit.rocket_console.browser import Browser, RunningConsole

HOSTILE_BODY = "<script>alert('body')</script>\u202e"


@pytest.fixture(scope="module")
def name_server() -> Iterator[str]:
    """The name server of a broker with topic `orders`, six messages in it, and group `shop`."""
    with ThreadedBroker() as broker:
        asyncio.run(_fill(broker.name_server))
        yield broker.name_server


async def _fill(name_server: str) -> None:
    async with Admin(ClientSettings(name_servers=name_server)) as admin:
        await admin.create_topic("orders", 4)
        await admin.create_topic("%DLQ%shop", 1)
        await admin.create_group(SubscriptionGroupConfig(group_name="shop"))
    async with Producer("senders", ProducerSettings(name_servers=name_server)) as producer:
        for number in range(5):
            await producer.send(Message("orders", f"order {number}".encode(), keys=f"k{number}"))
        hostile = {"tags": "<img src=x>", "keys": "\u202ekey"}
        await producer.send(Message("orders", HOSTILE_BODY.encode(), **hostile))  # type: ignore[arg-type]
    await commit(name_server, "orders", "shop", 1)


@pytest.fixture(scope="module")
def console(name_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    """A console without passwords."""
    with RunningConsole(name_server, tmp_path_factory.mktemp("console")) as console:
        yield console


@pytest.fixture
def browser(console: RunningConsole) -> Iterator[Browser]:
    """A browser of somebody who may change everything."""
    with Browser(console) as browser:
        yield browser
