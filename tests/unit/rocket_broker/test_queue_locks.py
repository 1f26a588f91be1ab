"""Locks for consumption in order (D2)."""

from rocket_broker.queue_locks import LOCK_SECONDS, QueueLocks
from rocket_remoting.message import MessageQueue

Q0, Q1 = (MessageQueue("orders", "broker-a", number) for number in (0, 1))


class Time:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_queue_belongs_to_the_first_client_that_asks() -> None:
    """Another client of the group gets the free ones only; another group has locks of its own."""
    locks = QueueLocks(time=Time())
    assert locks.lock("g", [Q0], "a") == {Q0}
    assert locks.lock("g", [Q0, Q1], "b") == {Q1}
    assert locks.lock("h", [Q0], "b") == {Q0}


def test_a_lock_lasts_sixty_seconds_from_when_it_was_last_asked_for() -> None:
    """Asking again renews it; after the end anybody may have it."""
    time = Time()
    locks = QueueLocks(time=time)
    locks.lock("g", [Q0], "a")
    time.now = LOCK_SECONDS - 1
    locks.lock("g", [Q0], "a")
    time.now = 2 * LOCK_SECONDS - 2
    assert locks.lock("g", [Q0], "b") == set()
    time.now = 2 * LOCK_SECONDS - 1
    assert locks.owner("g", Q0) is None
    assert locks.lock("g", [Q0], "b") == {Q0}


def test_only_its_owner_gives_a_lock_up() -> None:
    """What others unlock stays locked."""
    locks = QueueLocks(time=Time())
    locks.lock("g", [Q0], "a")
    locks.unlock("g", [Q0, Q1], "b")
    assert locks.owner("g", Q0) == "a"
    locks.unlock("g", [Q0], "a")
    assert locks.owner("g", Q0) is None
    assert len(locks) == 0


def test_expired_locks_do_not_pile_up() -> None:
    """Whatever queues clients name, the table shrinks again."""
    time = Time()
    locks = QueueLocks(time=time)
    locks.lock("g", [MessageQueue("t", "b", number) for number in range(100)], "a")
    time.now = LOCK_SECONDS / 2
    locks.lock("g", [Q0], "a")
    time.now = LOCK_SECONDS
    locks.remove_expired()
    assert len(locks) == 1
