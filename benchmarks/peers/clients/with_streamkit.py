"""`rocket_client` on a RocketMQ broker."""

from collections.abc import Awaitable, Callable

from benchmarks.peers.clients.serving import BATCH, BODY, TOPIC, AsyncClient, run
from rocket_client import (
    Admin,
    ClientSettings,
    ConsumeContext,
    ConsumeFromWhere,
    Producer,
    ProducerSettings,
    PushConsumer,
    PushConsumerSettings,
    Success,
)
from rocket_remoting import Message, MessageExt

_SUCCESS = Success()
_ORDER_PROPERTIES = {"contentType": "application/json"}


class RocketClient(AsyncClient):
    """A producer, and push consumers with their default settings."""

    async def connect(self, address: str) -> None:
        """Start the producer."""
        self._address = address
        self._producer = Producer("bench", ProducerSettings(name_servers=address))
        await self._producer.start()

    async def send(self) -> None:
        """Send a message."""
        await self._producer.send(Message(TOPIC, BODY))

    async def send_batch(self) -> None:
        """Send a batch, one request."""
        await self._producer.send_batch([Message(TOPIC, BODY) for _ in range(BATCH)])

    async def fill(self, topic: str, bodies: list[bytes]) -> None:
        """Send batches."""
        async with Admin(ClientSettings(name_servers=self._address)) as admin:
            await admin.create_topic(topic, queues=4)
        for first in range(0, len(bodies), 500):
            chunk = bodies[first : first + 500]
            await self._producer.send_batch(
                [Message(topic, body, properties=dict(_ORDER_PROPERTIES)) for body in chunk]
            )

    async def receive(
        self, topic: str, group: str, on_message: Callable[[bytes], object]
    ) -> Callable[[], Awaitable[object]]:
        """Start a push consumer."""

        async def listen(messages: list[MessageExt], context: ConsumeContext) -> Success:
            for message in messages:
                on_message(message.body)
            return _SUCCESS

        settings = PushConsumerSettings(name_servers=self._address, consume_from_where=ConsumeFromWhere.FIRST_OFFSET)
        consumer = PushConsumer(group, settings)
        consumer.subscribe(topic)
        consumer.listen_concurrently(listen)
        await consumer.start()
        return consumer.shutdown

    async def publish(self, topic: str, body: bytes) -> object:
        """Send an order."""
        return await self._producer.send(Message(topic, body, properties=dict(_ORDER_PROPERTIES)))


if __name__ == "__main__":
    run(RocketClient())
