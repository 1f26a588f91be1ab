"""Delivery of timed messages to their real topics, compatible with Apache 5.x's TimerMessageStore.

::

    rmq_sys_wheel_timer ──► a timer for its moment ──► moment over ──► real topic
            ▲                                              │
            └───── stored again, if beyond the window ◄────┘

A timed message is stored in the system topic rmq_sys_wheel_timer, and gets a timer at once, or after a restart when
its turn comes: the queue offset in the checkpoint says which messages have timers. When a moment is over, its messages
are stored in their real topics in the order of their arrival, except those that another message of the moment cancels.
The loop sleeps until the next moment with timers, or until a message arrives.

Delivery is at least once: a killed broker delivers again the moments since the last checkpoint, about a second.
"""

import asyncio
import logging
from array import array
from collections.abc import Mapping, Sequence

from rocket_broker.loop.loop_steps import LoopTurns
from rocket_broker.schedule.timer_checkpoint import TimerProgress
from rocket_broker.schedule.timer_log import CANCELS, ROLLS, TimerUnit
from rocket_broker.schedule.timer_store import TimerStore
from rocket_broker.settings.timer_settings import TimerSettings
from rocket_broker.statistics import BrokerStatistics
from rocket_broker.store.errors import StoreFull
from rocket_broker.store.message_store import MessageStore
from rocket_broker.store.messages import PutStatus
from rocket_broker.writing.message_writer import MessageWriter
from rocket_remoting.clock import Clock
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.java_hash import java_hash
from rocket_remoting.wire.properties import (
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_DEQUEUE_MS,
    PROPERTY_TIMER_ENQUEUE_MS,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TIMER_ROLL_TIMES,
    PROPERTY_UNIQUE_KEY,
    decode_stored_properties,
)
from rocket_remoting.wire.record import decode_record, peek_record
from rocket_remoting.wire.topics import TIMER_TOPIC

__all__ = ["TIMER_QUEUE", "TimerService", "cancel_key"]

logger = logging.getLogger(__name__)

TIMER_QUEUE = 0
HANDLED_AT_ONCE = 200
"""Entries of the queue that are read together."""
RETRY_SECONDS = 1.0
LONGEST_WAIT = 60.0
"""Maximum seconds of a wait, since meanwhile the wall clock may be set or the machine may sleep."""

_NEVER_WAITED = 2**63 - 1
"""The time of the timer, as Apache's brokers write it, of a message that was due before it got one."""


class TimerService:
    """Adds timers, delivers due messages, and flushes the files."""

    def __init__(
        self,
        settings: TimerSettings,
        *,
        store: MessageStore,
        writer: MessageWriter,
        clock: Clock,
        statistics: BrokerStatistics,
    ) -> None:
        self._precision = settings.precision_ms
        self._flush_seconds = settings.flush_interval_ms / 1000
        self._store = store
        self._writer = writer
        self._clock = clock
        self._statistics = statistics
        self._files = TimerStore(settings, store.file_system)
        self._have_timers: frozenset[int] = frozenset()
        self._rolled: set[tuple[str, int]] = set()
        """Key and number of rolls of messages of which there is a copy that has rolled once more."""
        self._arrivals = asyncio.Event()
        self._changes = asyncio.Event()
        self._is_stopping = False
        self._turns = LoopTurns("handling timed messages")
        self._tasks: list[asyncio.Task[None]] = []

    def load(self) -> None:
        """Open the timers' files.

        Raises:
            StoreError: A file's size differs from the settings.
            OSError: A file cannot be read or written.
        """
        files = self._files
        self._have_timers = files.load(self._clock.now_ms(), self._store.max_commit_log_offset)
        low = self._store.min_offset(TIMER_TOPIC, TIMER_QUEUE)
        high = self._store.max_offset(TIMER_TOPIC, TIMER_QUEUE)
        files.queue_offset = min(max(files.queue_offset, low), max(low, high))

    def start(self, name: str) -> None:
        """Begin to deliver; ``name`` is for the names of the tasks."""
        self._store.topic_listeners[TIMER_TOPIC] = self._arrived
        self._tasks = [
            asyncio.create_task(self._run(), name=f"{name}: timers"),
            asyncio.create_task(self._flush_often(), name=f"{name}: timer files"),
        ]

    async def stop(self) -> None:
        """Finish the moment that is being delivered, stop delivering, and flush the files."""
        del self._store.topic_listeners[TIMER_TOPIC]
        self._is_stopping = True
        self._arrivals.set()
        running, flushing = self._tasks
        flushing.cancel()
        await asyncio.gather(running, flushing, return_exceptions=True)
        if self._files.is_dirty:
            try:
                await self._flush()
            except OSError as e:
                logger.error("could not write the timers' files; the next start uses what was written before: %s", e)

    def count(self, moment: int) -> int:
        """Return the number of messages that wait for a moment, given in milliseconds since 1970."""
        return self._files.count(moment)

    @property
    def progress(self) -> TimerProgress:
        """What has been delivered and has timers: a slave that has the log up to here delivers the rest if promoted."""
        return self._files.progress

    @property
    def seconds_behind(self) -> int:
        """The seconds by which the delivery is behind the clock."""
        moment = self._files.next()
        return max(self._clock.now_ms() - moment, 0) // 1000 if moment is not None else 0

    @property
    def messages_behind(self) -> int:
        """The number of timed messages that have arrived and have no timer yet."""
        return max(self._store.max_offset(TIMER_TOPIC, TIMER_QUEUE) - self._files.queue_offset, 0)

    def _arrived(
        self, topic: str, queue_id: int, queue_offset: int, tags_codes: Sequence[int], store_timestamp: int
    ) -> None:
        """Wake the loop for a timed message; the store calls this for all messages of the topic."""
        self._arrivals.set()

    async def _run(self) -> None:
        while not self._is_stopping:
            # Before the work: a message that arrives during the work sets the event again, and the sleep
            # ends at once.
            self._arrivals.clear()
            try:
                wait = await self._work()
            except Exception:  # one bad message, or the disk, must not end the loop
                logger.exception("handling timed messages failed, trying again in a second")
                wait = RETRY_SECONDS
            if self._files.is_dirty:
                self._changes.set()
            await self._sleep(wait)

    async def _sleep(self, seconds: float | None) -> None:
        """Sleep for the seconds, or until a message arrives; None: only until a message arrives."""
        try:
            async with asyncio.timeout(None if seconds is None else min(seconds, LONGEST_WAIT)):
                await self._arrivals.wait()
        except TimeoutError:
            pass

    async def _work(self) -> float | None:
        """Deliver due messages and add new timers; return the seconds until the next moment, None if there is none."""
        files = self._files
        files.moment = min(files.moment, files.moment_of(self._clock.now_ms()))  # the clock may be set back
        if not (await self._deliver_due() and await self._add_new_timers()):
            return RETRY_SECONDS
        moment = files.next()
        if moment is None:
            return None
        return max(0.0, (moment + self._precision - self._clock.now_ms()) / 1000)

    # New messages

    async def _add_new_timers(self) -> bool:
        """Add timers for the messages that have none; return False if the store could not take one."""
        files = self._files
        if files.lost is not None:
            await self._find_rolled()
        while files.queue_offset < self._store.max_offset(TIMER_TOPIC, TIMER_QUEUE):
            entries = list(
                self._store.consume_queue_entries(TIMER_TOPIC, TIMER_QUEUE, files.queue_offset, HANDLED_AT_ONCE)
            )
            for number, commit_log_offset, size, _ in entries:
                has_timer = commit_log_offset in self._have_timers
                with self._turns:
                    if not has_timer and not self._add_timer(number, commit_log_offset, size):
                        return False
                # After a restart this is the checkpoint's offset, which may be older. `_have_timers` then
                # says which messages from there on have timers already.
                files.queue_offset = number + 1
                files.is_dirty = True
                await self._turns.next()
            if not entries:  # deleted, or a hole at a file's end: continue behind it
                low = self._store.min_offset(TIMER_TOPIC, TIMER_QUEUE)
                end = self._store.max_offset(TIMER_TOPIC, TIMER_QUEUE)
                files.queue_offset = low if low > files.queue_offset else end
            files.is_dirty = True
            if self._is_stopping:
                return True
            await self._turns.next()
        self._have_timers = frozenset()
        self._rolled.clear()
        files.lost = None
        return True

    async def _find_rolled(self) -> None:
        """Find the messages that were stored again for a later timer: only the last of these copies gets a timer."""
        number = self._store.min_offset(TIMER_TOPIC, TIMER_QUEUE)
        while entries := list(self._store.consume_queue_entries(TIMER_TOPIC, TIMER_QUEUE, number, HANDLED_AT_ONCE)):
            for at, commit_log_offset, size, _ in entries:
                with self._turns:
                    key, rolls = _roll_of(self._properties_at(commit_log_offset, size))
                    if key and rolls:
                        self._rolled.add((key, rolls - 1))
                    number = at + 1
                await self._turns.next()

    def _add_timer(self, number: int, commit_log_offset: int, size: int) -> bool:
        """Add a timer for a message, or deliver it if its moment is over; return False if the store is full."""
        try:
            record = self._store.message_at(commit_log_offset, size)
            properties = decode_stored_properties(peek_record(record).properties) if record is not None else {}
            moment = int(properties[PROPERTY_TIMER_OUT_MS])
            topic = properties[PROPERTY_REAL_TOPIC]
        except (RemoteProtocolError, KeyError, ValueError) as e:
            logger.error("the timed message at %d cannot be delivered: %r", commit_log_offset, e)
            return True
        lost = self._files.lost
        if lost is not None:
            if number < lost.masters_queue_offset and self._files.moment_of(moment) < lost.moment:
                return True  # it was delivered before the timers were lost
            if _roll_of(properties) in self._rolled:
                return True  # it was stored again, with the same moment
        now = self._clock.now_ms()
        cancels = PROPERTY_TIMER_DEL_UNIQKEY in properties
        if moment < self._files.moment_of(now):
            return cancels or self._deliver(commit_log_offset, size, _NEVER_WAITED, rolls=False)
        try:
            self._files.add(
                moment,
                now,
                cancels=cancels,
                commit_log_offset=commit_log_offset,
                size=size,
                topic_hash=java_hash(topic),
            )
        except (StoreFull, OSError) as e:
            logger.error("could not store a timer, trying again: %s", e)
            return False
        return True

    # Due messages

    async def _deliver_due(self) -> bool:
        """Deliver the moments that are over; return False if the store cannot take a message now."""
        files = self._files
        while (moment := files.next()) is not None and moment + self._precision <= self._clock.now_ms():
            if not await self._deliver_moment(moment):
                return False
            with self._turns:
                files.mark_delivered(moment)
            if self._is_stopping:
                return True
            await self._turns.next()
        files.moment = max(files.moment, files.moment_of(self._clock.now_ms()))
        return True

    async def _deliver_moment(self, moment: int) -> bool:
        places, cancelled = await self._timers_of(moment)
        # The chain leads from the newest timer to the oldest; consumers get the messages in the order of
        # arrival.
        for at in reversed(places):
            while not self._deliver_timer(at, cancelled):
                if self._is_stopping:
                    return False
                await asyncio.sleep(RETRY_SECONDS)
            await self._turns.next()
        return True

    def _deliver_timer(self, at: int, cancelled: set[str]) -> bool:
        """Deliver the message of a timer unless it is cancelled; return False if the store cannot take it now."""
        with self._turns:
            unit = self._files.timer(at)
            if unit is None or (cancelled and self._is_cancelled(unit, cancelled)):
                return True
            rolls = bool(unit.bits & ROLLS)
            return self._deliver(unit.commit_log_offset, unit.size, unit.written_ms, rolls=rolls)

    async def _timers_of(self, moment: int) -> tuple["array[int]", set[str]]:
        """Return the positions of a moment's timers, newest first, and the keys of the messages that others cancel.

        There may be a million timers, so only eight bytes are kept of each.
        """
        places, keys = array("q"), set[str]()
        for at, unit in self._files.timers(moment):
            if unit.bits & CANCELS and not unit.bits & ROLLS:
                keys.add(self._properties(unit).get(PROPERTY_TIMER_DEL_UNIQKEY, ""))
            else:
                places.append(at)
            await self._turns.next()
        return places, keys

    def _is_cancelled(self, unit: TimerUnit, keys: set[str]) -> bool:
        if unit.bits & ROLLS:
            return False
        properties = self._properties(unit)
        key = properties.get(PROPERTY_UNIQUE_KEY, "")
        # Senders to brokers before 5.3 give the unique key without the topic.
        return bool(key) and (cancel_key(properties.get(PROPERTY_REAL_TOPIC, ""), key) in keys or key in keys)

    def _properties(self, unit: TimerUnit) -> Mapping[str, str]:
        return self._properties_at(unit.commit_log_offset, unit.size)

    def _properties_at(self, commit_log_offset: int, size: int) -> Mapping[str, str]:
        record = self._store.message_at(commit_log_offset, size)
        try:
            return decode_stored_properties(peek_record(record).properties) if record is not None else {}
        except RemoteProtocolError:
            return {}

    def _deliver(self, commit_log_offset: int, size: int, timed_ms: int, *, rolls: bool) -> bool:
        """Store the message in its real topic, or again for a later timer; return False if the store refuses now."""
        record = self._store.message_at(commit_log_offset, size)
        try:
            if record is None:
                raise RemoteProtocolError("no record")
            message = decode_record(record, decompress=False)
            properties = message.properties
            added = {
                PROPERTY_TIMER_ENQUEUE_MS: str(timed_ms),
                PROPERTY_TIMER_DEQUEUE_MS: str(self._clock.now_ms()),
            }
            if rolls:
                topic, queue_id = TIMER_TOPIC, TIMER_QUEUE
                rolled = int(properties.get(PROPERTY_TIMER_ROLL_TIMES, "0"))
                added[PROPERTY_TIMER_ROLL_TIMES] = str(rolled + 1)
            else:
                topic, queue_id = properties[PROPERTY_REAL_TOPIC], int(properties[PROPERTY_REAL_QUEUE_ID])
        except (RemoteProtocolError, KeyError, ValueError) as e:
            logger.error("the timed message at %d cannot be delivered: %r", commit_log_offset, e)
            return True
        result = self._writer.put_again(message, topic, queue_id, properties | added)
        if result.status is PutStatus.PROPERTIES_SIZE_EXCEEDED:  # store it without the added properties
            result = self._writer.put_again(message, topic, queue_id, properties)
        status = result.status
        if status is PutStatus.OK:
            self._statistics.puts[topic].count(1, result.size)
        if status.is_permanent:
            logger.error("%r for %s cannot be delivered and is skipped: %s", message, topic, status.value)
            return True
        return status is PutStatus.OK

    # Files

    async def _flush_often(self) -> None:
        while True:
            await self._changes.wait()
            await asyncio.sleep(self._flush_seconds)
            self._changes.clear()
            try:
                await self._flush()
            except OSError as e:
                logger.error("could not write the timers' files, trying again: %s", e)
            if self._files.is_dirty:
                self._changes.set()

    async def _flush(self) -> None:
        """Flush wheel and log, then the delivered messages, and write the checkpoint last, as it passes them over."""
        files = self._files
        # All read in one step of the loop, before the thread starts: everything that `progress` has passed
        # is before `delivered`, however much is delivered while the disk is busy.
        progress, lost, delivered = files.progress, files.lost, self._store.max_commit_log_offset
        # Set before the flush, so that a change during the flush is not forgotten.
        files.is_dirty = written = False
        try:
            await asyncio.to_thread(files.sync)
            if lost is None and await self._store.flush_to(delivered):
                files.flushed(progress)
                written = True
        finally:  # also if the task is cancelled at the stop
            files.is_dirty = files.is_dirty or not written


def _roll_of(properties: Mapping[str, str]) -> tuple[str, int]:
    """Return the key of a timed message, and how often it was stored again for a later timer."""
    rolls = properties.get(PROPERTY_TIMER_ROLL_TIMES, "0")
    return properties.get(PROPERTY_UNIQUE_KEY, ""), int(rolls) if rolls.isdecimal() else 0


def cancel_key(topic: str, unique_key: str) -> str:
    """Return the value of TIMER_DEL_UNIQKEY that cancels the message with this key."""
    return f"{topic}+{unique_key}"
