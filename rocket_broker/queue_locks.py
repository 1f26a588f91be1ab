"""Which client of a group may consume a message queue in order.

A lock is held by a client id, not by a connection: a client that reconnects keeps it. It lasts 60 seconds
unless the same client asks again (Apache's clients ask every 20 seconds and trust their answer for 30).
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from rocket_broker.loop_time import loop_time
from rocket_remoting.message import MessageQueue

__all__ = ["LOCK_SECONDS", "MAX_LOCKS", "HeldLock", "QueueLocks"]

LOCK_SECONDS = 60.0
MAX_LOCKS = 262_144
"""Of all groups; each takes some 300 bytes."""

_log = logging.getLogger(__name__)


class HeldLock(NamedTuple):
    """A lock that a client of a group has on a queue, for so many seconds."""

    group: str
    queue: MessageQueue
    client_id: str
    seconds: float


class _Lock:
    __slots__ = ("client_id", "expires")

    def __init__(self, client_id: str, expires: float) -> None:
        self.client_id = client_id
        self.expires = expires


class QueueLocks:
    """The locks of every group, by queue."""

    def __init__(self, *, time: Callable[[], float] = loop_time) -> None:
        self._time = time
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        self._count = 0

    def lock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> set[MessageQueue]:
        """Return those of the queues that the client holds from now on; the others are another client's.

        Nobody gets one more while there are `MAX_LOCKS`: clients ask again until they get it.
        """
        now = self._time()
        locks = self._groups.get(group, {})
        held: set[MessageQueue] = set()
        for queue in queues:
            lock = locks.get(queue)
            if lock is None:
                if self._count >= MAX_LOCKS:
                    continue
                self._count += 1
                locks[queue] = _Lock(client_id, now + LOCK_SECONDS)
            elif lock.client_id == client_id or lock.expires <= now:
                if lock.client_id != client_id:
                    _log.warning("group %s: lock of %s on %s expired, %s has it now",
                                 group, lock.client_id, queue, client_id)  # fmt: skip
                lock.client_id = client_id
                lock.expires = now + LOCK_SECONDS
            else:
                continue
            held.add(queue)
        if locks:
            self._groups[group] = locks
        return held

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Give up the locks the client holds on these queues; locks of others stay."""
        locks = self._groups.get(group, {})
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue]
                self._count -= 1
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
            self._groups.setdefault(lock.group, locks)[lock.queue] = _Lock(lock.client_id, expires)
            self._count += 1

    def remove_expired(self) -> None:
        """Forget locks that nobody holds any more, so that what clients name does not pile up."""
        now = self._time()
        for group, locks in list(self._groups.items()):
            for queue in [queue for queue, lock in locks.items() if lock.expires <= now]:
                del locks[queue]
                self._count -= 1
            if not locks:
                del self._groups[group]

    def __len__(self) -> int:
        return self._count
