"""A cluster for tests of Spark: the bundled broker as a process, or Apache's."""

import asyncio
import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rocket_client import Admin
from rocket_client.blocking import BlockingClient, MessageQueue, ProducerSettings, QueueRange
from rocket_client.blocking.pipeline import Request
from rocket_client.settings import ClientSettings
from rocket_remoting.wire.bodies import KVTable, decode_body
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.message import Message, MessageExt
from rocket_remoting.wire.record import decode_records
from tests.end_to_end.broker_process import running
from tests.peer.stage import ANSWER_TIMEOUT
from tests.ports import free_ports

BUNDLED = "bundled"

_names = itertools.count()


class Stand:
    """A running cluster.

    Attributes:
        kind: `BUNDLED`, or Apache's version.
        name_server: Where its name server is.
        client: A client to prepare and look.
    """

    def __init__(self, kind: str, name_server: str) -> None:
        self.kind = kind
        self.name_server = name_server
        self.client = BlockingClient("stand", ProducerSettings(name_servers=name_server))

    @property
    def options(self) -> dict[str, str]:
        """Return the options that every reader and writer needs."""
        return {"nameServer": self.name_server}

    def topic(self, queues: int = 4) -> str:
        """Create a topic with an unused name."""
        topic = f"spark-{next(_names)}"
        self.set_queues(topic, queues)
        return topic

    def set_queues(self, topic: str, queues: int, brokers: Sequence[str] | None = None) -> None:
        """Set the topic's number of queues on each of the brokers."""

        async def main() -> None:
            async with Admin(ClientSettings(name_servers=self.name_server, request_timeout=ANSWER_TIMEOUT)) as admin:
                await admin.create_topic(topic, queues, brokers=brokers)
                await admin.await_topic(topic, queues=queues, timeout=60)

        asyncio.run(main())

    def delete(self, topic: str) -> None:
        """Delete the topic."""

        async def main() -> None:
            async with Admin(ClientSettings(name_servers=self.name_server, request_timeout=ANSWER_TIMEOUT)) as admin:
                await admin.delete_topic(topic)

        asyncio.run(main())

    def queues(self, topic: str) -> Sequence[MessageQueue]:
        """Return the topic's present queues."""
        with BlockingClient("look", ProducerSettings(name_servers=self.name_server)) as client:
            return client.queues(topic)

    def send(self, topic: str, bodies: Iterable[bytes], queue_id: int = 0) -> None:
        """Store messages with these bodies in the first queue of that id; tags and keys follow from the position."""
        self.send_to(next(each for each in self.queues(topic) if each.queue_id == queue_id), bodies)

    def send_to(self, queue: MessageQueue, bodies: Iterable[bytes]) -> None:
        """Store messages with these bodies in one queue; tags and keys follow from the position."""
        topic = queue.topic
        messages = [
            Message(topic, body, tags="even" if n % 2 == 0 else "odd", keys=f"k{n}", properties={"n": str(n)})
            for n, body in enumerate(bodies)
        ]
        for start in range(0, len(messages), 500):
            self.client.send_batch(messages[start : start + 500], queue=queue)
        self.await_dispatch(topic)

    def fill(self, topic: str, count: int, start: int = 0) -> list[str]:
        """Store messages over the queues: ``start`` and following as text; return the bodies."""
        queues = self.queues(topic)
        bodies = [f"{number}" for number in range(start, start + count)]
        for number, queue in enumerate(queues):
            own = bodies[number :: len(queues)]
            if own:
                self.send_to(queue, [body.encode() for body in own])
        return bodies

    def await_dispatch(self, topic: str) -> None:
        """Wait until the queues have all stored messages: Apache's broker adds them after its answers."""
        deadline = time.monotonic() + 60
        for queue in {each.broker_name: each for each in self.queues(topic)}.values():
            while not self._is_dispatched(queue):
                assert time.monotonic() < deadline, "the broker's queues are still behind its log"
                time.sleep(0.05)

    def _is_dispatched(self, queue: MessageQueue) -> bool:
        answer = self.client.ask(queue, Request(RequestCode.GET_BROKER_RUNTIME_INFO))
        # In its first moments Apache's broker answers with an error.
        return bool(answer.body) and decode_body(answer.body, KVTable).table["dispatchBehindBytes"] == "0"

    def messages(self, topic: str) -> list[MessageExt]:
        """Return all messages of the topic, queue by queue."""
        self.await_dispatch(topic)
        queues = self.queues(topic)
        ends = self.client.max_offsets(queues)
        begins = self.client.min_offsets(queues)
        ranges = [QueueRange(queue, begins[queue], ends[queue]) for queue in queues]
        found: list[MessageExt] = []
        for part in self.client.read_ranges(ranges):
            for message in decode_records(part.records):
                message.broker_name = part.queue.broker_name
                found.append(message)
        return found

    def bodies(self, topic: str) -> list[str]:
        """Return all bodies of the topic as text, sorted."""
        return sorted(message.body.decode() for message in self.messages(topic))

    def count(self, topic: str) -> int:
        """Return the topic's number of messages."""
        self.await_dispatch(topic)
        return sum(self.client.max_offsets(self.queues(topic)).values())


@contextmanager
def bundled(directory: Path, ports: tuple[int, int] | None = None) -> Iterator[Stand]:
    """Run the bundled broker as a process, with its store in the directory."""
    name_server_port, broker_port = ports or free_ports()
    arguments = ["-p", str(broker_port), "--name-server-port", str(name_server_port)]
    with running("broker", *arguments, "--store", str(directory / "store"), cwd=directory) as process:
        process.address()
        stand = Stand(BUNDLED, f"127.0.0.1:{name_server_port}")
        with stand.client:
            yield stand
