"""Spring's applications, driven from Python: with Spring Cloud Alibaba's binder, or with Spring's own for Kafka.

`SpringPeer` is one JVM with any number of Spring Boot applications; `spring/` holds their sources, one folder
for each generation of the binder.
"""

import itertools
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from tests.peer.artifacts import class_path, program
from tests.peer.json_peer import ANSWER_TIMEOUT, Inbox, Json, JsonPeer
from tests.peer.jvm import java_options

NAME_SERVER = "spring.cloud.stream.rocketmq.binder.name-server"

Application = Literal[
    "SendingApplication", "ReceivingApplication", "OrderReceivingApplication", "TransactionalApplication"
]


@dataclass(frozen=True, slots=True)
class SpringMessage:
    """What a Spring listener was given.

    Attributes:
        event: "message", or what a transaction listener was asked: "execute" or "check".
        payload: The payload as text.
        headers: Each header's value: text, number, boolean, list or mapping; bytes as the text they are, anything
            else as Java's text.
        types: Each header's Java class.
    """

    event: str
    payload: str
    headers: dict[str, object]
    types: dict[str, str]


class SpringPeer:
    """A JVM for Spring Boot applications of one generation, running until `stop`."""

    def __init__(self, generation: str) -> None:
        """Start the JVM, yet without an application."""
        self.generation = generation
        self._home = Path(tempfile.mkdtemp(prefix=f"spring-{generation}-"))
        self._apps: dict[str, SpringApp] = {}
        self._numbers = itertools.count(1)
        self._peer = JsonPeer(
            [
                program("java"),
                *java_options(self._home, heap="384m"),
                # The time after which a member takes a queue that it missed at its start; 20 s by default.
                "-Drocketmq.client.rebalance.waitInterval=1000",
                "-Drocketmq.client.rebalance.minInterval=100",
                "-cp",
                class_path(generation),
                "streamkit.peer.spring.SpringPeer",
            ],
            log=self._home / "spring.log",
            on_event=self._on_event,
        )

    def __repr__(self) -> str:
        """Name the generation."""
        return f"SpringPeer({self.generation!r})"

    def __enter__(self) -> Self:
        """Return itself, already running."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it."""
        self._peer.stop()
        shutil.rmtree(self._home, ignore_errors=True)

    def log(self) -> str:
        """Return the last lines that the applications printed."""
        return self._peer.tail()

    def start(self, application: Application, properties: Mapping[str, str], file: Path | None = None) -> "SpringApp":
        """Start an application.

        Args:
            properties: Settings that win over the file's.
            file: The application's properties file.
        """
        name = f"spring-{next(self._numbers)}"
        self._apps[name] = app = SpringApp(self._peer, name)
        arguments = [f"--{key}={value}" for key, value in properties.items()]
        if file is not None:
            arguments.append(f"--spring.config.location={file.as_uri()}")
        self._peer.call("start", name=name, application=application, arguments=arguments)
        return app

    def _on_event(self, reported: Json) -> None:
        message = SpringMessage(reported["event"], reported["payload"], reported["headers"], reported["types"])
        self._apps[reported["source"]].add(message)


class SpringApp(Inbox[SpringMessage]):
    """A running Spring Boot application and all that its listeners received."""

    def __init__(self, peer: JsonPeer, name: str) -> None:
        """Name one; see `SpringPeer.start`."""
        super().__init__(peer.tail)
        self._peer = peer
        self._name = name

    def send(self, payload: str | Mapping[str, str] | None, binding: str = "output", **headers: object) -> None:
        """Send text, an order by its fields, or nothing (a tombstone), through an output binding."""
        fields = payload if payload is None or isinstance(payload, str) else dict(payload)
        self._peer.call("send", name=self._name, binding=binding, payload=fields, headers=headers)

    def stop(self, *, wait: bool = True) -> None:
        """Close its context; Java's shutdown may take seconds, which need not be waited for."""
        stopped = self._peer.begin("stop", name=self._name)
        if wait:
            stopped.result(ANSWER_TIMEOUT)
