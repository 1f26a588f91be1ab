"""A FastStream application that reads orders from Kafka; run as a process by `benchmarks.streaming_kafka`.

It runs in a virtual environment of its own, so its imports are not to be had where types are checked.
"""
# mypy: ignore-errors

import asyncio
import logging

from faststream import AckPolicy
from faststream.kafka import KafkaBroker
from pydantic import BaseModel

from benchmarks.kafka_listeners.counting import Count, Task


class Order(BaseModel):
    """The payload that the listener receives."""

    number: int
    customer: str
    price: float


class Receipt(BaseModel):
    """The payload that the listener returns."""

    number: int
    total: float


async def main(task: Task) -> None:
    """Listen until the last message is handled; the mode is ``<acknowledgment policy>/<number of workers>``."""
    policy, _, workers = task.mode.partition("/")
    broker = KafkaBroker(task.brokers, log_level=logging.WARNING)
    count, done = Count(task.messages), asyncio.Event()
    subscriber = broker.subscriber(
        task.topic,
        group_id=task.group,
        auto_offset_reset="earliest",
        max_workers=int(workers),
        ack_policy=AckPolicy(policy),
    )

    def add_one() -> None:
        if count.add_one():
            done.set()

    if task.answers:

        @subscriber
        @broker.publisher(task.answers)
        async def answer(order: Order) -> Receipt:
            add_one()
            return Receipt(number=order.number, total=order.price)

    else:

        @subscriber
        async def receive(order: Order) -> None:
            add_one()

    async with broker:
        await broker.start()
        await done.wait()


if __name__ == "__main__":
    asyncio.run(main(Task.of_command_line()))
