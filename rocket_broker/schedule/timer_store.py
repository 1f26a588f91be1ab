"""Timers on the disk: the wheel, the log that the wheel points into, and the checkpoint, in Apache 5.x's files.

::

    timerwheel  slot of a moment ─────────► last unit ──► the one before ──► first unit      timerlog
                                               └ message in the commit log

A timer is written to the log first, then to its slot of the wheel. `load` recovers:

- After a kill both files are complete except for the last timer; timers that the log has and the wheel lacks are added
  to the wheel.
- After a power failure either file may have lost its newest pages. The log is cut at its last complete unit. A wheel
  that points behind that end, or has another precision, is rebuilt from the log.
- If the log itself lost units that were on the disk, or may lack its first files and there is no wheel to tell, all
  messages of the queue are examined again, and those that are not delivered and have no timer get one.
- A slave has the checkpoint of its master, and no timers. After a promotion its messages are examined in this way.

A message whose moment lies beyond the roll window gets a timer within the window that *rolls*: when it is over, the
message is stored again and gets its next timer.
"""

import logging
from collections.abc import Iterator
from pathlib import Path

from rocket_broker.schedule.timer_checkpoint import TimerCheckpoint, TimerProgress
from rocket_broker.schedule.timer_log import CANCELS, ROLLS, TimerLog, TimerUnit
from rocket_broker.schedule.timer_wheel import Slot, TimerWheel, wheel_size
from rocket_broker.settings.timer_settings import TimerSettings
from rocket_broker.store.files import FileSystem

__all__ = ["TimerStore", "files_of_wrong_size"]

logger = logging.getLogger(__name__)

_NO_SLOT = Slot(-1, -1, 0)
_NOWHERE = 2**62
"""The log end in the checkpoint while lost timers are being replaced: beyond any log, so that a restart begins anew."""


class TimerStore:
    """The timers on the disk, with the progress in memory.

    Attributes:
        moment: Next moment to deliver, in milliseconds since 1970; all earlier ones have been delivered.
        queue_offset: Queue offset of the next message that gets a timer.
        is_dirty: Whether something has changed since the last `flushed`.
        lost: The checkpoint's progress when timers were lost, or when this broker was a slave, until all messages have
            timers: messages before its `masters_queue_offset` whose moment is before its moment were delivered already.
            None if no timers are missing.
    """

    def __init__(self, settings: TimerSettings, file_system: FileSystem) -> None:
        self.moment = 0
        self.queue_offset = 0
        self.is_dirty = False
        self.lost: TimerProgress | None = None
        self._next: int | None = None
        self._next_is_known = False
        self._delivered: set[int] = set()  # slots to clear once delivered messages are flushed
        self._precision = settings.precision_ms
        self._window = settings.roll_window_slots * settings.precision_ms
        self._file_system = file_system
        self._wheel = TimerWheel(settings.wheel_path, settings.wheel_slots, settings.precision_ms, file_system)
        self._log = TimerLog(settings.log_path, settings.log_file_size, file_system)
        self._checkpoint = TimerCheckpoint(settings.checkpoint_path, file_system)

    def load(self, now_ms: int, messages_end: int) -> frozenset[int]:
        """Open the files; return the commit log offsets of messages that may have a timer already.

        These messages lie at `queue_offset` or behind it in the queue.

        Args:
            now_ms: The present time, in milliseconds since 1970.
            messages_end: The end of the commit log: after a power failure timers may lack their messages.

        Raises:
            StoreError: A file's size differs from the settings.
            OSError: A file cannot be read or written.
        """
        progress = self._checkpoint.load() or TimerProgress()
        self.queue_offset = progress.queue_offset
        if progress.masters_queue_offset > progress.queue_offset:
            logger.info("making the timers of the former master from their messages")
            self.lost = progress
        has_wheel = self._wheel.load()
        newest = self._log.load(progress.log_end, messages_end)
        # Killed before the first checkpoint: no moment since the first timer was written has been delivered.
        since = progress.moment or min((unit.written_ms for _, unit in newest), default=now_ms)
        self.moment = self.moment_of(since)
        # Without a wheel it is unknown whether all timers in the deleted first files of the log were delivered.
        lacks_timers = self._leads_before_the_log() if has_wheel else self._log.first > 0
        if self._log.end < progress.log_end or lacks_timers:
            return self._begin_anew(progress)
        if (not has_wheel and self._log.end > self._log.first) or self._wheel_is_doubtful():
            self._rebuild()
        else:
            for at, unit in newest:
                self._link_if_missing(at, unit)
        return frozenset(unit.commit_log_offset for _, unit in newest)

    def moment_of(self, time_ms: int) -> int:
        """Return the moment that a time in milliseconds belongs to."""
        return time_ms - time_ms % self._precision

    def count(self, moment: int) -> int:
        """Return the number of timers of a moment; those that cancel another are subtracted."""
        return self._slot(self.moment_of(moment)).number

    def add(self, due: int, now_ms: int, *, cancels: bool, commit_log_offset: int, size: int, topic_hash: int) -> None:
        """Add a timer for a message.

        Args:
            due: When the message is due, in milliseconds since 1970.
            now_ms: The present time, in milliseconds since 1970.
            cancels: Whether the timer cancels another.
            commit_log_offset: Offset of the message's record in the commit log.
            size: Length of the record in bytes.
            topic_hash: `java_hash` of the message's topic.

        Raises:
            StoreFull: The disk is full. Nothing has changed.
            OSError: A file could not be created.
        """
        now = self.moment_of(now_ms)
        bits = CANCELS if cancels else 0
        # The wheel has slots only for so long ahead: a moment a whole turn later would take the slot of one
        # that waits.
        if due - now >= self._window:
            bits |= ROLLS
            # Apache's rule: half a window if the rest behind the window is short, so that the last roll is not tiny.
            rest = due - now - self._window
            due = now + (self._window // 2 if rest < self._window // 3 else self._window)
        moment = self.moment_of(due)
        # First of all steps, since it may fail for want of disk space. Then the log, then the slot: a kill
        # in between leaves a unit without a slot, which `load` links; a slot without its unit would lead
        # nowhere.
        self._wheel.reserve(moment)
        slot = self._slot(moment)
        self._delivered.discard(moment)  # the moment comes again if the clock was set back
        at = self._log.append(TimerUnit(slot.last, bits, now, moment, commit_log_offset, size, topic_hash))
        self._put(moment, slot, at, -1 if cancels else 1)
        if self._next is None or moment < self._next:
            self._next = moment
        self.is_dirty = True

    def next(self) -> int | None:
        """Return the next moment with timers; None if there is none."""
        if not self._next_is_known:
            slots = self._wheel.slots(self.moment)
            self._next = next((found for found, _ in slots if found not in self._delivered), None)
            self._next_is_known = True
        return self._next

    def timers(self, moment: int) -> Iterator[tuple[int, TimerUnit]]:
        """Yield the positions and the timers of a moment, newest first."""
        at = self._slot(moment).last
        while at >= 0 and (unit := self._log.read(at)) is not None and self.moment_of(unit.moment) == moment:
            yield at, unit
            # A chain that leads forward could be a circle, and this loop endless.
            if unit.previous >= at:  # damaged: a chain leads only backwards
                break
            at = unit.previous

    def timer(self, at: int) -> TimerUnit | None:
        """Return the timer at the position; None if there is none."""
        return self._log.read(at)

    def mark_delivered(self, moment: int) -> None:
        """Note that all timers up to and including ``moment`` have been delivered."""
        # The slot is not cleared yet, because the delivered messages may not be on the disk. After a power
        # failure the moment is delivered again from its slot.
        self._delivered.add(moment)
        self._next_is_known = False
        self.moment = moment + self._precision
        self.is_dirty = True

    # Flushing: read `progress` in the loop, run `sync` in a thread, then call `flushed` in the loop

    @property
    def progress(self) -> TimerProgress:
        """The present progress, for `flushed`."""
        return TimerProgress(self.moment, self._log.end, self.queue_offset, self.queue_offset)

    def sync(self) -> None:
        """Flush wheel and log to the disk.

        Raises:
            OSError: A file cannot be written.
        """
        for path in self._log.unflushed():
            self._file_system.sync(path)
        self._wheel.sync()

    def flushed(self, progress: TimerProgress) -> None:
        """Write the checkpoint of a progress once `sync` has flushed it and its delivered messages are flushed too.

        Raises:
            OSError: The file cannot be written.
        """
        self._log.flushed = progress.log_end
        # The checkpoint first, then the slots: a power failure in between leaves slots of moments that the
        # checkpoint has passed, which nobody delivers.
        self._checkpoint.write(progress)
        for moment in [moment for moment in self._delivered if moment < progress.moment]:
            self._wheel.clear(moment)
            self._delivered.discard(moment)
        self._log.remove_before(progress.moment, self._window)

    def _slot(self, moment: int) -> Slot:
        return (None if moment in self._delivered else self._wheel.get(moment)) or _NO_SLOT

    # Recovery

    def _put(self, moment: int, slot: Slot, at: int, count: int) -> None:
        first = at if slot.first < 0 else slot.first
        self._wheel.put(moment, Slot(first, at, slot.number + count))

    def _link_if_missing(self, at: int, unit: TimerUnit) -> None:
        moment = self.moment_of(unit.moment)
        if moment < self.moment:
            return
        slot = self._wheel.get(moment) or _NO_SLOT
        # Positions in the log only grow. A slot that ends at this unit or behind it has the unit in its
        # chain.
        if slot.last < at:
            self._link(at, unit, moment, slot)

    def _link(self, at: int, unit: TimerUnit, moment: int, slot: Slot) -> None:
        self._wheel.reserve(moment)
        # The unit may lead to one that was cut off, or that the rebuilt slot does not have.
        if unit.previous != slot.last:
            self._log.link(at, slot.last)
        self._put(moment, slot, at, -1 if unit.bits & CANCELS else 1)

    def _wheel_is_doubtful(self) -> bool:
        """Return whether the wheel has another precision, or points behind the log's end."""
        now = self.moment // self._precision
        # Apache's brokers leave old moments in the wheel, but none that is less than 3/4 of the present one.
        if any(not 3 * now <= 4 * number <= 6 * now for number in self._wheel.moments()):
            return True
        end = self._log.end
        return any(slot.last >= end or slot.first >= end for _, slot in self._wheel.slots(self.moment))

    def _leads_before_the_log(self) -> bool:
        """Return whether a pending moment's first timer was in a file of the log that is missing."""
        return any(0 <= slot.first < self._log.first for _, slot in self._wheel.slots(self.moment))

    def _begin_anew(self, progress: TimerProgress) -> frozenset[int]:
        """Scan all messages again; return the commit log offsets of those that have a timer, or roll over."""
        logger.error("%r has lost flushed timers: they are made again from their messages", self._log)
        passed = max(progress.queue_offset, progress.masters_queue_offset)
        self.lost, self.queue_offset = progress._replace(masters_queue_offset=passed), 0
        self._checkpoint.write(progress._replace(log_end=_NOWHERE))
        self._rebuild()
        return frozenset(
            unit.commit_log_offset
            for _, unit in self._log.walk(self._log.first)
            if unit.bits & ROLLS or self.moment_of(unit.moment) >= self.moment
        )

    def _rebuild(self) -> None:
        logger.warning("rebuilding the timer wheel from %r", self._log)
        self._wheel.clear_all()
        for at, unit in self._log.walk(self._log.first):
            moment = self.moment_of(unit.moment)
            if moment >= self.moment:
                self._link(at, unit, moment, self._wheel.get(moment) or _NO_SLOT)

    def __repr__(self) -> str:
        return f"TimerStore(moment={self.moment}, queue_offset={self.queue_offset}, {self._log})"


def files_of_wrong_size(settings: TimerSettings) -> list[Path]:
    """Return the files whose size differs from the settings; a broker would not start with them."""
    expected = dict.fromkeys(sorted(settings.log_path.glob("[0-9]*")), settings.log_file_size)
    if settings.wheel_path.exists():
        expected[settings.wheel_path] = wheel_size(settings.wheel_slots)
    return [path for path, size in expected.items() if path.stat().st_size not in {0, size}]
