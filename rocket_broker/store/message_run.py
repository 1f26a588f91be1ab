"""Messages of one queue that are stored in one go, by columns. Needs numpy.

`MessageStore.put_run` takes a run if nothing stands in its way: room in the last file of log, queue and index, and
nothing in a message that a store refuses. What it writes is what `MessageStore.put` writes, byte for byte.
"""

from dataclasses import dataclass

import numpy as np

from rocket_broker.store.consume_queue import ConsumeQueue
from rocket_broker.store.index_run import IndexRun
from rocket_broker.store.messages import PutResult, PutStatus, StoredRun
from rocket_broker.store.store_files import StoreFiles
from rocket_remoting.wire.message import Host
from rocket_remoting.wire.record_columns import Numbers, pack_records, record_sizes

__all__ = ["MessageRun"]

_QUEUE_ENTRY = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])


@dataclass(frozen=True, slots=True, eq=False)
class MessageRun:
    """The messages; what is no list or array is the same for all.

    Attributes:
        topic: As in `StoreMessage`, like all that is not said here.
        queue_id: Likewise.
        bodies: Of each message.
        body_lengths: Bytes of each.
        properties: Of each message, in wire form, without a zero byte.
        properties_lengths: Bytes of each.
        flags: Of each message.
        tags_codes: Likewise.
        key_hashes: `java_hash` of each key with its topic before it, in the order of the messages.
        key_rows: Which message each of those is of.
        sys_flag: As in `StoreMessage`.
        born_timestamp: Likewise.
        born_host: Likewise.
        store_host: Likewise.
        reconsume_times: Likewise.
        wait_store_ok: Of the last.
    """

    topic: str
    queue_id: int
    bodies: list[bytes]
    body_lengths: Numbers
    properties: list[bytes]
    properties_lengths: Numbers
    flags: Numbers
    tags_codes: Numbers
    key_hashes: Numbers
    key_rows: Numbers
    sys_flag: int
    born_timestamp: int
    born_host: Host
    store_host: Host
    reconsume_times: int
    wait_store_ok: bool

    def __len__(self) -> int:
        return len(self.bodies)

    def store_in(self, files: StoreFiles, now: int) -> tuple[ConsumeQueue, StoredRun] | None:
        """Append the messages and make their entries; None if the last file of log, queue or index has no room.

        Raises:
            LocalProtocolError: A message cannot be stored. Nothing has changed, as with all of these.
            StoreFull: The disk has no room.
            OSError: A file could not be made.
        """
        log, settings = files.log, files.settings
        queue = files.queues.find((self.topic, self.queue_id)) or files.queues.add(self.topic, self.queue_id)
        sizes = self._sizes()
        size, first = int(sizes.sum()), queue.max_offset
        offsets = log.end + np.cumsum(sizes) - sizes
        if not log.has_room(size) or not queue.prepare_run(len(self)):
            return None
        indexed: IndexRun | None = None
        if len(self.key_hashes) and settings.message_index_enable:
            indexed = IndexRun(self.key_hashes, offsets[self.key_rows], settings.max_hash_slot_num)
            if not files.index.prepare_run(indexed, now):
                return None
        records = self._records(sizes, first, offsets, now)
        queue_entries = self._queue_entries(offsets, sizes)
        end, last_size = log.end + size, int(sizes[-1])
        last = PutResult(
            PutStatus.OK, end - last_size, last_size, first + len(self) - 1, now, self.wait_store_ok
        )
        stored = StoredRun(offsets.tolist(), size, first, last)

        log.append_run(records, last_size, now)

        if indexed is not None:  # only bytes are copied from here on: records have their entries
            files.index.put_run(indexed, now)
        queue.append_run(queue_entries, end)
        return queue, stored

    def _sizes(self) -> Numbers:
        """Bytes of each record.

        Raises:
            LocalProtocolError: A host does not fit its field.
        """
        return record_sizes(
            self.body_lengths, self.properties_lengths, self.topic, self.born_host, self.store_host
        )

    def _records(self, sizes: Numbers, queue_offset: int, offsets: Numbers, store_timestamp: int) -> bytes:
        """The records, one after the other.

        Raises:
            LocalProtocolError: A number does not fit its field.
        """
        return pack_records(
            self.bodies,
            self.properties,
            body_lengths=self.body_lengths,
            properties_lengths=self.properties_lengths,
            sizes=sizes,
            topic=self.topic,
            queue_id=self.queue_id,
            flags=self.flags,
            queue_offset=queue_offset,
            offsets=offsets,
            sys_flag=self.sys_flag,
            born_timestamp=self.born_timestamp,
            born_host=self.born_host,
            store_timestamp=store_timestamp,
            store_host=self.store_host,
            reconsume_times=self.reconsume_times,
        )

    def _queue_entries(self, offsets: Numbers, sizes: Numbers) -> bytes:
        """The entries of the consume queue; `consume_queue` draws them."""
        entries = np.empty(len(self), _QUEUE_ENTRY)
        entries["offset"] = offsets
        entries["size"] = sizes
        entries["tags_code"] = self.tags_codes
        return entries.tobytes()
