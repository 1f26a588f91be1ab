"""What a test of Spring applications works with: they and streamkit's applications before one broker."""

import asyncio
import itertools
import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Generic, Self, TypeVar

from rocket_client import Admin
from rocket_client.settings import ClientSettings
from streamkit import Message, StreamApplication
from tests.peer.json_peer import Inbox
from tests.peer.spring_apps import NAME_SERVER, Application, SpringApp, SpringPeer
from tests.peer.stage import ANSWER_TIMEOUT

STREAM = "spring.cloud.stream"
ROCKET = f"{STREAM}.rocketmq.bindings"

T = TypeVar("T")
_numbers = itertools.count(1)


class SpringStage:
    """Spring Cloud Alibaba of one generation, and streamkit, before one broker, Apache's or ours.

    Attributes:
        first: Whether the generation is the first one, with `@EnableBinding` and settings of its own names.
    """

    def __init__(self, peer: SpringPeer, name_server: str) -> None:
        """Put a running JVM before a running broker."""
        self.first = peer.generation.startswith("2.2.")
        self.name_server = name_server
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

    def topic(self, name: str | None = None, queues: int = 4) -> str:
        """Return a topic, a new one unless named, that the name server knows."""
        topic = name or self.name("topic")

        async def make() -> None:
            async with Admin(ClientSettings(name_servers=self.name_server, request_timeout=ANSWER_TIMEOUT)) as admin:
                await admin.create_topic(topic, queues)
                await admin.await_topic(topic, queues=queues, timeout=60)

        asyncio.run(make())
        return topic

    def text(self, text: str) -> str:
        """Return a text as the generation's `String` is on the wire: the current one reads and writes JSON."""
        return text if self.first else json.dumps(text, ensure_ascii=False)

    def spring(self, application: Application, properties: Mapping[str, str], file: Path | None = None) -> SpringApp:
        """Start a Spring application, by a properties file and what wins over it."""
        # With a short timeout, a message that is sent again could be stored twice.
        patient = {f"{ROCKET}.output.producer.{'sendMessageTimeout' if self.first else 'sendMsgTimeout'}": "30000"}
        app = self._peer.start(application, {**patient, **properties, NAME_SERVER: self.name_server}, file)
        # The next test may use the same producer group: the broker must not send checks of its transactions here.
        self._stack.callback(app.stop, wait=application == "TransactionalApplication")
        return app

    def sender(self, topic: str, **producer: str) -> SpringApp:
        """Start a Spring application with binding `output`; `producer` are further settings of it."""
        group = {"producer.group": self.name("producers")}
        how = {"producer.sync": "true"} if self.first else {}
        properties = {
            f"{STREAM}.bindings.output.destination": topic,
            **({} if self.first else {f"{STREAM}.output-bindings": "output"}),
            **{f"{ROCKET}.output.{key}": value for key, value in (group | how | producer).items()},
        }
        transactional = self.first and "producer.transactional" in producer
        return self.spring("TransactionalApplication" if transactional else "SendingApplication", properties)

    def transactional_sender(self, topic: str) -> SpringApp:
        """Start a Spring application whose `output` is transactional; headers say how transactions end."""
        if self.first:
            # The group in the annotation of the book's transaction listener.
            settings = {"producer.transactional": "true", "producer.group": "OrderTransactionGroup"}
        else:
            settings = {"producer.producer-type": "Trans", "producer.transaction-listener": "transactions"}
        return self.sender(topic, **settings)

    def receiver(
        self, topic: str, group: str | None = None, *, orders: bool = False, fail_times: int = 0, **more: str
    ) -> SpringApp:
        """Start a Spring application with binding `input`; `more` are settings `consumer.…` of it."""
        properties = {
            "peer.fail-times": str(fail_times),
            f"{STREAM}.bindings.input.destination": topic,
            f"{STREAM}.bindings.input.group": group or self.name("group"),
            f"{STREAM}.bindings.input.consumer.max-attempts": "1",
            **({} if self.first else {f"{STREAM}.function.bindings.receive-in-0": "input"}),
            **{f"{ROCKET}.input.{key}": value for key, value in more.items()},
        }
        if not self.first:
            # Unlike the first generation, the others skip messages sent before the group's first start.
            properties.setdefault(f"{ROCKET}.input.consumer.consume-from-where", "CONSUME_FROM_FIRST_OFFSET")
        return self.spring("OrderReceivingApplication" if orders else "ReceivingApplication", properties)

    def streamkit(self, properties: Mapping[str, str], file: Path | None = None) -> StreamApplication:
        """Return a streamkit application, not yet running, by a properties file and what wins over it.

        It does not send again what took longer than usual: the message could stand twice then.
        """
        patient = {f"{STREAM}.rocketmq.default.producer.send-message-timeout": "30000"}
        return StreamApplication(
            config_location=file, properties={**properties, **patient, NAME_SERVER: self.name_server}
        )

    def streamkit_sender(self, topic: str, **producer: str) -> StreamApplication:
        """Start a streamkit application with binding `output`."""
        properties = {
            f"{STREAM}.bindings.output.destination": topic,
            f"{STREAM}.output-bindings": "output",
            **{f"{ROCKET}.output.{key}": value for key, value in producer.items()},
        }
        return self._stack.enter_context(self.streamkit(properties))

    def streamkit_receiver(
        self,
        topic: str,
        payload: type[T],
        group: str | None = None,
        *,
        fail_times: int = 0,
        **more: str,
    ) -> "StreamkitInbox[T]":
        """Start a streamkit application with binding `input` whose listener takes messages of `payload`."""
        properties = {
            f"{STREAM}.bindings.input.destination": topic,
            f"{STREAM}.bindings.input.group": group or self.name("group"),
            f"{STREAM}.bindings.input.consumer.max-attempts": "1",
            **{f"{ROCKET}.input.{key}": value for key, value in more.items()},
        }
        return self.listening(self.streamkit(properties), payload, fail_times)

    def listening(self, app: StreamApplication, payload: type[T], fail_times: int = 0) -> "StreamkitInbox[T]":
        """Start an application with a listener of `input` that fails each message so many times."""
        inbox = StreamkitInbox[T](fail_times)
        app.stream_listener("input")(inbox.listener(payload))
        self._stack.enter_context(app)
        return inbox


class StreamkitInbox(Inbox[Message[T]], Generic[T]):
    """What a streamkit listener received."""

    def __init__(self, fail_times: int) -> None:
        """Begin empty."""
        super().__init__(lambda: "(a streamkit application)")
        self._fail_times = fail_times

    def listener(self, payload: type[T]) -> Callable[..., None]:
        """Return the listener."""

        def receive(message: Message[T]) -> None:
            self.add(message)
            if sum(m.payload == message.payload for m in self.received) <= self._fail_times:
                raise RuntimeError(f"told to fail {message.payload!r}")

        receive.__annotations__["message"] = Message[payload]  # type: ignore[valid-type]
        return receive
