"""Makes a damaged store whole again, and throws nothing away.

1.  The store is locked: nobody else has it open. Beside files that are none of the log's nothing is touched.
2.  Files of the log that were cut short get their length again, and missing ones are made, blank from their beginning.
3.  Bytes of the log that hold no record are copied to ``before-repair-<time>/commitlog/<offset>``. Where a record
    follows they become one that is in no queue: a rolled back one in `GAP_TOPIC`, which our broker's recovery and
    Apache's step over. What no record follows in its file becomes the file's blank end, or at the log's end zeros.
4.  Consume queues, index and checkpoint are moved to ``before-repair-<time>``.
5.  The store is opened, which makes them anew from the log (`recovery`). Queues of topics that had been deleted are
    deleted again. The store is closed.
6.  Queues whose messages are all too old to be in the log are put back: they keep their count.

Messages in damaged bytes are lost; those before and behind keep their numbers.
"""

import os
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from rocket_broker.store.errors import FileSizeMismatch, StoreCorrupt
from rocket_broker.store.files import OsFileSystem
from rocket_broker.store.message_store import MessageStore
from rocket_broker.store.recovery import RecoveryReport
from rocket_broker.store.settings import StoreSettings
from rocket_broker.store.survey import Damage, QueueFiles, StoreLayout, survey
from rocket_remoting.clock import Clock
from rocket_remoting.record import BLANK_MAGIC, encode_record, record_size
from rocket_remoting.sys_flag import TRANSACTION_ROLLBACK

__all__ = ["GAP_TOPIC", "RepairReport", "repair"]

GAP_TOPIC = "RMQ_SYS_DAMAGED"
_BLANK = struct.Struct(">ii")
_NOBODY = ("0.0.0.0", 0)
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What was done.

    Attributes:
        kept_in: Where the bytes are that were there before.
        gaps: Damages that were filled.
        files: Files of the log that were made or got their length again.
        recovery: What opening the store made anew.
    """

    kept_in: Path
    gaps: int
    files: int
    recovery: RecoveryReport


async def repair(
    layout: StoreLayout,
    settings: StoreSettings,
    damages: list[Damage],
    clock: Clock,
    exists: Callable[[str], bool] = lambda topic: True,
) -> RepairReport:
    """Repair a store in which `survey` found these damages.

    Args:
        layout: The store's files.
        settings: Sizes and directories, as the broker has them.
        damages: What to fill.
        clock: Names the directory for what was there.
        exists: Tells whether there is a topic.

    Raises:
        StoreError: A broker has it open, its files have other sizes than the settings say, a strange file is among
            them, or it cannot be opened afterwards.
        OSError: The disk refused.
    """
    size, expected = layout.log_file_size, settings.mapped_file_size_commit_log
    if size not in {0, expected}:
        raise FileSizeMismatch(layout.log[0], size, expected, "mappedFileSizeCommitLog")
    lock = OsFileSystem().lock(settings.lock_path)
    try:
        for path in layout.strange_files():
            if path.parent == layout.log_directory:
                raise StoreCorrupt(path, 0, "no file of the log: move it away, and repair the store then")
        moment = datetime.fromtimestamp(clock.now_ms() / 1000, tz=UTC).astimezone()
        aside = layout.root / f"before-repair-{moment:%Y%m%d%H%M%S}"
        aside.mkdir()
        files = _complete_files(layout)
        if files:
            layout = StoreLayout.of(layout.root, settings.commit_log_dir)
            damages = survey(layout).damages
        for damage in damages:
            _fill(layout, damage, aside / "commitlog")
        had_queues = {path.name for path in settings.consume_queue_path.glob("*")}
        for name in (settings.consume_queue_path, settings.index_path, settings.checkpoint_path):
            if name.exists():
                name.rename(aside / name.name)
    finally:
        lock.release()
    store = MessageStore(settings, clock)
    report = store.load()
    for topic in store.topics_with_queues() if had_queues else ():
        if topic not in had_queues and not exists(topic):
            store.delete_topic(topic)
    await store.stop()
    _put_back_counts(settings.consume_queue_path, aside / settings.consume_queue_path.name, layout)
    return RepairReport(aside, len(damages), files, report)


def _put_back_counts(present: Path, former: Path, layout: StoreLayout) -> None:
    """Put back the queues of which the log has nothing, if it had nothing before either but what was deleted by age."""
    first = int(layout.log[0].name) if layout.log else 0
    files = QueueFiles(former, layout.queue_file_size)
    for topic, queue_id in files.names():
        directory = Path(topic, str(queue_id))
        if not (present / directory).exists() and not files.count((topic, queue_id), first):
            shutil.copytree(former / directory, present / directory)


def _complete_files(layout: StoreLayout) -> int:
    """Give the log's files their length, and make those that are missing; return how many."""
    short, missing = layout.short_files(), layout.missing_files()
    for path in short:
        os.truncate(path, layout.log_file_size)
    for path in missing:
        with path.open("wb") as file:
            file.write(_BLANK.pack(layout.log_file_size, BLANK_MAGIC))
            file.truncate(layout.log_file_size)
    return len(short) + len(missing)


def _fill(layout: StoreLayout, damage: Damage, aside: Path) -> None:
    path = next(path for path in layout.log if 0 <= damage.offset - int(path.name) < layout.log_file_size)
    position = damage.offset - int(path.name)
    aside.mkdir(exist_ok=True)
    with path.open("r+b") as file:
        with (aside / f"{damage.offset:020d}").open("wb") as kept:
            _copy(file, position, position + damage.length, kept)
        if damage.is_end:  # there may be a gigabyte of it: a hole takes no room
            file.truncate(position)
            file.truncate(layout.log_file_size)
            return
        file.seek(position)
        file.write(_filling(path, damage, position + damage.length == layout.log_file_size))


def _copy(file: BinaryIO, start: int, end: int, to: BinaryIO) -> None:
    """Copy bytes, as a hole where they are zeros."""
    file.seek(start)
    while start < end:
        chunk = file.read(min(_CHUNK, end - start))
        start += len(chunk)
        if chunk.strip(b"\0"):
            to.write(chunk)
        else:
            to.seek(len(chunk), os.SEEK_CUR)
    to.truncate(to.tell())


def _filling(path: Path, damage: Damage, reaches_file_end: bool) -> bytes:
    """Return what takes the place of damaged bytes; behind the head of a blank they may be anything."""
    if reaches_file_end:
        return _BLANK.pack(damage.length, BLANK_MAGIC)
    body_length = damage.length - record_size(0, len(GAP_TOPIC), 0)
    if body_length < 0:
        raise StoreCorrupt(path, damage.offset, f"{damage.length} bytes cannot be stepped over by a record")
    return encode_record(
        GAP_TOPIC,
        bytes(body_length),
        b"",
        queue_id=0,
        queue_offset=0,
        commit_log_offset=damage.offset,
        sys_flag=TRANSACTION_ROLLBACK,
        flag=0,
        born_timestamp=0,
        born_host=_NOBODY,
        store_timestamp=0,
        store_host=_NOBODY,
    )
