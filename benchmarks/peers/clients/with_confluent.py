"""confluent-kafka, Python over librdkafka, on a Kafka broker; runs in a virtual environment of its own."""
# mypy: ignore-errors

import sys
import time

from confluent_kafka import Consumer, Producer

from benchmarks.peers.clients.serving import AT_ONCE, BATCH, BODY, TOPIC, Command, Count, Result, measured, serve

ADDRESS = sys.argv[1]
PRODUCER = Producer({"bootstrap.servers": ADDRESS, "linger.ms": 0})


def _send(command: Command, at_once: int) -> Result:
    """Keep a number of records under way."""

    def work() -> int:
        acknowledged = under_way = 0

        def on_delivery(error: object, message: object) -> None:
            nonlocal acknowledged, under_way
            if error is not None:
                raise RuntimeError(error)
            acknowledged += 1
            under_way -= 1

        end = time.perf_counter() + command["seconds"]
        while under_way or time.perf_counter() < end:
            while under_way < at_once and time.perf_counter() < end:
                under_way += 1
                PRODUCER.produce(TOPIC, BODY, on_delivery=on_delivery)
            PRODUCER.poll(1.0)
        return acknowledged

    return measured(work)


def _send_batches(command: Command) -> Result:
    def work() -> int:
        sent, end = 0, time.perf_counter() + command["seconds"]
        while time.perf_counter() < end:
            for _ in range(BATCH):
                PRODUCER.produce(TOPIC, BODY)
            if PRODUCER.flush(30):
                raise TimeoutError("records were not acknowledged in 30 s")
            sent += BATCH
        return sent

    return measured(work)


def _consume(command: Command) -> Result:
    consumer = Consumer({"bootstrap.servers": ADDRESS, "group.id": command["group"], "auto.offset.reset": "earliest"})
    done = []
    count = Count(command["messages"], lambda: done.append(True))
    # From the assignment on it fetches tens of thousands of messages in the background, before it returns the first.
    consumer.subscribe([command["topic"]], on_assign=lambda consumer, partitions: count.begin())
    while not done:
        for message in consumer.consume(BATCH, 1.0):
            message.value()
            count.add()
    consumer.close()
    return count.result


if __name__ == "__main__":
    serve(
        {
            "one": lambda command: _send(command, 1),
            "eight": lambda command: _send(command, AT_ONCE),
            "batch": _send_batches,
            "consume": _consume,
        }
    )
