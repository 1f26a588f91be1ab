"""The local store while the broker is away, over TCP."""

import asyncio
from pathlib import Path

from rocket_broker.embedded import EmbeddedBroker
from streamkit import StreamApplication
from streamkit.patterns.local_store import RECEIPT, SendReceipt, SendStatus
from tests.ports import free_ports

STREAM = "spring.cloud.stream"


def test_messages_of_an_outage_arrive_when_the_broker_is_back(tmp_path: Path) -> None:
    """A stopped broker is an outage to the sender; each key keeps its order."""
    name_server, broker_port = free_ports()[:2]
    app = StreamApplication(
        config_location="optional:/none",
        properties={
            f"{STREAM}.default-binder": "rocketmq",
            f"{STREAM}.rocketmq.binder.name-server": f"127.0.0.1:{name_server}",
            f"{STREAM}.rocketmq.binder.provisioning": "create",
            f"{STREAM}.output-bindings": "out",
            f"{STREAM}.bindings.out.destination": "orders",
            f"{STREAM}.bindings.out.producer.partition-key-expression": "headers['streamkit_key']",
            f"{STREAM}.bindings.in.destination": "orders",
            f"{STREAM}.bindings.in.group": "shop",
            f"{STREAM}.rocketmq.bindings.in.consumer.push.orderly": "true",
            "streamkit.local-store.path": str(tmp_path / "unsent.db"),
            "streamkit.local-store.retry-interval": "100ms",
            "streamkit.local-store.max-retry-interval": "200ms",
        },
    )
    received: dict[str, list[int]] = {"a": [], "b": []}
    arrived = asyncio.Event()

    @app.stream_listener("in")
    async def note(order: tuple[str, int]) -> None:
        received[order[0]].append(order[1])
        if {*received["a"], *received["b"]} == set(range(9)):
            arrived.set()

    async def send(number: int) -> SendStatus:
        receipt = SendReceipt()
        key = "ab"[number % 2]
        assert await app.bridge.asend("out", [key, number], {RECEIPT: receipt, "streamkit_key": key})
        return receipt.status

    async def run() -> None:
        broker = EmbeddedBroker(tmp_path / "store", name_server_port=name_server, broker_port=broker_port)
        await broker.start()
        async with app:
            assert await send(0) is SendStatus.STORED
            await broker.stop()
            assert [await send(number) for number in range(1, 9)] == [SendStatus.KEPT] * 8
            broker = EmbeddedBroker(tmp_path / "store", name_server_port=name_server, broker_port=broker_port)
            await broker.start()
            await arrived.wait()
        await broker.stop()

    asyncio.run(run())
    assert {key: list(dict.fromkeys(numbers)) for key, numbers in received.items()} == {
        "a": [0, 2, 4, 6, 8],
        "b": [1, 3, 5, 7],
    }
