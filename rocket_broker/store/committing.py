"""The committer, which writes the buffers of the transient store pool to the log's files and lets readers see them.

::

    put      appended to a buffer, held here                        the sender has its answer
    commit   the buffers' new bytes ──► file                        each 200 ms, in a thread
             then for each message: queue entry, index, listeners   readers see it

Queue entries are made after the commit, so none points to a message that is not in the log's file. Space on the disk
for message, entry and index is reserved when the message is held, so a commit needs none.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec

from rocket_broker.store.consume_queue import ConsumeQueue
from rocket_broker.store.files import PAGE_SIZE
from rocket_broker.store.flush import PAUSE_AFTER_FAILURE, Flusher
from rocket_broker.store.store_files import StoreFiles
from rocket_broker.store.store_pool import StorePool, Uncommitted

__all__ = ["Committer", "HeldMessage"]

logger = logging.getLogger(__name__)


class HeldMessage(msgspec.Struct, gc=False):
    """A message that readers see when it is committed.

    Attributes:
        queue: The queue of its entry; None if it is in no queue.
        queue_offset: Its offset in the queue.
        tags_code: The tags code of its entry.
        hashes: The hashes of its keys, for the index.
        offset: The offset of its record in the log.
        size: Length of the record.
        store_timestamp: The time of `put`, in milliseconds since 1970.
    """

    queue: ConsumeQueue | None
    queue_offset: int
    tags_code: int
    hashes: list[int]
    offset: int
    size: int
    store_timestamp: int


class Committer:
    """Commits one store's messages.

    Args:
        files: The store's files.
        pool: The buffers.
        flusher: Told when there is something to flush, and when the disk refuses.
        publish: Makes a message's entries and tells the listeners.
    """

    def __init__(
        self, files: StoreFiles, pool: StorePool, flusher: Flusher, publish: Callable[[HeldMessage], None]
    ) -> None:
        self._files = files
        self._pool = pool
        self._flusher = flusher
        self._publish = publish
        self._held: deque[HeldMessage] = deque()
        self._work = asyncio.Event()
        self._thread: ThreadPoolExecutor | None = None
        self._running: asyncio.Task[None] | None = None
        self._round: asyncio.Task[None] | None = None  # while there is one the buffers' pages are being read

    def start(self) -> None:
        """Commit in the background of the running loop."""
        self._thread = ThreadPoolExecutor(1, "store-commit")
        self._running = asyncio.create_task(self._commit_often(), name=f"commit {self._files.settings.root}")

    async def stop(self) -> None:
        """Commit everything and end the background work; report an error of the disk to the flusher."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        if self._round is not None:
            await self._round
        if self._thread is not None:
            self._thread.shutdown()
        try:
            self.commit_now()
        except OSError as e:
            self._flusher.failed(e, is_final=True)

    def hold(self, message: HeldMessage) -> None:
        """Keep a message that was just appended, until it is committed."""
        if not self._held:
            self._work.set()
        self._held.append(message)
        if message.queue is not None:
            message.queue.held += 1
        self._files.index.held += len(message.hashes)

    async def commit(self) -> None:
        """Commit, or wait for the commit under way; report an error of the disk to the flusher."""
        if self._round is None:
            self._round = asyncio.create_task(self._commit())
        await asyncio.shield(self._round)

    def commit_now(self) -> None:
        """Commit synchronously, in the calling thread.

        Raises:
            OSError: The disk refused.
        """
        end = self._files.log.end
        self._write(list(self._pool.between(self._files.log.committed, end)))
        self._publish_to(end)
        if self._round is None:
            self._pool.release(self._files.log.committed)

    async def _commit_often(self) -> None:
        settings, log, loop = self._files.settings, self._files.log, asyncio.get_running_loop()
        due = 0.0
        while not self._flusher.is_broken:
            await self._work.wait()
            await asyncio.sleep(settings.commit_interval_commit_log / 1000)
            pages = log.end // PAGE_SIZE - log.committed // PAGE_SIZE
            if pages >= settings.commit_commit_log_least_pages or loop.time() >= due:
                await self.commit()
                due = loop.time() + settings.commit_commit_log_thorough_interval / 1000
            if not self._held:
                self._work.clear()

    async def _commit(self) -> None:
        end = self._files.log.end
        chunks = list(self._pool.between(self._files.log.committed, end))
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._write, chunks)
            self._publish_to(end)
        except OSError as e:
            self._flusher.failed(e)
            await asyncio.sleep(PAUSE_AFTER_FAILURE)
        finally:
            self._round = None
        self._pool.release(self._files.log.committed)

    def _write(self, chunks: list[Uncommitted]) -> None:
        for path, start, data in chunks:
            self._files.file_system.write(path, start, data)

    def _publish_to(self, end: int) -> None:
        """Make the messages that are written up to an offset readable.

        A message whose entry's file cannot be mapped waits for the next commit.
        """
        held = self._held
        while held and (message := held[0]).offset + message.size <= end:
            self._publish(message)
            # Taken out only now: if `publish` fails, the message stays the first, and the next commit tries
            # it again.
            held.popleft()
            if message.queue is not None:
                message.queue.held -= 1
            self._files.index.held -= len(message.hashes)
        self._flusher.wake()
