"""Delivery of delayed messages to their real topics, as by Apache's ScheduleMessageService.

Each level has a queue of the schedule topic, and an offset before which all messages have been delivered. All messages
of a level have the same delay, so they are due in the order of the queue, and only the first one has to be watched::

    queue of level 3     delivered delivered │ due 12:00:01   due 12:00:04   due 12:00:09
                                      offset ┘ └ one timer

A level waits for its timer or, if its queue is empty, for the arrival of a message; Apache's service polls each level
ten times a second instead.

The offsets are kept in Apache's ``delayOffset.json``, written within ``flushDelayOffsetInterval`` after a delivery and
at the stop. The delivered messages are flushed before: otherwise a power failure could lose messages that the offsets
have passed. A killed broker delivers again what it delivered since the last write: delivery is at least once.
"""

import asyncio
import logging
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

import msgspec

from rocket_broker.files.table_file import TableFile
from rocket_broker.loop.loop_steps import BackgroundSteps
from rocket_broker.settings.delay_levels import SCHEDULE_TOPIC, DelayLevels
from rocket_broker.statistics import BrokerStatistics
from rocket_broker.store.message_store import MessageStore
from rocket_broker.store.messages import PutStatus
from rocket_broker.writing.message_writer import MessageWriter
from rocket_remoting.clock import Clock
from rocket_remoting.wire.bodies import KeyedBody, decode_body
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.properties import PROPERTY_REAL_QUEUE_ID, PROPERTY_REAL_TOPIC
from rocket_remoting.wire.record import decode_record
from rocket_remoting.wire.topics import SCHEDULE_GROUP

__all__ = ["DelayService"]

logger = logging.getLogger(__name__)

DELIVER_AT_ONCE = 500
"""Entries of a level that are read together; their messages are delivered one by one, in steps."""
RETRY_SECONDS = 1.0
LONGEST_WAIT = 30.0
"""Maximum seconds of a wait, since meanwhile the wall clock may be set or the machine may sleep."""


class _Stored(KeyedBody, kw_only=True):
    """``{"offsetTable": {level: offset}}``"""

    offset_table: dict[int, int] = msgspec.field(default_factory=dict)


class DelayService:
    """The levels' offsets and timers.

    Attributes:
        offsets: For each level, the offset of the first message that is not delivered yet.
    """

    def __init__(
        self,
        *,
        levels: DelayLevels,
        store: MessageStore,
        writer: MessageWriter,
        clock: Clock,
        path: Path,
        flush_interval_ms: int,
        statistics: BrokerStatistics,
    ) -> None:
        self.offsets: dict[int, int] = {}
        self._levels = levels
        self._store = store
        self._writer = writer
        self._clock = clock
        self._file = TableFile(path)
        self._flush_seconds = flush_interval_ms / 1000
        self._statistics = statistics
        self._timers: dict[int, asyncio.Handle] = {}
        self._running: set[int] = set()
        self._background = BackgroundSteps()
        self._save_timer: asyncio.TimerHandle | None = None
        self._saving: asyncio.Task[None] | None = None
        self._saved: dict[int, int] = {}

    def load(self) -> None:
        """Read ``delayOffset.json``; move an offset outside of its queue to the nearest one inside.

        Raises:
            DamagedTable: The file and its backup are both unreadable.
            TableUnreadable: The file system refuses to read the file.
        """
        stored = self._file.load(lambda data: decode_body(data, _Stored))
        self._saved = dict(stored.offset_table) if stored is not None else {}
        self.offsets = dict(self._saved)
        for level in self._levels:
            queue = level - 1
            low = max(0, self._store.min_offset(SCHEDULE_TOPIC, queue))
            high = max(low, self._store.max_offset(SCHEDULE_TOPIC, queue))
            known = self.offsets.get(level, 0)
            if not low <= known <= high:
                logger.warning("delay level %d: offset %d is outside its queue, %d to %d", level, known, low, high)
            self.offsets[level] = min(max(known, low), high)
        for queue in self._store.topics_with_queues().get(SCHEDULE_TOPIC, []):
            waiting = self._store.max_offset(SCHEDULE_TOPIC, queue) - self._saved.get(queue + 1, 0)
            if queue >= self._levels.max_level and waiting > 0:
                logger.warning(
                    "delay level %d is not in messageDelayLevel any more: %d message(s) wait until it is added again",
                    queue + 1, waiting,
                )  # fmt: skip

    def take_over(self, data: bytes) -> None:
        """Take over the offsets of a master, and write them; a slave does not deliver.

        Args:
            data: The content of the master's ``delayOffset.json``.

        Raises:
            RemotingError: The data is not that.
            OSError: The file cannot be written.
        """
        self.offsets |= decode_body(data, _Stored).offset_table
        self.save()

    def start(self) -> None:
        """Begin to deliver."""
        self._store.topic_listeners[SCHEDULE_TOPIC] = self._arrived
        for level in self._levels:
            self._run(level)
        self._save_soon()

    def stop(self) -> None:
        """Stop delivering, and write the offsets."""
        del self._store.topic_listeners[SCHEDULE_TOPIC]
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._background.stop()
        if self._save_timer is not None:
            self._save_timer.cancel()
            self._save_timer = None
        if self._saving is not None:
            self._saving.cancel()
        try:
            self.save()
        except OSError as e:
            logger.error("could not write the delay offsets; the next start uses what was written before: %s", e)

    def save(self) -> None:
        """Write ``delayOffset.json`` if messages were delivered since it was last written.

        Raises:
            OSError: The file cannot be written.
        """
        if self.offsets != self._saved:
            self._file.write(self.encode())
            self._saved = dict(self.offsets)

    def encode(self) -> bytes:
        """Return the content of ``delayOffset.json``."""
        return _encoded(self.offsets)

    def backlog(self) -> Mapping[int, tuple[int, int]]:
        """Return the offset and the queue's end of each level that was ever used."""
        ends = {level: self._store.max_offset(SCHEDULE_TOPIC, level - 1) for level in self._levels}
        return {level: (self.offsets.get(level, 0), end) for level, end in ends.items() if end > 0}

    def _arrived(
        self, topic: str, queue_id: int, queue_offset: int, tags_codes: Sequence[int], store_timestamp: int
    ) -> None:
        """Run a level whose queue was empty until now; the store calls this for all messages of the topic."""
        level = queue_id + 1
        # A level with a timer waits for an earlier message, which is due first. A running level looks at
        # the queue's end when it is done. Only an empty level needs to be woken.
        if level not in self._timers and level not in self._running:
            self._timers[level] = asyncio.get_running_loop().call_soon(self._run, level)

    def _save_soon(self) -> None:
        """Schedule a write of the offsets if they have changed."""
        is_saving = self._save_timer is not None or (self._saving is not None and not self._saving.done())
        if self.offsets != self._saved and not is_saving:
            loop = asyncio.get_running_loop()
            self._save_timer = loop.call_later(self._flush_seconds, self._save)

    def _save(self) -> None:
        self._save_timer = None
        self._saving = asyncio.create_task(self._save_what_is_on_the_disk(), name="delay offsets")
        self._saving.add_done_callback(self._saving_ended)

    def _saving_ended(self, saving: "asyncio.Task[None]") -> None:
        if not saving.cancelled():
            self._save_soon()  # for offsets that moved meanwhile, or could not be written

    async def _save_what_is_on_the_disk(self) -> None:
        """Flush the delivered messages, then write the offsets: a power failure must not lose these messages."""
        # Both are read in one step of the loop: every message that these offsets have passed lies before
        # `delivered`.
        offsets, delivered = dict(self.offsets), self._store.max_commit_log_offset
        try:
            if await self._store.flush_to(delivered):
                await self._file.write_and_sync([_encoded(offsets)])
                self._saved = offsets
        except OSError as e:
            logger.error("could not write the delay offsets, trying again: %s", e)

    def _run(self, level: int) -> None:
        """Begin to deliver the level's due messages."""
        self._timers.pop(level, None)
        if level <= self._levels.max_level and level not in self._running:
            self._running.add(level)
            self._background.add("delivering delayed messages", self._run_steps(level))

    def _run_steps(self, level: int) -> Generator[None, None, None]:
        """Deliver the level's due messages, and set the timer for the next one."""
        try:
            wait = yield from self._deliver_due(level)
        except Exception:  # one bad message, or the disk, must not end the level
            logger.exception("delay level %d: delivery failed, trying again", level)
            wait = RETRY_SECONDS
        finally:
            # Nothing runs between this and the new timer, so `_arrived` finds the level either running or
            # with a timer.
            self._running.discard(level)
        self._save_soon()
        if wait is None:
            return
        loop = asyncio.get_running_loop()
        self._timers[level] = loop.call_later(wait, self._run, level) if wait else loop.call_soon(self._run, level)

    def _deliver_due(self, level: int) -> Generator[None, None, float | None]:
        """Deliver the due messages, and yield after each.

        Returns:
            Seconds until the level is checked again; None if its queue is empty.
        """
        queue = level - 1
        entries = list(
            self._store.consume_queue_entries(SCHEDULE_TOPIC, queue, self.offsets.get(level, 0), DELIVER_AT_ONCE)
        )
        now = self._clock.now_ms()
        latest = now + self._levels.delay_ms(level)
        # Entries of this topic have the due time in place of the tags code, as Apache's CommitLog writes
        # them.
        for offset, commit_log_offset, size, due in entries:
            # A due time further away than the level's delay stems from other settings or a changed clock: deliver now.
            if now < due <= latest:
                return min((due - now) / 1000, LONGEST_WAIT)
            if not self._deliver(level, commit_log_offset, size):
                return RETRY_SECONDS
            # After the delivery: a kill in between delivers the message twice instead of never.
            self.offsets[level] = offset + 1
            yield
        return self._after(level, bool(entries))

    def _after(self, level: int, found: bool) -> float | None:
        """Return the seconds until the level is checked again, after all entries that were read are delivered."""
        queue, offset = level - 1, self.offsets.get(level, 0)
        end = self._store.max_offset(SCHEDULE_TOPIC, queue)
        if offset >= end:
            return None
        if not found:  # deleted, or a hole at a file's end: continue behind it
            low = self._store.min_offset(SCHEDULE_TOPIC, queue)
            self.offsets[level] = low if low > offset else end
        return 0.0

    def _deliver(self, level: int, commit_log_offset: int, size: int) -> bool:
        """Store the message in its real topic and queue; return False if the store cannot take it now."""
        record = self._store.message_at(commit_log_offset, size)
        try:
            if record is None:
                raise RemoteProtocolError("no record")
            message = decode_record(record, decompress=False)
            topic = message.properties[PROPERTY_REAL_TOPIC]
            queue_id = int(message.properties[PROPERTY_REAL_QUEUE_ID])
        except (RemoteProtocolError, KeyError, ValueError) as e:
            logger.error("delay level %d: the message at %d cannot be delivered: %r", level, commit_log_offset, e)
            # The message is skipped: returning False would hold up the level, and so all messages behind
            # this one, forever.
            return True
        result = self._writer.put_again(message, topic, queue_id, message.properties)
        status = result.status
        if status is PutStatus.OK:
            self._statistics.puts[topic].count(1, result.size)
            self._statistics.gets[SCHEDULE_TOPIC, SCHEDULE_GROUP].count(1, size)
        if status.is_permanent:
            logger.error("%r for %s cannot be delivered and is skipped: %s", message, topic, status.value)
            return True
        return status is PutStatus.OK


def _encoded(offsets: Mapping[int, int]) -> bytes:
    reached = {level: offset for level, offset in offsets.items() if offset}
    return msgspec.json.encode(_Stored(offset_table=reached))
