"""The locks on queues outlast an orderly stop of the broker."""

import logging
from pathlib import Path

import pytest

from rocket_broker.clients.lock_file import LONGEST_NAME, LockFile
from rocket_broker.clients.queue_locks import LOCK_SECONDS, QueueLocks
from rocket_remoting.clock import Clock
from rocket_remoting.wire.message import MessageQueue

QUEUE = MessageQueue("orders", "broker-a", 0)


class Time(Clock):
    """The wall clock, set by hand; the loop's stands still."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.now


def table() -> QueueLocks:
    return QueueLocks(time=lambda: 5.0)


def owner_after(path: Path, time: Time, seconds: float) -> str | None:
    """Who has the queue for a broker that starts so much later."""
    time.now += int(seconds * 1000)
    locks = table()
    LockFile(path, locks, time).load()
    return locks.owner("g", QUEUE)


@pytest.mark.parametrize(
    ("seconds", "owner"),
    [(0, "a"), (LOCK_SECONDS - 1, "a"), (LOCK_SECONDS, None), (-3600, "a")],
)
def test_a_lock_lasts_as_long_as_without_the_restart(tmp_path: Path, seconds: float, owner: str | None) -> None:
    """Also where the clock was set back meanwhile, but never longer than from a renewal."""
    time, locks = Time(), table()
    locks.lock("g", [QUEUE], "a")
    LockFile(tmp_path / "config" / "locks.json", locks, time).save()
    assert owner_after(tmp_path / "config" / "locks.json", time, seconds) == owner


def test_a_file_is_read_once(tmp_path: Path) -> None:
    """Of a broker that is killed later nothing is known."""
    time, locks = Time(), table()
    locks.lock("g", [QUEUE], "a")
    LockFile(tmp_path / "locks.json", locks, time).save()
    assert owner_after(tmp_path / "locks.json", time, 0) == "a"
    assert owner_after(tmp_path / "locks.json", time, 0) is None
    assert list(tmp_path.iterdir()) == []


def test_who_has_the_queue_already_keeps_it(tmp_path: Path) -> None:
    """And a lock that was taken over is counted, and given up, like any other."""
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
def test_names_that_nobody_has_are_not_kept(tmp_path: Path, name: str) -> None:
    """One client's nonsense costs neither the disk nor the others' locks."""
    time, locks = Time(), table()
    locks.lock(name, [QUEUE], "a")
    locks.lock("h", [QUEUE], name)
    locks.lock("g", [QUEUE], "a")
    LockFile(tmp_path / "locks.json", locks, time).save()
    assert owner_after(tmp_path / "locks.json", time, 0) == "a"


@pytest.mark.parametrize("damage", [b"", b"{", b'{"locks":[{"group":"g"}]}'])
def test_a_damaged_file_does_not_keep_the_broker_from_starting(
    tmp_path: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """It says so and goes on without locks."""
    (tmp_path / "locks.json").write_bytes(damage)
    with caplog.at_level(logging.WARNING):
        assert owner_after(tmp_path / "locks.json", Time(), 0) is None
    assert "could not read the queue locks" in caplog.text
