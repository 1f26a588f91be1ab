"""The package `rocketmq`, Python over Apache's C++ client, on a RocketMQ broker; in a virtual environment of its own.

It sends no batches here: those above 4 KiB it compresses as a whole, and the broker refuses such a body.
"""
# mypy: ignore-errors

import sys
import threading
import time

from rocketmq.client import Message, Producer, PushConsumer

from benchmarks.peers.clients.serving import AT_ONCE, BODY, TOPIC, Command, Count, Result, measured, serve

ADDRESS = sys.argv[1]
PRODUCER = Producer("bench-cpp")
PRODUCER.set_namesrv_addr(ADDRESS)


def _message() -> Message:
    message = Message(TOPIC)
    message.set_body(BODY)
    return message


def _send(command: Command, threads: int = 1) -> Result:
    def work() -> int:
        sent, end = [], time.perf_counter() + command["seconds"]

        def sender() -> None:
            own = 0
            while time.perf_counter() < end:
                PRODUCER.send_sync(_message())
                own += 1
            sent.append(own)

        senders = [threading.Thread(target=sender) for _ in range(threads)]
        for each in senders:
            each.start()
        for each in senders:
            each.join()
        return sum(sent)

    return measured(work)


def _consume(command: Command) -> Result:
    done = threading.Event()
    count = Count(command["messages"], done.set)

    def on_message(message: object) -> None:
        _ = message.body
        count.add_from_a_thread()

    consumer = PushConsumer(command["group"])
    consumer.set_namesrv_addr(ADDRESS)
    consumer.set_instance_name(command["group"])
    consumer.subscribe(command["topic"], on_message)
    consumer.start()
    done.wait()
    consumer.shutdown()
    return count.result


if __name__ == "__main__":
    PRODUCER.start()
    serve(
        {
            "one": _send,
            "eight": lambda command: _send(command, AT_ONCE),
            "consume": _consume,
        }
    )
