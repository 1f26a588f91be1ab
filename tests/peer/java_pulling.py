"""Apache's pull consumers and lite pull consumers, driven from Python."""

from typing import Literal, Self

from tests.peer.java_client import JavaClient, JavaMessage
from tests.peer.json_peer import Json

SEEKS = 5


class JavaPullConsumer:
    """A running DefaultMQPullConsumer: each pull names its queue and offset."""

    def __init__(self, client: JavaClient, name_server: str, group: str) -> None:
        """Start it."""
        self._client = client
        self._name = client.name("pulling")
        client.call("startPull", name=self._name, nameServer=name_server, group=group)

    def __enter__(self) -> Self:
        """Return itself, already running."""
        return self

    def __exit__(self, *_: object) -> None:
        """Shut it down."""
        self._client.begin("stopPulling", name=self._name)

    def pull(self, topic: str, queue: int, offset: int, expression: str = "*") -> tuple[str, int, list[JavaMessage]]:
        """Return the pull's status, the offset to go on from, and the messages found."""
        pulled: Json = self._client.call(
            "pull", name=self._name, topic=topic, queue=queue, offset=offset, expression=expression
        )
        return pulled["status"], pulled["next"], [JavaMessage.read(raw) for raw in pulled["messages"]]

    def commit(self, topic: str, queue: int, offset: int) -> int:
        """Commit an offset, and return what the broker has then."""
        committed: int = self._client.call("commitPull", name=self._name, topic=topic, queue=queue, offset=offset)
        return committed


class JavaPoller:
    """A running DefaultLitePullConsumer that commits when it is told to."""

    def __init__(
        self,
        client: JavaClient,
        name_server: str,
        group: str,
        topic: str,
        *,
        queues: list[int] | None = None,
        expression: str = "*",
    ) -> None:
        """Start it, subscribed to a topic or with some of its queues assigned."""
        self._client = client
        self._name = client.name("polling")
        self._topic = topic
        assigned = {} if queues is None else {"queues": queues}
        self._call("startPolling", nameServer=name_server, group=group, expression=expression, **assigned)

    def __enter__(self) -> Self:
        """Return itself, already running."""
        return self

    def __exit__(self, *_: object) -> None:
        """Shut it down; its offsets are on the broker then."""
        self._call("stopPulling")

    def poll_from(self, queue: int, offset: int | Literal["begin"], count: int) -> list[JavaMessage]:
        """Seek, and return what is polled then.

        The pull task that a seek ends may still take the place to go to, and then nothing comes; or what it pulled
        before comes in front (Apache's DefaultLitePullConsumerImpl): then the seek is made again.
        """
        first = 0 if offset == "begin" else offset
        for _ in range(SEEKS):
            self.seek(queue, offset)
            polled = self.poll(count)
            if polled and polled[0].offset == first:
                break
        return polled

    def poll(self, count: int) -> list[JavaMessage]:
        """Return what comes: at least `count` messages if they come."""
        return [JavaMessage.read(raw) for raw in self._call("poll", count=count)]

    def poll_for(self, milliseconds: int) -> list[JavaMessage]:
        """Return all that comes in that time."""
        return [JavaMessage.read(raw) for raw in self._call("poll", count=1_000_000, forMs=milliseconds)]

    def commit(self) -> None:
        """Commit what was polled."""
        self._call("commit")

    def committed(self, queue: int) -> int:
        """Return a queue's committed offset."""
        committed: int = self._call("committed", queue=queue)
        return committed

    def seek(self, queue: int, offset: int | Literal["begin", "end"]) -> None:
        """Go on from there."""
        self._call("seek", queue=queue, offset=offset)

    def pause(self, queue: int) -> None:
        """Poll nothing of that queue until `resume`."""
        self._call("pause", queue=queue)

    def resume(self, queue: int) -> None:
        """Poll that queue again."""
        self._call("pause", queue=queue, resume=True)

    def _call(self, do: str, **arguments: object) -> object:
        return self._client.call(do, name=self._name, topic=self._topic, **arguments)
