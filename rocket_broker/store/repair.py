"""Makes a damaged store whole again, and throws nothing away.

1.  The store is locked: nobody else has it open.
2.  Bytes of the log that hold no record are copied to ``before-repair-<time>/commitlog/<offset>``. Where a record
    follows they become one that is in no queue: a rolled back one in `GAP_TOPIC`, which our broker's recovery and
    Apache's step over. What no record follows in its file becomes the file's blank end, or at the log's end zeros.
3.  Consume queues, index and checkpoint are moved to ``before-repair-<time>``.
4.  The store is opened, which makes them anew from the log (`recovery`), and closed.

Messages in damaged bytes are lost; those before and behind keep their numbers.
"""

import struct
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rocket_broker.store.errors import StoreCorrupt
from rocket_broker.store.files import OsFileSystem
from rocket_broker.store.message_store import MessageStore
from rocket_broker.store.recovery import RecoveryReport
from rocket_broker.store.settings import StoreSettings
from rocket_broker.store.survey import Damage, StoreLayout
from rocket_remoting.clock import Clock
from rocket_remoting.record import BLANK_MAGIC, encode_record, record_size
from rocket_remoting.sys_flag import TRANSACTION_ROLLBACK

__all__ = ["GAP_TOPIC", "RepairReport", "repair"]

GAP_TOPIC = "RMQ_SYS_DAMAGED"
_BLANK = struct.Struct(">ii")
_NOBODY = ("0.0.0.0", 0)


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What was done.

    Attributes:
        kept_in: Where the bytes are that were there before.
        gaps: Damages that were filled.
        recovery: What opening the store made anew.
    """

    kept_in: Path
    gaps: int
    recovery: RecoveryReport


async def repair(
    layout: StoreLayout, settings: StoreSettings, damages: list[Damage], clock: Clock
) -> RepairReport:
    """Repair a store in which `survey` found these damages.

    Args:
        layout: The store's files.
        settings: Sizes and directories, as the broker has them.
        damages: What to fill.
        clock: Names the directory for what was there.

    Raises:
        StoreError: A broker has it open, or it cannot be opened afterwards.
        OSError: The disk refused.
    """
    lock = OsFileSystem().lock(settings.lock_path)
    try:
        moment = datetime.fromtimestamp(clock.now_ms() / 1000, tz=UTC).astimezone()
        aside = layout.root / f"before-repair-{moment:%Y%m%d%H%M%S}"
        aside.mkdir()
        for damage in damages:
            _fill(layout, damage, aside / "commitlog")
        for name in (settings.consume_queue_path, settings.index_path, settings.checkpoint_path):
            if name.exists():
                name.rename(aside / name.name)
    finally:
        lock.release()
    store = MessageStore(settings, clock)
    report = store.load()
    await store.stop()
    return RepairReport(aside, len(damages), report)


def _fill(layout: StoreLayout, damage: Damage, aside: Path) -> None:
    path = next(path for path in layout.log if 0 <= damage.offset - int(path.name) < layout.log_file_size)
    position = damage.offset - int(path.name)
    aside.mkdir(exist_ok=True)
    with path.open("r+b") as file:
        file.seek(position)
        old = file.read(damage.length)
        (aside / f"{damage.offset:020d}").write_bytes(old)
        file.seek(position)
        file.write(_filling(path, damage, position + damage.length == layout.log_file_size))


def _filling(path: Path, damage: Damage, reaches_file_end: bool) -> bytes:
    if damage.is_end:
        return bytes(damage.length)
    if reaches_file_end:
        return _BLANK.pack(damage.length, BLANK_MAGIC) + bytes(damage.length - _BLANK.size)
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
