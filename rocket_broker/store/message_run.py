"""Messages that are stored together, as the native core packs them.

A run is stored if there is room in the last files of log, queues and index, and no message is refused. Its bytes are
those that `MessageStore.put` writes for one message after the other.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from rocket_broker.store.consume_queue import ConsumeQueue
from rocket_broker.store.state import IndexState, LogState, QueueState
from rocket_broker.store.store_files import StoreFiles

if TYPE_CHECKING:
    from rocket_native import IndexPlace, Place, Run

__all__ = ["MessageRun", "places_for"]


class MessageRun(Protocol):
    """The messages of a run."""

    @property
    def targets(self) -> Sequence[tuple[str, int]]:
        """The queues that get messages: topic and queue id of each."""

    @property
    def topics(self) -> Sequence[str]:
        """The topics of these queues, each once."""

    @property
    def tags_codes(self) -> Sequence[Sequence[int]]:
        """For each of these queues the tags codes of its messages."""

    @property
    def longest_body(self) -> int:
        """Length of the longest body, in bytes."""

    def pack(self, log: LogState, queues: Sequence[QueueState], index: IndexState | None, now: int) -> "Run":
        """Return the records and their entries, which may be written and counted already if the files have space for
        them.

        Args:
            log: The log.
            queues: The queues.
            index: The last file of the index; None if nothing is to be indexed.
            now: The time of storing, in milliseconds since 1970.

        Raises:
            LocalProtocolError: A host does not fit its field.
            OverflowError: A number does not fit its field.
            ValueError: A topic is too long.
        """


def places_for(
    run: "Run", files: StoreFiles, queues: Sequence[ConsumeQueue], now: int
) -> "tuple[Place, list[Place], IndexPlace | None] | None":
    """Make room for a run, and return where it is written; None if the last file of log, queue or index has no room.

    Raises:
        StoreFull: The disk has no room. Nothing has changed, as with OSError.
        OSError: A file could not be made.
    """
    place = files.log.room_for(run.size)
    if place is None:
        return None
    queue_places: list[Place] = []
    for queue, (count, _) in zip(queues, run.queues, strict=True):
        queue_place = queue.room_for(count)
        if queue_place is None:
            return None
        queue_places.append(queue_place)
    index_place = None
    if files.settings.message_index_enable and run.key_count:
        index_place = files.index.room_for(run, now)
        if index_place is None:
            return None
    return place, queue_places, index_place
