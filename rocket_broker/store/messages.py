"""Messages for the store, and the results of its operations."""

from enum import Enum

import msgspec

__all__ = ["GetResult", "GetStatus", "PutResult", "PutStatus", "StoreMessage", "StoredRun"]


class StoreMessage(msgspec.Struct, gc=False):
    """A message to be stored.

    Attributes:
        topic: The topic under which it is stored (for a delayed message, the schedule topic).
        queue_id: Queue of the topic.
        body: Its bytes, compressed or not; copied once, into the commit log.
        properties: The properties in their wire form (`rocket_remoting.wire.properties`).
        flag: The application's own number.
        sys_flag: Bits of `rocket_remoting.wire.sys_flag`; those for IPv6 are set by the store.
        born_timestamp: The time at which the producer made it, in milliseconds since 1970.
        born_host: Address and port of the producer.
        store_host: Address and port of this broker.
        reconsume_times: Redeliveries so far.
        prepared_transaction_offset: The offset of the half message that this message ends.
        tags_code: `java_hash` of the tags, by which consumers filter; for a delayed message the time of delivery.
        keys: The KEYS property, keys separated by spaces; each is indexed.
        unique_key: The UNIQ_KEY property; indexed.
        wait_store_ok: Whether the sender waits for the disk under SYNC_FLUSH, and for a slave under SYNC_MASTER.
        was_stored: Whether it was accepted before, and is stored again: then the current size limit does not apply.
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
    """The result of storing a message."""

    OK = "stored"
    FLUSH_DISK_TIMEOUT = "stored, but the disk has not confirmed it in time"
    FLUSH_SLAVE_TIMEOUT = "stored, but no slave has confirmed it in time"
    SLAVE_NOT_AVAILABLE = "stored, but no slave is near enough to wait for"
    CREATE_MAPPED_FILE_FAILED = "not stored: the next file could not be created"
    MESSAGE_ILLEGAL = "not stored: too large, or a field is out of its range"
    PROPERTIES_SIZE_EXCEEDED = "not stored: its properties are longer than 32767 bytes"
    SERVICE_NOT_AVAILABLE = "not stored: the disk is full or failing, or the store is closed or a slave's"
    OS_PAGE_CACHE_BUSY = "not stored: the disk is far behind"

    @property
    def is_permanent(self) -> bool:
        """Whether the store would refuse the message again at each attempt."""
        return self in (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED)


class PutResult(msgspec.Struct, gc=False):
    """The place of a stored message.

    Attributes:
        status: The result; the other attributes have a meaning only if the message was stored.
        commit_log_offset: The offset of its record.
        size: Length of the record in bytes.
        queue_offset: Its offset in its queue.
        store_timestamp: The time of storing, in milliseconds since 1970.
        wait_store_ok: Whether `MessageStore.await_flush` has to wait.
    """

    status: PutStatus
    commit_log_offset: int = -1
    size: int = 0
    queue_offset: int = -1
    store_timestamp: int = 0
    wait_store_ok: bool = True


class StoredRun(msgspec.Struct, gc=False):
    """The places of the messages of one request in a queue.

    Attributes:
        offsets: The offset of each record.
        size: Length of all records in bytes.
        queue_offset: The queue offset of the first.
        last: The last message's result.
    """

    offsets: list[int]
    size: int
    queue_offset: int
    last: PutResult

    @classmethod
    def of(cls, result: PutResult) -> "StoredRun":
        """Return the place of one message as a run."""
        return cls([result.commit_log_offset], result.size, result.queue_offset, result)

    def extend(self, run: "StoredRun") -> None:
        """Add messages that were stored after these."""
        self.offsets += run.offsets
        self.size += run.size
        self.last = run.last


class GetStatus(Enum):
    """The result of a read, in Apache's words."""

    FOUND = "messages"
    NO_MATCHED_MESSAGE = "messages, but none the filter lets through"
    MESSAGE_WAS_REMOVING = "an entry whose message the commit log no longer has"
    OFFSET_FOUND_NULL = "no entry, although the offset is between the minimum and the maximum"
    OFFSET_OVERFLOW_BADLY = "nothing: the offset is beyond the queue's end"
    OFFSET_OVERFLOW_ONE = "nothing yet: the offset is the queue's end"
    OFFSET_TOO_SMALL = "nothing: the messages there have been deleted"
    OFFSET_RESET = "nothing: the group's offset has been reset (5.x)"
    NO_MATCHED_LOGIC_QUEUE = "no such queue: nothing was ever stored in it"
    NO_MESSAGE_IN_QUEUE = "an empty queue"


class GetResult(msgspec.Struct, gc=False):
    """The result of a read.

    Attributes:
        status: Whether messages were found.
        next_begin_offset: The queue offset for the next read.
        min_offset: First offset of the queue.
        max_offset: Offset of the queue's next message.
        records: The records, as views of the commit log or as copies.
        size: Bytes of the records.
    """

    status: GetStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    records: list[bytes | memoryview] = []
    size: int = 0
