"""Stores of a group's consumed offsets.

::

    clustering     the broker keeps the group's offsets. They are committed every 5 s if they moved, with each pull
                   while nothing is unsettled, when a queue is revoked, and at shutdown
    broadcasting   each member keeps its own in <directory>/<client id>/<group>/offsets.json,
                   {"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:42}}
                   in the format of Apache's client, which is not valid JSON: its keys are objects
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Collection
from pathlib import Path

from rocket_client.connection.broker_requests import BrokerRequests
from rocket_client.core.process_queue import NOTHING_TO_COMMIT, ProcessQueue
from rocket_remoting.wire.bodies import ResetOffsetBody, decode_body, encode_body
from rocket_remoting.wire.errors import RemoteProtocolError, RemotingError, ResponseError
from rocket_remoting.wire.message import MessageQueue

logger = logging.getLogger(__name__)

_OffsetTableKey = tuple[str, str, str | None]


class OffsetStore(ABC):
    """Stores a consumer's offsets."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}
        self._settling: list[ProcessQueue] = []

    def get(self, queue: MessageQueue) -> int | None:
        """Return the queue's offset as this member knows it; None if unknown."""
        self.update_settled()
        return self._offsets.get(queue)

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = False) -> None:
        """Note an offset for the next `persist`; with `increase_only`, ignore one that is not higher."""
        if not increase_only or offset > self._offsets.get(queue, -1):
            self._offsets[queue] = offset

    def update_later(self, process_queue: ProcessQueue) -> None:
        """Update the offset of a queue at the next `update_settled`: more of its messages may be settled until then."""
        self._settling.append(process_queue)

    def update_settled(self) -> None:
        """Update the offsets of the queues given to `update_later`; dropped queues are skipped.

        Called before any offset is read.
        """
        if not self._settling:
            return
        settling, self._settling = self._settling, []
        for process_queue in settling:
            offset = process_queue.smallest_unsettled()
            if offset != NOTHING_TO_COMMIT and not process_queue.dropped:
                self.update(process_queue.message_queue, offset, increase_only=True)

    def snapshot(self) -> dict[MessageQueue, int]:
        """Return all offsets that this member knows."""
        self.update_settled()
        return dict(self._offsets)

    @abstractmethod
    async def fetch(self, queue: MessageQueue, *, zero_if_young: bool = True) -> int | None:
        """Return the offset that was last stored; None if there is none.

        Args:
            queue: The queue.
            zero_if_young: Whether 0 may be returned instead of None for a young queue, which still has its first
                message.
        """

    @abstractmethod
    async def is_stored(self, queue: MessageQueue) -> bool:
        """Return whether the group has an offset in the queue, when `fetch` returned 0.

        Raises:
            RemotingError: No broker was found, or it did not answer.
        """

    @abstractmethod
    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """Store the noted offsets of the queues; log failures."""

    @abstractmethod
    def remove(self, queue: MessageQueue) -> None:
        """Forget a queue that is not assigned any more."""


class BrokerOffsets(OffsetStore):
    """Offsets of a clustering group, stored by the brokers."""

    def __init__(self, requests: BrokerRequests, group: str) -> None:
        super().__init__()
        self._requests = requests
        self._group = group
        # With the address of the master: if another broker becomes the master, it may have older offsets.
        self._committed: dict[MessageQueue, tuple[int, str | None]] = {}
        self._failing: set[MessageQueue] = set()
        # Topics and brokers that have accepted a commit of this group.
        self._accepted_by: set[_OffsetTableKey] = set()
        # One `persist` at a time. Brokers handle requests on many threads: of two commits of a queue under way, the
        # older could be stored last.
        self._persisting = asyncio.Lock()

    def __repr__(self) -> str:
        return f"BrokerOffsets({self._group!r}, {len(self._offsets)} queues)"

    async def fetch(self, queue: MessageQueue, *, zero_if_young: bool = True) -> int | None:
        """Ask the broker for the group's offset; None if it has none."""
        offset = await self._requests.committed_offset(queue, self._group, zero_if_young=zero_if_young)
        if offset is not None:
            # Not noted in _committed, so that the next `persist` sends it: a broker answers 0 for a young queue without
            # storing it, but tools that reset or compare offsets need a stored offset for every queue.
            self._offsets[queue] = offset
        return offset

    async def is_stored(self, queue: MessageQueue) -> bool:
        """Ask the broker for all its offsets, and return whether the group has one in the queue.

        This is much data from a large broker; a slave requests it every 10 s. True if the broker refuses: then no
        message is skipped.
        """
        try:
            table = await self._requests.consumer_offsets(queue)
        except ResponseError as error:
            logger.info("group %s: the broker of %s does not list its offsets: %s", self._group, queue, error)
            return True
        return queue.queue_id in table.get(f"{queue.topic}@{self._group}", {})

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """Commit the offsets that moved. Failures are logged; the next call tries again.

        The commits of a call end before those of the next call begin, even if the call is cancelled.
        """
        await asyncio.shield(asyncio.create_task(self._persist(queues), name=f"commit of {self._group}"))

    async def _persist(self, queues: Collection[MessageQueue]) -> None:
        async with self._persisting:
            self.update_settled()
            moved = {
                queue: offset
                for queue, offset in ((queue, self._offsets.get(queue)) for queue in queues)
                if offset is not None and (offset, self._requests.known_master(queue)) != self._committed.get(queue)
            }
            # The group's first commit of a topic at a broker is sent alone: Apache's brokers lose one of two such
            # commits that come at once.
            fresh: dict[_OffsetTableKey, list[MessageQueue]] = {}
            for queue in moved:
                if self._table_key(queue) not in self._accepted_by:
                    fresh.setdefault(self._table_key(queue), []).append(queue)
            await asyncio.gather(*(self._commit_first(theirs, moved) for theirs in fresh.values()))
            rest = {queue: offset for queue, offset in moved.items() if self._table_key(queue) in self._accepted_by}
            await asyncio.gather(*(self._commit(queue, offset) for queue, offset in rest.items()))

    async def _commit_first(self, queues: Collection[MessageQueue], moved: dict[MessageQueue, int]) -> None:
        """Take one queue after the other out of `moved` and commit it, until the broker accepts one or is silent."""
        for queue in queues:
            if not await self._commit(queue, moved.pop(queue)) or self._table_key(queue) in self._accepted_by:
                return

    async def _commit(self, queue: MessageQueue, offset: int) -> bool:
        """Commit one offset; return False if the broker did not answer and may still be handling the commit."""
        master = self._requests.known_master(queue)
        try:
            await self._requests.commit_offset(queue, self._group, offset)
        except RemotingError as error:
            level = logging.DEBUG if queue in self._failing else logging.WARNING
            self._failing.add(queue)
            logger.log(level, "group %s: could not commit offset %d of %s: %s", self._group, offset, queue, error)
            return isinstance(error, ResponseError)
        self._failing.discard(queue)
        self._committed[queue] = offset, master
        self._accepted_by.add(self._table_key(queue))
        return True

    def remove(self, queue: MessageQueue) -> None:
        """Forget a queue that is not assigned any more."""
        self._offsets.pop(queue, None)
        self._committed.pop(queue, None)
        self._failing.discard(queue)

    def _table_key(self, queue: MessageQueue) -> _OffsetTableKey:
        """Return the key of the table that a broker stores the offset in: one for each topic of the group."""
        return queue.topic, queue.broker_name, self._requests.known_master(queue)


class LocalOffsets(OffsetStore):
    """Offsets of one broadcasting member, stored in a file that is replaced as a whole."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._written: dict[MessageQueue, int] = {}
        self._failing = False
        for candidate in (path, path.with_name(path.name + ".bak")):
            if candidate.is_file() and self._read(candidate):
                break

    def __repr__(self) -> str:
        return f"LocalOffsets({str(self._path)!r}, {len(self._offsets)} queues)"

    def _read(self, path: Path) -> bool:
        try:
            self._offsets = decode_body(path.read_bytes(), ResetOffsetBody).offset_table
        except RemoteProtocolError as error:
            logger.warning("could not read offsets from %s: %s", path, error)
            return False
        self._written = dict(self._offsets)
        return True

    async def fetch(self, queue: MessageQueue, *, zero_if_young: bool = True) -> int | None:
        """Return the queue's offset in the file; None if there is none."""
        return self._written.get(queue)

    async def is_stored(self, queue: MessageQueue) -> bool:
        """Return whether the file has an offset of the queue."""
        return queue in self._written

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """Write the file if an offset moved. Failures are logged; the next call tries again."""
        self.update_settled()
        if self._offsets == self._written:
            return
        try:
            self._write()
        except OSError as error:
            level = logging.DEBUG if self._failing else logging.WARNING
            self._failing = True
            logger.log(level, "could not write %s; consumed messages will be delivered again: %s", self._path, error)
        else:
            self._failing = False
            self._written = dict(self._offsets)

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_name(self._path.name + ".tmp")
        fresh.write_bytes(encode_body(ResetOffsetBody(offset_table=self._offsets)))
        # A kill between the two renames leaves the former offsets in the .bak, which the constructor then reads. The
        # files are not synced: after a power failure the new file may be damaged, and the .bak is read instead.
        if self._path.exists():
            self._path.replace(self._path.with_name(self._path.name + ".bak"))
        fresh.replace(self._path)

    def remove(self, queue: MessageQueue) -> None:
        """Do nothing: this member's offset stays valid while a queue is missing from the route."""
