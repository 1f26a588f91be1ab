"""Queue locks survive an orderly restart of the broker."""

import logging
from pathlib import Path

import pytest

from rocket_broker.clients.lock_file import LONGEST_NAME, LockFile
from rocket_broker.clients.queue_locks import LOCK_SECONDS, QueueLocks
from rocket_remoting.clock import Clock
from rocket_remoting.wire.message import MessageQueue

QUEUE = MessageQueue("orders", "broker-a", 0)


class Time(Clock):
    """A wall clock set by hand beside a loop time that stands still."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.now


def table() -> QueueLocks:
    return QueueLocks(time=lambda: 5.0)


def owner_after(path: Path, time: Time, seconds: float) -> str | None:
    """Return the owner of the queue in a broker that starts after the given time."""
    time.now += int(seconds * 1000)
    locks = table()
    LockFile(path, locks, time).load()
    return locks.owner("g", QUEUE)


@pytest.mark.parametrize(
    ("seconds", "owner"),
    [(0, "a"), (LOCK_SECONDS - 1, "a"), (LOCK_SECONDS, None), (-3600, "a")],
)
def test_restored_lock_keeps_its_expiry(tmp_path: Path, seconds: float, owner: str | None) -> None:
    """If the clock was set back, the lock lasts no longer than one full period."""
    time, locks = Time(), table()
    locks.lock("g", [QUEUE], "a")
    LockFile(tmp_path / "config" / "locks.json", locks, time).save()
    assert owner_after(tmp_path / "config" / "locks.json", time, seconds) == owner


def test_lock_file_is_removed_after_reading(tmp_path: Path) -> None:
    """A broker that is killed later restores no outdated locks."""
    time, locks = Time(), table()
    locks.lock("g", [QUEUE], "a")
    LockFile(tmp_path / "locks.json", locks, time).save()
    assert owner_after(tmp_path / "locks.json", time, 0) == "a"
    assert owner_after(tmp_path / "locks.json", time, 0) is None
    assert list(tmp_path.iterdir()) == []


def test_restored_lock_does_not_replace_a_present_owner(tmp_path: Path) -> None:
    """A restored lock counts towards limits and can be released like any other."""
    time, locks, later = Time(), table(), table()
    locks.lock("g", [QUEUE], "a")
    locks.lock("h", [QUEUE], "a")
    LockFile(tmp_path / "locks.json", locks, time).save()
    later.lock("g", [QUEUE], "b")
    LockFile(tmp_path / "locks.json", later, time).load()
    assert (later.owner("g", QUEUE), later.owner("h", QUEUE), len(later)) == ("b", "a", 2)
    later.unlock("h", [QUEUE], "a")
    assert len(later) == 1


@pytest.mark.parametrize("name", ["x" * (LONGEST_NAME + 1), "\ud800", ""])
def test_invalid_entries_of_the_lock_file_are_skipped(tmp_path: Path, name: str) -> None:
    """They cost neither the disk nor the locks of others."""
    time, locks = Time(), table()
    locks.lock(name, [QUEUE], "a")
    locks.lock("h", [QUEUE], name)
    locks.lock("g", [QUEUE], "a")
    LockFile(tmp_path / "locks.json", locks, time).save()
    assert owner_after(tmp_path / "locks.json", time, 0) == "a"


@pytest.mark.parametrize("damage", [b"", b"{", b'{"locks":[{"group":"g"}]}'])
def test_damaged_lock_file_does_not_prevent_the_start(
    tmp_path: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker logs a warning and starts without locks."""
    (tmp_path / "locks.json").write_bytes(damage)
    with caplog.at_level(logging.WARNING):
        assert owner_after(tmp_path / "locks.json", Time(), 0) is None
    assert "could not read the queue locks" in caplog.text
