"""A FastStream application that makes receipts of orders, on Kafka, NATS JetStream or Redis streams.

It runs in a virtual environment of its own, so its imports are not to be had where types are checked.
"""
# mypy: ignore-errors

import asyncio

import uvloop
from faststream import AckPolicy
from pydantic import BaseModel

from benchmarks.peers.apps.task import Count, Task


class Order(BaseModel):
    """The payload that the listener receives."""

    number: int
    customer: str
    price: float


class Receipt(BaseModel):
    """The payload that the listener returns."""

    number: int
    total: float


def _kafka(task: Task) -> tuple[object, object, object]:
    from faststream.kafka import KafkaBroker

    broker = KafkaBroker(task.address, logger=None)
    subscriber = broker.subscriber(
        task.orders,
        group_id=task.group,
        auto_offset_reset="earliest",
        max_workers=task.handlers,
        ack_policy=AckPolicy(task.policy),
    )
    return broker, subscriber, broker.publisher(task.receipts) if task.receipts else None


def _nats(task: Task) -> tuple[object, object, object]:
    from faststream.nats import JStream, NatsBroker
    from nats.js.api import DeliverPolicy

    broker = NatsBroker(f"nats://{task.address}", logger=None)
    subscriber = broker.subscriber(
        task.orders,
        stream=JStream(task.orders, declare=False),
        durable=task.group,
        deliver_policy=DeliverPolicy.ALL,
        max_workers=task.handlers,
        ack_policy=AckPolicy(task.policy),
    )
    return broker, subscriber, broker.publisher(task.receipts, stream=JStream(task.receipts))


def _redis(task: Task) -> tuple[object, object, object]:
    from faststream.redis import RedisBroker, StreamSub

    broker = RedisBroker(f"redis://{task.address}", logger=None)
    own = StreamSub(task.orders, group=task.group, consumer="one", last_id=">", max_records=32)
    subscriber = broker.subscriber(stream=own, max_workers=task.handlers, ack_policy=AckPolicy(task.policy))
    return broker, subscriber, broker.publisher(stream=task.receipts)


async def main(task: Task) -> None:
    """Listen until the process is killed."""
    broker, subscriber, publisher = {"kafka": _kafka, "nats": _nats, "redis": _redis}[task.system](task)
    count = Count(task.messages)

    if task.receipts:

        @subscriber
        @publisher
        async def answer(order: Order) -> Receipt:
            count.add_one()
            return Receipt(number=order.number, total=order.price)

    else:

        @subscriber
        async def receive(order: Order) -> None:
            count.add_one()

    async with broker:
        await broker.start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(Task.of_command_line()))
