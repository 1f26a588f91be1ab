"""Each test that asks for `disk` runs on the real and on the faulty in-memory file system.

Exceptions: a real disk cannot be made to fail or to be torn as `test_store_flush`, `test_store_cleaning` and
`test_store_crash_points` need it; processes, locks of processes, limits of the operating system and really full disks
(`test_store_kill`, `test_table_kill`, `test_store_maps`, `test_store_full_disk`) are not to be had in memory.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocket_broker.store.files import OsFileSystem
from tests.store.disk import Disk, FakeClock
from tests.store.faulty_file_system import FaultyFileSystem


@pytest.fixture
def clock() -> FakeClock:
    """A clock that stands still."""
    return FakeClock()


@pytest.fixture(params=["real", "faulty"])
def disk(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Iterator[Disk]:
    """A disk for one store."""
    file_system = OsFileSystem() if request.param == "real" else FaultyFileSystem()
    disk = Disk(file_system, tmp_path / "store", clock)
    yield disk
    disk.close()


@pytest.fixture
def faulty_disk(clock: FakeClock) -> Iterator[Disk]:
    """A disk whose file system is the faulty one."""
    disk = Disk(FaultyFileSystem(), Path("/store"), clock)
    yield disk
    disk.close()
