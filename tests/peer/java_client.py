"""Apache's own Java client, driven from Python.

`JavaClient` is one JVM with any number of producers and consumers. It runs
`java/streamkit/peer/PeerClient.java`, which tells how commands and events look on the pipe.
"""

import base64
import itertools
import json
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from tests.peer.artifacts import class_path, program
from tests.peer.java_process import JavaProcess, java_options, write_logback

Json = dict[str, Any]
ANSWER_TIMEOUT = 60.0

SendMode = Literal["sync", "async", "oneway", "batch", "selector", "queue"]


class JavaError(Exception):
    """The Java client raised: the text is its exception's, `type` the class and `code` the response code."""

    def __init__(self, text: str, type_: str, code: int) -> None:
        """Keep what Java told."""
        super().__init__(f"{type_}: {text}")
        self.type = type_
        self.code = code


@dataclass(frozen=True, slots=True)
class JavaMessage:
    """A message as Java's listener saw it, once for each delivery."""

    topic: str
    body: bytes
    tags: str | None
    keys: str | None
    flag: int
    properties: dict[str, str]
    queue: int
    offset: int
    reconsume_times: int
    id: str
    offset_id: str | None
    broker: str | None
    failed: bool
    raw: Json = field(repr=False)

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()

    @classmethod
    def read(cls, raw: Json) -> "JavaMessage":
        """Return the message that an event or a query result describes."""
        return cls(
            topic=raw["topic"],
            body=base64.b64decode(raw["body"]),
            tags=raw.get("tags"),
            keys=raw.get("keys"),
            flag=raw["flag"],
            properties=raw["properties"],
            queue=raw["queue"],
            offset=raw["offset"],
            reconsume_times=raw["reconsumeTimes"],
            id=raw["id"],
            offset_id=raw.get("offsetId"),
            broker=raw.get("broker"),
            failed=raw.get("failed", False),
            raw=raw,
        )


class JavaClient:
    """A JVM with Apache's client of one version, running until `stop`."""

    def __init__(self, version: str, *, serialize: Literal["JSON", "ROCKETMQ"] = "JSON") -> None:
        """Start the JVM.

        Args:
            version: Apache's version.
            serialize: How the client encodes command headers.
        """
        self.version = version
        self._home = Path(tempfile.mkdtemp(prefix=f"java-client-{version}-"))
        self._answers: dict[int, Future[Any]] = {}
        self._consumers: dict[str, JavaConsumer] = {}
        self._numbers = itertools.count(1)
        write_logback(self._home, version, level="INFO")
        self._process = JavaProcess(
            [
                program("java"),
                *java_options(self._home, heap="256m"),
                f"-Drmq.logback.configurationFile={self._home}/conf/rmq.tools.logback.xml",
                f"-Drocketmq.serialize.type={serialize}",
                # A 5.x client waits this long before its first rebalance too.
                "-Drocketmq.client.rebalance.minInterval=100",
                "-cp",
                f"{self._home}/conf:{class_path(version)}",
                "streamkit.peer.PeerClient",
            ],
            log=self._home / "client.log",
            on_line=self._on_line,
            on_end=self._on_end,
        )
        self._process.await_line("READY", timeout=60)

    def __repr__(self) -> str:
        """Name the version."""
        return f"JavaClient({self.version!r})"

    def __enter__(self) -> Self:
        """Return itself, already running."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it."""
        self.stop()

    def producer(self, name_server: str, **options: object) -> "JavaProducer":
        """Start a producer; options are those of `Producers.start`."""
        name = f"producer-{next(self._numbers)}"
        self.call("startProducer", name=name, nameServer=name_server, **options)
        return JavaProducer(self, name)

    def consumer(
        self, name_server: str, group: str, topics: Mapping[str, str] | str, **options: object
    ) -> "JavaConsumer":
        """Start a push consumer; options are those of `Consumers.start`.

        Args:
            topics: Topic to subscription expression; a text stands for all of one topic.
        """
        name = f"consumer-{next(self._numbers)}"
        consumer = self._consumers[name] = JavaConsumer(self, name)
        subscriptions = {topics: "*"} if isinstance(topics, str) else dict(topics)
        self.call(
            "startConsumer", name=name, nameServer=name_server, group=group, topics=subscriptions, **options
        )
        return consumer

    def poll(self, name_server: str, group: str, topic: str, count: int) -> list[JavaMessage]:
        """Return what a lite pull consumer polls, at least `count` messages if they come; it commits."""
        name = f"polling-{next(self._numbers)}"
        asked = {"name": name, "nameServer": name_server, "group": group, "topic": topic, "count": count}
        return [JavaMessage.read(raw) for raw in self.call("poll", **asked)]

    def mqadmin(self, name_server: str, *arguments: str) -> str:
        """Run one command of Apache's mqadmin and return what it printed."""
        printed: str = self.call("admin", arguments=[*arguments, "-n", name_server])
        return printed

    def create_topic(self, name_server: str, address: str, topic: str, queues: int) -> None:
        """Make a topic on the broker at an address."""
        self.call("createTopic", nameServer=name_server, address=address, topic=topic, queues=queues)

    def begin(self, do: str, **arguments: object) -> Future[Any]:
        """Begin one command."""
        number = next(self._numbers)
        answer = self._answers[number] = Future()
        self._process.write(json.dumps({"id": number, "do": do, **arguments}))
        return answer

    def call(self, do: str, **arguments: object) -> Any:
        """Run one command and return its result.

        Raises:
            JavaError: The Java client raised.
        """
        try:
            return self.begin(do, **arguments).result(ANSWER_TIMEOUT)
        except TimeoutError:
            raise TimeoutError(f"Java did not answer {do}:\n{self._process.tail()}") from None

    def log(self, lines: int = 40) -> str:
        """Return the last lines that Apache's client logged: 4.9 and 5.x name the file differently."""
        logged = [file.read_text(errors="replace") for file in self._home.glob("*rocketmq*.log")]
        return "\n".join("".join(logged).splitlines()[-lines:])

    def stop(self) -> None:
        """End the JVM with all its producers and consumers."""
        self._process.stop(timeout=10)
        shutil.rmtree(self._home, ignore_errors=True)

    def _on_line(self, line: str) -> None:
        if not line.startswith("{"):
            return
        told: Json = json.loads(line)
        if "event" in told:
            self._consumers[told["consumer"]].add(JavaMessage.read(told))
            return
        answer = self._answers.pop(told["id"])
        if "error" in told:
            answer.set_exception(JavaError(told["error"], told["type"], told["code"]))
        else:
            answer.set_result(told.get("result"))

    def _on_end(self) -> None:
        """Fail what waits: mqadmin, for one, ends its process when it is given wrong options."""
        for answer in list(self._answers.values()):
            answer.set_exception(JavaError("the process ended", "SystemExit", -1))
        self._answers.clear()


class JavaProducer:
    """A running DefaultMQProducer."""

    def __init__(self, client: JavaClient, name: str) -> None:
        """Name one that runs; see `JavaClient.producer`."""
        self._client = client
        self.name = name
        self._running = True

    def __enter__(self) -> Self:
        """Return itself, already running."""
        return self

    def __exit__(self, *_: object) -> None:
        """Shut it down."""
        self.stop()

    def send(
        self, topic: str, *bodies: str | bytes, mode: SendMode = "sync", queue: int = 0, **fields: object
    ) -> list[Json]:
        """Send one message for each body, with the same fields: tags, keys, delayLevel, flag, properties."""
        messages = [{"body": base64.b64encode(_bytes(body)).decode(), **fields} for body in bodies]
        return self._send(topic, messages, mode=mode, queue=queue)

    def send_by_key(self, topic: str, pairs: Sequence[tuple[str, str]]) -> list[Json]:
        """Send (key, body) pairs, each to the queue that the hash of its key selects."""
        messages = [{"body": base64.b64encode(body.encode()).decode()} for _, body in pairs]
        return self._send(topic, messages, mode="selector", selectorKeys=[key for key, _ in pairs])

    def offsets(self, topic: str, queue: int = 0, timestamp: int | None = None) -> dict[str, int]:
        """Return a queue's min, max, earliestStoreTime and, for a timestamp, search (its offset)."""
        result: dict[str, int] = self._client.call(
            "offsets", name=self.name, topic=topic, queue=queue, timestamp=timestamp
        )
        return result

    def query(self, topic: str, key: str) -> list[JavaMessage]:
        """Return the messages of a topic with that key."""
        found = self._client.call("query", name=self.name, topic=topic, key=key)
        return [JavaMessage.read(raw) for raw in found]

    def view(self, topic: str, message_id: str) -> JavaMessage:
        """Return the message with that offset id or unique id."""
        return JavaMessage.read(self._client.call("view", name=self.name, topic=topic, messageId=message_id))

    def stop(self, *, wait: bool = True) -> None:
        """Shut it down, unless it is; Java's shutdown may take seconds, which need not be waited for."""
        if self._running:
            self._running = False
            stopped = self._client.begin("stopProducer", name=self.name)
            if wait:
                stopped.result(ANSWER_TIMEOUT)

    def _send(self, topic: str, messages: Sequence[Json], **how: object) -> list[Json]:
        sent: list[Json] = self._client.call("send", name=self.name, topic=topic, messages=messages, **how)
        return sent


class JavaConsumer:
    """A running DefaultMQPushConsumer and all it received."""

    def __init__(self, client: JavaClient, name: str) -> None:
        """Name one that runs; see `JavaClient.consumer`."""
        self._client = client
        self.name = name
        self._running = True
        self._received: list[JavaMessage] = []
        self._changed = threading.Condition()

    def __enter__(self) -> Self:
        """Return itself, already running."""
        return self

    def __exit__(self, *_: object) -> None:
        """Shut it down."""
        self.stop()

    @property
    def received(self) -> list[JavaMessage]:
        """All deliveries so far, in the order the listener saw them."""
        with self._changed:
            return list(self._received)

    def take(self, count: int, timeout: float = 20.0) -> list[JavaMessage]:
        """Wait for `count` deliveries in all and return them.

        Raises:
            TimeoutError: Fewer came in time; the text tells which.
        """
        self.wait_for(lambda: len(self._received) >= count, timeout, f"{count} deliveries")
        return self.received

    def wait_for(self, true: Callable[[], bool], timeout: float = 20.0, what: str = "it") -> None:
        """Wait until `true()`, looked at on each delivery."""
        with self._changed:
            if not self._changed.wait_for(true, timeout):
                came = [
                    f"{m.text[:40]!r} (queue {m.queue}, redelivery {m.reconsume_times})"
                    for m in self._received
                ]
                told = f"waited {timeout} s for {what}; came {len(came)}: {', '.join(came[:20])}"
                raise TimeoutError(f"{told}\n{self._client.log()}")

    def assigned(self, topic: str | None = None) -> list[int]:
        """Return the ids of the queues it has now, of one topic or of all."""
        queues = self._client.call("assigned", name=self.name)
        return sorted(queue["queue"] for queue in queues if topic is None or queue["topic"] == topic)

    def stop(self, *, wait: bool = True) -> None:
        """Shut it down, unless it is: its offsets are committed and the group's others take over."""
        if self._running:
            self._running = False
            stopped = self._client.begin("stopConsumer", name=self.name)
            if wait:
                stopped.result(ANSWER_TIMEOUT)

    def add(self, message: JavaMessage) -> None:
        """Note one delivery."""
        with self._changed:
            self._received.append(message)
            self._changed.notify_all()


def _bytes(body: str | bytes) -> bytes:
    return body.encode() if isinstance(body, str) else body
