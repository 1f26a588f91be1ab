"""nats-py on a NATS server with JetStream; runs in a virtual environment of its own."""
# mypy: ignore-errors

import asyncio
from collections.abc import Awaitable, Callable

import nats
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from benchmarks.peers.clients.serving import BATCH, BODY, TOPIC, AsyncClient, run


class NatsClient(AsyncClient):
    """Publishes to streams in files, each publication acknowledged; push consumers acknowledge each message."""

    async def connect(self, address: str) -> None:
        """Connect, and make the stream."""
        self._connection = await nats.connect(f"nats://{address}")
        self._stream = self._connection.jetstream()
        await self._stream.add_stream(name=TOPIC, subjects=[TOPIC])

    async def send(self) -> None:
        """Publish a message."""
        await self._stream.publish(TOPIC, BODY)

    async def send_batch(self) -> None:
        """Publish messages and wait for all acknowledgments together."""
        await asyncio.gather(*(self._stream.publish(TOPIC, BODY) for _ in range(BATCH)))

    async def fill(self, topic: str, bodies: list[bytes]) -> None:
        """Publish messages, many at once."""
        await self._stream.add_stream(name=topic, subjects=[topic])
        for first in range(0, len(bodies), 500):
            await asyncio.gather(*(self._stream.publish(topic, body) for body in bodies[first : first + 500]))

    async def receive(
        self, topic: str, group: str, on_message: Callable[[bytes], object]
    ) -> Callable[[], Awaitable[object]]:
        """Subscribe as a durable push consumer with explicit acknowledgments."""

        async def on_delivery(message: object) -> None:
            on_message(message.data)
            await message.ack()

        await self._stream.add_stream(name=topic, subjects=[topic])
        config = ConsumerConfig(deliver_policy=DeliverPolicy.ALL, ack_policy=AckPolicy.EXPLICIT)
        subscription = await self._stream.subscribe(
            topic, durable=group, cb=on_delivery, manual_ack=True, config=config
        )
        return subscription.unsubscribe

    async def publish(self, topic: str, body: bytes) -> object:
        """Publish an order."""
        return await self._stream.publish(topic, body)


if __name__ == "__main__":
    run(NatsClient())
