"""Apache's Go client, driven from Python.

`GoClient` is one process with any number of producers and consumers; `go/main.go` tells how commands and events
look on the pipe.
"""

import itertools
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from rocket_client import Credentials
from tests.peer.artifacts import cache_directory, digest, locked, program, run
from tests.peer.json_peer import ANSWER_TIMEOUT, Inbox, Json, JsonPeer

VERSION = "2.1.2"
"""The client's version."""
SOURCES = Path(__file__).parent / "go"


@dataclass(frozen=True, slots=True)
class GoMessage:
    """A message as Go's listener saw it, once for each delivery."""

    topic: str
    body: str
    tags: str
    keys: str
    properties: dict[str, str]
    queue: int
    offset: int
    reconsume_times: int
    id: str


class GoClient:
    """A process with Apache's Go client, running until it is left as a context."""

    def __init__(self) -> None:
        """Start the process.

        Raises:
            PeersUnavailableError: Go is missing, or the client's module can't be had.
        """
        self._home = tempfile.TemporaryDirectory(prefix="go-client-")
        self._inboxes: dict[str, GoConsumer] = {}
        self._numbers = itertools.count(1)
        self._peer = JsonPeer(
            [str(go_program())],
            log=Path(self._home.name) / "go.log",
            # Broadcasting members keep their offsets in files, by default under the user's home.
            environment={"rocketmq.client.localOffsetStoreDir": self._home.name},
            on_event=self._on_event,
        )

    def __enter__(self) -> Self:
        """Return itself, already running."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it."""
        self._peer.stop()
        self._home.cleanup()

    def producer(self, name_server: str, group: str, *, keys: Credentials | None = None) -> "GoProducer":
        """Start a producer; it signs its requests if there are keys."""
        name = f"go-producer-{next(self._numbers)}"
        self._peer.call("startProducer", name=name, group=group, nameServer=name_server, **_keys(keys))
        return GoProducer(self._peer, name)

    def consumer(
        self,
        name_server: str,
        group: str,
        topic: str,
        *,
        expression: str = "*",
        orderly: bool = False,
        broadcast: bool = False,
        fail_times: int = 0,
        max_times: int = 0,
        keys: Credentials | None = None,
    ) -> "GoConsumer":
        """Start a push consumer that fails each message's first `fail_times` deliveries.

        Args:
            max_times: Redeliveries before the dead letter; 0 is the client's default.
            keys: Sign the requests.
        """
        name = f"go-consumer-{next(self._numbers)}"
        consumer = self._inboxes[name] = GoConsumer(self._peer, name)
        self._peer.call(
            "startConsumer",
            name=name,
            instance=name,
            group=group,
            nameServer=name_server,
            topic=topic,
            expression=expression,
            mode="orderly" if orderly else "concurrent",
            broadcast=broadcast,
            failTimes=fail_times,
            maxTimes=max_times,
            **_keys(keys),
        )
        return consumer

    def _on_event(self, reported: Json) -> None:
        message = GoMessage(
            reported["topic"],
            reported["body"],
            reported["tags"],
            reported["keys"],
            reported["properties"],
            reported["queue"],
            reported["offset"],
            reported["reconsumeTimes"],
            reported["id"],
        )
        self._inboxes[reported["source"]].add(message)


class GoProducer:
    """A running Go producer."""

    def __init__(self, peer: JsonPeer, name: str) -> None:
        """Name one; see `GoClient.producer`."""
        self._peer = peer
        self._name = name

    def send(
        self,
        topic: str,
        *bodies: str,
        mode: Literal["sync", "async", "oneway"] = "sync",
        tags: str = "",
        keys: Sequence[str] = (),
        properties: dict[str, str] | None = None,
        delay_level: int = 0,
        shard_by: str = "",
    ) -> list[Json]:
        """Send one message for each body, with the same fields; return what the broker answered."""
        fields = {
            "tags": tags,
            "keys": list(keys),
            "properties": properties or {},
            "delayLevel": delay_level,
            "shardBy": shard_by,
        }
        messages = [{"body": body, **fields} for body in bodies]
        sent: list[Json] = self._peer.call("send", name=self._name, topic=topic, mode=mode, messages=messages)
        return sent


class GoConsumer(Inbox[GoMessage]):
    """A running Go push consumer and all it received."""

    def __init__(self, peer: JsonPeer, name: str) -> None:
        """Name one; see `GoClient.consumer`."""
        super().__init__(peer.tail)
        self._peer = peer
        self._name = name
        self._running = True

    def stop(self) -> None:
        """Shut it down, unless it is."""
        if self._running:
            self._running = False
            self._peer.begin("stop", name=self._name).result(ANSWER_TIMEOUT)


def _keys(keys: Credentials | None) -> dict[str, str]:
    return {} if keys is None else {"accessKey": keys.access_key, "secretKey": keys.secret_key}


def go_program() -> Path:
    """Return the compiled program, made once per machine.

    Raises:
        PeersUnavailableError: Go is missing, or the client's module can't be had.
    """
    cache = cache_directory()
    known = cache / f"go-client-{digest(sorted(SOURCES.iterdir()), '')}"
    with locked(cache / "go-client.lock"):
        if not known.exists():
            made = cache / f"go-client-{os.getpid()}.new"
            run([program("go"), "build", "-o", str(made), "."], cwd=SOURCES)
            made.rename(known)
    return known
