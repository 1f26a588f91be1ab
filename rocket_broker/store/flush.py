"""The flusher, which brings stored messages to the disk.

Storing a message writes to maps of files. That survives this process, and the operating system writes the pages to
the disk at a time of its choice. The flusher forces it:

- the log every half second if some pages are new, after ten seconds if anything is new (ASYNC_FLUSH), or as soon
  as a sender waits for it: all waiting senders share one fsync (SYNC_FLUSH, group commit);
- queues and index every second if a queue has some new pages. Once a minute, or after 32 MiB of log, all of
  them, and then the checkpoint's mark moves: recovery will begin there.

fsync runs in worker threads, the log's in a thread of its own (`flush_thread`), everything else in the loop. An idle
store has no timers. After a failed fsync it is unknown which pages are on the disk, and another fsync would succeed
without writing them, because Linux marks the pages as clean. So the store accepts no more messages.
"""

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from rocket_broker.loop.loop_steps import run_in_steps
from rocket_broker.loop.watchdog import Watchdog
from rocket_broker.store.checkpoint import Mark
from rocket_broker.store.consume_queue import ENTRY_SIZE, ConsumeQueue
from rocket_broker.store.files import PAGE_SIZE
from rocket_broker.store.flush_thread import FlushThread
from rocket_broker.store.group_commit import GroupCommit
from rocket_broker.store.index_file import IndexFile
from rocket_broker.store.store_files import StoreFiles
from rocket_remoting.steps import run_all

__all__ = ["PAUSE_AFTER_FAILURE", "Flusher"]

logger = logging.getLogger(__name__)

_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE)
"""Errors of opening the file: nothing was synced, so the flush may be tried again."""

# Seconds before the next try. A sender that waits begins a new round at once; without a pause it would do so
# all the time while the process has no free file descriptor.
PAUSE_AFTER_FAILURE = 0.1


class _Unflushed(msgspec.Struct):
    """The files that were not on the disk at one moment, and the end of the log then."""

    mark: Mark
    log_timestamp: int = 0
    index_timestamp: int = 0
    queues: list[tuple[ConsumeQueue, int]] = msgspec.field(default_factory=list)
    index_files: list[tuple[IndexFile, int]] = msgspec.field(default_factory=list)
    paths: list[Path] = msgspec.field(default_factory=list)

    def add_queue(self, queue: ConsumeQueue) -> None:
        self.queues.append((queue, queue.max_offset))
        self.paths += queue.files.between(queue.flushed * ENTRY_SIZE, queue.max_offset * ENTRY_SIZE)


class Flusher:
    """Flushes one store.

    Attributes:
        is_awake: Whether there may be something to flush; `wake` sets it.
        is_broken: Whether a flush has failed: nothing more may be stored.
        dirty_queues: Queues with entries that are not on the disk.
        commit: Writes the transient store pool to the log's files; None without a pool.
    """

    def __init__(self, files: StoreFiles) -> None:
        self.is_awake = False
        self.is_broken = False
        self.dirty_queues: set[ConsumeQueue] = set()
        self.commit: Callable[[], Awaitable[None]] | None = None
        self._files = files
        self._threads: ThreadPoolExecutor | None = None
        self._log_thread: FlushThread | None = None
        self._loops: list[asyncio.Task[None]] = []
        self._log_work = asyncio.Event()
        self._queue_work = asyncio.Event()
        self._group_commit = GroupCommit(
            self._flush_round,
            lambda: files.log.flushed,
            lambda: self.is_broken,
            files.settings.sync_flush_timeout / 1000,
        )
        self._running: set[asyncio.Task[None]] = set()
        self._is_ending = False  # a file that cannot be flushed now is left

    def start(self) -> None:
        """Flush in the background of the running loop."""
        # A thread and a task for the log, so that senders don't wait for the queues' many files.
        self._threads = ThreadPoolExecutor(2, "store-flush")
        self._log_thread = FlushThread("store-flush-log")
        self._loops = [
            asyncio.create_task(self._flush_log_often()),
            asyncio.create_task(self._flush_all_often()),
        ]
        if self.dirty_queues or self._files.log.flushed < self._files.log.committed:
            self.wake()

    async def stop(self) -> None:
        """Flush everything and end the background work."""
        for task in self._loops:
            task.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        self._loops = []
        await self._group_commit.stop()
        # Cancelling a task does not end its thread (`_flush`), and that thread may still write the mark.
        if self._running:
            await asyncio.wait(self._running)
        self._is_ending = True
        if not self.is_broken:
            await self._flush(self._unflushed(), self._write)
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None
        if self._log_thread is not None:
            self._log_thread.close()
            self._log_thread = None

    def abandon(self) -> None:
        """End the background work without flushing or waiting, if `stop` has not done so: it was cancelled."""
        for task in self._loops:
            task.cancel()
        if self._threads is not None:
            self._threads.shutdown(wait=False)
            self._threads = None
        if self._log_thread is not None:
            self._log_thread.close_later()
            self._log_thread = None

    def wake(self) -> None:
        """Wake the flusher after a message was stored."""
        self.is_awake = True
        self._log_work.set()
        self._queue_work.set()

    def wait_for(self, offset: int) -> "asyncio.Future[bool]":
        """Return a future of whether the log is on the disk up to an offset: False if that takes too long, or fails."""
        return self._group_commit.wait_for(offset)

    async def flush(self) -> None:
        """Bring everything that is stored now to the disk.

        Raises:
            OSError: The disk refused, now or before.
        """
        unflushed = await self._find_unflushed()
        await self._flush(unflushed, self._write)
        if self._marked < unflushed.mark.offset or self.is_broken:
            raise self._refusal()

    def flush_all(self) -> None:
        """Bring everything to the disk now, in this thread.

        Raises:
            OSError: The disk refused.
        """
        unflushed = self._unflushed()
        try:
            self._write(unflushed)
        except OSError as e:
            self.failed(e)
            raise
        self._note(unflushed)

    def flush_log(self) -> None:
        """Bring the log to the disk now, in this thread. The checkpoint's mark stays where it is.

        Raises:
            OSError: The disk refused.
        """
        unflushed = self._unflushed_log()
        try:
            self._sync(unflushed)
        except OSError as e:
            self.failed(e)
            raise
        self._note(unflushed)

    async def _flush_log_often(self) -> None:
        settings, log, loop = self._files.settings, self._files.log, asyncio.get_running_loop()
        due = 0.0
        while not self.is_broken:
            await self._log_work.wait()
            await asyncio.sleep(settings.flush_interval_commit_log / 1000)
            pages = log.committed // PAGE_SIZE - log.flushed // PAGE_SIZE
            if pages >= settings.flush_commit_log_least_pages or loop.time() >= due:
                await self.wait_for(log.committed)
                due = loop.time() + settings.flush_commit_log_thorough_interval / 1000
            # There is no await between this comparison and `clear`, so a message that is stored later sets
            # the event again. Whenever one of the two events is cleared, `is_awake` is False, so the next
            # `put` calls `wake`.
            if log.flushed == log.committed:
                self._log_work.clear()
                self.is_awake = False

    async def _flush_all_often(self) -> None:
        settings, log, loop = self._files.settings, self._files.log, asyncio.get_running_loop()
        due = loop.time() + settings.flush_consume_queue_thorough_interval / 1000
        while not self.is_broken:
            await self._queue_work.wait()
            await asyncio.sleep(settings.flush_interval_consume_queue / 1000)
            if loop.time() >= due or log.committed - self._marked >= settings.flush_consume_queue_thorough_bytes:
                await self._flush(await self._find_unflushed(), self._write)
                due = loop.time() + settings.flush_consume_queue_thorough_interval / 1000
            else:
                worth = await run_in_steps("searching for consume queues to flush", self._worth_flushing())
                if worth.queues:  # otherwise a thread would be called each second for nothing
                    await self._flush(worth, self._sync)
            if self._marked == log.committed:
                self._queue_work.clear()
                self.is_awake = False

    @property
    def _marked(self) -> int:
        return self._files.checkpoint.mark.offset if self._files.checkpoint.mark is not None else 0

    async def _flush_round(self, wanted: int) -> None:
        """Flush the log for those who wait until it is on the disk up to an offset."""
        if self.commit is not None and self._files.log.committed < wanted:
            await self.commit()
        if not self.is_broken:
            unflushed = self._unflushed_log()
            if self._log_thread is not None:
                flushing = self._log_thread.run(self._sync, unflushed)
            else:  # a store that is not started
                flushing = self._in_executor(self._sync, unflushed)
            await self._note_flushed(unflushed, flushing)

    async def _flush(self, unflushed: _Unflushed, how: Callable[[_Unflushed], None]) -> None:
        """Flush in a thread, and record what is on the disk then; cancelling the caller does not stop the thread.

        Nothing is done if the disk has refused a flush: the mark must not move then, whatever the disk answers now.
        """
        if self.is_broken:
            return
        task = asyncio.create_task(self._note_flushed(unflushed, self._in_executor(how, unflushed)))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        await asyncio.shield(task)

    def _in_executor(self, how: Callable[[_Unflushed], None], unflushed: _Unflushed) -> "asyncio.Future[None]":
        return asyncio.get_running_loop().run_in_executor(self._threads, how, unflushed)

    async def _note_flushed(self, unflushed: _Unflushed, flushing: "asyncio.Future[None]") -> None:
        """Record what is on the disk once a thread has flushed it, or that the disk has refused."""
        try:
            await flushing
        except OSError as e:
            self.failed(e)
            await asyncio.sleep(PAUSE_AFTER_FAILURE)
        else:
            with Watchdog("recording the flushed offsets"):
                self._note(unflushed)

    def failed(self, error: OSError, *, is_final: bool = False) -> None:
        """Handle a failed flush: nothing more may be stored, unless only opening the file failed.

        Args:
            error: The error.
            is_final: Whether the flush is not tried again.
        """
        if error.errno in _OUT_OF_FILES and not (is_final or self._is_ending):
            logger.error("%s: nothing can be flushed now, trying again: %s", self._files.settings.root, error)
            return
        self.is_broken = True
        logger.error("%s: the disk refused a flush, no more messages are taken: %s", self._files.settings.root, error)

    def _refusal(self) -> OSError:
        return OSError(errno.EIO, "the disk refused a flush", str(self._files.settings.root))

    def _unflushed_log(self) -> _Unflushed:
        """Return the part of the log that is not on the disk now."""
        log = self._files.log
        unflushed = _Unflushed(Mark(log.committed))
        if log.committed > log.flushed:
            unflushed.paths = log.files.between(log.flushed, log.committed)
        return unflushed

    def _unflushed(self) -> _Unflushed:
        """Return everything that is not on the disk now, in one step."""
        return run_all(self._unflushed_steps())

    async def _find_unflushed(self) -> _Unflushed:
        """Return everything that is not on the disk now, in steps: tens of thousands of queues may have messages."""
        return await run_in_steps("searching for unflushed files", self._unflushed_steps())

    def _unflushed_steps(self) -> Generator[None, None, _Unflushed]:
        """Return everything that is not on the disk now, in steps; it may include messages that arrive meanwhile."""
        log = self._files.log
        # The mark is taken first. A message that is stored between the steps is behind the mark, so the mark
        # is right whether or not that message's entries are synced in this round.
        mark = Mark(log.committed, log.last_record, self._files.queues.max_physical)
        unflushed = _Unflushed(mark, log.last_timestamp, self._files.index.end_timestamp)
        if log.committed > log.flushed:
            unflushed.paths += log.files.between(log.flushed, log.committed)
        for queue in list(self.dirty_queues):
            unflushed.add_queue(queue)
            yield
        for file in self._files.index.dirty:
            unflushed.index_files.append((file, file.count))
            unflushed.paths.append(file.file.path)
        return unflushed

    def _worth_flushing(self) -> Generator[None, None, _Unflushed]:
        """Return the queues that have enough new pages, in steps."""
        unflushed = _Unflushed(Mark(self._files.log.flushed))
        pages = self._files.settings.flush_consume_queue_least_pages
        for queue in list(self.dirty_queues):
            yield
            new_pages = queue.max_offset * ENTRY_SIZE // PAGE_SIZE - queue.flushed * ENTRY_SIZE // PAGE_SIZE
            if new_pages >= pages:
                unflushed.add_queue(queue)
        return unflushed

    def _sync(self, unflushed: _Unflushed) -> None:
        """Sync the files, by any thread.

        Raises:
            OSError: The disk refused this flush, or another one: it tells one of them only.
        """
        try:
            self._files.file_system.sync_all(unflushed.paths)
        except OSError as e:
            if e.errno not in _OUT_OF_FILES:
                self.is_broken = True  # at once, for a flush that ends in another thread before `failed` runs
            raise
        if self.is_broken:
            raise self._refusal()

    def _write(self, unflushed: _Unflushed) -> None:
        # The mark comes last: recovery trusts what lies before the mark.
        self._sync(unflushed)
        self._files.checkpoint.advance(unflushed.mark, unflushed.log_timestamp, unflushed.index_timestamp)

    def _note(self, unflushed: _Unflushed) -> None:
        log = self._files.log
        # Two rounds may run at once in two threads, and the earlier one may end last: nothing moves back.
        log.flushed = max(log.flushed, unflushed.mark.offset)
        for queue, max_offset in unflushed.queues:
            queue.flushed = max(queue.flushed, max_offset)
            if queue.flushed == queue.max_offset:
                self.dirty_queues.discard(queue)
        # A file with entries made since the round began stays dirty.
        self._files.index.dirty -= {file for file, count in unflushed.index_files if file.count == count}
