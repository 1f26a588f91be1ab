"""The consume queues of a store, by topic and queue id."""

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from rocket_broker.settings.store_settings import StoreSettings
from rocket_broker.store.consume_queue import ConsumeQueue
from rocket_broker.store.mapped_file import OpenMaps
from rocket_remoting.wire.errors import LocalProtocolError

__all__ = ["QueueTable", "check_names"]

_MOST_TOPIC_BYTES = 127
_EVERYTHING = 2**63 - 1


class QueueTable:
    """All consume queues. A queue exists from the first attempt to store a message in it.

    Attributes:
        table: The queues by topic and queue id; to be read only.
        find: Returns the queue of a topic and a queue id, None if there is none.
    """

    def __init__(self, settings: StoreSettings, maps: OpenMaps) -> None:
        self._settings = settings
        self._maps = maps
        self.table: dict[tuple[str, int], ConsumeQueue] = {}
        self._by_topic: dict[str, dict[int, ConsumeQueue]] = {}
        self._closed: set[str] = set()
        self.find = self.table.get  # the dictionary's own method, for speed

    def add(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return the queue, a new one if there is none.

        Raises:
            LocalProtocolError: The topic cannot be stored: it names no directory, is too long, or is being deleted.
        """
        queue = self.find((topic, queue_id))
        if queue is None:
            check_names(topic, queue_id)
            if topic in self._closed:
                raise LocalProtocolError(f"topic {topic} is being deleted: no message can be stored in it now")
            queue = self.table[topic, queue_id] = ConsumeQueue(topic, queue_id, self._settings, self._maps)
            self._by_topic.setdefault(topic, {})[queue_id] = queue
        return queue

    def of_targets(self, targets: Sequence[tuple[str, int]]) -> list[ConsumeQueue]:
        """Return the queues of topics and queue ids, new ones where there are none.

        Raises:
            LocalProtocolError: As `add`.
        """
        queues = list(filter(None, map(self.find, targets)))  # without a step of the interpreter for each
        if len(queues) < len(targets):
            queues = [self.add(*target) for target in targets]
        return queues

    def load(self, trusted_to: int) -> int:
        """Find the queues on the disk; return how many entries were taken back; see `ConsumeQueue.load`."""
        taken_back = 0
        self.table.clear()
        self._by_topic.clear()
        file_system = self._maps.file_system
        root = self._settings.consume_queue_path
        for topic in file_system.names(root):
            for name in file_system.names(root / topic):
                if name.isdecimal():
                    taken_back += self.add(topic, int(name)).load(trusted_to)
        return taken_back

    @property
    def max_physical(self) -> int:
        """Return the end of the last message in the commit log that has an entry, -1 if none has."""
        return max(map(attrgetter("max_physical"), self.table.values()), default=-1)

    def topics(self) -> dict[str, list[int]]:
        """Return each topic's queue ids."""
        return {topic: sorted(self._by_topic[topic]) for topic in sorted(self._by_topic)}

    def names(self) -> list[str]:
        """Return the topics that have queues."""
        return list(self._by_topic)

    def of(self, topic: str) -> list[ConsumeQueue]:
        """Return a topic's queues."""
        return list(self._by_topic.get(topic, {}).values())

    def close(self, topics: Iterable[str]) -> None:
        """Refuse new queues of topics that are being deleted, until `open` is called."""
        self._closed.update(topics)

    def open(self, topics: Iterable[str]) -> None:
        """Allow new queues of topics again."""
        self._closed.difference_update(topics)

    def take(self, queue: ConsumeQueue) -> None:
        """Take a queue out, to be removed by any thread (`ConsumeQueue.remove`)."""
        del self.table[queue.topic, queue.queue_id]
        queues = self._by_topic[queue.topic]
        del queues[queue.queue_id]
        if not queues:
            del self._by_topic[queue.topic]
        queue.give_up_maps()

    def remove(self, topic: str, end: int = _EVERYTHING) -> None:
        """Delete a topic's queues, which must not be in use.

        Args:
            topic: The topic.
            end: Queues with a message at or behind this offset of the commit log stay.
        """
        for queue in self.of(topic):
            if queue.max_physical <= end:
                self.discard(queue)
        self.remove_directory(topic)

    def remove_directory(self, topic: str) -> None:
        """Remove the directory of a topic whose queues are removed, unless something else is in it."""
        file_system = self._maps.file_system
        directory = self._settings.consume_queue_path / topic
        if file_system.size(directory) is not None and not file_system.names(directory):
            file_system.remove(directory)

    def discard(self, queue: ConsumeQueue) -> None:
        """Delete a queue, which must not be in use."""
        self.take(queue)
        queue.remove()

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(list(self.table.values()))

    def __len__(self) -> int:
        return len(self.table)

    def __repr__(self) -> str:
        return f"QueueTable({len(self)} queues)"


def check_names(topic: str, queue_id: int) -> None:
    """Check that a queue of this name can have a directory.

    Raises:
        LocalProtocolError: It cannot.
    """
    if not topic or topic in {".", ".."} or "/" in topic or "\0" in topic:
        raise LocalProtocolError(f"{topic!r} cannot be stored: it cannot be the name of a directory")
    if len(topic.encode()) > _MOST_TOPIC_BYTES:
        raise LocalProtocolError(f"{topic!r} is longer than {_MOST_TOPIC_BYTES} bytes")
    if queue_id < 0:
        raise LocalProtocolError(f"queue {queue_id} of {topic}: ids begin at 0")
