"""A streamkit application that makes receipts of orders, on RocketMQ or Kafka."""

import asyncio
import gc

import uvloop

from benchmarks.orders import Order, Receipt
from benchmarks.peers.apps.task import Count, Task
from streamkit import StreamApplication, send_to
from streamkit.cli.garbage import collect_less_often

STREAM = "spring.cloud.stream"


async def main(task: Task) -> None:
    """Listen until the process is killed."""
    server = {"kafka": "kafka.binder.brokers", "rocketmq": "rocketmq.binder.name-server"}[task.system]
    app = StreamApplication(
        properties={
            f"{STREAM}.default-binder": task.system,
            f"{STREAM}.{server}": task.address,
            f"{STREAM}.bindings.orders.destination": task.orders,
            f"{STREAM}.bindings.orders.group": task.group,
            f"{STREAM}.bindings.orders.consumer.concurrency": str(task.handlers),
            **({f"{STREAM}.bindings.receipts.destination": task.receipts} if task.receipts else {}),
        }
    )
    collect_less_often(app, gc.get_threshold())  # as `streamkit run` does
    count = Count(task.messages)

    if task.receipts:

        @app.stream_listener("orders")
        @send_to("receipts")
        async def answer(order: Order) -> Receipt:
            count.add_one()
            return Receipt(order.number, order.price)

    else:

        @app.stream_listener("orders")
        async def receive(order: Order) -> None:
            count.add_one()

    async with app:
        await asyncio.Event().wait()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(Task.of_command_line()))
