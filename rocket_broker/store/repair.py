"""Repair a damaged store without deleting anything. `plan_repair` returns what `repair` will do.

1.  The store has been locked since it was surveyed, so no broker has it open.
2.  Files of the log that were cut short get their full length, and missing ones are made, blank from their beginning.
3.  Damaged bytes of the log are copied to ``before-repair-<time>/commitlog/<offset>``, and replaced by a record that is
    in no queue (`gap`). A damaged record of a topic's deletion is written again. Bytes that no record follows in
    their file become the file's blank end, or zeros at the log's end.
4.  Consume queues, index, checkpoint, and timers' files of a wrong size are moved to ``before-repair-<time>``.
5.  The store is opened with a checkpoint that trusts nothing, so queues and index are made again from the log
    (`recovery`). They contain no message of a deleted topic if the log records the deletion. If only other facts show
    the deletion, the queues are deleted again, and the log records that.
6.  Queues get the count that they had, even if their last messages are lost or no longer in the log, so that no two
    messages get the same number.

Messages in damaged bytes are lost; the others keep their numbers.
"""

import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from rocket_broker.settings.store_settings import StoreSettings
from rocket_broker.store.checkpoint import blank_checkpoint
from rocket_broker.store.deletion import DELETIONS_QUEUE, deletion_record
from rocket_broker.store.errors import FileSizeMismatch, StoreCorrupt
from rocket_broker.store.files import FileLock
from rocket_broker.store.gap import gap_record
from rocket_broker.store.layout import StoreLayout
from rocket_broker.store.log_scan import Damage
from rocket_broker.store.message_store import MessageStore
from rocket_broker.store.survey import NoteOfDeletion, Survey
from rocket_remoting.clock import Clock
from rocket_remoting.wire.record import BLANK_MAGIC

__all__ = ["RepairPlan", "plan_repair", "repair"]

_BLANK = struct.Struct(">ii")
_CHUNK = 1 << 20
_ZEROS = bytes(_CHUNK)


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """The actions of a repair.

    Attributes:
        completed_files: Names of the log's files that are extended to their full length, or created.
        stepped_over: Bytes of the log that are copied to another file and replaced.
        renewed_deletions: Damaged records of a topic's deletion that are written again.
        put_aside: Files and directories that are moved aside, as paths in the store's directory.
        queue_messages: Messages that are in queues afterwards.
        queue_file_size: Size that the files of the queues have afterwards, in bytes.
        keyed_messages: Messages that are indexed by their keys afterwards.
        lost: Messages in bytes that are damaged, or were before an earlier repair.
        lost_messages: The first 100 of these messages: topic, queue id and queue offset.
        deleted: Messages that stay in no queue because they were deleted with their topic.
        deleted_topics: How many of these messages each topic has.
        noted_deletions: Topics whose deletion the log records afterwards, and did not record before.
        deleted_queues: Queues that are left out although their topic keeps others: topic and queue id.
        counts: Queues whose next message gets an offset that no message in the log shows: topic, queue id, offset.
        deletions_from: Offset from which on the log records each deletion of a topic.
    """

    completed_files: list[str]
    stepped_over: list[Damage]
    renewed_deletions: list[NoteOfDeletion]
    put_aside: list[str]
    queue_messages: int
    queue_file_size: int
    keyed_messages: int
    lost: int
    lost_messages: list[tuple[str, int, int]]
    deleted: int
    deleted_topics: dict[str, int]
    noted_deletions: list[str]
    deleted_queues: list[tuple[str, int]]
    counts: list[tuple[str, int, int]]
    deletions_from: int


def plan_repair(
    layout: StoreLayout, settings: StoreSettings, found: Survey, timer_files: Sequence[Path] = ()
) -> RepairPlan:
    """Return what a repair will do with the findings of a survey. Nothing is changed.

    Args:
        layout: The store's files.
        settings: The broker's file sizes and directories.
        found: The findings of the survey.
        timer_files: Files and directories of the timers, which the broker makes anew if they are moved aside.

    Raises:
        StoreError: The files have other sizes than the settings say, or a strange file is among those of the log: a
            repaired store would not open.
    """
    size, expected = layout.log_file_size, settings.mapped_file_size_commit_log
    if size not in {0, expected}:
        raise FileSizeMismatch(layout.log[0], size, expected, "mappedFileSizeCommitLog")
    for path in layout.strange_files():
        if path.parent == layout.log_directory:
            raise StoreCorrupt(path, 0, "no file of the log: move it away, and repair the store then")
    for damage in found.damages:
        for _ in _fillings(layout, damage, found.damaged_deletions):
            pass  # each damage can be filled
    derived = [settings.consume_queue_path, settings.index_path, settings.checkpoint_path, *timer_files]
    noted = sorted({topic for topic, _ in found.unnoted_deletions} - set(found.topics))
    renewed = {(*DELETIONS_QUEUE, note.number) for note in found.damaged_deletions}
    return RepairPlan(
        completed_files=sorted(path.name for path in layout.short_files() + layout.missing_files()),
        stepped_over=found.damages,
        renewed_deletions=found.damaged_deletions,
        put_aside=[path.relative_to(layout.root).as_posix() for path in derived if path.exists()],
        queue_messages=found.queue_messages + len(noted) + len(renewed),
        queue_file_size=settings.mapped_file_size_consume_queue,
        keyed_messages=found.keyed_messages if settings.message_index_enable else 0,
        lost=found.lost - len(renewed),
        lost_messages=[message for message in found.lost_messages if message not in renewed],
        deleted=found.deleted,
        deleted_topics=found.deleted_topics,
        noted_deletions=noted,
        deleted_queues=[queue for queue in found.unnoted_deletions if queue[0] not in noted],
        counts=found.counts,
        deletions_from=found.deletions_from,
    )


async def repair(layout: StoreLayout, settings: StoreSettings, plan: RepairPlan, clock: Clock, lock: FileLock) -> Path:
    """Carry out a plan, and return the directory of the replaced files.

    Args:
        layout: The store's files.
        settings: Sizes and directories, as the broker has them.
        plan: What `plan_repair` returned.
        clock: The time for the name of that directory.
        lock: The lock of the store, held since the survey, so the store is unchanged. It is released.

    Raises:
        StoreError: The store cannot be opened afterwards.
        OSError: The disk refused.
    """
    try:
        moment = datetime.fromtimestamp(clock.now_ms() / 1000, tz=UTC).astimezone()
        aside = layout.root / f"before-repair-{moment:%Y%m%d%H%M%S}"
        aside.mkdir()
        _complete_files(layout)
        layout = StoreLayout.of(layout.root, settings.commit_log_dir)
        for damage in plan.stepped_over:
            _fill(layout, damage, plan.renewed_deletions, aside / "commitlog")
        for name in plan.put_aside:
            (aside / name).parent.mkdir(parents=True, exist_ok=True)
            (layout.root / name).rename(aside / name)
        first = int(layout.log[0].name) if layout.log else 0
        settings.checkpoint_path.write_bytes(blank_checkpoint(first, plan.deletions_from))
        settings.abort_path.unlink(missing_ok=True)  # the traces of a crash have been checked
    finally:
        # `MessageStore.load` locks the store itself, and flock excludes a second lock even of this process.
        lock.release()
    store = MessageStore(settings, clock)
    store.load()
    try:
        for topic, queue_id in plan.deleted_queues:
            store.delete_queue(topic, queue_id)
        for topic in plan.noted_deletions:
            store.delete_topic(topic)
        for topic, queue_id, count in plan.counts:
            store.keep_count(topic, queue_id, count)
    finally:
        await store.stop()
    return aside


def _complete_files(layout: StoreLayout) -> None:
    """Give the log's files their full length, and make missing ones."""
    for path in layout.short_files():
        os.truncate(path, layout.log_file_size)
    for path in layout.missing_files():
        with path.open("wb") as file:
            file.write(_BLANK.pack(layout.log_file_size, BLANK_MAGIC))
            file.truncate(layout.log_file_size)


def _fill(layout: StoreLayout, damage: Damage, notes: list[NoteOfDeletion], aside: Path) -> None:
    """Copy damaged bytes aside, and overwrite them with readable records."""
    path = next(path for path in layout.log if 0 <= damage.offset - int(path.name) < layout.log_file_size)
    base = int(path.name)
    position = damage.offset - base
    aside.mkdir(exist_ok=True)
    with path.open("r+b") as file:
        with (aside / f"{damage.offset:020d}").open("wb") as kept:
            _copy(file, position, position + damage.length, kept)
            # The copy is on the disk before the damaged bytes are overwritten: there is no other copy of
            # them.
            kept.flush()
            os.fsync(kept.fileno())
        if damage.is_end:  # there may be a gigabyte of zeros: a hole takes no space
            file.truncate(position)
            file.truncate(layout.log_file_size)
        # Not synced here: the checkpoint of `repair` trusts nothing, so the store's flush at its stop syncs
        # the whole log.
        for offset, data in _fillings(layout, damage, notes):
            file.seek(offset - base)
            file.write(data)


def _fillings(layout: StoreLayout, damage: Damage, notes: list[NoteOfDeletion]) -> Iterator[tuple[int, bytes]]:
    """Yield what takes the place of damaged bytes, and where. Behind the head of a blank they may be anything.

    Raises:
        StoreCorrupt: They are too few for a record.
    """
    at, stop = damage.offset, damage.offset + damage.length
    for note in notes:
        if note.offset in damage:
            if at < note.offset:
                yield at, _gap(layout, at, note.offset)
            record = deletion_record(note.topic, note.number, note.offset)
            yield note.offset, record
            at = note.offset + len(record)
    if at < stop and not damage.is_end:
        if stop % layout.log_file_size:
            yield at, _gap(layout, at, stop)
        elif stop - at >= _BLANK.size:
            yield at, _BLANK.pack(stop - at, BLANK_MAGIC)


def _gap(layout: StoreLayout, start: int, stop: int) -> bytes:
    record = gap_record(start, stop - start)
    if record is None:
        raise StoreCorrupt(layout.log_directory, start, f"{stop - start} damaged bytes are fewer than a record has")
    return record


def _copy(file: BinaryIO, start: int, end: int, to: BinaryIO) -> None:
    """Copy bytes, as a hole where they are zeros."""
    file.seek(start)
    while start < end:
        chunk = file.read(min(_CHUNK, end - start))
        start += len(chunk)
        if chunk != _ZEROS[: len(chunk)]:
            to.write(chunk)
        else:
            to.seek(len(chunk), os.SEEK_CUR)
    to.truncate(to.tell())
