"""Queue locks for orderly consumption."""

import pytest

from rocket_broker.clients import queue_locks
from rocket_broker.clients.queue_locks import LOCK_SECONDS, HeldLock, QueueLocks
from rocket_remoting.steps import run_all
from rocket_remoting.wire.message import MessageQueue

Q0, Q1, Q2 = (MessageQueue("orders", "broker-a", number) for number in (0, 1, 2))


class Time:
    """A clock set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_queue_lock_belongs_to_the_first_client() -> None:
    """Other clients of the group get only free queues; each group has its own locks."""
    locks = QueueLocks(time=Time())
    assert locks.lock("g", [Q0], "a").held == {Q0}
    assert locks.lock("g", [Q0, Q1], "b").held == {Q1}
    assert locks.lock("h", [Q0], "b").held == {Q0}


def test_lock_expires_sixty_seconds_after_its_last_renewal() -> None:
    """Afterwards any client may take it."""
    time = Time()
    locks = QueueLocks(time=time)
    locks.lock("g", [Q0], "a")
    time.now = LOCK_SECONDS - 1
    locks.lock("g", [Q0], "a")
    time.now = 2 * LOCK_SECONDS - 2
    assert locks.lock("g", [Q0], "b").held == set()
    time.now = 2 * LOCK_SECONDS - 1
    assert locks.owner("g", Q0) is None
    assert locks.lock("g", [Q0], "b").held == {Q0}


def test_only_the_owner_can_unlock() -> None:
    """An unlock request of another client has no effect."""
    locks = QueueLocks(time=Time())
    locks.lock("g", [Q0], "a")
    locks.unlock("g", [Q0, Q1], "b")
    assert locks.owner("g", Q0) == "a"
    locks.unlock("g", [Q0], "a")
    assert locks.owner("g", Q0) is None
    assert len(locks) == 0


def test_expired_locks_are_removed() -> None:
    """The table shrinks again."""
    time = Time()
    locks = QueueLocks(time=time)
    locks.lock("g", [MessageQueue("t", "b", number) for number in range(100)], "a")
    time.now = LOCK_SECONDS / 2
    locks.lock("g", [Q0], "a")
    time.now = LOCK_SECONDS
    run_all(locks.remove_expired())
    assert len(locks) == 1


def test_locks_per_group_and_address_are_limited_to_a_quarter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Existing locks can be renewed, and other groups and addresses still get locks."""
    monkeypatch.setattr(queue_locks, "MAX_LOCKS", 16)
    queues = [MessageQueue("t", "b", number) for number in range(6)]
    locks = QueueLocks(time=Time())
    of_group = locks.lock("g", queues, "a")
    assert of_group.held == set(queues[:4])
    assert of_group.refusal is not None
    assert of_group.refusal.remark == "group g has 4 queue locks, one group has at most 4"
    assert locks.lock("g", queues[:4], "a") == (set(queues[:4]), None)
    of_address = [locks.lock(group, queues[:3], "a", "10.0.0.2") for group in ("h", "i")]
    assert [len(answer.held) for answer in of_address] == [3, 1]
    assert of_address[1].refusal is not None
    assert "address 10.0.0.2 has 4 queue locks" in of_address[1].refusal.remark
    assert len(locks.lock("i", queues[1:3], "b", "10.0.0.3").held) == 2


def test_lock_counts_for_the_address_of_its_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that passed to another client counts there; an ended one counts nowhere."""
    monkeypatch.setattr(queue_locks, "MAX_LOCKS", 4)
    time = Time()
    locks = QueueLocks(time=time)
    locks.lock("g", [Q0], "a", "10.0.0.2")
    time.now = LOCK_SECONDS
    assert locks.lock("g", [Q0], "b", "10.0.0.3").held == {Q0}
    assert locks.lock("h", [Q0], "a", "10.0.0.2").held == {Q0}
    assert locks.lock("i", [Q0], "b", "10.0.0.3").held == set()
    locks.unlock("g", [Q0], "b")
    assert locks.lock("i", [Q0], "b", "10.0.0.3").held == {Q0}
    time.now *= 2
    run_all(locks.remove_expired())
    assert locks.lock("i", [Q1], "b", "10.0.0.3").held == {Q1}


@pytest.mark.parametrize("others", [[], [Q2]])
def test_a_lock_that_is_taken_while_expired_ones_are_removed_stays(others: list[MessageQueue]) -> None:
    """Requests run between the steps: they may release the expired lock, the group's last one, and take a new one."""
    time = Time()
    locks = QueueLocks(time=time)
    locks.lock("g", [Q0, Q1, *others], "a")
    time.now = LOCK_SECONDS
    removing = locks.remove_expired()
    next(removing)
    locks.unlock("g", [Q1], "a")
    locks.lock("g", [Q1], "b")
    run_all(removing)
    assert [locks.owner("g", queue) for queue in (Q0, Q1, Q2)] == [None, "b", None]
    assert len(locks) == 1


def test_a_lock_from_before_a_restart_lasts_no_longer_than_a_new_one() -> None:
    """The wall clock may have been set back meanwhile, and no client trusts its lock for longer."""
    locks = QueueLocks(time=Time())
    for queue, seconds in ((Q0, 3600.0), (Q1, 20.0)):
        locks.restore(HeldLock("g", queue, "a", seconds))
    assert [lock.seconds for lock in locks.held()] == [LOCK_SECONDS, 20.0]
