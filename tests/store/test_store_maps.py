"""Many queues with few maps, and the lock on the directory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rocket_broker.store import GetStatus, MessageStore, PutStatus, StoreSettings
from rocket_broker.store.errors import StoreError
from rocket_broker.store.files import OsFileSystem
from rocket_broker.store.mapped_file import MappedFile, OpenMaps
from rocket_remoting.clock import SystemClock
from rocket_remoting.wire.record import decode_record
from tests.store.disk import SMALL, Disk, FakeClock, bodies, message, stop


def test_number_of_maps_is_limited(disk: Disk) -> None:
    """The least recently used is unmapped."""
    maps = OpenMaps(disk.file_system, limit=5)
    files = [MappedFile(disk.root / f"{number}", 0, 4096, maps) for number in range(20)]
    for file in files:
        maps.create(file.path, file.size)
        file.open()
        assert len(maps) == sum(each.view is not None for each in files) <= 5
    assert file.view is not None


def test_unmapped_queues_can_be_read(disk: Disk) -> None:
    """Whatever their number."""
    store = disk.open(max_open_maps=5)
    for number in range(200):
        store.put(message(queue_id=number % 50, body=b"%d" % number))
    for queue_id in range(50):
        assert bodies(store, "orders", queue_id) == [b"%d" % number for number in range(queue_id, 200, 50)]


def test_stopped_store_keeps_no_file_open(tmp_path: Path) -> None:
    """Without waiting for the garbage collector."""

    def open_files() -> list[str]:
        files = [os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()]
        return [file for file in files if file.startswith(str(tmp_path))]

    disk = Disk(OsFileSystem(), tmp_path, FakeClock())
    store = disk.open()
    for queue_id in range(50):
        store.put(message(queue_id=queue_id))
    assert len(open_files()) > 50
    stop(store)
    assert open_files() == []
    with pytest.raises(StoreError):
        disk.open(mapped_file_size_consume_queue=2000)
    assert open_files() == []


def test_record_outlives_its_map(disk: Disk) -> None:
    """A view of an unmapped file stays readable."""
    store = disk.open(max_open_maps=2)
    store.put(message(body=b"first"))
    record = store.get("orders", 0, 0, 1, 999).records[0]
    for queue_id in range(20):
        store.put(message(queue_id=queue_id))
    assert decode_record(record).body == b"first"


def test_missing_file_descriptors_cause_unmapping(tmp_path: Path) -> None:
    """Before another file is mapped."""

    class Scarce(OsFileSystem):
        left = 10

        def map(self, path: Path, ordered_to: int = 0) -> memoryview:
            if not self.left:
                self.left = 10
                raise OSError(24, "too many open files")
            self.left -= 1
            return super().map(path, ordered_to)

    store = MessageStore(StoreSettings(tmp_path, **SMALL), SystemClock(), Scarce())  # type: ignore[arg-type]
    store.load()
    for queue_id in range(100):
        assert store.put(message(queue_id=queue_id)).status is PutStatus.OK
    stop(store)


def test_empty_store_is_sparse(tmp_path: Path) -> None:
    """A new store with the default sizes of a gigabyte takes some hundred kilobytes."""
    store = MessageStore(StoreSettings(tmp_path), SystemClock())
    store.load()
    store.put(message(keys="k"))
    blocks = sum(path.stat().st_blocks for path in tmp_path.rglob("*") if path.is_file())
    assert blocks * 512 < 512 * 1024
    stop(store)


@pytest.mark.slow
def test_thousands_of_queues_can_be_written_and_read(tmp_path: Path) -> None:
    """With a process's usual number of file descriptors, also after a restart."""
    store = MessageStore(StoreSettings(tmp_path, mapped_file_size_commit_log=2**26, max_open_maps=500), SystemClock())
    store.load()
    for number in range(3_000):
        assert store.put(message(f"topic{number // 4}", number % 4)).status is PutStatus.OK
    for number in range(0, 3_000, 7):
        assert store.get(f"topic{number // 4}", number % 4, 0, 32, 9999).status is GetStatus.FOUND
    stop(store)
    store = MessageStore(StoreSettings(tmp_path, mapped_file_size_commit_log=2**26), SystemClock())
    assert store.load().queues == 3_000
    assert store.put(message("topic749", 3)).queue_offset == 1
    stop(store)


LOCKS = """
import sys
from pathlib import Path
from rocket_broker.store import MessageStore, StoreLocked, StoreSettings
from rocket_remoting.clock import SystemClock
try:
    MessageStore(StoreSettings(Path(sys.argv[1])), SystemClock()).load()
except StoreLocked as e:
    print(e)
"""


def test_store_locked_by_another_process_is_refused(tmp_path: Path) -> None:
    """The error names the file and what to do."""
    store = MessageStore(StoreSettings(tmp_path), SystemClock())
    store.load()
    other = subprocess.run(
        [sys.executable, "-c", LOCKS, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert other.stdout == (
        f"{tmp_path / 'lock'} is locked: another broker has this store open. "
        "Stop it, or give this one a directory of its own (storePathRootDir or --store)\n"
    )
    stop(store)
