"""The store: one commit log with all messages, a consume queue for each queue, and an index of keys.

::

    put ──► commit log ──► consume queue, index ──► arrival listeners        all in one step
    get ──► consume queue ──► records of the commit log, as views of its maps

Everything runs in one thread, the loop's, so there are no locks; only fsync runs in other threads (`flush`). A message
is visible as soon as it is stored. Space on the disk for record and entries is reserved before anything is written: a
message is stored with its entries, or refused.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, NamedTuple

from rocket_broker.loop.watchdog import Watchdog
from rocket_broker.settings.store_settings import FlushDiskType, StoreSettings
from rocket_broker.store.committing import Committer, HeldMessage
from rocket_broker.store.consume_queue import ConsumeQueue
from rocket_broker.store.deletion import deletion_message
from rocket_broker.store.errors import StoreClosed, StoreFull
from rocket_broker.store.files import FileLock, FileSystem, OsFileSystem
from rocket_broker.store.flush import Flusher
from rocket_broker.store.index import NO_FILE
from rocket_broker.store.index_file import IndexSearch
from rocket_broker.store.message_run import MessageRun, places_for
from rocket_broker.store.messages import GetResult, GetStatus, PutResult, PutStatus, StoreMessage
from rocket_broker.store.queue_reader import RecordFilter, read
from rocket_broker.store.queue_table import check_names
from rocket_broker.store.recovery import Recovery, RecoveryReport
from rocket_broker.store.replica import Replica
from rocket_broker.store.retention import Retention
from rocket_broker.store.store_files import StoreFiles
from rocket_broker.store.time_search import offset_at, stored_at
from rocket_remoting.clock import Clock
from rocket_remoting.steps import run_all
from rocket_remoting.wire.errors import LocalProtocolError
from rocket_remoting.wire.properties import MAX_PROPERTIES_LENGTH
from rocket_remoting.wire.sys_flag import TRANSACTION_COMMIT, TRANSACTION_NOT, TRANSACTION_ROLLBACK

if TYPE_CHECKING:
    from rocket_native import AnswerTemplate, LoneSends, PlainSends, Run, SendReader

__all__ = ["MOST_ENTRIES", "ArrivalListener", "FoundMessages", "MessageStore"]

logger = logging.getLogger(__name__)

ArrivalListener = Callable[[str, int, int, Sequence[int], int], None]
"""Called for messages that were stored one after the other, with topic, queue id, queue offset of the first, tags code
of each, and store timestamp."""

MOST_ENTRIES = 262_144
"""Entries of the index that one search reads: some 0.15 s, in steps. Few entries of a slot belong to other keys,
unless a sender forges keys with the same hash; but a search for older messages reads all newer entries of the key."""

_QUEUES_IN_ONE_GO = 100
"""Queues of a topic that are deleted in one step: unmapping them takes some milliseconds."""
_TRANSACTION_BITS = TRANSACTION_ROLLBACK
_IN_QUEUES = (TRANSACTION_NOT, TRANSACTION_COMMIT)
_LONG = 2**63
_NO_RUN = (LocalProtocolError, OverflowError, ValueError, OSError, StoreFull)
"""Errors of a run that is not written: a number does not fit its field, or a file has no room."""


class FoundMessages(NamedTuple):
    """The result of a search by key.

    Attributes:
        records: The messages' records, oldest first.
        is_complete: Whether all matching messages were found, or as many as were wanted; False if the search gave up.
    """

    records: list[memoryview]
    is_complete: bool


class MessageStore:
    """A store in one directory.

    Attributes:
        settings: The settings.
        arrival_listeners: Called for each message, in the step in which it is stored.
        topic_listeners: Called likewise, each for the messages of one topic.
        queue_listeners: Called likewise, each for the messages of the queues that are in its set then, by topic and
            queue id.
        replicate: Begins to wait until a slave has the log up to an offset, and returns a future with the result; None
            if senders do not wait for slaves.
        replica: Copies a master's log; None if this store is not a slave's, and accepts messages.
    """

    def __init__(self, settings: StoreSettings, clock: Clock, file_system: FileSystem | None = None) -> None:
        self.settings = settings
        self.arrival_listeners: list[ArrivalListener] = []
        self.topic_listeners: dict[str, ArrivalListener] = {}
        self.queue_listeners: list[tuple[AbstractSet[tuple[str, int]], ArrivalListener]] = []
        self.replicate: Callable[[int], Awaitable[PutStatus]] | None = None
        self._clock = clock
        self._file_system = file_system if file_system is not None else OsFileSystem()
        self._files = StoreFiles.of(settings, self._file_system)
        self._commit_log = self._files.log
        self._queues = self._files.queues
        self._index = self._files.index
        self._flusher = Flusher(self._files)
        self._dirty_queues = self._flusher.dirty_queues
        self._retention = Retention(self._files, self._flusher, clock)
        self.replica: Replica | None = None
        if settings.is_replica:
            self.replica = Replica(self._files, self._copied, self._copied_deletion)
        self._committer: Committer | None = None
        if self._commit_log.pool is not None:
            self._committer = Committer(self._files, self._commit_log.pool, self._flusher, self._publish)
            self._flusher.commit = self._committer.commit
        self._cleaning: asyncio.Task[None] | None = None
        self._deleting = asyncio.Lock()
        self._locks: list[FileLock] = []
        self._is_open = False
        self._accepts_messages = False
        self._is_full = False

    # Life

    def load(self, on_progress: Callable[[], object] = lambda: None) -> RecoveryReport:
        """Open and recover the store (`recovery`); afterwards messages can be put and got.

        Args:
            on_progress: Called every few seconds during a long recovery.

        Raises:
            StoreError: It is locked, corrupt, of other settings, or the disk is full.
            OSError: The file system refuses something else.
        """
        recovery = Recovery(self._files, self._clock, on_progress)
        try:
            report = recovery.run()
        except BaseException:
            recovery.give_up()
            raise
        self._locks = recovery.locks
        for queue in self._queues:
            if queue.flushed < queue.max_offset:
                self._dirty_queues.add(queue)
        self._is_open = True
        self._accepts_messages = self.replica is None
        return report

    async def start(self) -> None:
        """Start flushing, and deleting old files, in the background.

        Raises:
            StoreClosed: The store is not loaded.
        """
        if not self._is_open:
            raise StoreClosed(self.settings.root)
        self._flusher.start()
        if self._committer is not None:
            self._committer.start()
        self._cleaning = asyncio.create_task(self._retention.run(), name=f"clean {self.settings.root}")

    async def stop(self) -> None:
        """Bring everything to the disk and close the store; the next start finds it in order."""
        if not self._is_open:
            return
        self._is_open = self._accepts_messages = False
        try:
            if self._cleaning is not None:
                self._cleaning.cancel()
                await asyncio.wait([self._cleaning])
            if self._committer is not None:
                await self._committer.stop()
            await self._flusher.stop()
            if not self._flusher.is_broken:
                self._file_system.remove(self.settings.abort_path)
                # Also syncs the directory, and so the removal of the abort file (`FileSystem.sync`).
                self._file_system.sync(self.settings.checkpoint_path)
        finally:
            self._flusher.abandon()
            self._files.close()
            while self._locks:
                self._locks.pop().release()

    # Storing

    def put(self, message: StoreMessage) -> PutResult:  # noqa: PLR0911 - a status for each trouble
        """Store a message: append it, make its entries, call the listeners. It is not on the disk yet.

        A refused message leaves no trace.
        """
        refusal = self._refusal()
        if refusal is not None:
            return PutResult(refusal)
        # A message that is stored again, such as a retry or a due timer, was within the limit when it came.
        # If the limit has been lowered since, a refusal would lose the message.
        if len(message.body) > self.settings.max_message_size and not message.was_stored:
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        if len(message.properties) > MAX_PROPERTIES_LENGTH:
            return PutResult(PutStatus.PROPERTIES_SIZE_EXCEEDED)
        now = self._clock.now_ms()
        try:
            return self._store(message, now)
        except (LocalProtocolError, UnicodeError) as e:
            logger.warning("message refused: %s", e)
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        except StoreFull as e:
            if not self._is_full:
                logger.error("messages are refused: %s", e)
            self._is_full = True
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE)
        except OSError as e:
            logger.error("message refused, a file could not be made: %s", e)
            return PutResult(PutStatus.CREATE_MAPPED_FILE_FAILED)

    def put_run(self, messages: MessageRun, targets: Sequence[tuple[str, int]]) -> "tuple[Run, PutResult] | None":
        """Store messages together, all or none, right after `takes_runs`.

        Args:
            messages: The messages.
            targets: Their `targets`, which the caller has asked for already.

        Returns:
            The records, and the result of the last message; None if the per-message path must be used: call `put` for
            each message.
        """
        if messages.longest_body > self.settings.max_message_size:
            return None
        now = self._clock.now_ms()
        log, index = self._commit_log, self._index
        # Records and entries are made, and room for them, before anything is written. They stay right because nothing
        # here gives other tasks a turn.
        try:
            queues = self._queues.of_targets(targets)
            last_file = None
            if self.settings.message_index_enable:
                last_file = index.files[-1] if index.files else NO_FILE
            run = messages.pack(log, queues, last_file, now)
        except _NO_RUN:
            return None
        # What is written must not be stored again, message by message, whatever happens here.
        is_written, size, last_size, header = run.result
        if not is_written:
            try:
                places = places_for(run, self._files, queues, now)
                if places is None:
                    return None
                header = run.write(*places)
            except _NO_RUN:
                return None
        if not is_written:
            log.appended(size, last_size, now)
            if header is not None:
                index.appended(header)
            for queue, (count, end) in zip(queues, run.queues, strict=True):
                queue.appended(count, end)
        if header is not None:
            index.dirty.add(index.files[-1])
        if not self._flusher.is_awake:
            self._flusher.wake()
        self._notify_of_run(messages, targets, queues, now)
        return run, PutResult(PutStatus.OK, log.last_record, last_size, queues[-1].max_offset - 1, now)

    def put_alone(
        self,
        sends: "LoneSends[ConsumeQueue]",
        received: memoryview,
        born_host: tuple[bytes, int],
        plain: AbstractSet[tuple[str, int]],
    ) -> "tuple[int, bytes, str, int, int] | PlainSends | None":
        """Store the messages of the first request and make its answer, in one call of the native core.

        Args:
            sends: What `lone_sends` returned.
            received: What a connection has received.
            born_host: The client's address as stored in a record, and the sysFlag bits that say which hosts are IPv6.
            plain: The queues whose messages are stored as they are.

        Returns:
            The bytes of the request, the answer, the topic, the number of messages, and the bytes of their records.
            Otherwise nothing has changed. Then the plain requests that were received are returned; None if the first
            one is unusual or refused.
        """
        # `takes_runs` and `put_run`'s choice of the index file, inlined: this runs for every lone send.
        if self._committer is not None or self._is_full or self._refusal() is not None:
            return None
        settings, files = self.settings, self._index.files
        index = None
        if settings.message_index_enable:
            index = files[-1] if files else NO_FILE
        now = self._clock.now_ms()
        try:
            stored = sends.store(received, born_host, plain, index, settings.max_message_size, now)
        except (OverflowError, ValueError):  # a number or a topic does not fit its field
            return None
        if not isinstance(stored, tuple):
            return stored
        length, answer, queue, tags_codes, size, is_indexed = stored
        count = len(tags_codes)
        if is_indexed:
            self._index.dirty.add(files[-1])
        if not self._flusher.is_awake:
            self._flusher.wake()
        self._notify(queue, queue.max_offset - count, tags_codes, now)
        return length, answer, queue.topic, count, size

    def lone_sends(
        self, reader: "SendReader", last_property: str, template: "AnswerTemplate"
    ) -> "LoneSends[ConsumeQueue]":
        """Return the core's object for `put_alone`; only for a store without a pool.

        Args:
            reader: Reads the requests.
            last_property: A name and a value in wire form, stored behind the properties of each message.
            template: The header of the answers.
        """
        from rocket_native import LoneSends

        return LoneSends(reader, self._commit_log, self._queues.table, last_property, template)

    @property
    def unflushed_bytes(self) -> int:
        """Bytes of the commit log that are not on the disk yet."""
        return self._commit_log.end - self._commit_log.flushed

    @property
    def takes_runs(self) -> bool:
        """Whether `put_run` may store a run now; otherwise do not make one."""
        return self._committer is None and not self._is_full and self._refusal() is None

    def _refusal(self) -> PutStatus | None:
        """Return why every message is refused now; None if messages are accepted."""
        if not self._accepts_messages or self._flusher.is_broken or self._retention.is_disk_full:
            return PutStatus.SERVICE_NOT_AVAILABLE
        log = self._commit_log
        # Senders are faster than the disk. Apache's broker answers the same if one append holds its lock for
        # too long (isOSPageCacheBusy, 5.3.3). Here appends take no lock; the bytes that are not flushed are
        # limited instead.
        if log.end - log.flushed > self.settings.max_unflushed_bytes:
            return PutStatus.OS_PAGE_CACHE_BUSY
        return None

    async def await_flush(self, result: PutResult) -> PutStatus:
        """Wait until the sender of a message may be answered, and return the message's status.

        Under SYNC_FLUSH that is when the message is on the disk, and where senders wait for slaves, when a slave has
        it, unless it has `WAIT=false`. All waiting senders share one fsync.
        """
        status = result.status
        if status is not PutStatus.OK or not result.wait_store_ok:
            return status
        end = result.commit_log_offset + result.size
        # Both waits begin now: the disk and the slave work at the same time.
        replicated = self.replicate(end) if self.replicate is not None else None
        if self.settings.flush_disk_type is FlushDiskType.SYNC_FLUSH and not await self._flusher.wait_for(end):
            status = PutStatus.FLUSH_DISK_TIMEOUT
        if replicated is not None:
            on_slave = await replicated
            if on_slave is not PutStatus.OK:  # Apache's CommitLog (4.9.7) also answers this one of the two
                status = on_slave
        return status

    async def flush_to(self, offset: int) -> bool:
        """Wait until the commit log is on the disk up to an offset; return False if that takes too long, or fails."""
        return await self._flusher.wait_for(offset)

    def begin_flush_to(self, offset: int) -> "asyncio.Future[bool]":
        """Begin what `flush_to` does; return a future of its result."""
        return self._flusher.wait_for(offset)

    def flush(self) -> None:
        """Bring everything to the disk now; it may take long.

        Raises:
            OSError: The disk refused.
        """
        self.commit()
        self._flusher.flush_all()

    def commit(self) -> None:
        """Commit the transient store pool now, so that readers and `query` see its messages.

        Raises:
            OSError: The disk refused.
        """
        if self._committer is not None:
            self._committer.commit_now()

    def _store(self, message: StoreMessage, now: int) -> PutResult:
        topic, queue_id, log = message.topic, message.queue_id, self._commit_log
        transaction = message.sys_flag & _TRANSACTION_BITS
        queue: ConsumeQueue | None = None
        queue_offset = 0
        hashes: list[int] = []
        if b"\0" in message.properties:  # recovery would take zeros for a sector that never reached the disk
            raise LocalProtocolError(f"the properties of a message to {topic} hold a zero byte")
        if transaction in _IN_QUEUES:
            if not -_LONG <= message.tags_code < _LONG:
                raise LocalProtocolError(f"tags code {message.tags_code} does not fit its field")
            queue = self._queues.find((topic, queue_id)) or self._queues.add(topic, queue_id)
            # All that can fail comes before the log is changed: names, space and maps for the entries.
            # `log.append` is the last step that can fail, and leaves no trace then. So a refused message
            # takes no number, and a stored one gets its entries.
            queue.prepare(queue.held)
            queue_offset = queue.max_offset + queue.held
        else:
            check_names(topic, queue_id)
        if transaction != TRANSACTION_ROLLBACK and self.settings.message_index_enable:
            hashes = self._index.hashes(topic, message.unique_key, message.keys)
            if self._committer is not None and not self._index.has_room(hashes):
                self._committer.commit_now()  # held entries belong to the last file
            self._index.prepare(hashes, now, self._index.held)

        size = log.append(message, queue_offset, now)

        offset = log.end - size
        if self._committer is None:
            self._enter(queue, queue_offset, message.tags_code, hashes, offset, size, now)
        else:
            self._committer.hold(HeldMessage(queue, queue_offset, message.tags_code, hashes, offset, size, now))
        self._stored()
        return PutResult(PutStatus.OK, offset, size, queue_offset, now, message.wait_store_ok)

    def _stored(self) -> None:
        """Wake the flusher, or the committer, after a message was stored."""
        if self._committer is None and not self._flusher.is_awake:
            self._flusher.wake()
        if self._is_full:
            self._is_full = False
            logger.warning("the disk has space again, messages are accepted")

    def _enter(  # noqa: PLR0917 - made for every message; keywords cost
        self,
        queue: ConsumeQueue | None,
        queue_offset: int,
        tags_code: int,
        hashes: list[int],
        offset: int,
        size: int,
        now: int,
    ) -> None:
        """Make the entries of a message, for which there is room, and call the listeners."""
        if hashes:
            self._index.put(hashes, offset, now)
        if queue is not None:
            queue.append(offset, size, tags_code)
            self._notify(queue, queue_offset, (tags_code,), now)

    def _notify(self, queue: ConsumeQueue, queue_offset: int, tags_codes: Sequence[int], now: int) -> None:
        """Notify the flusher and the listeners of messages that have entries."""
        self._dirty_queues.add(queue)
        topic, queue_id, listeners = queue.topic, queue.queue_id, self.arrival_listeners
        if topic in self.topic_listeners:
            listeners = [*listeners, self.topic_listeners[topic]]
        for awaited, listener in self.queue_listeners:
            if (topic, queue_id) in awaited:
                listeners = [*listeners, listener]
        for listener in listeners:
            try:
                listener(topic, queue_id, queue_offset, tags_codes, now)
            except Exception:  # the messages are stored, even if a listener fails
                logger.exception("an arrival listener failed")

    def _notify_of_run(
        self, messages: MessageRun, targets: Sequence[tuple[str, int]], queues: Sequence[ConsumeQueue], now: int
    ) -> None:
        """Notify the flusher and the listeners of a run, as `_notify` does for each of its queues."""
        # Sets are joined and compared as a whole, since a run may have a queue for each message.
        self._dirty_queues.update(queues)
        wanted: set[tuple[str, int]] = set()
        if self.arrival_listeners or not self.topic_listeners.keys().isdisjoint(messages.topics):
            wanted.update(targets)
        for awaited, _ in self.queue_listeners:
            if awaited:
                wanted.update(awaited & set(targets))
        if wanted:
            for target, queue, tags_codes in zip(targets, queues, messages.tags_codes, strict=True):
                if target in wanted:
                    self._notify(queue, queue.max_offset - len(tags_codes), tags_codes, now)

    def _publish(self, held: HeldMessage) -> None:
        """Make a message that has just been committed readable.

        Raises:
            OSError: A file with its entries cannot be mapped now; nothing has changed.
        """
        if held.queue is not None:
            held.queue.prepare()
        self._index.prepare(held.hashes, held.store_timestamp)
        self._commit_log.commit(held.offset + held.size, held.offset, held.store_timestamp)
        self._enter(
            held.queue,
            held.queue_offset,
            held.tags_code,
            held.hashes,
            held.offset,
            held.size,
            held.store_timestamp,
        )

    def _copied(self, queue: ConsumeQueue, queue_offset: int, tags_codes: Sequence[int], store_timestamp: int) -> None:
        """Notify the flusher and the listeners of messages that were copied from the master."""
        if not self._flusher.is_awake:
            self._flusher.wake()
        self._notify(queue, queue_offset, tags_codes, store_timestamp)

    def _copied_deletion(self) -> None:
        """Do not flush the queues that were deleted."""
        self._dirty_queues.intersection_update(self._queues)

    # Reading

    def get(  # noqa: PLR0917 - made for every pull; keywords cost
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        max_bytes: int,
        tag_codes: frozenset[int] | None = None,
        record_filter: RecordFilter | None = None,
    ) -> GetResult:
        """Read messages of a queue from an offset on: the first that matches, and more within the limits.

        Args:
            topic: The queue's topic.
            queue_id: The queue.
            offset: The first queue offset to read.
            max_count: The largest number of messages.
            max_bytes: The largest size of all messages in bytes; one message is returned in any case.
            tag_codes: Only messages whose tags have one of these hashes; None: all.
            record_filter: Only messages that this filter accepts; None: all.
        """
        queue = self._queues.find((topic, queue_id))
        if queue is None:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        return read(self._commit_log, queue, offset, max_count, max_bytes, tag_codes, record_filter)

    def consume_queue_entries(
        self, topic: str, queue_id: int, offset: int, limit: int
    ) -> Iterator[tuple[int, int, int, int]]:
        """Yield offset, commit log offset, size and tags code of at most ``limit`` messages."""
        queue = self._queues.find((topic, queue_id))
        if queue is not None:
            for number, entry in enumerate(queue.entries(offset, limit), offset):
                yield number, *entry

    def message_in_queue(self, topic: str, queue_id: int, offset: int) -> memoryview | None:
        """Return the record of the message with this offset in a queue, or None."""
        for _, log_offset, size, _ in self.consume_queue_entries(topic, queue_id, offset, 1):
            return self._commit_log.record(log_offset, size)
        return None

    def leads_to(self, topic: str, queue_id: int, offset: int, commit_log_offset: int) -> bool:
        """Return whether a queue's entry with this offset points to that offset of the commit log."""
        entries = self.consume_queue_entries(topic, queue_id, offset, 1)
        return any(log_offset == commit_log_offset for _, log_offset, _, _ in entries)

    def message_at(self, commit_log_offset: int, size: int | None = None) -> memoryview | None:
        """Return the record at an offset of the commit log, or None if no record begins there.

        For an offset from outside leave out the size: then the record is checked.
        """
        if size is None:
            log = self._commit_log
            if self._committer is not None and log.committed <= commit_log_offset < log.end:
                self._committer.commit_now()  # a transaction may end, and be looked up, before its record is committed
            return log.record_at(commit_log_offset)
        return self._commit_log.record(commit_log_offset, size)

    def last_message(self) -> memoryview | None:
        """Return the last stored record, or None in an empty store."""
        last = self._commit_log.last_record
        return self._commit_log.record_at(last) if last >= 0 else None

    def find(  # noqa: PLR0917 - as `query`
        self,
        topic: str,
        key: str,
        max_count: int,
        begin_ms: int,
        end_ms: int,
        most_entries: int = MOST_ENTRIES,
    ) -> Generator[None, None, FoundMessages]:
        """Find the newest messages that may have a key, stored between two times, in steps.

        Other keys may have the same hash, and then their messages are included: callers must compare the properties,
        as Apache's clients do.

        Args:
            topic: The messages' topic.
            key: A key of the messages, or their unique key.
            max_count: The largest number of messages.
            begin_ms: The earliest store timestamp, in milliseconds since 1970.
            end_ms: The latest store timestamp, in milliseconds since 1970.
            most_entries: The largest number of index entries that are read.
        """
        search = IndexSearch(most_entries)
        limit = min(max_count, self.settings.max_msgs_num_batch)
        yield from self._index.find(topic, key, limit, begin_ms, end_ms, search)
        records = map(self._commit_log.record_at, sorted(set(search.found)))
        return FoundMessages([record for record in records if record is not None], search.is_complete)

    def query(self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int) -> list[memoryview]:
        """Return the records that `find` finds, oldest first, without giving other tasks a turn."""
        return run_all(self.find(topic, key, max_count, begin_ms, end_ms)).records

    # Contents

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset of a queue's first message, 0 if there is no queue."""
        queue = self._queues.find((topic, queue_id))
        return queue.min_offset if queue is not None else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset of a queue's next message, 0 if there is no queue."""
        queue = self._queues.find((topic, queue_id))
        return queue.max_offset if queue is not None else 0

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Return the offset of the message whose store timestamp is nearest to a time, as brokers before 5.0 do."""
        queue = self._queues.find((topic, queue_id))
        return offset_at(self._commit_log, queue, timestamp_ms) if queue is not None else 0

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Return a message's store timestamp in milliseconds since 1970, -1 if there is no such message."""
        queue = self._queues.find((topic, queue_id))
        return stored_at(self._commit_log, queue, offset) if queue is not None else -1

    def keep_count(self, topic: str, queue_id: int, count: int) -> None:
        """Give further messages of a queue offsets from ``count`` on.

        Raises:
            StoreFull: The disk has no room.
        """
        queue = self._queues.add(topic, queue_id)
        queue.keep_count(count)
        queue.correct_min_offset(self._commit_log.first)
        self._dirty_queues.add(queue)

    def topics_with_queues(self) -> dict[str, list[int]]:
        """Return the ids of each topic's queues that have had messages."""
        return self._queues.topics()

    def stored_topics(self) -> list[str]:
        """Return the topics that have queues."""
        return self._queues.names()

    @property
    def file_system(self) -> FileSystem:
        """The file system of the store."""
        return self._file_system

    @property
    def min_commit_log_offset(self) -> int:
        """The offset of the first record of the commit log."""
        return self._commit_log.first

    @property
    def max_commit_log_offset(self) -> int:
        """The offset of the next record."""
        return self._commit_log.end

    @property
    def is_broken(self) -> bool:
        """Whether the disk has refused a flush: nothing more may be stored until the broker is restarted."""
        return self._flusher.is_broken

    @property
    def committed_end(self) -> int:
        """The offset up to which readers see the commit log."""
        return self._commit_log.committed

    def log_slice(self, offset: int, most: int) -> memoryview | None:
        """Return bytes of the commit log from an offset on (`CommitLog.slice`); None if it has none there."""
        return self._commit_log.slice(offset, most)

    def log_part(self, offset: int, most: int) -> Callable[[], bytes] | None:
        """Return a function that reads bytes of the commit log in any thread (`CommitLog.part`); None if there are
        none."""
        return self._commit_log.part(offset, most)

    def next_log_file(self, offset: int) -> int:
        """Return the offset at which the commit log's file behind the one with `offset` begins."""
        return self._commit_log.next_file(offset)

    @property
    def index_end(self) -> tuple[int, int]:
        """Return store timestamp and commit log offset of the last indexed message; (0, 0) if there is none."""
        return self._index.end_timestamp, max(0, self._index.end_offset)

    # Deleting

    async def delete_topics(self, topics: Sequence[str]) -> None:
        """Delete topics' queues, in steps and in a thread; their messages stay in the commit log until its files are
        deleted.

        The deletion is recorded in the log (`deletion`), and the record is on the disk, before a queue is touched. The
        mark of the checkpoint is before the record. So after a crash recovery reads the record and completes the
        deletion. No message can be stored in the topics until they are deleted.

        Raises:
            StoreFull: The disk is full: the record cannot be stored, and nothing is deleted.
            OSError: The disk refused. Topics whose record is in the log are deleted, now or by the next start.
        """
        async with self._deleting:
            self._queues.close(topics)
            try:
                # Most of the work is done here, in threads, so that the flush in this step is short.
                await self._flusher.flush()
                self.flush()  # messages that were stored meanwhile
                for _ in self._note_deletions(topics):
                    await asyncio.sleep(0)
                for topic in topics:
                    await self._remove_queues(topic)
                self.flush()  # the mark need not include the queues any more
            finally:
                self._queues.open(topics)

    async def _remove_queues(self, topic: str) -> None:
        left = self._queues.of(topic)
        while left:
            taken, left = left[:_QUEUES_IN_ONE_GO], left[_QUEUES_IN_ONE_GO:]
            with Watchdog("deleting consume queues"):
                for queue in taken:
                    self._take(queue)
            await asyncio.to_thread(_remove, taken)
        self._queues.remove_directory(topic)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic's queues at once, as `delete_topics` does, in a store without clients.

        Raises:
            StoreFull: As `delete_topics`, as is OSError.
        """
        self.flush()
        run_all(self._note_deletions([topic]))
        queues = self._queues.of(topic)
        for queue in queues:
            self._take(queue)
        _remove(queues)
        self._queues.remove_directory(topic)
        self.flush()

    def _note_deletions(self, topics: Sequence[str]) -> Generator[None, None, None]:
        """Record in the log, on the disk, that topics are deleted; yield after each."""
        for topic in topics:
            self._store(deletion_message(topic), self._clock.now_ms())
            yield
        self.commit()
        self._flusher.flush_log()

    def delete_queue(self, topic: str, queue_id: int) -> None:
        """Delete one queue of a topic that keeps others, in a store without clients. The log does not record that.

        Raises:
            OSError: The disk refused.
        """
        queue = self._queues.find((topic, queue_id))
        if queue is not None:
            self.flush()
            self._queues.discard(queue)
            self._dirty_queues.discard(queue)

    def _take(self, queue: ConsumeQueue) -> None:
        self._queues.take(queue)
        self._dirty_queues.discard(queue)

    async def delete_expired(self) -> int:
        """Delete the oldest files of the commit log whose retention time is over; return how many (`retention`).

        Raises:
            OSError: The disk refused.
        """
        return await self._retention.delete_expired()

    def keep_files_as(self, settings: StoreSettings) -> None:
        """Use these settings for deleting old files from the next round on; other settings are ignored."""
        self._retention.settings = settings

    async def clean(self) -> int:
        """Delete the files that are due by hour and disk usage now, and return how many; the store also does so by
        itself.

        Raises:
            OSError: The disk refused.
        """
        return await self._retention.clean()

    def __repr__(self) -> str:
        return f"MessageStore({str(self.settings.root)!r}, {self._commit_log}, {self._queues})"


def _remove(queues: Iterable[ConsumeQueue]) -> None:
    for queue in queues:
        queue.remove()
