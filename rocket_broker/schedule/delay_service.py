"""Brings delayed messages to where they belong when they are due.

For each level there is one queue of the schedule topic and one offset: everything before it has been
delivered. All messages of a level wait equally long, so only the head needs to be looked at. A level waits on
one timer for its head, or, when its queue is empty, for the arrival of a message: nothing polls.

The offsets are kept in Apache's ``delayOffset.json``, written a second after something was delivered and at the end,
always after what they say was delivered is on the disk. A killed broker delivers again what it delivered since:
delivery is at least once. While nothing is delivered nothing is written.
"""

import asyncio
import logging
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

import msgspec

from rocket_broker.files.table_file import TableFile
from rocket_broker.loop.loop_steps import BackgroundSteps
from rocket_broker.settings.delay_levels import SCHEDULE_TOPIC, DelayLevels
from rocket_broker.store.message_store import MessageStore
from rocket_broker.store.messages import PutStatus
from rocket_broker.writing.message_writer import MessageWriter
from rocket_remoting.clock import Clock
from rocket_remoting.wire.bodies import KeyedBody, decode_body
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.message import MessageExt
from rocket_remoting.wire.properties import (
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
)
from rocket_remoting.wire.record import decode_record

__all__ = ["DelayService"]

logger = logging.getLogger(__name__)

DELIVER_AT_ONCE = 500
"""So many entries of a level are looked at together; their messages are delivered one after the other, in steps."""
RETRY_SECONDS = 1.0
LONGEST_WAIT = 30.0
"""No wait for a due time is longer: the wall clock may be set, or the machine sleep, meanwhile."""

_NEVER = (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED)
"""What is refused so is refused again: it must not hold up its level."""


class _Stored(KeyedBody, kw_only=True):
    """``{"offsetTable": {level: offset}}``"""

    offset_table: dict[int, int] = msgspec.field(default_factory=dict)


class DelayService:
    """The levels' offsets and timers.

    Attributes:
        offsets: Level -> offset of the first message that is not delivered yet.
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
    ) -> None:
        self.offsets: dict[int, int] = {}
        self._levels = levels
        self._store = store
        self._writer = writer
        self._clock = clock
        self._file = TableFile(path)
        self._flush_seconds = flush_interval_ms / 1000
        self._timers: dict[int, asyncio.Handle] = {}
        self._running: set[int] = set()
        self._background = BackgroundSteps()
        self._save_timer: asyncio.TimerHandle | None = None
        self._saving: asyncio.Task[None] | None = None
        self._saved: dict[int, int] = {}

    def load(self) -> None:
        """Read ``delayOffset.json``; an offset outside its queue is moved to the nearest one inside.

        Raises:
            DamagedTable: Neither the file nor its backup can be read.
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
                logger.warning(
                    "delay level %d: offset %d is outside its queue, %d to %d", level, known, low, high
                )
            self.offsets[level] = min(max(known, low), high)
        for queue in self._store.topics_with_queues().get(SCHEDULE_TOPIC, []):
            waiting = self._store.max_offset(SCHEDULE_TOPIC, queue) - self._saved.get(queue + 1, 0)
            if queue >= self._levels.max_level and waiting > 0:
                logger.warning(
                    "delay level %d is not in messageDelayLevel any more: %d messages wait until it is",
                    queue + 1, waiting,
                )  # fmt: skip

    def start(self) -> None:
        """Deliver from now on."""
        self._store.arrival_listeners.append(self._arrived)
        for level in self._levels:
            self._run(level)
        self._save_soon()

    def stop(self) -> None:
        """Deliver no more, and write the offsets."""
        self._store.arrival_listeners.remove(self._arrived)
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
            logger.error("delay offsets could not be written; the next start goes back to before: %s", e)

    def save(self) -> None:
        """Write ``delayOffset.json`` if anything was delivered since it was last written.

        Raises:
            OSError: It cannot be written.
        """
        if self.offsets != self._saved:
            self._file.write(self.encode())
            self._saved = dict(self.offsets)

    def encode(self) -> bytes:
        """Return the content of ``delayOffset.json``."""
        return _encoded(self.offsets)

    def backlog(self) -> Mapping[int, tuple[int, int]]:
        """Return the levels that were ever used, with the offset delivered to and the queue's end."""
        ends = {level: self._store.max_offset(SCHEDULE_TOPIC, level - 1) for level in self._levels}
        return {level: (self.offsets.get(level, 0), end) for level, end in ends.items() if end > 0}

    def _arrived(
        self, topic: str, queue_id: int, queue_offset: int, tags_codes: Sequence[int], store_timestamp: int
    ) -> None:
        """Look at a level whose queue was empty until now; the store calls this for all it stores."""
        level = queue_id + 1
        if topic == SCHEDULE_TOPIC and level not in self._timers and level not in self._running:
            self._timers[level] = asyncio.get_running_loop().call_soon(self._run, level)

    def _save_soon(self) -> None:
        """Write the offsets within the interval if they have changed."""
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
            self._save_soon()  # what moved meanwhile, or could not be written

    async def _save_what_is_on_the_disk(self) -> None:
        """Write the offsets when what they say was delivered is on the disk: it must not be passed over."""
        offsets, delivered = dict(self.offsets), self._store.max_commit_log_offset
        try:
            if await self._store.flush_to(delivered):
                await self._file.write_and_sync([_encoded(offsets)])
                self._saved = offsets
        except OSError as e:
            logger.error("delay offsets could not be written, trying again: %s", e)

    def _run(self, level: int) -> None:
        """Begin to deliver what is due of the level."""
        self._timers.pop(level, None)
        if level <= self._levels.max_level and level not in self._running:
            self._running.add(level)
            self._background.add("delayed messages are delivered", self._run_steps(level))

    def _run_steps(self, level: int) -> Generator[None, None, None]:
        """Deliver what is due of the level, and set the timer for what is not."""
        try:
            wait = yield from self._deliver_due(level)
        except Exception:  # whatever is wrong with one message or the disk: the level goes on
            logger.exception("delay level %d: trying again", level)
            wait = RETRY_SECONDS
        finally:
            self._running.discard(level)
        self._save_soon()
        if wait is None:
            return
        loop = asyncio.get_running_loop()
        self._timers[level] = (
            loop.call_later(wait, self._run, level) if wait else loop.call_soon(self._run, level)
        )

    def _deliver_due(self, level: int) -> Generator[None, None, float | None]:
        """Deliver what is due, and yield after each message.

        Return how many seconds later to look again; None when the queue is empty.
        """
        queue = level - 1
        entries = list(
            self._store.consume_queue_entries(
                SCHEDULE_TOPIC, queue, self.offsets.get(level, 0), DELIVER_AT_ONCE
            )
        )
        now = self._clock.now_ms()
        latest = now + self._levels.delay_ms(level)
        for offset, commit_log_offset, size, due in entries:
            # A due time further away than the level's delay was reckoned with an older table: due now.
            if now < due <= latest:
                return min((due - now) / 1000, LONGEST_WAIT)
            if not self._deliver(level, commit_log_offset, size):
                return RETRY_SECONDS
            self.offsets[level] = offset + 1
            yield
        return self._after(level, bool(entries))

    def _after(self, level: int, found: bool) -> float | None:
        """Return when to look again after everything that was found is delivered."""
        queue, offset = level - 1, self.offsets.get(level, 0)
        end = self._store.max_offset(SCHEDULE_TOPIC, queue)
        if offset >= end:
            return None
        if not found:  # deleted, or a hole at a file's end: go on behind it
            low = self._store.min_offset(SCHEDULE_TOPIC, queue)
            self.offsets[level] = low if low > offset else end
        return 0.0

    def _deliver(self, level: int, commit_log_offset: int, size: int) -> bool:
        """Store the message where it belongs; False when the store could not take it now."""
        record = self._store.message_at(commit_log_offset, size)
        try:
            if record is None:
                raise RemoteProtocolError("no record")
            message = decode_record(record, decompress=False)
            topic = message.properties[PROPERTY_REAL_TOPIC]
            queue_id = int(message.properties[PROPERTY_REAL_QUEUE_ID])
        except (RemoteProtocolError, KeyError, ValueError) as e:
            logger.error(
                "delay level %d: the message at %d cannot be delivered: %r", level, commit_log_offset, e
            )
            return True
        return self._put(message, topic, queue_id)

    def _put(self, message: MessageExt, topic: str, queue_id: int) -> bool:
        result = self._writer.put(
            topic,
            queue_id,
            message.body,
            message.properties,
            flag=message.flag,
            sys_flag=message.sys_flag,
            born_timestamp=message.born_timestamp,
            born_host=message.born_host,
            reconsume_times=message.reconsume_times,
            may_delay=False,
            was_stored=True,
        )
        if result.status in _NEVER:
            logger.error(
                "%r for %s cannot be delivered and is skipped: %s", message, topic, result.status.value
            )
            return True
        return result.status is PutStatus.OK


def _encoded(offsets: Mapping[int, int]) -> bytes:
    reached = {level: offset for level, offset in offsets.items() if offset}
    return msgspec.json.encode(_Stored(offset_table=reached))
