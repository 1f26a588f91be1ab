"""Disks, real or faulty, and small stores on them."""

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

from msgspec.structs import replace

from rocket_broker.store import GetStatus, MessageStore, StoreMessage, StoreSettings
from rocket_broker.store.files import FileSystem, OsFileSystem
from rocket_remoting.wire.properties import encode_properties
from rocket_remoting.wire.record import decode_record
from tests.store.faulty_file_system import FaultyFileSystem

LOG_FILE_SIZE = 16 * 1024
FOREVER = 2**62
ENTRIES_PER_FILE = 50
SMALL = {
    "mapped_file_size_commit_log": LOG_FILE_SIZE,
    "mapped_file_size_consume_queue": ENTRIES_PER_FILE * 20,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
    "delete_commit_log_files_interval": 0,
}


class FakeClock:
    """A clock set by hand."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self.now = now

    def now_ms(self) -> int:
        return self.now


class Disk:
    """A directory for one store.

    Attributes:
        file_system: The operating system's, or one in memory.
        root: The store's directory.
        clock: The clock of stores opened here.
    """

    def __init__(self, file_system: FileSystem, root: Path, clock: FakeClock) -> None:
        self.file_system = file_system
        self.root = root
        self.clock = clock
        self._open: list[MessageStore] = []
        self._crashes = 0

    def settings(self, **settings: Any) -> StoreSettings:
        """Return settings with small files."""
        return StoreSettings(self.root, **{**SMALL, **settings})

    def store(self, **settings: Any) -> MessageStore:
        """Return a store that has not been loaded."""
        store = MessageStore(self.settings(**settings), self.clock, self.file_system)
        self._open.append(store)
        return store

    def open(self, **settings: Any) -> MessageStore:
        """Return a store that has been loaded."""
        store = self.store(**settings)
        store.load()
        return store

    def crash(self, seed: int = 0) -> "Disk":
        """Return the disk after the process died or, with the faulty file system, the machine."""
        self._crashes += 1
        if isinstance(self.file_system, FaultyFileSystem):
            return Disk(self.file_system.crash(Random(seed)), self.root, self.clock)
        copy = self.root.with_name(f"{self.root.name}-{self._crashes}")
        shutil.copytree(self.root, copy)
        return Disk(OsFileSystem(), copy, self.clock)

    def kill(self) -> "Disk":
        """Return the disk after the process died but not the machine: everything written is there."""
        self._sync(self.root)
        return self.crash()

    def _sync(self, path: Path) -> None:
        for name in self.file_system.names(path):
            self._sync(path / name)
        self.file_system.sync(path)

    def copy_to(self, target: Path) -> None:
        """Copy what a process would see here to a directory of the operating system."""
        self._copy(self.root, target)

    def _copy(self, path: Path, target: Path) -> None:
        if self.file_system.is_directory(path) if isinstance(self.file_system, FaultyFileSystem) else path.is_dir():
            target.mkdir(parents=True)
            for name in self.file_system.names(path):
                self._copy(path / name, target / name)
        else:
            target.write_bytes(self.file_system.read(path, 0, self.file_system.size(path) or 0))

    def bytes_of(self, path: Path) -> bytes:
        """Return what is in a file."""
        return bytes(self.file_system.map(path))

    def close(self, run: Callable[[Coroutine[None, None, None]], None] = asyncio.run) -> None:
        """Close open stores; ``run`` is that of the loop in which they were started."""
        for store in self._open:
            run(store.stop())


def stop(store: MessageStore) -> None:
    """Stop a store in order."""
    asyncio.run(store.stop())


async def expire(store: MessageStore) -> int:
    """Delete up to ten files of the commit log, but not the last, as if they had expired; return their number."""
    usual = store.settings
    store.keep_files_as(replace(usual, file_reserved_time=-FOREVER))
    try:
        return await store.delete_expired()
    finally:
        store.keep_files_as(usual)


def delete_old(store: MessageStore) -> int:
    """The same without a loop."""
    return asyncio.run(expire(store))


def message(topic: str = "orders", queue_id: int = 0, body: bytes = b"body", **fields: Any) -> StoreMessage:
    """Return a message; `properties` may be a dictionary."""
    properties = fields.pop("properties", {})
    encoded = properties if isinstance(properties, bytes) else encode_properties(properties)
    return StoreMessage(topic, queue_id, body, encoded, **fields)


def overwrite(disk: Disk, path: Path, position: int, data: bytes) -> None:
    """Change bytes of a file on the disk."""
    disk.file_system.allocate(path, position, len(data))
    disk.file_system.map(path)[position : position + len(data)] = data
    disk.file_system.sync(path)


def erase(disk: Disk, path: Path) -> None:
    """Delete a file or a directory with all in it."""
    for name in disk.file_system.names(path):
        erase(disk, path / name)
    disk.file_system.remove(path)
    disk.file_system.sync(disk.root / "lock")


def log_file(disk: Disk, number: int = 0) -> Path:
    """Return a file of the commit log."""
    return disk.root / "commitlog" / f"{number * LOG_FILE_SIZE:020d}"


def queue_file(disk: Disk, topic: str = "orders", queue_id: int = 0) -> Path:
    """Return the first file of a queue."""
    return disk.root / "consumequeue" / topic / str(queue_id) / f"{0:020d}"


def bodies(store: MessageStore, topic: str = "orders", queue_id: int = 0) -> list[bytes]:
    """Return the bodies of all messages of a queue."""
    offset = store.min_offset(topic, queue_id)
    found: list[bytes] = []
    while (result := store.get(topic, queue_id, offset, 1000, 2**30)).status is GetStatus.FOUND:
        found += [decode_record(record).body for record in result.records]
        offset = result.next_begin_offset
    return found


def put(store: MessageStore, *numbers: int, **fields: object) -> list[bytes]:
    """Store messages with numbers as bodies and keys; return the bodies."""
    given = [b"%d" % number for number in numbers]
    for body in given:
        key = f"k{body.decode()}"
        store.put(message(body=body, keys=key, properties={"KEYS": key}, **fields))
    return given


def without_mark(disk: Disk) -> None:
    """Make the checkpoint look like one of Apache's broker, without our mark."""
    overwrite(disk, disk.root / "checkpoint", 64, bytes(24))
