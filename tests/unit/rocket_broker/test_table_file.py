"""A table's file is replaced as a whole and has a backup."""

import asyncio
import logging
import os
import stat
from pathlib import Path

import pytest

from rocket_broker.errors import DamagedTable
from rocket_broker.files.table_file import TableFile


def number(content: bytes) -> int:
    return int(content)


def test_written_table_can_be_read(tmp_path: Path) -> None:
    """The first write creates the directory."""
    file = TableFile(tmp_path / "config" / "table.json", durable=True)
    assert file.load(number) is None
    file.write(b"1")
    assert file.load(number) == 1


def test_backup_has_the_previous_content(tmp_path: Path) -> None:
    """Each write keeps one older state."""
    file = TableFile(tmp_path / "table.json")
    for content in (b"1", b"2", b"3"):
        file.write(content)
    assert (file.path.read_bytes(), file.backup.read_bytes()) == (b"3", b"2")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["table.json", "table.json.bak"]


@pytest.mark.parametrize("damage", [b"x", b"", b"  \n"])
def test_damaged_file_is_restored_from_its_backup(
    tmp_path: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker starts with the last good state and logs a warning."""
    file = TableFile(tmp_path / "table.json")
    file.write(b"1")
    file.write(b"2")
    file.path.write_bytes(damage)
    with caplog.at_level(logging.WARNING):
        assert file.load(number) == 1
    assert "table.json.bak: read instead of table.json" in caplog.text


def test_write_during_a_threaded_write_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not the thread has begun; the temporary file is synced before it is renamed."""
    file = TableFile(tmp_path / "table.json")
    seen: list[bytes] = []
    sync = os.fsync

    def fsync(descriptor: int) -> None:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            seen.append(file.path.read_bytes() if file.path.exists() else b"")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)

    async def main() -> None:
        early, late = (asyncio.create_task(file.write_and_sync([content])) for content in (b"1", b"2"))
        await asyncio.sleep(0)
        file.write(b"3")
        await asyncio.gather(early, late)
        assert file.path.read_bytes() == b"3"
        await file.write_and_sync([b"4"])
        assert file.path.read_bytes() == b"4"

    asyncio.run(main())
    assert seen[-1] == b"3"


def test_power_failure_leaves_the_file_or_its_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a file system that persists names before contents, and for writes in quick succession."""
    table, synced, sync = TableFile(tmp_path / "table.json"), set[bytes](), os.fsync

    def fsync(descriptor: int) -> None:
        sync(descriptor)
        synced.update(
            path.read_bytes() for path in tmp_path.iterdir() if os.path.samestat(path.stat(), os.fstat(descriptor))
        )

    monkeypatch.setattr(os, "fsync", fsync)
    for content in (b"1", b"2", b"3", b"4"):
        table.write(content)
        left = [path.read_bytes() for path in (table.path, table.backup) if path.exists()]
        assert synced.intersection(left)


@pytest.mark.parametrize("durable", [True, False])
def test_durable_write_is_synced_under_its_name(durable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory is synced after the rename, and so is each directory that was created."""
    table, sync = TableFile(tmp_path / "config" / "table.json", durable=durable), os.fsync
    named: dict[Path, bytes | None] = {}

    def fsync(descriptor: int) -> None:
        sync(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_dir():
            named[path] = table.path.read_bytes() if table.path.exists() else None

    monkeypatch.setattr(os, "fsync", fsync)
    for content in (b"1", b"2"):
        if durable:
            table.write(content)
        else:
            asyncio.run(table.write_and_sync([content]))
        assert named[table.path.parent] == content
        assert tmp_path in named


def test_damaged_file_does_not_replace_the_backup(tmp_path: Path) -> None:
    """The good backup stays until a new file exists, also through a write that fails."""
    file = TableFile(tmp_path / "table.json")
    file.write(b"1")
    file.write(b"2")
    file.path.write_bytes(b"x")
    again = TableFile(file.path)
    assert again.load(number) == 1
    again.write(b"3")
    assert (file.path.read_bytes(), file.backup.read_bytes()) == (b"3", b"1")
    again.write(b"4")
    assert (file.path.read_bytes(), file.backup.read_bytes()) == (b"4", b"3")


def test_damaged_file_and_backup_fail_the_start(tmp_path: Path) -> None:
    """An empty table would lose what the store still has."""
    file = TableFile(tmp_path / "table.json")
    file.path.write_bytes(b"x")
    with pytest.raises(DamagedTable, match="move both away to start with an empty table"):
        file.load(number)


def test_incomplete_write_is_not_read(tmp_path: Path) -> None:
    """A temporary file left by a kill is ignored."""
    file = TableFile(tmp_path / "table.json")
    file.write(b"1")
    (tmp_path / "table.json.tmp").write_bytes(b"garb")
    assert file.load(number) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device without room on this platform")
def test_full_disk_leaves_the_file_unchanged(tmp_path: Path) -> None:
    """The error names the file."""
    file = TableFile(tmp_path / "table.json")
    file.write(b"1")
    (tmp_path / "table.json.tmp").symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"No space left on device: '.*table\.json\.tmp'"):
        file.write(b"2")
    assert file.load(number) == 1
