"""What a peer test works with: a Java client before a broker, with fresh names, cleaned up afterwards."""

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Self, TypeVar

from rocket_client import Admin, ClientSettings, ClientTls
from rocket_remoting.wire.message_trace import TraceRecord
from tests.peer.java_client import JavaClient, JavaConsumer, JavaMessage, JavaProducer
from tests.peer.java_pulling import JavaPoller, JavaPullConsumer
from tests.peer.json_peer import PeerError

# Level 2 waits 2 s, all others 1 s: retries (from level 3 on) are short, and levels differ.
DELAY_LEVELS = "1s 2s" + 16 * " 1s"
LATEST = 60.0
"""How many seconds later than asked a message may come on a busy machine."""
SEND_TIMEOUT = timedelta(seconds=30)
"""For our producers where each message must be there once: what is sent again after a time-out may be there twice."""
ANSWER_TIMEOUT = timedelta(seconds=60)
"""For our other clients: Apache's broker tells its name server of a topic before it answers, which may take seconds."""

T = TypeVar("T")
_numbers = itertools.count(1)


class Stage:
    """Apache's Java client before one broker, Apache's or ours."""

    def __init__(self, client: JavaClient, name_server: str, address: str, tls: ClientTls | None = None) -> None:
        """Put a running client before a running broker; our own requests to that are encrypted if `tls` is given."""
        self.client = client
        self.version = client.version
        self.name_server = name_server
        self.address = address
        self.tls = tls
        self._started: list[JavaProducer | JavaConsumer] = []

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the producers and consumers that still run, in the background."""
        for client in reversed(self._started):
            client.stop(wait=False)

    def name(self, what: str) -> str:
        """Return a name nothing else has."""
        return f"{what}-{next(_numbers)}"

    def topic(self, queues: int = 4) -> str:
        """Return a new topic that the name server knows; mqadmin, which starts a client for each, has its own tests."""
        topic = self.name("topic")
        asyncio.run(self._make_topic(topic, queues))
        return topic

    def producer(self, **options: object) -> JavaProducer:
        """Start a Java producer."""
        producer = self.client.producer(self.name_server, **options)
        self._started.append(producer)
        return producer

    def consumer(self, topics: Mapping[str, str] | str, group: str | None = None, **options: object) -> JavaConsumer:
        """Start a Java push consumer, of a group of its own unless told."""
        consumer = self.client.consumer(self.name_server, group or self.name("group"), topics, **options)
        self._started.append(consumer)
        return consumer

    def poll(self, topic: str, group: str, count: int) -> list[JavaMessage]:
        """Poll with a Java lite pull consumer, and commit."""
        with self.polling(topic, group) as poller:
            polled = poller.poll(count)
            poller.commit()
        return polled

    def polling(
        self, topic: str, group: str | None = None, *, queues: list[int] | None = None, expression: str = "*"
    ) -> JavaPoller:
        """Start a Java lite pull consumer, subscribed or with queues assigned."""
        group = group or self.name("group")
        return JavaPoller(self.client, self.name_server, group, topic, queues=queues, expression=expression)

    def pulling(self, group: str | None = None) -> JavaPullConsumer:
        """Start a Java pull consumer."""
        return JavaPullConsumer(self.client, self.name_server, group or self.name("group"))

    def await_committed(self, topic: str, group: str) -> None:
        """Wait until a group has committed all that a topic's queues hold.

        A Java member that stops before may be given some of it again: each of its pulls commits an offset, and
        Apache's broker may handle its last pull after the offset it commits at its end.
        """
        eventually(lambda: asyncio.run(self._has_committed(topic, group)), bool)

    async def _has_committed(self, topic: str, group: str) -> bool:
        async with self._admin() as admin:
            queues = (await admin.consume_stats(group, topic)).values()
        return bool(queues) and all(queue.consumer_offset >= queue.broker_offset for queue in queues)

    def trace(self, message_id: str, topic: str) -> list[TraceRecord]:
        """Return the trace of a message, read by our admin client from a trace topic."""

        async def ask() -> list[TraceRecord]:
            async with self._admin() as admin:
                return await admin.message_trace(message_id, topic=topic)

        return asyncio.run(ask())

    async def _make_topic(self, topic: str, queues: int) -> None:
        async with self._admin() as admin:
            await admin.create_topic(topic, queues)
            await admin.await_topic(topic, queues=queues, timeout=60)

    def _admin(self) -> Admin:
        return Admin(
            ClientSettings(
                name_servers=self.name_server,
                connect_timeout=ANSWER_TIMEOUT,
                request_timeout=ANSWER_TIMEOUT,
                tls=self.tls,
            )
        )

    def mqadmin(self, *arguments: str) -> str:
        """Run one command of Apache's mqadmin and return what it printed."""
        return self.client.mqadmin(self.name_server, *arguments)


def reply_to(producer: JavaProducer, topic: str, text: str) -> JavaMessage:
    """Ask until there is a reply: a broker can deliver none before it knows the producer by a heartbeat."""

    def ask() -> JavaMessage | None:
        try:
            return producer.request(topic, text, timeout_ms=3_000)
        except PeerError as error:
            if error.type != "RequestTimeoutException":
                raise
            return None

    reply = eventually(ask, lambda reply: reply is not None, timeout=120)
    assert reply is not None
    return reply


def eventually(call: Callable[[], T], true: Callable[[T], bool], timeout: float = 60.0) -> T:
    """Call until the result is `true`, and return it.

    Raises:
        TimeoutError: It was not in time; the text has the last result.
    """
    deadline = time.monotonic() + timeout
    pause = threading.Event()
    while not true(result := call()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout:g} s in vain; the last result was {result!r}")
        pause.wait(0.02)
    return result
