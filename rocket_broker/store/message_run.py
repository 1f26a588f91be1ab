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
    from rocket_native import Run

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

    @property
    def longest_properties(self) -> int:
        """Length of the longest properties that a message is stored with, in bytes."""

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
    log, settings = files.log, files.settings
    queues = [files.queues.find(target) or files.queues.add(*target) for target in messages.targets]
    # Records, numbers and the older entries in the slots are made before anything is written. They stay right because
    # nothing here gives other tasks a turn.
    try:
        run = messages.pack([queue.max_offset for queue in queues], log.end, now)
    except (OverflowError, ValueError) as error:
        raise LocalProtocolError(f"a message to {messages.targets} does not fit its record: {error}") from None
    records, entries = run.records, run.queue_entries
    if not log.has_room(len(records)):
        return None
    for queue, tags_codes in zip(queues, messages.tags_codes, strict=True):
        if not queue.prepare_run(len(tags_codes)):
            return None
    indexed = run.index(settings.max_hash_slot_num) if settings.message_index_enable else None
    if indexed is not None and not files.index.prepare_run(indexed, now):
        return None

    # The log comes first. A kill behind this line leaves records without entries, and recovery makes these; in the
    # other order entries would lead to no record.
    log.append_run(records, run.last_size, now)

    if indexed is not None:  # from here on only bytes are copied, so no record is left without its entries
        files.index.put_run(indexed, now)
    for queue, (own, end) in zip(queues, entries, strict=True):
        queue.append_run(own, end)
    return run, queues
