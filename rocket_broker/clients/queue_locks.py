"""Which client of a group may consume a message queue in order.

A lock is held by a client id, not by a connection: a client that reconnects keeps it. It lasts 60 seconds
unless the same client asks again (Apache's clients ask every 20 seconds and trust their answer for 30).
"""

import logging
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import NamedTuple

from rocket_broker.limits.refusal import Refusal
from rocket_broker.limits.shares import Shares
from rocket_broker.loop.loop_time import loop_time
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.message import MessageQueue

__all__ = ["LOCK_SECONDS", "MAX_LOCKS", "HeldLock", "LockAnswer", "QueueLocks"]

LOCK_SECONDS = 60.0
MAX_LOCKS = 262_144
"""Of all groups; each takes some 300 bytes. One group, and one address, has a quarter at most."""
_LOCKS_A_STEP = 256

logger = logging.getLogger(__name__)


class HeldLock(NamedTuple):
    """A lock that a client of a group has on a queue, for so many seconds."""

    group: str
    queue: MessageQueue
    client_id: str
    seconds: float


class LockAnswer(NamedTuple):
    """What became of a wish for locks.

    Attributes:
        held: The queues that the client holds from now on. Those that another client holds are left out.
        refusal: Why there was no room for some of the locks, None if there was.
    """

    held: set[MessageQueue]
    refusal: Refusal | None


class _Lock:
    __slots__ = ("client_id", "expires", "owner")

    def __init__(self, client_id: str, expires: float, owner: str) -> None:
        self.client_id = client_id
        self.expires = expires
        self.owner = owner


class QueueLocks:
    """The locks of every group, by queue."""

    def __init__(self, *, time: Callable[[], float] = loop_time) -> None:
        self._time = time
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        self._shares = Shares("locks on queues", lambda: MAX_LOCKS)
        self._count = 0

    def lock(self, group: str, queues: Iterable[MessageQueue], client_id: str, owner: str = "") -> LockAnswer:
        """Lock those of the queues that no other client of the group holds.

        Args:
            group: The consumer group.
            queues: The queues.
            client_id: The client.
            owner: Whose share new locks count to, beside the group's.
        """
        now = self._time()
        locks = self._groups.get(group, {})
        held: set[MessageQueue] = set()
        refusal: Refusal | None = None
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id != client_id and lock.expires > now:
                continue
            try:
                if lock is None:
                    locks[queue] = self._new(group, len(locks), client_id, owner)
                elif lock.client_id != client_id:
                    self._pass_on(group, queue, lock, client_id, owner)
            except Refusal as e:
                refusal = e
                continue
            locks[queue].expires = now + LOCK_SECONDS
            held.add(queue)
        if locks:
            self._groups[group] = locks
        return LockAnswer(held, refusal)

    def _new(self, group: str, of_group: int, client_id: str, owner: str) -> _Lock:
        """Return one more lock of the group, which has so many.

        Raises:
            Refusal: There is no room for it.
        """
        if self._count >= MAX_LOCKS:
            raise Refusal(
                ResponseCode.SYSTEM_BUSY,
                f"broker busy: clients hold {self._count} locks on queues, which is the limit: ask again",
            )
        share = self._shares.share
        if of_group >= share:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"group {group} has {of_group} locks on queues, one group has at most {share}",
            )
        self._shares.check(1, owner)
        self._shares.count(1, owner)
        self._count += 1
        return _Lock(client_id, 0.0, owner)

    def _pass_on(self, group: str, queue: MessageQueue, lock: _Lock, client_id: str, owner: str) -> None:
        """Give an expired lock to another client.

        Raises:
            Refusal: That client's address has its share of locks.
        """
        if owner != lock.owner:
            self._shares.check(1, owner)
            self._shares.count(1, owner)
            self._shares.count(-1, lock.owner)
        logger.warning(
            "group %s: lock of %s on %s expired, %s has it now", group, lock.client_id, queue, client_id
        )
        lock.client_id, lock.owner = client_id, owner

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Give up the locks the client holds on these queues; locks of others stay."""
        locks = self._groups.get(group, {})
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                self._remove(locks, queue)
        if not locks:
            self._groups.pop(group, None)

    def owner(self, group: str, queue: MessageQueue) -> str | None:
        """Return the client that holds the queue, if one does."""
        lock = self._groups.get(group, {}).get(queue)
        return lock.client_id if lock is not None and lock.expires > self._time() else None

    def held(self) -> Iterator[HeldLock]:
        """Yield the locks that count now."""
        now = self._time()
        for group, locks in self._groups.items():
            for queue, lock in locks.items():
                if lock.expires > now:
                    yield HeldLock(group, queue, lock.client_id, lock.expires - now)

    def restore(self, lock: HeldLock) -> None:
        """Take over a lock of before a restart, where it still counts and nobody has the queue."""
        locks = self._groups.get(lock.group, {})
        if lock.seconds > 0 and lock.queue not in locks and self._count < MAX_LOCKS:
            expires = self._time() + min(lock.seconds, LOCK_SECONDS)
            self._groups.setdefault(lock.group, locks)[lock.queue] = _Lock(lock.client_id, expires, "")
            self._count += 1

    def remove_expired(self) -> Generator[None, None, None]:
        """Remove expired locks in steps, so that names which clients made up do not pile up."""
        now = self._time()
        for group, locks in list(self._groups.items()):
            for number, (queue, lock) in enumerate(list(locks.items())):
                if lock.expires <= now and locks.get(queue) is lock:
                    self._remove(locks, queue)
                if not number % _LOCKS_A_STEP:
                    yield
            if not locks and self._groups.get(group) is locks:
                del self._groups[group]

    def _remove(self, locks: dict[MessageQueue, _Lock], queue: MessageQueue) -> None:
        self._shares.count(-1, locks.pop(queue).owner)
        self._count -= 1

    def __len__(self) -> int:
        return self._count
