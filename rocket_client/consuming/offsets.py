"""How far a group has come in each queue.

::

    clustering     the broker keeps the group's offsets; committed every 5 s where they moved, with each pull
                   that begins where everything before it is settled, when a queue is revoked, and at shutdown
    broadcasting   each member keeps its own in <directory>/<client id>/<group>/offsets.json,
                   {"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:42}}
                   as Apache's client writes it (keys that are objects, so it is not JSON by the letter)
"""

import asyncio
import logging
from collections.abc import Collection
from pathlib import Path
from typing import Protocol

from rocket_client.connection.broker_requests import BrokerRequests
from rocket_remoting.wire.bodies import ResetOffsetBody, decode_body, encode_body
from rocket_remoting.wire.errors import RemoteProtocolError, RemotingError, ResponseError
from rocket_remoting.wire.message import MessageQueue

logger = logging.getLogger(__name__)

_Place = tuple[str, str]


class OffsetStore(Protocol):
    """Where a consumer's offsets are kept."""

    def get(self, queue: MessageQueue) -> int | None:
        """The offset as this member knows it."""

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = False) -> None:
        """Take note of an offset, to be kept by the next `persist`."""

    async def fetch(self, queue: MessageQueue) -> int | None:
        """The offset as it was last kept; None when there is none."""

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """Keep the offsets of these queues; they are kept when this returns, or a failure was logged."""

    def remove(self, queue: MessageQueue) -> None:
        """Forget a queue that is not assigned any more."""

    def snapshot(self) -> dict[MessageQueue, int]:
        """All offsets this member knows."""


class BrokerOffsets:
    """Offsets of a clustering group, kept by the brokers."""

    def __init__(self, requests: BrokerRequests, group: str) -> None:
        self._requests = requests
        self._group = group
        self._offsets: dict[MessageQueue, int] = {}
        self._committed: dict[MessageQueue, int] = {}
        self._in_trouble: set[MessageQueue] = set()
        # Topics, at their brokers, for which a commit was taken.
        self._known_at: set[_Place] = set()
        # A broker handles requests on many threads: of two commits under way the older may come last.
        self._persisting = asyncio.Lock()

    def __repr__(self) -> str:
        return f"BrokerOffsets({self._group!r}, {len(self._offsets)} queues)"

    def get(self, queue: MessageQueue) -> int | None:
        """The offset as this member knows it."""
        return self._offsets.get(queue)

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = False) -> None:
        """Take note of an offset, to be committed by the next `persist`."""
        if not increase_only or offset > self._offsets.get(queue, -1):
            self._offsets[queue] = offset

    async def fetch(self, queue: MessageQueue) -> int | None:
        """The offset the broker has."""
        offset = await self._requests.committed_offset(queue, self._group)
        if offset is not None:
            # Not known as committed: a broker says 0 for a young queue without keeping it, but tools that reset
            # or compare offsets want one for every queue.
            self._offsets[queue] = offset
        return offset

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """Commit the offsets that moved; a failure is logged, the next call tries again.

        Commits under way end before those of the next call begin, also when this call is cancelled.
        """
        await asyncio.shield(asyncio.create_task(self._persist(queues), name=f"commit of {self._group}"))

    async def _persist(self, queues: Collection[MessageQueue]) -> None:
        async with self._persisting:
            moved = {
                queue: offset
                for queue, offset in ((queue, self._offsets.get(queue)) for queue in queues)
                if offset is not None and offset != self._committed.get(queue)
            }
            # Apache's brokers lose one of two commits that come at once and both are a topic's first of the group.
            fresh: dict[_Place, list[MessageQueue]] = {}
            for queue in moved:
                if _place(queue) not in self._known_at:
                    fresh.setdefault(_place(queue), []).append(queue)
            await asyncio.gather(*(self._commit_first(theirs, moved) for theirs in fresh.values()))
            rest = {queue: offset for queue, offset in moved.items() if _place(queue) in self._known_at}
            await asyncio.gather(*(self._commit(queue, offset) for queue, offset in rest.items()))

    async def _commit_first(self, queues: Collection[MessageQueue], moved: dict[MessageQueue, int]) -> None:
        """Take one queue after the other out of `moved`, until its broker has taken an offset or does not answer."""
        for queue in queues:
            if not await self._commit(queue, moved.pop(queue)) or _place(queue) in self._known_at:
                return

    async def _commit(self, queue: MessageQueue, offset: int) -> bool:
        """Commit one offset; False when the broker may be at it still."""
        try:
            await self._requests.commit_offset(queue, self._group, offset)
        except RemotingError as error:
            level = logging.DEBUG if queue in self._in_trouble else logging.WARNING
            self._in_trouble.add(queue)
            logger.log(
                level, "group %s: offset %d of %s not committed: %s", self._group, offset, queue, error
            )
            return isinstance(error, ResponseError)
        self._in_trouble.discard(queue)
        self._committed[queue] = offset
        self._known_at.add(_place(queue))
        return True

    def remove(self, queue: MessageQueue) -> None:
        """Forget a queue that is not assigned any more."""
        self._offsets.pop(queue, None)
        self._committed.pop(queue, None)
        self._in_trouble.discard(queue)

    def snapshot(self) -> dict[MessageQueue, int]:
        """All offsets this member knows."""
        return dict(self._offsets)


def _place(queue: MessageQueue) -> _Place:
    """Where a broker keeps the offset: with those of the topic's other queues there."""
    return queue.topic, queue.broker_name


class LocalOffsets:
    """Offsets of one broadcasting member, kept in a file that is replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offsets: dict[MessageQueue, int] = {}
        self._written: dict[MessageQueue, int] = {}
        self._in_trouble = False
        for candidate in (path, path.with_name(path.name + ".bak")):
            if candidate.is_file() and self._read(candidate):
                break

    def __repr__(self) -> str:
        return f"LocalOffsets({str(self._path)!r}, {len(self._offsets)} queues)"

    def _read(self, path: Path) -> bool:
        try:
            self._offsets = decode_body(path.read_bytes(), ResetOffsetBody).offset_table
        except RemoteProtocolError as error:
            logger.warning("%s holds no offsets: %s", path, error)
            return False
        self._written = dict(self._offsets)
        return True

    def get(self, queue: MessageQueue) -> int | None:
        """The offset as this member knows it."""
        return self._offsets.get(queue)

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = False) -> None:
        """Take note of an offset, to be written by the next `persist`."""
        if not increase_only or offset > self._offsets.get(queue, -1):
            self._offsets[queue] = offset

    async def fetch(self, queue: MessageQueue) -> int | None:
        """The offset the file has."""
        return self._written.get(queue)

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """Write the file if an offset moved; a failure is logged, the next call tries again."""
        if self._offsets == self._written:
            return
        try:
            self._write()
        except OSError as error:
            level = logging.DEBUG if self._in_trouble else logging.WARNING
            self._in_trouble = True
            logger.log(level, "%s could not be written, what is consumed comes again: %s", self._path, error)
        else:
            self._in_trouble = False
            self._written = dict(self._offsets)

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_name(self._path.name + ".tmp")
        fresh.write_bytes(encode_body(ResetOffsetBody(offset_table=self._offsets)))
        if self._path.exists():
            self._path.replace(self._path.with_name(self._path.name + ".bak"))
        fresh.replace(self._path)

    def remove(self, queue: MessageQueue) -> None:
        """Nothing: what this member has seen stays seen, also while a queue is away."""

    def snapshot(self) -> dict[MessageQueue, int]:
        """All offsets this member knows."""
        return dict(self._offsets)
