"""What a test of Spring's Kafka binder works with: its applications and streamkit's before one Kafka broker."""

import itertools
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Self, TypeVar

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic

from streamkit import StreamApplication
from tests.peer.spring_apps import Application, SpringApp, SpringPeer
from tests.peer.spring_stage import STREAM, StreamkitInbox

KAFKA = f"{STREAM}.kafka.bindings"
BROKERS = f"{STREAM}.kafka.binder.brokers"
RECORD_TIMEOUT_MS = 60_000

T = TypeVar("T")
_numbers = itertools.count(1)


class SpringOnKafka:
    """Spring Cloud Stream with its Kafka binder, and streamkit, before one broker.

    Attributes:
        brokers: Kafka's bootstrap servers.
    """

    def __init__(self, peer: SpringPeer, brokers: str) -> None:
        """Put a running JVM before a running broker."""
        self.brokers = brokers
        self._peer = peer
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop all applications."""
        self._stack.close()

    def name(self, what: str) -> str:
        """Return a name nothing else has."""
        return f"spring-{what}-{next(_numbers)}"

    def topic(self, partitions: int = 4) -> str:
        """Return a new topic that clients find."""
        topic = self.name("topic")
        with KafkaAdminClient(bootstrap_servers=self.brokers) as admin:
            admin.create_topics([NewTopic(topic, partitions, 1)], wait_for_metadata=True)
        return topic

    def records(self, topic: str, count: int) -> list[Any]:
        """Return the first records of a topic, as they are on the wire."""
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=self.brokers,
            auto_offset_reset="earliest",
            consumer_timeout_ms=RECORD_TIMEOUT_MS,
        )
        found = list(itertools.islice(consumer, count))
        consumer.close()
        assert len(found) == count, f"{len(found)} records in {topic}"
        return found

    def write(self, topic: str, value: bytes | None, key: bytes, **headers: bytes) -> None:
        """Write a record as it is to be on the wire."""
        producer = KafkaProducer(bootstrap_servers=self.brokers)
        producer.send(topic, value, key=key, headers=list(headers.items())).get(60)
        producer.close()

    def sender(self, topic: str, *, partitioned: bool = False, **producer: str) -> SpringApp:
        """Start a Spring application with binding `output`; header `key` is the partition's, or the record's."""
        output = f"{STREAM}.bindings.output"
        how = {
            f"{output}.producer.partition-key-expression": "headers['key']",
            f"{output}.producer.partition-count": "4",
        }
        record = {f"{KAFKA}.output.producer.message-key-expression": "headers['key']?.getBytes()"}
        return self._spring(
            "SendingApplication",
            {
                f"{STREAM}.output-bindings": "output",
                f"{output}.destination": topic,
                **(how if partitioned else record),
                **{f"{KAFKA}.output.producer.{key}": value for key, value in producer.items()},
            },
        )

    def receiver(
        self, topic: str, group: str | None = None, *, orders: bool = False, fail_times: int = 0, **more: str
    ) -> SpringApp:
        """Start a Spring application with binding `input`; `more` are its settings `consumer.…`."""
        properties = {
            "peer.fail-times": str(fail_times),
            f"{STREAM}.function.bindings.receive-in-0": "input",
            **self._input(topic, group, more),
        }
        return self._spring("OrderReceivingApplication" if orders else "ReceivingApplication", properties)

    def streamkit_sender(self, topic: str, **more: str) -> StreamApplication:
        """Start a streamkit application with binding `output`; `more` are settings `producer.…` of any binder."""
        output = f"{STREAM}.bindings.output"
        properties = {
            f"{STREAM}.output-bindings": "output",
            f"{output}.destination": topic,
            **{f"{output}.producer.{key}": value for key, value in more.items()},
        }
        return self._stack.enter_context(self._streamkit(properties))

    def streamkit_receiver(
        self, topic: str, payload: type[T], group: str | None = None, *, fail_times: int = 0, **more: str
    ) -> StreamkitInbox[T]:
        """Start a streamkit application whose listener of binding `input` takes messages of `payload`."""
        app = self._streamkit(self._input(topic, group, more))
        inbox = StreamkitInbox[T](fail_times)
        app.stream_listener("input")(inbox.listener(payload))
        self._stack.enter_context(app)
        return inbox

    def _input(self, topic: str, group: str | None, more: Mapping[str, str]) -> dict[str, str]:
        return {
            f"{STREAM}.bindings.input.destination": topic,
            f"{STREAM}.bindings.input.group": group or self.name("group"),
            f"{STREAM}.bindings.input.consumer.max-attempts": "1",
            **{f"{KAFKA}.input.consumer.{key}": value for key, value in more.items()},
        }

    def _streamkit(self, properties: Mapping[str, str]) -> StreamApplication:
        default = {f"{STREAM}.default-binder": "kafka", BROKERS: self.brokers}
        return StreamApplication(properties={**default, **properties})

    def _spring(self, application: Application, properties: Mapping[str, str]) -> SpringApp:
        app = self._peer.start(application, {**properties, BROKERS: self.brokers})
        self._stack.callback(app.stop, wait=False)
        return app
