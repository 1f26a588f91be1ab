"""Timers on the disk: the wheel, the log that it points into, and the checkpoint; the files are Apache 5.x's.

::

    timerwheel  slot of a moment ─────────► last unit ──► the one before ──► first unit      timerlog
                                               └ message in the commit log

A timer is put into the log, then into its slot. What a killed process had put is there, and `load` puts into
the slots what they lack. A machine that died may have lost the newest pages of either: the log is cut where it
ends, and a wheel that points behind that end is made anew from the log, as is one of another precision. Where the log
itself lacks what was on the disk, or may lack its first files and there is no wheel that tells, all messages that are
not over get the timers that they have no more.

A moment further away than the roll window is not put there: its timer waits within the window, and its message
is stored anew then.
"""

import logging
from collections.abc import Iterator
from pathlib import Path

from rocket_broker.schedule.timer_checkpoint import TimerCheckpoint, TimerProgress
from rocket_broker.schedule.timer_log import CANCELS, ROLLS, TimerLog, TimerUnit
from rocket_broker.schedule.timer_wheel import Slot, TimerWheel, wheel_size
from rocket_broker.settings.timer_settings import TimerSettings
from rocket_broker.store.files import FileSystem

__all__ = ["TimerStore", "odd_files"]

logger = logging.getLogger(__name__)

_NO_SLOT = Slot(-1, -1, 0)
_NOWHERE = 2**62
"""No log ends there: a checkpoint that says so is of one that lost its timers."""


class TimerStore:
    """The timers.

    Attributes:
        moment: What is looked at next; everything before is over.
        queue_offset: Offset of the message that gets a timer next.
        is_dirty: Whether something changed since the last `flushed`.
        lost: How far everything was when timers were lost, until their messages have others: of those before its offset
            in the queue the ones before its moment are over. None: none are lost.
    """

    def __init__(self, settings: TimerSettings, file_system: FileSystem) -> None:
        self.moment = 0
        self.queue_offset = 0
        self.is_dirty = False
        self.lost: TimerProgress | None = None
        self._next: int | None = None
        self._next_is_known = False
        self._over: set[int] = set()  # moments whose slots are cleared when what was delivered is on the disk
        self._precision = settings.precision_ms
        self._window = settings.roll_window_slots * settings.precision_ms
        self._file_system = file_system
        self._wheel = TimerWheel(
            settings.wheel_path, settings.wheel_slots, settings.precision_ms, file_system
        )
        self._log = TimerLog(settings.log_path, settings.log_file_size, file_system)
        self._checkpoint = TimerCheckpoint(settings.checkpoint_path, file_system)

    def load(self, now_ms: int, messages_end: int) -> frozenset[int]:
        """Open the files; return where the messages lie that may have a timer although none is counted.

        Args:
            now_ms: The time.
            messages_end: The end of the commit log: a power failure may leave timers of messages that it took.

        Raises:
            StoreError: A file is of another size.
            OSError: The disk refused.
        """
        progress = self._checkpoint.load() or TimerProgress()
        self.queue_offset = progress.queue_offset
        has_wheel = self._wheel.load()
        newest = self._log.load(progress.log_end, messages_end)
        # Killed before the first checkpoint: nothing is over that was to come since the first timer was put.
        since = progress.moment or min((unit.written_ms for _, unit in newest), default=now_ms)
        self.moment = self.floor(since)
        # Without a wheel nothing tells whether the first timers of the log were all over when their file went.
        lacks_timers = self._leads_before_the_log() if has_wheel else self._log.first > 0
        if self._log.end < progress.log_end or lacks_timers:
            return self._begin_anew(progress)
        if (not has_wheel and self._log.end > self._log.first) or self._wheel_is_doubtful():
            self._rebuild()
        else:
            for at, unit in newest:
                self._link_if_missing(at, unit)
        return frozenset(unit.commit_log_offset for _, unit in newest)

    def floor(self, time_ms: int) -> int:
        """Return the moment a time belongs to."""
        return time_ms - time_ms % self._precision

    def count(self, moment: int) -> int:
        """Return how many timers a moment has."""
        return self._slot(self.floor(moment)).number

    def add(
        self, due: int, now_ms: int, *, cancels: bool, commit_log_offset: int, size: int, topic_hash: int
    ) -> None:
        """Put a timer for a message that is due in this moment or a later one.

        Raises:
            StoreFull: The disk has no room. Nothing has changed.
            OSError: A file could not be made.
        """
        now = self.floor(now_ms)
        bits = CANCELS if cancels else 0
        if due - now >= self._window:
            bits |= ROLLS
            # Not to be rolled on again for a little rest: Apache's rule.
            rest = due - now - self._window
            due = now + (self._window // 2 if rest < self._window // 3 else self._window)
        moment = self.floor(due)
        self._wheel.reserve(moment)
        slot = self._slot(moment)
        self._over.discard(moment)  # it comes again when the clock was set back
        at = self._log.append(TimerUnit(slot.last, bits, now, moment, commit_log_offset, size, topic_hash))
        self._put(moment, slot, at, -1 if cancels else 1)
        if self._next is None or moment < self._next:
            self._next = moment
        self.is_dirty = True

    def next(self) -> int | None:
        """Return the next moment that has timers."""
        if not self._next_is_known:
            slots = self._wheel.slots(self.moment)
            self._next = next((found for found, _ in slots if found not in self._over), None)
            self._next_is_known = True
        return self._next

    def timers(self, moment: int) -> Iterator[tuple[int, TimerUnit]]:
        """Yield the timers of a moment, the newest first, and where each lies."""
        at = self._slot(moment).last
        while at >= 0 and (unit := self._log.read(at)) is not None and self.floor(unit.moment) == moment:
            yield at, unit
            if unit.previous >= at:  # a chain leads back only
                break
            at = unit.previous

    def timer(self, at: int) -> TimerUnit | None:
        """Return the timer that lies there."""
        return self._log.read(at)

    def over(self, moment: int) -> None:
        """Note that all timers up to and including ``moment`` have fired."""
        self._over.add(moment)
        self._next_is_known = False
        self.moment = moment + self._precision
        self.is_dirty = True

    # Flushing: `progress` in the loop, `sync` in a thread, then `flushed`

    @property
    def progress(self) -> TimerProgress:
        """How far everything is."""
        return TimerProgress(self.moment, self._log.end, self.queue_offset)

    def sync(self) -> None:
        """Bring wheel and log to the disk.

        Raises:
            OSError: The disk refused.
        """
        for path in self._log.unflushed():
            self._file_system.sync(path)
        self._wheel.sync()

    def flushed(self, progress: TimerProgress) -> None:
        """Note what `sync` brought to the disk; what was delivered before must be there too.

        Raises:
            OSError: The disk refused.
        """
        self._log.flushed = progress.log_end
        self._checkpoint.write(progress)
        for moment in [moment for moment in self._over if moment < progress.moment]:
            self._wheel.clear(moment)
            self._over.discard(moment)
        self._log.remove_before(progress.moment, self._window)

    def _slot(self, moment: int) -> Slot:
        return (None if moment in self._over else self._wheel.get(moment)) or _NO_SLOT

    # Recovery

    def _put(self, moment: int, slot: Slot, at: int, count: int) -> None:
        first = at if slot.first < 0 else slot.first
        self._wheel.put(moment, Slot(first, at, slot.number + count))

    def _link_if_missing(self, at: int, unit: TimerUnit) -> None:
        moment = self.floor(unit.moment)
        if moment < self.moment:
            return
        slot = self._wheel.get(moment) or _NO_SLOT
        if slot.last < at:
            self._link(at, unit, moment, slot)

    def _link(self, at: int, unit: TimerUnit, moment: int, slot: Slot) -> None:
        self._wheel.reserve(moment)
        if unit.previous != slot.last:
            self._log.link(at, slot.last)
        self._put(moment, slot, at, -1 if unit.bits & CANCELS else 1)

    def _wheel_is_doubtful(self) -> bool:
        """Whether the wheel is of another precision, or points behind the log's end."""
        now = self.moment // self._precision
        # Apache's brokers leave old moments behind, but not from the first quarter of our era.
        if any(not 3 * now <= 4 * number <= 6 * now for number in self._wheel.moments()):
            return True
        end = self._log.end
        return any(slot.last >= end or slot.first >= end for _, slot in self._wheel.slots(self.moment))

    def _leads_before_the_log(self) -> bool:
        """Whether a moment's first timer was in a file that is gone, and was not over."""
        return any(0 <= slot.first < self._log.first for _, slot in self._wheel.slots(self.moment))

    def _begin_anew(self, progress: TimerProgress) -> frozenset[int]:
        """Have all messages looked at again; return where those lie that have a timer, or were stored anew for one."""
        logger.error("%r lacks timers that were on the disk: the messages get others", self._log)
        self.lost, self.queue_offset = progress, 0
        self._checkpoint.write(progress._replace(log_end=_NOWHERE))
        self._rebuild()
        return frozenset(
            unit.commit_log_offset
            for _, unit in self._log.walk(self._log.first)
            if unit.bits & ROLLS or self.floor(unit.moment) >= self.moment
        )

    def _rebuild(self) -> None:
        logger.warning("the timer wheel is made anew from %r", self._log)
        self._wheel.clear_all()
        for at, unit in self._log.walk(self._log.first):
            moment = self.floor(unit.moment)
            if moment >= self.moment:
                self._link(at, unit, moment, self._wheel.get(moment) or _NO_SLOT)

    def __repr__(self) -> str:
        return f"TimerStore(moment={self.moment}, queue_offset={self.queue_offset}, {self._log})"


def odd_files(settings: TimerSettings) -> list[Path]:
    """Return the files that have not the size these settings give them: no broker starts with one."""
    expected = dict.fromkeys(sorted(settings.log_path.glob("[0-9]*")), settings.log_file_size)
    if settings.wheel_path.exists():
        expected[settings.wheel_path] = wheel_size(settings.wheel_slots)
    return [path for path, size in expected.items() if path.stat().st_size not in {0, size}]
