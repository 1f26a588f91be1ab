"""The sync calls on the real file system, whose absence only a power failure would reveal."""

import os
import sys
from pathlib import Path

import pytest

from rocket_broker.store.files import OsFileSystem


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return what the operating system was asked to sync."""
    paths: list[Path] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        paths.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    return paths


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc to see what is synced")
def test_new_files_are_synced_with_their_directories(tmp_path: Path, synced: list[Path]) -> None:
    """A file's directory and the directory's own parent are synced once; removals too."""
    files = OsFileSystem()
    directory = tmp_path / "consumequeue" / "orders"
    files.make_directory(directory)
    paths = [directory / name for name in "ab"]
    for path in paths:
        files.create(path, 4096)
    files.sync_all(paths)
    assert sorted(synced) == [tmp_path, directory.parent, directory, *paths]
    synced.clear()
    files.sync_all(paths)
    assert synced == paths
    synced.clear()
    files.remove(paths[0])
    files.sync_all(paths[1:])
    assert sorted(synced) == [directory, paths[1]]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems make a file short and long again")
def test_cleared_range_is_zeros_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill in between leaves no short file, with which the store would not open."""
    path = tmp_path / "00000000000000000000"
    path.write_bytes(b"x" * 50_000)
    monkeypatch.delattr(os, "ftruncate")
    OsFileSystem().clear(path, 5_000)
    assert path.read_bytes() == b"x" * 5_000 + bytes(45_000)
    assert path.stat().st_blocks * 512 < 50_000


class Vanishing(type(Path())):  # type: ignore[misc]
    """A file that is removed right after its existence was checked, as by a topic deletion."""

    def stat(self, **options: bool) -> os.stat_result:
        found = super().stat(**options)
        self.unlink()
        return found  # type: ignore[no-any-return]


@pytest.mark.parametrize("number", [10, 1000])
def test_file_removed_during_a_sync_is_no_error(tmp_path: Path, number: int) -> None:
    """A sync error would close the store to messages."""
    files = OsFileSystem()
    paths = [Vanishing(tmp_path / str(name)) for name in range(number)]
    stays = tmp_path / "stays"
    for path in [*paths, stays]:
        files.create(path, 4096)
    files.sync_all([*paths[1:], stays, paths[0]])
