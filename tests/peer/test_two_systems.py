"""One application on RocketMQ and Kafka: messages of one are answered on the other, and back."""

import asyncio

import pytest

from rocket_broker.threaded_broker import ThreadedBroker
from streamkit import Message, StreamApplication, send_to
from streamkit.binder.binder import HealthStatus
from streamkit.messaging.headers import KEY
from tests.peer.kafka import KafkaServer

STREAM = "spring.cloud.stream"
PATIENCE = 60.0


def application(name_server: str, brokers: str) -> StreamApplication:
    """Return an application on both: orders from RocketMQ, prices to Kafka, and receipts back."""
    settings = {
        "default-binder": "rocketmq",
        "rocketmq.binder.name-server": name_server,
        "rocketmq.binder.provisioning": "create",
        "rocketmq.default.consumer.consume-from-where": "CONSUME_FROM_FIRST_OFFSET",
        "kafka.binder.brokers": brokers,
        "kafka.binder.min-partition-count": "4",
        "bindings.ordered.destination": "orders",
        "bindings.ordered.group": "prices",
        "bindings.prices.destination": "prices",
        "bindings.prices.binder": "kafka",
        "bindings.priced.destination": "prices",
        "bindings.priced.group": "receipts",
        "bindings.priced.binder": "kafka",
        "bindings.receipts.destination": "receipts",
        "bindings.filed.destination": "receipts",
        "bindings.filed.group": "files",
    }
    properties = {f"{STREAM}.{key}": value for key, value in settings.items()}
    return StreamApplication(config_location="optional:/none", properties=properties)


class Trade:
    """The application's listeners, and what the last of them received.

    Attributes:
        app: The application.
        filed: The receipts.
    """

    def __init__(self, app: StreamApplication) -> None:
        """Register them."""
        self.app = app
        self.filed: list[Message[str]] = []
        self._more = asyncio.Event()

        @app.stream_listener("ordered")
        @send_to("prices")
        async def price(order: int) -> int:
            return order * 10

        @app.stream_listener("priced")
        @send_to("receipts")
        async def receive(price: int) -> str:
            return f"paid {price}"

        @app.stream_listener("filed")
        async def file(receipt: Message[str]) -> None:
            self.filed.append(receipt)
            self._more.set()

    async def files(self, orders: range) -> None:
        """Wait until there is a receipt for each order."""
        wanted = {f"paid {order * 10}" for order in orders}
        async with asyncio.timeout(PATIENCE):
            while not wanted <= {receipt.payload for receipt in self.filed}:
                self._more.clear()
                await self._more.wait()


def test_messages_cross_both_systems_and_back(kafka_server: KafkaServer) -> None:
    """Keys and headers keep their types; health covers both systems."""

    async def main(name_server: str) -> None:
        trade = Trade(application(name_server, kafka_server.address))
        async with trade.app as app:
            sent = {KEY: "k1", "n": 5, "nested": {"a": [1, 2]}, "text": "blå"}
            await app.bridge.asend("orders", Message(7, sent))
            await trade.files(range(7, 8))
            health = {name: await each.health() for name, each in app.container.binders().made.items()}
        (receipt,) = trade.filed
        assert receipt.payload == "paid 70"
        assert {name: receipt.headers[name] for name in sent} == sent
        assert {name: each.status for name, each in health.items()} == {
            "rocketmq": HealthStatus.UP,
            "kafka": HealthStatus.UP,
        }

    with ThreadedBroker() as broker:
        asyncio.run(main(broker.name_server))


@pytest.mark.promise
@pytest.mark.peer
@pytest.mark.slow
def test_one_system_may_restart(kafka_server_of_its_own: KafkaServer) -> None:
    """While Kafka is unavailable orders wait in RocketMQ or are redelivered; none is lost."""
    kafka = kafka_server_of_its_own

    async def main(name_server: str) -> None:
        trade = Trade(application(name_server, kafka.address))
        async with trade.app as app:
            await app.bridge.asend("orders", 0)
            await trade.files(range(1))
            await asyncio.to_thread(kafka.kill)
            for order in range(1, 50):
                await app.bridge.asend("orders", order)
            await asyncio.to_thread(kafka.start)
            await trade.files(range(50))

    with ThreadedBroker(settings={"messageDelayLevel": "1s 1s 1s 1s"}) as broker:
        asyncio.run(main(broker.name_server))
