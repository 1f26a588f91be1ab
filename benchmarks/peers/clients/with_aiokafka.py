"""aiokafka on a Kafka broker; runs in a virtual environment of its own."""
# mypy: ignore-errors

import asyncio
from collections.abc import Awaitable, Callable

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from benchmarks.peers.clients.serving import BATCH, BODY, TOPIC, AsyncClient, run


class KafkaClient(AsyncClient):
    """A producer without lingering, and consumers with their default settings."""

    async def connect(self, address: str) -> None:
        """Start the producer."""
        self._address = address
        self._producer = AIOKafkaProducer(bootstrap_servers=address)
        await self._producer.start()
        self._partition = 0

    async def send(self) -> None:
        """Send a record."""
        await self._producer.send_and_wait(TOPIC, BODY)

    async def send_batch(self) -> None:
        """Send a batch that was built by hand, to the partitions in turn."""
        self._partition = (self._partition + 1) % 4
        await self._send_all(TOPIC, [BODY] * BATCH, self._partition)

    async def _send_all(self, topic: str, bodies: list[bytes], partition: int) -> None:
        batch = self._producer.create_batch()
        for body in bodies:
            batch.append(key=None, value=body, timestamp=None)
        await (await self._producer.send_batch(batch, topic, partition=partition))

    async def fill(self, topic: str, bodies: list[bytes]) -> None:
        """Send batches to the partitions in turn."""
        for number, first in enumerate(range(0, len(bodies), 50)):
            await self._send_all(topic, bodies[first : first + 50], number % 4)

    async def receive(
        self, topic: str, group: str, on_message: Callable[[bytes], object]
    ) -> Callable[[], Awaitable[object]]:
        """Start a consumer and iterate over its records."""
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=self._address, group_id=group, auto_offset_reset="earliest"
        )
        await consumer.start()

        async def iterate() -> None:
            async for record in consumer:
                on_message(record.value)

        task = asyncio.create_task(iterate())

        async def stop() -> None:
            task.cancel()
            await consumer.stop()

        return stop

    async def publish(self, topic: str, body: bytes) -> object:
        """Send an order."""
        return await self._producer.send_and_wait(topic, body, headers=[("contentType", b"application/json")])


if __name__ == "__main__":
    run(KafkaClient())
