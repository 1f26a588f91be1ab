"""Consumer offsets after a power failure."""

import asyncio
from pathlib import Path

import pytest

from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.settings.properties_file import entries_of
from rocket_broker.store import FlushDiskType
from rocket_broker.tables.consumer_offset_table import ConsumerOffsetTable
from streamkit.testing.virtual_time import VirtualTime
from tests.store.disk import Disk, bodies, message
from tests.store.faulty_file_system import FaultyFileSystem

RETRIES = "%RETRY%kitchen"


@pytest.mark.promise
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("flush_disk_type", FlushDiskType)
def test_offsets_skip_no_retried_message(tmp_path: Path, flush_disk_type: FlushDiskType, seed: int) -> None:
    """A message is sent back without a flush and then committed: the offsets file is never ahead of the log."""

    def table() -> ConsumerOffsetTable:
        keys = {"storePathRootDir": str(tmp_path), "brokerName": "broker-a"}
        return ConsumerOffsetTable(BrokerSettings.from_entries(entries_of(keys, "test")))

    async def scene(disk: Disk) -> None:
        store = disk.open(
            flush_disk_type=flush_disk_type,
            flush_commit_log_thorough_interval=10_000_000,
            flush_commit_log_least_pages=1_000,
        )
        await store.start()
        offsets = table()
        saving = asyncio.create_task(offsets.save_periodically(store))
        for number in range(20):
            store.put(message(RETRIES, body=b"%d" % number, wait_store_ok=False))
            offsets.commit("kitchen", "orders", 0, number + 1)
            await asyncio.sleep(0.6)
        after = disk.crash(seed)
        saving.cancel()
        await asyncio.gather(saving, return_exceptions=True)
        await store.stop()
        saved = table()
        saved.load()
        passed = saved.get("kitchen", "orders", 0) or 0
        assert passed > 10
        found = after.open()
        assert bodies(found, RETRIES)[:passed] == [b"%d" % number for number in range(passed)]
        await found.stop()

    with VirtualTime() as time:
        time.run(scene(Disk(FaultyFileSystem(), Path("/store"), time.clock)))  # type: ignore[arg-type]
