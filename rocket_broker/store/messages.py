"""What goes into the store and what it answers."""

from enum import Enum

import msgspec

__all__ = ["GetResult", "GetStatus", "PutResult", "PutStatus", "StoreMessage", "StoredRun"]


class StoreMessage(msgspec.Struct, gc=False):
    """A message to be stored.

    Attributes:
        topic: Topic it is stored under (of a delayed message: the schedule topic).
        queue_id: Queue of the topic.
        body: Its bytes, compressed or not; copied once, into the commit log.
        properties: The properties in their wire form (`rocket_remoting.wire.properties`).
        flag: The application's own number.
        sys_flag: Bits of `rocket_remoting.wire.sys_flag`; those for IPv6 are set by the store.
        born_timestamp: When the producer made it.
        born_host: Address and port of the producer.
        store_host: Address and port of this broker.
        reconsume_times: Redeliveries so far.
        prepared_transaction_offset: Where the half message lies that this one ends.
        tags_code: What consumers filter by: `java_hash` of the tags; of a delayed message the time it is due.
        keys: The KEYS property, keys separated by spaces; each is indexed.
        unique_key: The UNIQ_KEY property; indexed.
        wait_store_ok: Whether the sender waits for the disk under SYNC_FLUSH.
        was_stored: Whether it was taken before, and is stored anew: what may be sent now says nothing of its size.
    """

    topic: str
    queue_id: int
    body: bytes | bytearray | memoryview
    properties: bytes = b""
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: tuple[str, int] = ("127.0.0.1", 0)
    store_host: tuple[str, int] = ("127.0.0.1", 0)
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    tags_code: int = 0
    keys: str = ""
    unique_key: str = ""
    wait_store_ok: bool = True
    was_stored: bool = False


class PutStatus(Enum):
    """What became of a message."""

    OK = "stored"
    FLUSH_DISK_TIMEOUT = "stored, but the disk has not confirmed it in time"
    CREATE_MAPPED_FILE_FAILED = "not stored: the next file could not be created"
    MESSAGE_ILLEGAL = "not stored: too large, or a field is out of its range"
    PROPERTIES_SIZE_EXCEEDED = "not stored: its properties are longer than 32767 bytes"
    SERVICE_NOT_AVAILABLE = "not stored: the disk is full or failing, or the store is closed"
    OS_PAGE_CACHE_BUSY = "not stored: the disk is far behind"


class PutResult(msgspec.Struct, gc=False):
    """Where a message was stored.

    Attributes:
        status: What became of it; the rest means something only if it was stored.
        commit_log_offset: Where its record begins.
        size: Length of the record.
        queue_offset: Its number in its queue.
        store_timestamp: When it was stored.
        wait_store_ok: Whether `MessageStore.await_flush` has to wait for the disk.
    """

    status: PutStatus
    commit_log_offset: int = -1
    size: int = 0
    queue_offset: int = -1
    store_timestamp: int = 0
    wait_store_ok: bool = True


class StoredRun(msgspec.Struct, gc=False):
    """Where messages of one request were stored in a queue.

    Attributes:
        offsets: Where each one's record begins.
        size: Length of all records.
        queue_offset: The number of the first in the queue.
        last: The last message's result.
    """

    offsets: list[int]
    size: int
    queue_offset: int
    last: PutResult

    @classmethod
    def of(cls, result: PutResult) -> "StoredRun":
        """Return where one message was stored."""
        return cls([result.commit_log_offset], result.size, result.queue_offset, result)

    def extend(self, run: "StoredRun") -> None:
        """Add messages that were stored after these."""
        self.offsets += run.offsets
        self.size += run.size
        self.last = run.last


class GetStatus(Enum):
    """What a read found; the words are Apache's."""

    FOUND = "messages"
    NO_MATCHED_MESSAGE = "messages, but none the filter lets through"
    MESSAGE_WAS_REMOVING = "an entry whose message the commit log no longer has"
    OFFSET_FOUND_NULL = "no entry, although the offset is between the minimum and the maximum"
    OFFSET_OVERFLOW_BADLY = "nothing: the offset is beyond the queue's end"
    OFFSET_OVERFLOW_ONE = "nothing yet: the offset is the queue's end"
    OFFSET_TOO_SMALL = "nothing: the messages there have been deleted"
    OFFSET_RESET = "nothing: somebody has set where the group goes on (5.x)"
    NO_MATCHED_LOGIC_QUEUE = "no such queue: nothing was ever stored in it"
    NO_MESSAGE_IN_QUEUE = "an empty queue"


class GetResult(msgspec.Struct, gc=False):
    """What a read answers.

    Attributes:
        status: What was found.
        next_begin_offset: Where to read next.
        min_offset: First offset of the queue.
        max_offset: Offset the queue's next message will have.
        records: The records, as they lie in the commit log.
    """

    status: GetStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    records: list[memoryview] = []
