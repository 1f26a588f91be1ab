"""A file system that becomes read-only under an open store, as Linux does after a disk error."""

import asyncio
from collections.abc import Callable

import pytest

from rocket_broker.store import FlushDiskType, MessageStore, PutStatus
from tests.store.disk import Disk, bodies, message, stop
from tests.store.faulty_file_system import FaultyFileSystem

NUMBERS = [b"%d" % number + bytes(1000) for number in range(60)]


def filled(disk: Disk) -> MessageStore:
    """Return a reopened store with messages in several files that nobody has read since."""
    store = disk.open()
    for body in NUMBERS:
        store.put(message(body=body, keys="k", properties={"KEYS": "k"}))
    stop(store)
    return disk.open()


def read_only(disk: Disk) -> None:
    assert isinstance(disk.file_system, FaultyFileSystem)
    disk.file_system.is_read_only = True


@pytest.mark.parametrize(
    "read",
    [
        lambda store: bodies(store) == NUMBERS,
        lambda store: len(store.query("orders", "k", 64, 0, 2**62)) == 60,
        lambda store: store.message_in_queue("orders", 0, 0) is not None,
        lambda store: store.offset_by_time("orders", 0, 0) == 0,
    ],
)
def test_read_only_store_can_be_read(faulty_disk: Disk, read: Callable[[MessageStore], bool]) -> None:
    """Also files that were not mapped for writing before."""
    store = filled(faulty_disk)
    read_only(faulty_disk)
    assert read(store)


def test_messages_are_refused_after_the_first_failed_flush(faulty_disk: Disk) -> None:
    """Each message is in log and queue or in neither."""

    store = filled(faulty_disk)

    async def main() -> None:
        await store.start()
        read_only(faulty_disk)
        statuses = [store.put(message(body=body)).status for body in NUMBERS]
        taken = statuses.count(PutStatus.OK)
        assert PutStatus.CREATE_MAPPED_FILE_FAILED in statuses
        assert len(bodies(store)) == len(NUMBERS) + taken
        with pytest.raises(OSError, match="read-only"):
            store.flush()
        assert store.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE
        assert len(bodies(store)) == len(NUMBERS) + taken
        await store.stop()

    asyncio.run(main())


def test_read_only_store_acknowledges_no_sync_flush(faulty_disk: Disk) -> None:
    """Senders get the flush error under SYNC_FLUSH."""

    async def main() -> None:
        store = faulty_disk.open(flush_disk_type=FlushDiskType.SYNC_FLUSH)
        await store.start()
        assert await store.await_flush(store.put(message())) is PutStatus.OK
        read_only(faulty_disk)
        assert await store.await_flush(store.put(message())) is PutStatus.FLUSH_DISK_TIMEOUT
        assert store.put(message()).status is PutStatus.SERVICE_NOT_AVAILABLE
        await store.stop()

    asyncio.run(main())


def test_next_start_on_a_working_disk_has_all_flushed_messages(faulty_disk: Disk) -> None:
    """The stop of a read-only store is not orderly."""
    store = filled(faulty_disk)
    read_only(faulty_disk)
    store.put(message())
    stop(store)
    store = faulty_disk.crash().open()
    assert bodies(store)[: len(NUMBERS)] == NUMBERS
    stop(store)
