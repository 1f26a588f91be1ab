"""Queue locks: which client of a group may consume a queue in order.

As Apache's RebalanceLockManager, a lock belongs to a client id and not to a connection, so a client that reconnects
keeps its locks, and it expires 60 seconds after the client's last request for it. Apache's clients renew their locks
every 20 seconds and stop consuming 30 seconds after the last successful answer. So a client that loses the broker
stops well before another client can get the lock::

    seconds   0         20        30                  60
    client    locked    renews    stops without an answer
    broker    locked ─────────────────────────────── expires: another client may lock
"""

import logging
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import NamedTuple

from rocket_broker.limits.owner_quota import OwnerQuota
from rocket_broker.limits.refusal import Refusal
from rocket_broker.loop.loop_time import loop_time
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.message import MessageQueue

__all__ = ["LOCK_SECONDS", "MAX_LOCKS", "HeldLock", "LockAnswer", "QueueLocks"]

LOCK_SECONDS = 60.0
MAX_LOCKS = 262_144
"""Maximum number of locks of all groups; each takes some 300 bytes. A group, and an address, has a quarter at most."""
_LOCKS_A_STEP = 256

logger = logging.getLogger(__name__)


class HeldLock(NamedTuple):
    """A client's lock on a queue, and the seconds until the lock expires."""

    group: str
    queue: MessageQueue
    client_id: str
    seconds: float


class LockAnswer(NamedTuple):
    """The result of a request for locks.

    Attributes:
        held: The queues that the client holds now. Queues that another client holds are missing.
        refusal: The reason if a limit kept the client from getting some of the locks; otherwise None.
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
    """The queue locks of every group."""

    def __init__(self, *, time: Callable[[], float] = loop_time) -> None:
        self._time = time
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        self._quota = OwnerQuota("queue locks", lambda: MAX_LOCKS)
        self._count = 0

    def lock(self, group: str, queues: Iterable[MessageQueue], client_id: str, owner: str = "") -> LockAnswer:
        """Lock the queues that no other client of the group holds, and renew the locks that the client has.

        Args:
            group: The consumer group.
            queues: The queues.
            client_id: The client.
            owner: The address whose quota the new locks count to, in addition to the group's.
        """
        now = self._time()
        locks = self._groups.get(group, {})
        held: set[MessageQueue] = set()
        refusal: Refusal | None = None
        for queue in queues:
            lock = locks.get(queue)
            # An expired lock of the same client is simply renewed: no other client has taken it meanwhile.
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
        """Create a lock for the group, which has ``of_group`` locks already.

        Raises:
            Refusal: The broker's, the group's or the address's number of locks is at its limit.
        """
        if self._count >= MAX_LOCKS:
            raise Refusal(
                ResponseCode.SYSTEM_BUSY,
                f"broker busy: clients hold {self._count} queue locks, which is the limit: try again later",
            )
        quota = self._quota.quota
        if of_group >= quota:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"group {group} has {of_group} queue locks, one group has at most {quota}",
            )
        self._quota.check(1, owner)
        self._quota.count(1, owner)
        self._count += 1
        return _Lock(client_id, 0.0, owner)

    def _pass_on(self, group: str, queue: MessageQueue, lock: _Lock, client_id: str, owner: str) -> None:
        """Give an expired lock to another client.

        Raises:
            Refusal: That client's address has its quota of locks.
        """
        # The new owner is checked first; if it is refused, the old lock stays, expired, and counts to its
        # old owner.
        if owner != lock.owner:
            self._quota.check(1, owner)
            self._quota.count(1, owner)
            self._quota.count(-1, lock.owner)
        logger.warning(
            "group %s: the lock of %s on %s expired and was taken by %s",
            group,
            lock.client_id,
            queue,
            client_id,
        )
        lock.client_id, lock.owner = client_id, owner

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Release the client's locks on these queues; other clients' locks stay."""
        locks = self._groups.get(group, {})
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                self._remove(locks, queue)
        if not locks:
            self._groups.pop(group, None)

    def owner(self, group: str, queue: MessageQueue) -> str | None:
        """Return the client that holds the queue; None if no client does."""
        lock = self._groups.get(group, {}).get(queue)
        return lock.client_id if lock is not None and lock.expires > self._time() else None

    def held(self) -> Iterator[HeldLock]:
        """Yield the locks that have not expired."""
        now = self._time()
        for group, locks in self._groups.items():
            for queue, lock in locks.items():
                if lock.expires > now:
                    yield HeldLock(group, queue, lock.client_id, lock.expires - now)

    def restore(self, lock: HeldLock) -> None:
        """Restore a lock from before a restart, unless it has expired or the queue is locked meanwhile."""
        locks = self._groups.get(lock.group, {})
        if lock.seconds > 0 and lock.queue not in locks and self._count < MAX_LOCKS:
            # The file has times of the wall clock. If the clock was set back meanwhile, a lock would last
            # longer than any client trusts it.
            expires = self._time() + min(lock.seconds, LOCK_SECONDS)
            self._groups.setdefault(lock.group, locks)[lock.queue] = _Lock(lock.client_id, expires, "")
            self._count += 1

    def remove_expired(self) -> Generator[None, None, None]:
        """Remove expired locks in steps, so that locks under invented client ids do not pile up."""
        now = self._time()
        for group, locks in list(self._groups.items()):
            for number, (queue, lock) in enumerate(list(locks.items())):
                # Requests run between the steps: the lock may have been renewed, released, or given to
                # another client.
                if lock.expires <= now and locks.get(queue) is lock:
                    self._remove(locks, queue)
                if not number % _LOCKS_A_STEP:
                    yield
            # The group may have a new dict by now, from a client that locked after the last lock was
            # released.
            if not locks and self._groups.get(group) is locks:
                del self._groups[group]

    def _remove(self, locks: dict[MessageQueue, _Lock], queue: MessageQueue) -> None:
        self._quota.count(-1, locks.pop(queue).owner)
        self._count -= 1

    def __len__(self) -> int:
        return self._count
