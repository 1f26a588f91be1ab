"""The offset file of a broadcasting consumer."""

import asyncio
from pathlib import Path

import pytest

from rocket_client.consuming.offsets import LocalOffsets
from rocket_remoting.wire.message import MessageQueue

FIRST, SECOND = (MessageQueue("orders", "broker-a", number) for number in range(2))


def written(path: Path, **offsets: int) -> LocalOffsets:
    store = LocalOffsets(path)
    for name, offset in offsets.items():
        store.update(FIRST if name == "first" else SECOND, offset)
    asyncio.run(store.persist([]))
    return store


def fetched(path: Path, queue: MessageQueue) -> int | None:
    return asyncio.run(LocalOffsets(path).fetch(queue))


def test_written_offsets_are_read_at_the_next_start(tmp_path: Path) -> None:
    """Missing directories are created."""
    path = tmp_path / "10.0.0.1@DEFAULT" / "group" / "offsets.json"
    written(path, first=5, second=7)
    assert (fetched(path, FIRST), fetched(path, SECOND)) == (5, 7)
    assert LocalOffsets(path).snapshot() == {FIRST: 5, SECOND: 7}


def test_offset_file_has_apaches_format(tmp_path: Path) -> None:
    """Keys are objects, with their fields in any order."""
    path = tmp_path / "offsets.json"
    path.write_text(
        '{\n\t"offsetTable":{{\n\t\t"brokerName":"broker-a",\n\t\t"queueId":1,\n\t\t"topic":"orders"\n\t}:42\n\t}\n}'
    )
    assert fetched(path, SECOND) == 42
    written(path, first=1)
    assert path.read_text().startswith('{"offsetTable":{{"')


def test_damaged_file_falls_back_to_its_backup(tmp_path: Path) -> None:
    """A crash during a write costs at most one interval; an intact file takes precedence."""
    path = tmp_path / "offsets.json"
    written(path, first=5)
    written(path, first=6)
    assert fetched(path, FIRST) == 6
    path.write_text('{"offsetTable":{{"brok')
    assert fetched(path, FIRST) == 5


def test_unchanged_offsets_are_not_written(tmp_path: Path) -> None:
    """An idle consumer does not touch the disk."""
    path = tmp_path / "offsets.json"
    store = written(path, first=5)
    path.unlink()
    asyncio.run(store.persist([FIRST]))
    assert not path.exists()


def test_write_error_is_logged_once_and_retried(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It neither interrupts a rebalance nor prevents a shutdown."""
    folder = tmp_path / "group"
    folder.write_text("in the way")
    store = LocalOffsets(folder / "offsets.json")
    store.update(FIRST, 5)
    asyncio.run(store.persist([FIRST]))
    asyncio.run(store.persist([FIRST]))
    (warning,) = caplog.records
    assert str(folder / "offsets.json") in warning.getMessage()
    folder.unlink()
    asyncio.run(store.persist([FIRST]))
    assert fetched(folder / "offsets.json", FIRST) == 5


def test_increase_only_update_never_lowers_the_offset(tmp_path: Path) -> None:
    """Calls end in any order; only a reset lowers it."""
    store = LocalOffsets(tmp_path / "offsets.json")
    store.update(FIRST, 9, increase_only=True)
    store.update(FIRST, 4, increase_only=True)
    assert store.get(FIRST) == 9
    store.update(FIRST, 4)
    assert store.get(FIRST) == 4


def test_offset_of_an_unavailable_queue_is_kept(tmp_path: Path) -> None:
    """When its broker returns, reading continues at this offset."""
    store = written(tmp_path / "offsets.json", first=5)
    store.remove(FIRST)
    assert store.get(FIRST) == 5
    assert "1 queues" in repr(store)
