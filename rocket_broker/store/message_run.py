"""Messages that are stored together, as the native core packs them.

A run is stored if there is room in the last files of log, queues and index, and no message is refused. Its bytes are
those that `MessageStore.put` writes for one message after the other.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from rocket_broker.store.consume_queue import ConsumeQueue
from rocket_broker.store.store_files import StoreFiles
from rocket_remoting.wire.errors import LocalProtocolError

if TYPE_CHECKING:
    from rocket_native import Place, Run

__all__ = ["MessageRun", "store_run"]


class MessageRun(Protocol):
    """The messages of a run."""

    @property
    def targets(self) -> Sequence[tuple[str, int]]:
        """The queues that get messages: topic and queue id of each."""

    @property
    def tags_codes(self) -> Sequence[Sequence[int]]:
        """For each of these queues the tags codes of its messages."""

    @property
    def longest_body(self) -> int:
        """Length of the longest body, in bytes."""

    def pack(self, queue_offsets: list[int], commit_log_offset: int, now: int) -> "Run":
        """Return the records and their entries.

        Args:
            queue_offsets: For each queue the offset of its next message.
            commit_log_offset: The offset of the first record.
            now: The time of storing, in milliseconds since 1970.

        Raises:
            LocalProtocolError: A host does not fit its field.
            OverflowError: A number does not fit its field.
            ValueError: A topic is too long.
        """


def store_run(messages: MessageRun, files: StoreFiles, now: int) -> "tuple[Run, list[ConsumeQueue]] | None":
    """Append the messages and make their entries; return None if the last file of log, queue or index has no room.

    Raises:
        LocalProtocolError: A message cannot be stored. Nothing has changed, as with all of these.
        StoreFull: The disk has no room.
        OSError: A file could not be made.
    """
    log, index = files.log, files.index
    queues: list[ConsumeQueue] = []
    queue_offsets: list[int] = []
    for target in messages.targets:
        queue = files.queues.find(target) or files.queues.add(*target)
        queues.append(queue)
        queue_offsets.append(queue.max_offset)
    # Records and entries are made, and room for them, before anything is written. They stay right because nothing here
    # gives other tasks a turn.
    try:
        run = messages.pack(queue_offsets, log.end, now)
    except (OverflowError, ValueError) as error:
        raise LocalProtocolError(f"a message to {messages.targets} does not fit its record: {error}") from None
    size, counts = run.size, run.queues
    place = log.room_for(size)
    if place is None:
        return None
    queue_places: list[Place] = []
    for queue, (count, _) in zip(queues, counts, strict=True):
        queue_place = queue.room_for(count)
        if queue_place is None:
            return None
        queue_places.append(queue_place)
    index_place = None
    if files.settings.message_index_enable and run.key_count:
        index_place = index.room_for(run, now)
        if index_place is None:
            return None

    header = run.write(place, queue_places, index_place)

    log.appended(size, run.last_size, now)
    if header is not None:
        index.appended(header, now)
    for queue, (count, end) in zip(queues, counts, strict=True):
        queue.appended(count, end)
    return run, queues
