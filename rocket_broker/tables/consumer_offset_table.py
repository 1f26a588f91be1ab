"""How far each group has consumed each queue, kept in Apache's ``consumerOffset.json``.

A commit changes memory only; a loop writes the file every 5 seconds, in steps, and the broker's stop once more, so a
killed broker delivers again what was committed since (delivery is at least once). That a topic's or group's offsets
are gone is on the disk at once, as a line in ``consumerOffset.json.log`` (`TableJournal`): the topic may be made anew,
and the broker killed, in a moment.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from weakref import WeakSet

import msgspec

from rocket_broker.files.table_file import TableFile
from rocket_broker.files.table_journal import NO_TABLE, TableJournal
from rocket_broker.limits.refusal import Refusal
from rocket_broker.limits.shares import Shares, owner_group
from rocket_broker.loop.loop_steps import collected, run_in_steps
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.store.message_store import MessageStore
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import (
    Body,
    ConsumerOffsetSerializeWrapper,
    DataVersion,
    Entries,
    LongBody,
    decode_body,
    encode_in_pieces,
)
from rocket_remoting.wire.codes import ResponseCode

__all__ = ["MAX_OFFSETS", "ConsumerOffsetTable"]

logger = logging.getLogger(__name__)

_SEPARATOR = "@"

MAX_OFFSETS = 1_000_000
"""Of all groups in all queues: some 100 bytes each, and a file of 20 megabytes that is written every 5 seconds."""

_OFFSETS_A_STEP = 2_000
"""So many offsets are written at once, in half a millisecond; those of a group in a topic always are."""


@dataclass(frozen=True, slots=True)
class Reset:
    """An offset that was set while the group may be consuming.

    Attributes:
        offset: Where it is to go on.
        told: The connections whose pulls were answered with it.
    """

    offset: int
    told: WeakSet[Connection] = field(default_factory=WeakSet)


class _Removal(Body):
    """The offsets of a topic or of a group are gone."""

    topic: str | None = None
    group: str | None = None


class ConsumerOffsetTable:
    """The committed offsets: the next message of each queue for each group."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._file = TableFile(settings.config_dir / "consumerOffset.json")
        self._journal = TableJournal(self._file.path)
        self._settings = settings
        self._offsets: dict[str, dict[str, dict[int, int]]] = {}  # topic -> group -> queue -> offset
        self._topics: dict[str, dict[str, None]] = {}  # group -> the topics in which it has offsets
        self._count = 0
        self._shares = Shares("offsets of groups in queues", lambda: MAX_OFFSETS)
        self._owners: dict[tuple[str, str], Counter[str]] = {}  # group, topic -> owner -> offsets
        self._resets: dict[tuple[str, str], dict[int, Reset]] = {}  # group, topic -> queue
        self._version = DataVersion(timestamp=0, counter=0)
        """Counts the removals."""
        self._dirty = False

    def load(self) -> None:
        """Read ``consumerOffset.json``.

        Raises:
            DamagedTable: Neither the file nor its backup can be read.
        """
        stored = self._file.load(lambda data: decode_body(data, ConsumerOffsetSerializeWrapper))
        is_written = stored is not None
        if stored is None:
            stored = ConsumerOffsetSerializeWrapper(offset_table={})
        self._version = stored.data_version or self._version
        removals = self._journal.read(self._version if is_written else NO_TABLE, _Removal)
        topics = {change.entry.topic for change in removals if change.entry is not None}
        groups = {change.entry.group for change in removals if change.entry is not None}
        for key, queues in stored.offset_table.items():
            topic, group = _split(key)
            if topic not in topics and group not in groups and queues:
                self._queues_of(group, topic).update(queues)
                self._count += len(queues)
        if removals:
            self._version, self._dirty = removals[-1].version, True

    def bound(self, max_offset: Callable[[str, int], int]) -> None:
        """Take back offsets beyond their queue's end.

        The file may be on the disk when messages are not: a machine that dies under ASYNC_FLUSH loses messages
        that were consumed already. Those that get their numbers later must not count as consumed.

        Args:
            max_offset: Returns the end of a topic's queue.
        """
        for topic, groups in self._offsets.items():
            for group, queues in groups.items():
                for queue_id, offset in queues.items():
                    end = max_offset(topic, queue_id)
                    if offset > end:
                        logger.warning(
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
        groups = self._offsets.get(topic)
        queues = groups.get(group) if groups is not None else None
        if queues is None or queue_id not in queues:
            self._make_room(group, topic, 1, client)
            queues = self._queues_of(group, topic)
        queues[queue_id] = offset
        self._dirty = True

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the group's offset in the queue, or None when it never committed one."""
        groups = self._offsets.get(topic)
        queues = groups.get(group) if groups is not None else None
        return queues.get(queue_id) if queues is not None else None

    def reset(
        self, group: str, topic: str, queue_id: int, offset: int, client: Connection | None = None
    ) -> None:
        """Set the offset as `commit` does, and hold that against consumers until `settle_reset`.

        Raises:
            Refusal: As `commit`.
        """
        self.commit(group, topic, queue_id, offset, client)
        self._resets.setdefault((group, topic), {})[queue_id] = Reset(offset)

    def pending_reset(self, group: str, topic: str, queue_id: int) -> Reset | None:
        """Return the offset that was set, while nobody has gone on from there yet."""
        resets = self._resets.get((group, topic)) if self._resets else None
        return resets.get(queue_id) if resets is not None else None

    def settle_reset(self, group: str, topic: str, queue_id: int) -> None:
        """Forget `pending_reset`: the group has gone on from there."""
        resets = self._resets.get((group, topic), {})
        resets.pop(queue_id, None)
        if not resets:
            self._resets.pop((group, topic), None)

    def queues(self, group: str, topic: str) -> Mapping[int, int]:
        """Return the group's offsets in the topic by queue."""
        return self._offsets.get(topic, {}).get(group, {})

    def topics_of(self, group: str) -> list[str]:
        """Return the topics in which the group has committed."""
        return list(self._topics.get(group, ()))

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have committed in the topic."""
        return list(self._offsets.get(topic, ()))

    def remove_group(self, group: str) -> Generator[None, None, None]:
        """Forget all offsets of the group, in steps; the disk has it before the first.

        Raises:
            OSError: The disk refused. Nothing is forgotten then.
        """
        topics = self._topics.get(group)
        if topics:
            self._note(_Removal(group=group))
            for topic in list(topics):
                self._remove(group, topic)
                yield

    def remove_topic(self, topic: str) -> Generator[None, None, None]:
        """Forget all offsets in the topic, in steps; the disk has it before the first.

        Raises:
            OSError: The disk refused. Nothing is forgotten then.
        """
        groups = self._offsets.get(topic)
        if groups:
            self._note(_Removal(topic=topic))
            for group in list(groups):
                self._remove(group, topic)
                yield

    def clone(self, source: str, target: str, topic: str, client: Connection | None = None) -> None:
        """Give the target group the source group's offsets in the topic, in place of its own.

        Raises:
            Refusal: There is no room for so many more.
        """
        offsets = self._offsets.get(topic, {}).get(source)
        if offsets is None or source == target:
            return
        self._make_room(target, topic, len(offsets) - len(self.queues(target, topic)), client)
        queues = self._queues_of(target, topic)
        queues.clear()
        queues.update(offsets)
        self._dirty = True

    def table(self) -> dict[str, Mapping[int, int]]:
        """Return all offsets: ``topic@group`` -> queue -> offset."""
        return {
            topic + _SEPARATOR + group: queues
            for topic, groups in self._offsets.items()
            for group, queues in groups.items()
        }

    def body(self) -> LongBody:
        """Return all offsets as they go to tools and the file; to be written as standard JSON."""
        version = self._version if self._version.counter else None
        wrapper = ConsumerOffsetSerializeWrapper(offset_table={}, data_version=version)
        return LongBody(wrapper, offset_table=Entries(self._written_entries()))

    def save(self) -> None:
        """Write ``consumerOffset.json`` if anything changed since it was last written, in one go.

        Raises:
            OSError: The file cannot be written.
        """
        if self._dirty:
            self._journal.begin_merge(self._version)
            self._file.write(b"".join(encode_in_pieces(self.body(), standard_json=True)))
            self._journal.end_merge()
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
                self._journal.begin_merge(self._version)
                pieces = encode_in_pieces(self.body(), standard_json=True)
                offsets = await run_in_steps("consumer offsets are written", collected(pieces))
                end = store.max_commit_log_offset
                while not await store.flush_to(end):  # noqa: ASYNC110 - a slow disk tells nobody when it is done
                    await asyncio.sleep(self._settings.flush_consumer_offset_interval / 1000)
                await self._file.write_and_sync(offsets)
                self._journal.end_merge()
            except BaseException as e:
                self._dirty = True
                if not isinstance(e, OSError):
                    raise
                logger.error("consumer offsets could not be written, trying again: %s", e)

    def _queues_of(self, group: str, topic: str) -> dict[int, int]:
        """Return the group's offsets in the topic, a new map if it has none."""
        self._topics.setdefault(group, {})[topic] = None
        return self._offsets.setdefault(topic, {}).setdefault(group, {})

    def _remove(self, group: str, topic: str) -> None:
        """Forget the group's offsets in the topic, if there are any."""
        groups = self._offsets.get(topic, {})
        self._count -= len(groups.pop(group, ()))
        if not groups:
            self._offsets.pop(topic, None)
        topics = self._topics.get(group, {})
        topics.pop(topic, None)
        if not topics:
            self._topics.pop(group, None)
        self._resets.pop((group, topic), None)
        for owner, number in self._owners.pop((group, topic), {}).items():
            self._shares.count(-number, owner)
        self._dirty = True

    def _make_room(self, group: str, topic: str, more: int, client: Connection | None) -> None:
        """Count so many offsets more of the group in the topic.

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
            numbers = dict.fromkeys(filter(None, owners), more)
            self._owners.setdefault((group, topic), Counter()).update(numbers)
        self._count += more

    def _note(self, removal: _Removal) -> None:
        version = self._version.next(0)
        self._journal.append(version, [removal])
        self._version = version

    def _written_entries(self) -> Iterator[bytes]:
        """Yield entries of ``offsetTable``, some at once; what changes meanwhile may be among them or not."""
        found: dict[str, dict[int, int]] = {}
        size = 0
        for topic in list(self._offsets):
            groups = self._offsets.get(topic, {})
            for group in list(groups):
                queues = groups.get(group, {})
                found[topic + _SEPARATOR + group] = queues
                size += 1 + len(queues)
                if size >= _OFFSETS_A_STEP:
                    yield msgspec.json.encode(found)[1:-1]
                    found, size = {}, 0
        yield msgspec.json.encode(found)[1:-1]


def _split(key: str) -> tuple[str, str]:
    topic, _, group = key.partition(_SEPARATOR)
    return topic, group
