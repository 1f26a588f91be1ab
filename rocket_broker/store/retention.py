"""Delete commit log files that are old, or whose space is needed, and the entries of their messages.

::

    condition, every cleanResourceInterval (10 s)                deleted
    it is an hour of deleteWhen, or disk usage is over           files last written longer ago than fileReservedTime,
    diskMaxUsedSpaceRatio (75 %)                                 72 hours
    usage over diskSpaceCleanForciblyRatio (85 %)                the oldest files, whatever their age, unless
                                                                 cleanFileForciblyEnable is off
    usage over diskSpaceWarningLevelRatio (90 %)                 as above, and messages are refused until it is less

The last file is never deleted. Afterwards queues begin with their first remaining message, and keep their count even if
no message remains. Everything is brought to the disk first, so that a crash cannot reset the count of a queue: entries
of deleted messages cannot be made again. Files are removed in a worker thread, because removing a gigabyte takes time;
a reader of such a file keeps its view.

The age of a file is measured by a clock that does not jump ahead with the wall clock (`age_clock`). In the first ten
minutes nothing is deleted by age: a machine that has just started may not have the time of its time server yet.

A file that cannot be removed is tried again before any other file: a missing file between others would count as damage.
"""

import asyncio
import logging
import threading
from datetime import UTC, datetime

from rocket_broker.loop.loop_steps import LoopTurns
from rocket_broker.store.age_clock import AgeClock
from rocket_broker.store.flush import Flusher
from rocket_broker.store.mapped_file import MappedFile
from rocket_broker.store.store_files import StoreFiles
from rocket_remoting.clock import Clock

__all__ = ["Retention"]

logger = logging.getLogger(__name__)

UNSURE_SECONDS = 600.0
"""Seconds after the start in which ages are not used: a machine gets the time of its time server within minutes."""

_WHATEVER_AGE = 2**63 - 1


class Retention:
    """Limits the size of one store.

    Attributes:
        is_disk_full: Whether the disk is so full that no message should be accepted.
        settings: The retention settings; they may change between two rounds.
    """

    def __init__(self, files: StoreFiles, flusher: Flusher, clock: Clock) -> None:
        self.is_disk_full = False
        self.settings = files.settings
        self._files = files
        self._flusher = flusher
        self._clock = clock
        self._ages = AgeClock(clock)
        self._deleting = asyncio.Lock()
        self._taken: list[MappedFile] = []  # taken out of log, queues and index, and still to be removed, in this order
        self._removing = threading.Lock()

    async def run(self) -> None:
        """Delete due files at intervals, until cancelled."""
        loop = asyncio.get_running_loop()
        sure_from = loop.time() + UNSURE_SECONDS
        while True:
            await asyncio.sleep(self.settings.clean_resource_interval / 1000)
            is_sure = loop.time() >= sure_from
            if not is_sure:
                self._ages.reset()
            try:
                await self.clean(by_age=is_sure)
            except OSError as e:
                logger.error("%s: old messages could not be deleted: %s", self.settings.root, e)

    async def clean(self, *, by_age: bool = True) -> int:
        """Delete the files that are due now; return the number of commit log files among them.

        Args:
            by_age: Whether to delete files by their age; otherwise only for lack of space.

        Raises:
            OSError: The disk refused.
        """
        settings, before_ms = self.settings, self._expired_before()
        used = self._used_percent()
        # `is_disk_full` changes only here, so this comes before any return: senders wait for it.
        self._note_room(used)
        if settings.clean_file_forcibly_enable and used > settings.disk_space_clean_forcibly_ratio:
            return await self._delete(_WHATEVER_AGE, f"{used:.0f} % of the disk are used")
        if not by_age:
            return 0
        if used > settings.disk_max_used_space_ratio:
            return await self._delete(before_ms, f"expired, {used:.0f} % of the disk are used")
        now = self._clock.now_ms() / 1000
        # The hours of deleteWhen are local time, as in Apache's UtilAll.isItTimeToDo.
        hour = datetime.fromtimestamp(now, tz=UTC).astimezone().hour
        return await self._delete(before_ms, "expired") if hour in settings.delete_when else 0

    async def delete_expired(self) -> int:
        """Delete files whose retention time is over, at any hour; return how many.

        Raises:
            OSError: The disk refused. Nothing is deleted when it refused the flush before.
        """
        return await self._delete(self._expired_before(), "expired, by request")

    def _expired_before(self) -> int:
        """Return the time before which a file must have been written to be old now."""
        return self._ages.now_ms(asyncio.get_running_loop().time()) - self.settings.file_reserved_time

    def _used_percent(self) -> float:
        settings = self.settings
        return max(map(self._files.file_system.used_percent, {settings.commit_log_path, settings.root}))

    def _note_room(self, used: float) -> None:
        limit = self.settings.disk_space_warning_level_ratio
        was_full, self.is_disk_full = self.is_disk_full, used > limit
        if self.is_disk_full and not was_full:
            logger.error(
                "%s: %.0f %% of the disk are used, over diskSpaceWarningLevelRatio=%d: messages are refused",
                self.settings.root,
                used,
                limit,
            )
        elif was_full and not self.is_disk_full:
            logger.warning("%s: %.0f %% of the disk are used, messages are accepted again", self.settings.root, used)

    async def _delete(self, before_ms: int, why: str) -> int:
        settings, log = self.settings, self._files.log
        async with self._deleting:
            deleted = 0
            await self._remove_taken()
            try:
                while deleted < settings.delete_file_batch_max and log.has_file_before(before_ms):
                    if not deleted:
                        await self._flusher.flush()
                    elif settings.delete_commit_log_files_interval:
                        await asyncio.sleep(settings.delete_commit_log_files_interval / 1000)
                    deleted += 1
                    # No reader finds the file from here on; views that readers have stay valid while a thread
                    # removes the file.
                    self._taken.append(log.files.take_first())
                    await self._remove_taken()
            except OSError:
                # The log begins later already, whether or not its file could be removed: queues and index
                # must follow.
                if deleted:
                    await self._follow()
                raise
            if deleted:
                await self._follow()
                logger.info(
                    "%s: deleted %d file(s) of the commit log (%s); it begins at %d now",
                    settings.root,
                    deleted,
                    why,
                    log.first,
                )
            return deleted

    async def _follow(self) -> None:
        """Make queues and index begin where the log does."""
        first = self._files.log.first
        turns = LoopTurns("removing queue entries of deleted messages")
        for queue in self._files.queues:
            with turns:
                queue.correct_min_offset(first)
                self._taken += queue.take_old_files()
            await turns.next()
        self._taken += self._files.index.take_before(first)
        await self._remove_taken()

    async def _remove_taken(self) -> None:
        if self._taken:
            await asyncio.get_running_loop().run_in_executor(None, self._remove_in_order)

    def _remove_in_order(self) -> None:
        with self._removing:  # a cancelled call has left a thread that still runs
            while self._taken:
                self._taken[0].remove()
                del self._taken[0]
