"""The consumer offset of each group in each queue, kept in Apache's ``consumerOffset.json``.

A commit changes memory only. A loop writes the file every 5 seconds, in steps, and the broker's stop writes it once
more. So a killed broker delivers messages again whose offsets were committed since: delivery is at least once.

The removal of a topic's or group's offsets is on the disk at once, as a line in ``consumerOffset.json.log``
(`TableJournal`): the topic may be created again, and the broker killed, before the file is written.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from weakref import WeakSet

import msgspec

from rocket_broker.files.table_file import TableFile
from rocket_broker.files.table_journal import NO_TABLE, TableJournal
from rocket_broker.limits.owner_quota import OwnerQuota, owner_group
from rocket_broker.limits.refusal import Refusal
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
"""Maximum number of offsets of all groups in all queues: 100 bytes each in memory, 20 MB in the file."""

_OFFSETS_A_STEP = 2_000
"""Offsets that are encoded in one step, which takes half a millisecond. A group's offsets in one topic are not
split."""


class Reset(msgspec.Struct, frozen=True):
    """An offset that an administrator set while the group may be consuming.

    Attributes:
        offset: The offset at which the group is to continue.
        reported: The connections whose pull requests were answered with the reset.
    """

    offset: int
    reported: WeakSet[Connection] = msgspec.field(default_factory=WeakSet)


class _Removal(Body):
    """A line of the journal: the offsets of a topic or of a group were removed."""

    topic: str | None = None
    group: str | None = None


class ConsumerOffsetTable:
    """The committed offsets: for each group and queue, the offset of the next message to consume.

    Attributes:
        resets: The resets that groups have not followed yet, by group and topic and then by queue; to be read only.
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self._file = TableFile(settings.config_dir / "consumerOffset.json")
        self._journal = TableJournal(self._file.path)
        self._settings = settings
        self._offsets: dict[str, dict[str, dict[int, int]]] = {}  # topic -> group -> queue -> offset
        self._topics: dict[str, dict[str, None]] = {}  # group -> the topics in which it has offsets
        self._count = 0
        self._quota = OwnerQuota("offsets of groups in queues", lambda: MAX_OFFSETS)
        self._owners: dict[tuple[str, str], Counter[str]] = {}  # group, topic -> owner -> offsets
        self.resets: dict[tuple[str, str], dict[int, Reset]] = {}
        self._version = DataVersion(timestamp=0, counter=0)
        """Counts the removals, so that the journal's lines can be compared with the file."""
        self._dirty = False

    def load(self) -> None:
        """Read ``consumerOffset.json``.

        Raises:
            DamagedTable: The file and its backup are both unreadable.
            TableUnreadable: The file system refuses to read the file.
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
            topic, _, group = key.partition(_SEPARATOR)
            if topic not in topics and group not in groups and queues:
                self._queues_of(group, topic).update(queues)
                self._count += len(queues)
        if removals:
            self._version, self._dirty = removals[-1].version, True

    def bound(self, max_offset: Callable[[str, int], int]) -> None:
        """Reduce offsets beyond their queue's end to that end.

        After a power failure under ASYNC_FLUSH the file may have offsets of messages that the disk has lost. Other
        messages get these queue offsets later, and must not count as consumed.

        Args:
            max_offset: Returns the end of a queue of a topic.
        """
        for topic, groups in self._offsets.items():
            for group, queues in groups.items():
                for queue_id, offset in queues.items():
                    end = max_offset(topic, queue_id)
                    if offset > end:
                        logger.warning(
                            "group %s: its offset in %s queue %d was %d, beyond the queue's end %d: set to the end",
                            group, topic, queue_id, offset, end,
                        )  # fmt: skip
                        queues[queue_id] = end
                        self._dirty = True

    def commit(self, group: str, topic: str, queue_id: int, offset: int, client: Connection | None = None) -> None:
        """Set the group's offset in the queue; it may be smaller than before.

        Args:
            group: The consumer group.
            topic: The queue's topic.
            queue_id: The queue's number.
            offset: The offset of the next message that the group is to get.
            client: The connection that commits; None for the broker itself, which no limit applies to.

        Raises:
            Refusal: The group has no offset in the queue yet, and a limit allows no further offset.
        """
        groups = self._offsets.get(topic)
        queues = groups.get(group) if groups is not None else None
        if queues is None or queue_id not in queues:
            self._make_room(group, topic, 1, client)
            queues = self._queues_of(group, topic)
        queues[queue_id] = offset
        self._dirty = True

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the group's offset in the queue; None if it has never committed an offset."""
        groups = self._offsets.get(topic)
        queues = groups.get(group) if groups is not None else None
        return queues.get(queue_id) if queues is not None else None

    def reset(self, group: str, topic: str, queue_id: int, offset: int, client: Connection | None = None) -> None:
        """Set the offset as `commit` does, and answer pull requests with it until `settle_reset`.

        Raises:
            Refusal: The group has no offset in the queue yet, and a limit allows no further offset.
        """
        self.commit(group, topic, queue_id, offset, client)
        self.resets.setdefault((group, topic), {})[queue_id] = Reset(offset)

    def pending_reset(self, group: str, topic: str, queue_id: int) -> Reset | None:
        """Return the reset of the offset that the group has not followed yet; None if there is none."""
        resets = self.resets.get((group, topic)) if self.resets else None
        return resets.get(queue_id) if resets is not None else None

    def settle_reset(self, group: str, topic: str, queue_id: int) -> None:
        """Forget the `pending_reset`, since the group has continued at its offset."""
        resets = self.resets.get((group, topic), {})
        resets.pop(queue_id, None)
        if not resets:
            self.resets.pop((group, topic), None)

    def queues(self, group: str, topic: str) -> Mapping[int, int]:
        """Return the group's offsets in the topic, by queue."""
        return self._offsets.get(topic, {}).get(group, {})

    def topics_of(self, group: str) -> list[str]:
        """Return the topics in which the group has offsets."""
        return list(self._topics.get(group, ()))

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have offsets in the topic."""
        return list(self._offsets.get(topic, ()))

    def remove_group(self, group: str) -> Generator[None, None, None]:
        """Remove all offsets of the group, in steps; the removal is on the disk before the first step.

        Raises:
            OSError: The journal cannot be written; then nothing is removed.
        """
        yield from self._remove_all(_Removal(group=group), [(group, topic) for topic in self.topics_of(group)])

    def remove_topic(self, topic: str) -> Generator[None, None, None]:
        """Remove all offsets in the topic, in steps; the removal is on the disk before the first step.

        Raises:
            OSError: The journal cannot be written; then nothing is removed.
        """
        yield from self._remove_all(_Removal(topic=topic), [(group, topic) for group in self.groups_of(topic)])

    def _remove_all(self, removal: _Removal, pairs: list[tuple[str, str]]) -> Generator[None, None, None]:
        if pairs:
            self._note(removal)
        for group, topic in pairs:
            self._remove(group, topic)
            yield

    def clone(self, source: str, target: str, topic: str, client: Connection | None = None) -> None:
        """Replace the target group's offsets in the topic by the source group's.

        Raises:
            Refusal: A limit does not allow that many offsets more.
        """
        offsets = self._offsets.get(topic, {}).get(source)
        if offsets is None or source == target:
            return
        self._make_room(target, topic, len(offsets) - len(self.queues(target, topic)), client)
        queues = self._queues_of(target, topic)
        queues.clear()
        queues.update(offsets)
        self._dirty = True

    async def take_over(self, data: bytes) -> None:
        """Take over the offsets of a master's table; groups that it does not have keep theirs.

        Args:
            data: The master's table in the form of `body`.

        Raises:
            RemotingError: The data is no such table.
        """
        stored = await asyncio.to_thread(decode_body, data, ConsumerOffsetSerializeWrapper)
        await run_in_steps("taking over the offsets of the master", self._take_over(stored.offset_table))

    def _take_over(self, table: Mapping[str, Mapping[int, int]]) -> Generator[None, None, None]:
        for key, offsets in table.items():
            topic, _, group = key.partition(_SEPARATOR)
            if offsets and self.queues(group, topic) != offsets:
                queues = self._queues_of(group, topic)
                self._count += len(offsets.keys() - queues.keys())
                queues.update(offsets)
                self._dirty = True
            yield

    def table(self) -> dict[str, Mapping[int, int]]:
        """Return all offsets as ``{topic@group: {queue: offset}}``."""
        return {
            topic + _SEPARATOR + group: queues
            for topic, groups in self._offsets.items()
            for group, queues in groups.items()
        }

    def body(self) -> LongBody:
        """Return all offsets in the form of the file and of answers to tools, to be encoded as standard JSON."""
        version = self._version if self._version.counter else None
        wrapper = ConsumerOffsetSerializeWrapper(offset_table={}, data_version=version)
        return LongBody(wrapper, offset_table=Entries(self._written_entries()))

    def save(self) -> None:
        """Write ``consumerOffset.json`` if an offset has changed since it was last written, in one step.

        Raises:
            OSError: The file cannot be written.
        """
        if self._dirty:
            self._journal.begin_merge(self._version)
            self._file.write(b"".join(encode_in_pieces(self.body(), standard_json=True)))
            self._journal.end_merge()
            self._dirty = False

    async def save_periodically(self, store: MessageStore) -> None:
        """Write the file every ``flushConsumerOffsetInterval`` milliseconds; runs until cancelled.

        The commit log is flushed before the file. A message that failed was stored again for a redelivery, perhaps not
        flushed yet, before its offset was committed. If the offset reached the disk without the redelivery, a power
        failure would lose the message.
        """
        while True:
            await asyncio.sleep(self._settings.flush_consumer_offset_interval / 1000)
            if not self._dirty:
                continue
            self._dirty = False
            try:
                self._journal.begin_merge(self._version)
                pieces = encode_in_pieces(self.body(), standard_json=True)
                offsets = await run_in_steps("encoding the consumer offsets", collected(pieces))
                end = store.max_commit_log_offset
                while not await store.flush_to(end):  # noqa: ASYNC110 - a slow disk reports no completion to wait for
                    await asyncio.sleep(self._settings.flush_consumer_offset_interval / 1000)
                await self._file.write_and_sync(offsets)
                self._journal.end_merge()
            except BaseException as e:
                self._dirty = True
                if not isinstance(e, OSError):
                    raise
                logger.error("could not write the consumer offsets, trying again: %s", e)

    def _queues_of(self, group: str, topic: str) -> dict[int, int]:
        """Return the group's offsets in the topic, created empty if it has none."""
        self._topics.setdefault(group, {})[topic] = None
        return self._offsets.setdefault(topic, {}).setdefault(group, {})

    def _remove(self, group: str, topic: str) -> None:
        """Remove the group's offsets in the topic, if there are any."""
        groups = self._offsets.get(topic, {})
        self._count -= len(groups.pop(group, ()))
        if not groups:
            self._offsets.pop(topic, None)
        topics = self._topics.get(group, {})
        topics.pop(topic, None)
        if not topics:
            self._topics.pop(group, None)
        self.resets.pop((group, topic), None)
        for owner, number in self._owners.pop((group, topic), {}).items():
            self._quota.count(-number, owner)
        self._dirty = True

    def _make_room(self, group: str, topic: str, more: int, client: Connection | None) -> None:
        """Count further offsets of the group in the topic.

        Raises:
            Refusal: The limit of all offsets, or the quota of the group or of the client's address, is reached.
        """
        if client is not None and more > 0:
            if self._count + more > MAX_OFFSETS:
                raise Refusal(
                    ResponseCode.SYSTEM_ERROR,
                    f"this broker keeps {MAX_OFFSETS} offsets at most: delete unused groups or topics",
                )
            owners = owner_group(group), client.counted_as
            self._quota.check(more, *owners)
            self._quota.count(more, *owners)
            numbers = dict.fromkeys(filter(None, owners), more)
            self._owners.setdefault((group, topic), Counter()).update(numbers)
        self._count += more

    def _note(self, removal: _Removal) -> None:
        version = self._version.next(0)
        self._journal.append(version, [removal])
        self._version = version

    def _written_entries(self) -> Iterator[bytes]:
        """Yield encoded entries of ``offsetTable``, several at once; changes meanwhile may be among them or not."""
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
