"""Apache's own Java client, driven from Python.

`JavaClient` is one JVM with any number of producers and consumers. It runs
`java/streamkit/peer/PeerClient.java`, which tells how commands and events look on the pipe.
"""

import base64
import itertools
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from rocket_remoting.wire.codes import ResponseCode
from tests.peer.artifacts import class_path, program
from tests.peer.json_peer import ANSWER_TIMEOUT, Inbox, Json, JsonPeer, PeerError
from tests.peer.jvm import java_options, write_logback

SendMode = Literal["sync", "async", "oneway", "batch", "selector", "queue", "transaction"]


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
    at: int
    """When its listener was called, in ms since 1970."""
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
            id=raw.get("id", ""),
            offset_id=raw.get("offsetId"),
            broker=raw.get("broker"),
            failed=raw.get("failed", False),
            at=raw.get("at", 0),
            raw=raw,
        )


class JavaClient:
    """A JVM with Apache's client of one version, running until `stop`."""

    def __init__(
        self,
        version: str,
        *,
        serialize: Literal["JSON", "ROCKETMQ"] = "JSON",
        rebalance_ms: int = 20_000,
        system_properties: Mapping[str, str] | None = None,
    ) -> None:
        """Start the JVM.

        Args:
            version: Apache's version.
            serialize: How the client encodes command headers.
            rebalance_ms: How often its consumers look for queues without being told to.
            system_properties: Further system properties of the JVM, such as those of TLS.
        """
        self.version = version
        self._home = Path(tempfile.mkdtemp(prefix=f"java-client-{version}-"))
        self._consumers: dict[str, JavaConsumer] = {}
        self._producers: dict[str, JavaProducer] = {}
        self._numbers = itertools.count(1)
        write_logback(self._home, version, level="INFO")
        self._peer = JsonPeer(
            [
                program("java"),
                *java_options(self._home, heap="256m"),
                f"-Drmq.logback.configurationFile={self._home}/conf/rmq.tools.logback.xml",
                f"-Drocketmq.serialize.type={serialize}",
                f"-Drocketmq.client.rebalance.waitInterval={rebalance_ms}",
                # How long an orderly consumer that stops consumes pulled messages before it gives its queues back.
                "-Drocketmq.client.maxTimeConsumeContinuously=500",
                # A 5.x client waits for this time before its first rebalance, too.
                "-Drocketmq.client.rebalance.minInterval=100",
                *(f"-D{key}={value}" for key, value in (system_properties or {}).items()),
                "-cp",
                f"{self._home}/conf:{class_path(version)}",
                "streamkit.peer.PeerClient",
            ],
            log=self._home / "client.log",
            on_event=self._on_event,
        )

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
        name = self.name("producer")
        producer = self._producers[name] = JavaProducer(self, name, str(options.get("group", "")))
        self.call("startProducer", name=name, nameServer=name_server, **options)
        return producer

    def consumer(
        self, name_server: str, group: str, topics: Mapping[str, str] | str, **options: object
    ) -> "JavaConsumer":
        """Start a push consumer; options are those of `Consumers.start`.

        Args:
            topics: Topic to subscription expression; a text stands for all of one topic.
        """
        name = self.name("consumer")
        consumer = self._consumers[name] = JavaConsumer(self, name)
        subscriptions = {topics: "*"} if isinstance(topics, str) else dict(topics)
        self.call("startConsumer", name=name, nameServer=name_server, group=group, topics=subscriptions, **options)
        return consumer

    def name(self, what: str) -> str:
        """Return a name that nothing else in this JVM has."""
        return f"{what}-{next(self._numbers)}"

    def mqadmin(self, name_server: str, *arguments: str, keys: Mapping[str, str] | None = None) -> str:
        """Run one command of Apache's mqadmin and return what it printed.

        Args:
            name_server: The name server's address.
            arguments: The command and its arguments.
            keys: The accessKey and secretKey of its `tools.yml`; None for requests without a signature.
        """
        tools = self._home / "conf" / "tools.yml"
        if keys is not None:
            tools.write_text("".join(f"{key}: {value}\n" for key, value in keys.items()))
        try:
            printed: str = self.call("admin", arguments=[*arguments, "-n", name_server])
        finally:
            tools.unlink(missing_ok=True)
        return printed

    def create_topic(self, name_server: str, address: str, topic: str, queues: int) -> None:
        """Make a topic on the broker at an address."""
        self.call("createTopic", nameServer=name_server, address=address, topic=topic, queues=queues)

    def begin(self, do: str, **arguments: object) -> Future[Any]:
        """Begin one command."""
        return self._peer.begin(do, **arguments)

    def call(self, do: str, **arguments: object) -> Any:
        """Run one command and return its result.

        Raises:
            PeerError: The Java client raised.
        """
        return self._peer.call(do, **arguments)

    def log(self, lines: int = 40) -> str:
        """Return the last lines that Apache's client logged: 4.9 and 5.x name the file differently."""
        logged = [file.read_text(errors="replace") for file in self._home.glob("*rocketmq*.log")]
        return "\n".join("".join(logged).splitlines()[-lines:])

    def stop(self) -> None:
        """End the JVM with all its producers and consumers."""
        self._peer.stop()
        shutil.rmtree(self._home, ignore_errors=True)

    def _on_event(self, reported: Json) -> None:
        message = JavaMessage.read(reported)
        if reported["event"] == "check":
            self._producers[reported["consumer"]].checks.add(message)
        else:
            self._consumers[reported["consumer"]].add(message)


class JavaProducer:
    """A running DefaultMQProducer.

    Attributes:
        checks: The half messages that the broker asked about, of a transactional producer.
    """

    def __init__(self, client: JavaClient, name: str, group: str) -> None:
        """Name one that runs; see `JavaClient.producer`."""
        self._client = client
        self.name = name
        self.group = group
        self.checks = Inbox[JavaMessage](client.log)
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

    def request(self, topic: str, body: str, timeout_ms: int) -> JavaMessage:
        """Send a request and return the reply."""
        messages = [{"body": base64.b64encode(body.encode()).decode()}]
        reply = self._client.call("request", name=self.name, topic=topic, messages=messages, timeoutMs=timeout_ms)
        return JavaMessage.read(reply)

    def offsets(self, topic: str, queue: int = 0, timestamp: int | None = None) -> dict[str, int]:
        """Return a queue's min, max, earliestStoreTime and, for a timestamp, search (its offset)."""
        result: dict[str, int] = self._client.call(
            "offsets", name=self.name, topic=topic, queue=queue, timestamp=timestamp
        )
        return result

    def query(self, topic: str, key: str, count: int = 32) -> list[JavaMessage]:
        """Return at most so many messages of a topic with that key; none where Java says NO_MESSAGE.

        Apache's broker writes its index after it has answered the send.
        """
        try:
            found = self._client.call("query", name=self.name, topic=topic, key=key, count=count)
        except PeerError as error:
            if error.code != ResponseCode.NO_MESSAGE:
                raise
            return []
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


class JavaConsumer(Inbox[JavaMessage]):
    """A running DefaultMQPushConsumer and all it received."""

    def __init__(self, client: JavaClient, name: str) -> None:
        """Name one that runs; see `JavaClient.consumer`."""
        super().__init__(client.log)
        self._client = client
        self.name = name
        self._running = True

    def __enter__(self) -> Self:
        """Return itself, already running."""
        return self

    def __exit__(self, *_: object) -> None:
        """Shut it down."""
        self.stop()

    def rebalance(self) -> None:
        """Look for queues now, not when the client's 20 s are over."""
        self._client.call("rebalance", name=self.name)

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


def _bytes(body: str | bytes) -> bytes:
    return body.encode() if isinstance(body, str) else body
