"""The consume queues of a store, by topic and queue id."""

from collections.abc import Iterator

from rocket_broker.store.consume_queue import ConsumeQueue
from rocket_broker.store.mapped_file import OpenMaps
from rocket_broker.store.settings import StoreSettings
from rocket_remoting.errors import LocalProtocolError

__all__ = ["QueueTable", "check_names"]

_MOST_TOPIC_BYTES = 127


class QueueTable:
    """All consume queues. A queue is there from the first attempt to store a message in it."""

    def __init__(self, settings: StoreSettings, maps: OpenMaps) -> None:
        self._settings = settings
        self._maps = maps
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        self.find = self._queues.get  # of (topic, queue id); the method of the dictionary, for its speed

    def add(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return the queue, a new one if there is none.

        Raises:
            LocalProtocolError: The topic cannot be stored: it names no directory, or is too long.
        """
        queue = self.find((topic, queue_id))
        if queue is None:
            check_names(topic, queue_id)
            queue = self._queues[topic, queue_id] = ConsumeQueue(topic, queue_id, self._settings, self._maps)
        return queue

    def load(self, trusted_to: int) -> int:
        """Find the queues on the disk; return how many entries were taken back; see `ConsumeQueue.load`."""
        taken_back = 0
        self._queues.clear()
        file_system = self._maps.file_system
        root = self._settings.consume_queue_path
        for topic in file_system.names(root):
            for name in file_system.names(root / topic):
                if name.isdecimal():
                    taken_back += self.add(topic, int(name)).load(trusted_to)
        return taken_back

    @property
    def max_physical(self) -> int:
        """End of the last message in the commit log that has an entry, -1 if none has."""
        return max((queue.max_physical for queue in self._queues.values()), default=-1)

    def topics(self) -> dict[str, list[int]]:
        """Return each topic's queue ids."""
        topics: dict[str, list[int]] = {}
        for topic, queue_id in sorted(self._queues):
            topics.setdefault(topic, []).append(queue_id)
        return topics

    def remove(self, topic: str) -> list[ConsumeQueue]:
        """Delete a topic's queues and return them."""
        queues = [queue for queue in self if queue.topic == topic]
        for queue in queues:
            queue.remove()
            del self._queues[queue.topic, queue.queue_id]
        file_system = self._maps.file_system
        directory = self._settings.consume_queue_path / topic
        if queues and file_system.size(directory) is not None and not file_system.names(directory):
            file_system.remove(directory)
        return queues

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(list(self._queues.values()))

    def __len__(self) -> int:
        return len(self._queues)

    def __repr__(self) -> str:
        return f"QueueTable({len(self)} queues)"


def check_names(topic: str, queue_id: int) -> None:
    """See that a queue of this name can have a directory.

    Raises:
        LocalProtocolError: It can't.
    """
    if not topic or topic in {".", ".."} or "/" in topic or "\0" in topic:
        raise LocalProtocolError(f"{topic!r} cannot be stored: it is no name for a directory")
    if len(topic.encode()) > _MOST_TOPIC_BYTES:
        raise LocalProtocolError(f"{topic!r} is longer than {_MOST_TOPIC_BYTES} bytes")
    if queue_id < 0:
        raise LocalProtocolError(f"queue {queue_id} of {topic}: ids begin at 0")
