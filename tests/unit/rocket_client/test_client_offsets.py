"""Offsets of a broadcasting member: a file of its own."""

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


def test_what_was_written_is_found_again(tmp_path: Path) -> None:
    """By the next start, in folders that are made."""
    path = tmp_path / "10.0.0.1@DEFAULT" / "group" / "offsets.json"
    written(path, first=5, second=7)
    assert (fetched(path, FIRST), fetched(path, SECOND)) == (5, 7)
    assert LocalOffsets(path).snapshot() == {FIRST: 5, SECOND: 7}


def test_the_file_is_what_apaches_client_writes_and_reads(tmp_path: Path) -> None:
    """Keys are objects, whatever their order of fields."""
    path = tmp_path / "offsets.json"
    path.write_text(
        '{\n\t"offsetTable":{{\n\t\t"brokerName":"broker-a",\n\t\t"queueId":1,\n\t\t"topic":"orders"\n\t}:42\n\t}\n}'
    )
    assert fetched(path, SECOND) == 42
    written(path, first=1)
    assert path.read_text().startswith('{"offsetTable":{{"')


def test_a_damaged_file_falls_back_to_the_former_one(tmp_path: Path) -> None:
    """A crash while writing costs one interval at most; a whole file is the one that counts."""
    path = tmp_path / "offsets.json"
    written(path, first=5)
    written(path, first=6)
    assert fetched(path, FIRST) == 6
    path.write_text('{"offsetTable":{{"brok')
    assert fetched(path, FIRST) == 5


def test_nothing_moved_is_nothing_written(tmp_path: Path) -> None:
    """An idle consumer leaves the disk alone."""
    path = tmp_path / "offsets.json"
    store = written(path, first=5)
    path.unlink()
    asyncio.run(store.persist([FIRST]))
    assert not path.exists()


def test_a_disk_that_refuses_is_told_once_and_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It neither ends a rebalance half-way nor keeps a consumer from shutting down."""
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


def test_increase_only_never_goes_back(tmp_path: Path) -> None:
    """Calls end in any order; only a reset may go back."""
    store = LocalOffsets(tmp_path / "offsets.json")
    store.update(FIRST, 9, increase_only=True)
    store.update(FIRST, 4, increase_only=True)
    assert store.get(FIRST) == 9
    store.update(FIRST, 4)
    assert store.get(FIRST) == 4


def test_a_queue_that_is_away_is_remembered(tmp_path: Path) -> None:
    """A broker that comes back is read from where this member was."""
    store = written(tmp_path / "offsets.json", first=5)
    store.remove(FIRST)
    assert store.get(FIRST) == 5
    assert "1 queues" in repr(store)
