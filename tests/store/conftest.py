"""Tests that use `disk` run on the real and on the faulty in-memory file system."""

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
