"""A streamkit application that reads orders from Kafka; run as a process by `benchmarks.streaming_kafka`."""

import asyncio
from dataclasses import dataclass

from benchmarks.kafka_listeners.counting import Count, Task
from streamkit import StreamApplication, send_to

STREAM = "spring.cloud.stream"


@dataclass
class Order:
    """The payload that the listener receives."""

    number: int
    customer: str
    price: float


@dataclass
class Receipt:
    """The payload that the listener returns."""

    number: int
    total: float


async def main(task: Task) -> None:
    """Listen until the last message is handled; the mode is ``<ordered>/<number of handlers>``."""
    ordered, _, handlers = task.mode.partition("/")
    app = StreamApplication(
        properties={
            f"{STREAM}.default-binder": "kafka",
            f"{STREAM}.kafka.binder.brokers": task.brokers,
            f"{STREAM}.bindings.orders.destination": task.topic,
            f"{STREAM}.bindings.orders.group": task.group,
            f"{STREAM}.bindings.orders.consumer.concurrency": handlers,
            f"{STREAM}.kafka.bindings.orders.consumer.ordered": ordered,
            **({f"{STREAM}.bindings.receipts.destination": task.answers} if task.answers else {}),
        }
    )
    count, done = Count(task.messages), asyncio.Event()

    def add_one() -> None:
        if count.add_one():
            done.set()

    if task.answers:

        @app.stream_listener("orders")
        @send_to("receipts")
        async def answer(order: Order) -> Receipt:
            add_one()
            return Receipt(order.number, order.price)

    else:

        @app.stream_listener("orders")
        async def receive(order: Order) -> None:
            add_one()

    async with app:
        await done.wait()


if __name__ == "__main__":
    asyncio.run(main(Task.of_command_line()))
