"""How far each group has consumed each queue, kept in Apache's ``consumerOffset.json``.

A commit changes memory only; a loop writes the file every 5 seconds and the broker's stop once more, so a
killed broker delivers again what was committed since (delivery is at least once).
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from weakref import WeakSet

from rocket_broker.refusal import Refusal
from rocket_broker.settings import BrokerSettings
from rocket_broker.shares import Shares, owner_group
from rocket_broker.store.message_store import MessageStore
from rocket_broker.table_file import TableFile
from rocket_remoting.bodies import ConsumerOffsetSerializeWrapper, decode_body, encode_body
from rocket_remoting.codes import ResponseCode
from rocket_remoting.connection import Connection

__all__ = ["MAX_OFFSETS", "ConsumerOffsetTable"]

_log = logging.getLogger(__name__)

_SEPARATOR = "@"

MAX_OFFSETS = 1_000_000
"""Of all groups in all queues: some 100 bytes each, and a file of 20 megabytes that is written every 5 seconds."""


@dataclass(frozen=True, slots=True)
class Reset:
    """An offset that was set while the group may be consuming.

    Attributes:
        offset: Where it is to go on.
        told: The connections whose pulls were answered with it.
    """

    offset: int
    told: WeakSet[Connection] = field(default_factory=WeakSet)


class ConsumerOffsetTable:
    """The committed offsets: the next message of each queue for each group."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._file = TableFile(settings.config_dir / "consumerOffset.json")
        self._settings = settings
        self._offsets: dict[str, dict[int, int]] = {}
        self._count = 0
        self._shares = Shares("offsets of groups in queues", lambda: MAX_OFFSETS)
        self._owners: dict[str, Counter[str]] = {}
        self._resets: dict[tuple[str, str, int], Reset] = {}
        self._dirty = False

    def load(self) -> None:
        """Read ``consumerOffset.json``.

        Raises:
            DamagedTable: Neither the file nor its backup can be read.
        """
        stored = self._file.load(lambda data: decode_body(data, ConsumerOffsetSerializeWrapper))
        if stored is not None:
            self._offsets = stored.offset_table
            self._count = sum(map(len, self._offsets.values()))

    def bound(self, max_offset: Callable[[str, int], int]) -> None:
        """Take back offsets beyond their queue's end.

        The file may be on the disk when messages are not: a machine that dies under ASYNC_FLUSH loses messages
        that were consumed already. Those that get their numbers later must not count as consumed.

        Args:
            max_offset: Returns the end of a topic's queue.
        """
        for key, queues in self._offsets.items():
            topic, group = _split(key)
            for queue_id, offset in queues.items():
                end = max_offset(topic, queue_id)
                if offset > end:
                    _log.warning(
                        "group %s had consumed %s queue %d to %d, which ends at %d: set to that",
                        group, topic, queue_id, offset, end,
                    )  # fmt: skip
                    queues[queue_id] = end
                    self._dirty = True

    def commit(
        self, group: str, topic: str, queue_id: int, offset: int, client: Connection | None = None
    ) -> None:
        """Set the group's offset in the queue, also to a smaller one.

        Args:
            group: The consumer group.
            topic: The queue's topic.
            queue_id: The queue's number.
            offset: The offset of the next message that the group is to get.
            client: Who commits; None for the broker itself, for which there is always room.

        Raises:
            Refusal: The group has no offset in the queue yet, and there is no room for one more.
        """
        key = topic + _SEPARATOR + group
        queues = self._offsets.get(key)
        if queues is None or queue_id not in queues:
            self._make_room(key, group, 1, client)
            queues = self._offsets.setdefault(key, {})
        queues[queue_id] = offset
        self._dirty = True

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the group's offset in the queue, or None when it never committed one."""
        queues = self._offsets.get(topic + _SEPARATOR + group)
        return queues.get(queue_id) if queues is not None else None

    def reset(
        self, group: str, topic: str, queue_id: int, offset: int, client: Connection | None = None
    ) -> None:
        """Set the offset as `commit` does, and hold that against consumers until `settle_reset`.

        Raises:
            Refusal: As `commit`.
        """
        self.commit(group, topic, queue_id, offset, client)
        self._resets[group, topic, queue_id] = Reset(offset)

    def pending_reset(self, group: str, topic: str, queue_id: int) -> Reset | None:
        """Return the offset that was set, while nobody has gone on from there yet."""
        return self._resets.get((group, topic, queue_id)) if self._resets else None

    def settle_reset(self, group: str, topic: str, queue_id: int) -> None:
        """Forget `pending_reset`: the group has gone on from there."""
        self._resets.pop((group, topic, queue_id), None)

    def queues(self, group: str, topic: str) -> Mapping[int, int]:
        """Return the group's offsets in the topic by queue."""
        return self._offsets.get(topic + _SEPARATOR + group, {})

    def topics_of(self, group: str) -> set[str]:
        """Return the topics in which the group has committed."""
        return {topic for topic, of in map(_split, self._offsets) if of == group}

    def topics_by_group(self) -> dict[str, set[str]]:
        """Return `topics_of` of every group that has committed anywhere."""
        found: dict[str, set[str]] = {}
        for topic, group in map(_split, self._offsets):
            found.setdefault(group, set()).add(topic)
        return found

    def groups_of(self, topic: str) -> set[str]:
        """Return the groups that have committed in the topic."""
        return {group for of, group in map(_split, self._offsets) if of == topic}

    def remove_group(self, group: str) -> None:
        """Forget all offsets of the group, on the disk too.

        Raises:
            OSError: The file could not be written.
        """
        self._remove(key for key in self._offsets if _split(key)[1] == group)
        self._resets = {key: reset for key, reset in self._resets.items() if key[0] != group}
        self.save()

    def remove_topic(self, topic: str) -> None:
        """Forget all offsets in the topic, on the disk too: it may be made anew, and the broker killed, in a moment.

        Raises:
            OSError: The file could not be written.
        """
        self._remove(key for key in self._offsets if _split(key)[0] == topic)
        self._resets = {key: reset for key, reset in self._resets.items() if key[1] != topic}
        self.save()

    def clone(self, source: str, target: str, topic: str, client: Connection | None = None) -> None:
        """Give the target group the source group's offsets in the topic, in place of its own.

        Raises:
            Refusal: There is no room for so many more.
        """
        offsets = self._offsets.get(topic + _SEPARATOR + source)
        if offsets is None or source == target:
            return
        key = topic + _SEPARATOR + target
        self._make_room(key, target, len(offsets) - len(self._offsets.get(key, ())), client)
        self._offsets[key] = dict(offsets)
        self._dirty = True

    def table(self) -> Mapping[str, Mapping[int, int]]:
        """Return all offsets: ``topic@group`` -> queue -> offset; not to be changed through this."""
        return self._offsets

    def encode(self) -> bytes:
        """Return all offsets as they go to tools and the file."""
        return encode_body(ConsumerOffsetSerializeWrapper(offset_table=self._offsets), standard_json=True)

    def save(self) -> None:
        """Write ``consumerOffset.json`` if anything changed since it was last written."""
        if self._dirty:
            self._file.write(self.encode())
            self._dirty = False

    async def save_periodically(self, store: MessageStore) -> None:
        """Write the file every ``flushConsumerOffsetInterval``; runs until cancelled.

        What the store holds is on the disk before: a message that failed was stored for another delivery, without
        waiting for the disk, before its offset was committed. A machine that dies must not pass it over.
        """
        while True:
            await asyncio.sleep(self._settings.flush_consumer_offset_interval / 1000)
            if not self._dirty:
                continue
            self._dirty = False
            try:
                offsets, end = self.encode(), store.max_commit_log_offset
                while not await store.flush_to(end):  # noqa: ASYNC110 - a slow disk tells nobody when it is done
                    await asyncio.sleep(self._settings.flush_consumer_offset_interval / 1000)
                await self._file.write_and_sync(offsets)
            except BaseException as e:
                self._dirty = True
                if not isinstance(e, OSError):
                    raise
                _log.error("consumer offsets could not be written, trying again: %s", e)

    def _remove(self, keys: Iterable[str]) -> None:
        for key in list(keys):
            self._count -= len(self._offsets.pop(key))
            for owner, number in self._owners.pop(key, {}).items():
                self._shares.count(-number, owner)
            self._dirty = True

    def _make_room(self, key: str, group: str, more: int, client: Connection | None) -> None:
        """Count so many offsets more under the key.

        Raises:
            Refusal: There would be too many, of all clients or of the one.
        """
        if client is not None and more > 0:
            if self._count + more > MAX_OFFSETS:
                raise Refusal(
                    ResponseCode.SYSTEM_ERROR,
                    f"this broker keeps {MAX_OFFSETS} offsets and no more: delete groups or topics that nobody uses",
                )
            owners = owner_group(group), client.counted_as
            self._shares.check(more, *owners)
            self._shares.count(more, *owners)
            self._owners.setdefault(key, Counter()).update(dict.fromkeys(filter(None, owners), more))
        self._count += more


def _split(key: str) -> tuple[str, str]:
    topic, _, group = key.partition(_SEPARATOR)
    return topic, group
