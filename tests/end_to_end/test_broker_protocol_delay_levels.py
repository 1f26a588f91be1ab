"""The delay level table: Apache's eighteen, a custom one, and a changed one after a restart."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from rocket_broker.embedded import EmbeddedBroker
from rocket_remoting import MemoryTransport, TcpTransport
from streamkit.testing.virtual_time import VirtualTime
from tests.end_to_end.raw_client import HELD, RawClient, with_broker

DOCUMENTED_SECONDS = [
    1,
    5,
    10,
    30,
    *(60 * minutes for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)),
]

Scene = Callable[[RawClient], Coroutine[Any, Any, None]]


async def send(client: RawClient, *levels: int) -> None:
    """Send a message for each level; its body is the level."""
    for level in levels:
        await client.send(body=f"{level}".encode(), properties={"DELAY": f"{level}"})


async def arrived(client: RawClient) -> list[int]:
    """Return the levels of the delivered messages."""
    return [int(message.body) for message in await client.messages()]


def with_tables(store: Path, *runs: tuple[str, Scene]) -> None:
    """Run each scene on a broker with its table of levels, one after the other on one store."""

    async def main(time: VirtualTime) -> None:
        transport = MemoryTransport()
        for levels, scene in runs:
            settings = {"messageDelayLevel": levels, "serverChannelMaxIdleTimeSeconds": "0"}
            async with EmbeddedBroker(store, transport=transport, clock=time.clock, settings=settings) as embedded:
                client = await RawClient.connect(transport, embedded.broker_address)
                await scene(client)
                await client.connection.close()

    with VirtualTime() as time:
        time.run(main(time))


def test_eighteen_levels_are_delivered_at_the_documented_times() -> None:
    """1 s to 2 h; a higher level is the eighteenth."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await send(client, *range(18, 0, -1), 99)
        passed = 0.0
        for level, seconds in enumerate(DOCUMENTED_SECONDS, 1):
            await asyncio.sleep(seconds - 0.1 - passed)
            assert await client.end() == level - 1
            await asyncio.sleep(0.2)
            passed = seconds + 0.1
        assert await arrived(client) == [*range(1, 19), 99]

    with_broker(scene)


def test_custom_delay_table(tmp_path: Path) -> None:
    """In seconds, minutes, hours and days, in any order."""

    async def scene(client: RawClient) -> None:
        await send(client, 1, 2, 3, 4)
        await asyncio.sleep(3.1)
        assert await arrived(client) == [2]
        await asyncio.sleep(57)
        assert await arrived(client) == [2, 1]
        await asyncio.sleep(3600)
        assert await arrived(client) == [2, 1, 3, 4]

    with_tables(tmp_path, ("1m 3s 1h", scene))


def test_redeliveries_follow_the_table(tmp_path: Path) -> None:
    """From level 3 on, one higher each time, and the last one from then on."""

    async def scene(client: RawClient) -> None:
        await client.send()
        (message,) = await client.messages()
        for number, seconds in enumerate((7, 9, 9)):
            await client.send_back(message)
            await asyncio.sleep(seconds - 0.1)
            assert await client.end("%RETRY%g") == number
            await asyncio.sleep(0.2)
            (message,) = await client.messages("%RETRY%g", offset=number)

    with_tables(tmp_path, ("1s 2s 7s 9s", scene))


def test_messages_keep_their_delivery_time_when_the_table_changes(tmp_path: Path) -> None:
    """A level lengthened at a restart does not delay earlier messages."""

    async def before(client: RawClient) -> None:
        await send(client, 1)

    async def after(client: RawClient) -> None:
        await send(client, 1)
        await asyncio.sleep(10.1)
        assert await arrived(client) == [1]
        await asyncio.sleep(50)
        assert await arrived(client) == [1, 1]

    with_tables(tmp_path, ("10s", before), ("1m", after))


def test_removed_level_keeps_its_messages(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They are delivered when the level is back; meanwhile a warning is logged."""

    async def before(client: RawClient) -> None:
        await send(client, 1, 20, 20)
        await asyncio.sleep(1.1)

    async def without(client: RawClient) -> None:
        await client.begin()
        await asyncio.sleep(100)
        assert await arrived(client) == [1]

    async def after(client: RawClient) -> None:
        await asyncio.sleep(0.1)
        assert await arrived(client) == [1, 20, 20]
        await send(client, 20)
        await asyncio.sleep(20.1)
        assert await arrived(client) == [1, 20, 20, 20]

    long = "1s " * 19 + "20s"
    with_tables(tmp_path, (long, before), ("1s", without), (long, after))
    assert "delay level 20 is not in messageDelayLevel any more: 2 message(s) wait" in caplog.text


def test_level_over_sockets(tmp_path: Path) -> None:
    """On the real clock: not too early."""

    async def main() -> None:
        async with EmbeddedBroker(tmp_path, settings={"messageDelayLevel": "1s"}) as embedded:
            client = await RawClient.connect(TcpTransport(), embedded.broker_address)
            await client.create_topic("orders")
            sent = embedded.broker.clock.now_ms()
            held = asyncio.ensure_future(client.pull(sys_flag=HELD))
            await send(client, 1)
            (message,) = (await held).messages
            assert message.store_timestamp >= sent + 1000
            await client.connection.close()

    asyncio.run(main())
