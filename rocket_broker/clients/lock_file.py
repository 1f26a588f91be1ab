"""The queue locks between an orderly stop of the broker and its next start, in ``queueLocks.json``.

Locks live in memory, and clients trust theirs for 30 seconds without asking the broker. A broker that started without
the locks would give a queue to the first client that asks, while its owner still consumes from it. A killed broker
leaves no file: then a queue may have two owners until the former owner asks again.
"""

import logging
from pathlib import Path

from rocket_broker.clients.queue_locks import HeldLock, QueueLocks
from rocket_broker.files.private_files import make_private_directory, open_private
from rocket_remoting.clock import Clock
from rocket_remoting.wire.bodies import Body, decode_body, encode_body
from rocket_remoting.wire.errors import RemotingError
from rocket_remoting.wire.message import MessageQueue

__all__ = ["LockFile"]

logger = logging.getLogger(__name__)

LONGEST_NAME = 255
"""Characters of a group or a client id; locks with longer names are not saved."""


class _Lock(Body):
    group: str
    client_id: str
    topic: str
    broker_name: str
    queue_id: int
    expires: int


class _Stored(Body):
    locks: list[_Lock]


class LockFile:
    """The file of a broker's queue locks."""

    def __init__(self, path: Path, locks: QueueLocks, clock: Clock) -> None:
        self._path = path
        self._locks = locks
        self._clock = clock

    def load(self) -> None:
        """Restore the locks that have not expired meanwhile, and remove the file. Does nothing without a file."""
        try:
            data = self._path.read_bytes()
            # Removed before the locks are used: after a kill the next start must not restore locks of the
            # run before.
            self._path.unlink()
            stored = decode_body(data, _Stored)
        except FileNotFoundError:
            return
        except (OSError, RemotingError) as e:
            logger.warning("%s: could not read the queue locks: %s", self._path, e)
            return
        now = self._clock.now_ms()
        for lock in stored.locks:
            queue = MessageQueue(lock.topic, lock.broker_name, lock.queue_id)
            self._locks.restore(HeldLock(lock.group, queue, lock.client_id, (lock.expires - now) / 1000))

    def save(self) -> None:
        """Write the locks that are held now, if there are any.

        Raises:
            OSError: The file could not be written.
        """
        now = self._clock.now_ms()
        locks = [
            _Lock(
                group=lock.group,
                client_id=lock.client_id,
                topic=lock.queue.topic,
                broker_name=lock.queue.broker_name,
                queue_id=lock.queue.queue_id,
                expires=now + int(lock.seconds * 1000),
            )
            for lock in self._locks.held()
            # Names come from clients: one that cannot be encoded must not keep all other locks from being
            # saved.
            if _is_usual(lock.group) and _is_usual(lock.client_id)
        ]
        if locks:
            make_private_directory(self._path.parent)
            fresh = self._path.with_name(self._path.name + ".tmp")
            with open_private(fresh, "wb") as file:
                file.write(encode_body(_Stored(locks=locks)))
            # No fsync: the locks expire within a minute, and a start without the file is like the start
            # after a kill.
            fresh.replace(self._path)


def _is_usual(name: str) -> bool:
    try:
        return len(name) <= LONGEST_NAME and bool(name.encode())
    except UnicodeEncodeError:  # half of a surrogate pair: valid in JSON's escapes, invalid in UTF-8
        return False
