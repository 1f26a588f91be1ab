"""The native core of the broker and its clients: code that only handles bytes, and decides nothing. It is in Rust.

`rocket_remoting.native` says whether it is installed; without it Python code does the same.

A defect of the core, a panic in Rust, raises `RuntimeError`.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, Generic, Self, TypeAlias, TypeVar, final

INTERFACE: Final[int]
"""The number of this interface. It changes with each change of what is below."""

Place: TypeAlias = tuple[memoryview, int]
"""The map of a file, and a position in it."""
IndexPlace: TypeAlias = tuple[memoryview, int, int, int, int, int]
"""The map of an index file, its number of slots, and what its header has now: begin timestamp, begin offset, slots in
use, and the number of the next entry."""
IndexHeader: TypeAlias = tuple[int, int, int, int, int, int]
"""What the header of an index file has then: begin timestamp, end timestamp, begin offset, end offset, slots in use,
and the number of the next entry."""
BlockQueue: TypeAlias = tuple[str, int, int, int, int, int, int]
"""The messages of a queue in a block: topic, queue id, number of the first message, offset of its record in the commit
log, the number of messages, where the last one's record ends, and the last one's store timestamp."""

MessageFields: TypeAlias = tuple[
    int, int, int, int, int, int, int, int, tuple[str, int], int, tuple[str, int], int, int, bytes, str, dict[str, str]
]
"""The fields of a record that a message has: size, checksum, queue id, flag, queue offset, commit log offset, system
flag, born timestamp, born host, store timestamp, store host, reconsume times, prepared transaction offset, body, topic,
properties."""

ColumnBuffers: TypeAlias = list[bytes | None]
"""The buffers of a column, as Apache Arrow has them: validity and values of numbers; validity, offsets and data of
texts; of all properties the offsets of the rows, and offsets and data of the names and of the values. A validity of
None says that there is no null."""

def part_bounds(data: bytes, *, most_messages: int, most_bytes: int, most_in_all: int) -> list[tuple[int, int]] | None:
    """Return where each part of a batch begins and ends, by the size fields of its messages alone.

    Args:
        data: The body of a batch request.
        most_messages: The largest number of messages of a part.
        most_bytes: The largest size of a part in bytes, unless it is one message.
        most_in_all: The largest number of messages of the batch.

    Returns:
        The positions; None if the batch has more than `most_in_all` messages.
    """

def read_batch(
    data: bytes, start: int, end: int, *, timed: str, most_keys: int, most_keys_in_all: int
) -> PlainBatch | None:
    """Return the messages between two positions of a batch, if all of them are stored as they are.

    Args:
        data: The body of a batch request.
        start: Where the first message begins.
        end: Where the last message ends.
        timed: The begin of the names of properties that a message must not have.
        most_keys: A message with this number of separators in its keys, or more, is not taken.
        most_keys_in_all: The largest number of all messages' keys.

    Returns:
        The messages; None if one of them is not plain, or the lengths in the batch do not agree.
    """

def read_columns(
    data: bytes, fields: Sequence[str], properties: Sequence[str], with_all: bool, /
) -> tuple[int, list[ColumnBuffers]] | None:
    """Return the records that follow each other as columns.

    Args:
        data: The records, of either version and with hosts of either family.
        fields: The names of fields: ``queue_id``, ``flag``, ``sys_flag`` and ``reconsume_times``, of 32 bits;
            ``queue_offset``, ``born_timestamp``, ``store_timestamp`` and ``position``, where the record begins, of 64
            bits; ``body`` and ``topic``.
        properties: The names of properties; a message that lacks one has null in its column.
        with_all: Whether to return a column of all properties, too.

    Returns:
        The number of records, and the buffers of the columns, in the order of the arguments. None if a record is not
        well-formed or has a compressed body or, as far as they are read, a topic or properties that are not UTF-8. Also
        None if properties are read and one has no name or no value, one of those named is there twice in a message, or
        a message has a property twice, or more than 32, for the column of all.

    Raises:
        ValueError: A record has no field of this name.
    """

def read_messages(data: bytes, start: int, /) -> tuple[list[MessageFields], int]:
    """Return the messages of records that follow each other, up to the first record that is not plain.

    Plain records are of version 1, with two IPv4 hosts, and properties that all have a name and a value.

    Args:
        data: The records.
        start: Where the first one begins.

    Returns:
        The fields of each message, and where the record begins that is not plain; the end of `data` if there is none.
    """

def read_records(
    entries: tuple[memoryview, int, int, int],
    log: tuple[memoryview, int],
    bounds: tuple[int, int, int],
    topic: str,
    tags: list[int] | None,
    limits: tuple[int, int],
    /,
) -> tuple[int, list[bytes], int] | None:
    """Read messages of a queue through its entries: the first that matches, and more within the limits.

    Args:
        entries: The bytes of a file of the queue, the positions of the first entry and behind the last one, and the
            number of the first message.
        log: The bytes of a file of the log, and its first offset.
        bounds: Offsets of the log: of its first message; before which a record may be damaged; behind the last one.
        topic: The queue's topic.
        tags: Only messages whose tags have one of these hashes; None: all.
        limits: The largest number of messages, and their largest size in bytes; one message is returned in any case.

    Returns:
        The number of entries that were looked at, the records and their bytes. None if a record is not in this file of
        the log, or may be damaged.
    """

@final
class PlainBatch:
    """Messages of a batch that are stored as they are.

    Their properties have the usual form: each has a name and a value, and none that the store reads is there twice.
    """

    def __len__(self) -> int: ...
    @property
    def longest_body(self) -> int:
        """Length of the longest body, in bytes."""

    @property
    def longest_properties(self) -> int:
        """Length of the longest properties of a message, in bytes."""

    @property
    def waits(self) -> bool:
        """Whether the answer waits for the disk; the property ``WAIT`` of the last message says so."""

    @property
    def tags_codes(self) -> list[int]:
        """The tags code of each message."""

    def has_sequence(self, prefix: str, first: int) -> bool:
        """Return whether the unique keys are ``prefix`` and numbers from ``first`` on, of eight hexadecimal digits."""

    def run(
        self,
        *,
        topic: str,
        queue_id: int,
        properties: bytes,
        sys_flag: int,
        host_flags: int,
        born_timestamp: int,
        born_host: bytes,
        store_host: bytes,
        reconsume_times: int,
        store_timestamp: int,
        queue_offset: int,
        commit_log_offset: int,
    ) -> Run:
        """Return the messages as records of a queue.

        Args:
            topic: The topic, at most 127 bytes.
            queue_id: The queue.
            properties: Properties that follow those of each message.
            sys_flag: The system flag without the bits of the hosts.
            host_flags: The bits of the system flag that say which of the hosts have IPv6 addresses.
            born_timestamp: In milliseconds since 1970, as `store_timestamp`.
            born_host: The producer's address, as a record has it.
            store_host: The broker's address, likewise.
            reconsume_times: Number of redeliveries so far.
            store_timestamp: The time of storing.
            queue_offset: The queue offset of the first message.
            commit_log_offset: The commit log offset of the first message.

        Raises:
            OverflowError: A number does not fit its field.
            ValueError: The topic is too long.
        """

@final
class SendReader:
    """Reads the requests SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE that store messages as they are."""

    def __new__(
        cls,
        *,
        waiting: list[str],
        timed: str,
        sys_flags: int,
        most_keys: int,
        most_keys_in_all: int,
        most_messages: int,
        most_bytes: int,
        most_sends: int,
        store_host: bytes,
        keeps_signatures: bool,
    ) -> Self:
        """Make a reader.

        Args:
            waiting: Names of properties that a request must not have.
            timed: The begin of the names of properties that a message of a batch must not have.
            sys_flags: The bits of the system flag that a message may have.
            most_keys: A message with this number of separators in its keys, or more, is not taken.
            most_keys_in_all: The largest number of all messages' keys.
            most_messages: The largest number of messages that are read at once.
            most_bytes: The largest size of a batch in bytes.
            most_sends: The largest number of requests that are read at once.
            store_host: The broker's address, as a record has it.
            keeps_signatures: Whether `PlainSends.signatures` will be asked for.
        """

    def read(
        self,
        received: Sequence[tuple[bytes, int, memoryview]],
        last_property: str,
        longest_body: int,
        most: list[int] | None = None,
    ) -> PlainSends | None:
        """Return the messages of the first requests in what connections have received.

        Each request is looked at once: reading ends at the first one that is not plain. Its body is not copied if its
        header shows that.

        Args:
            received: For each connection its address, as a record has it; the bits of the system flag that say which of
                the hosts have IPv6 addresses; and what it has received, which begins with a frame.
            last_property: A name and a value in wire form, stored behind the properties of each message.
            longest_body: The largest size of the body of a request in bytes.
            most: For each connection the largest number of its requests.

        Returns:
            The messages of each connection up to the first request that is not plain; None if there are none.
        """

@final
class PlainSends:
    """Messages that are stored as they are, of consecutive requests of connections."""

    def __len__(self) -> int: ...
    @property
    def message_count(self) -> int:
        """The number of messages; the length is the number of requests."""

    @property
    def all_wait(self) -> bool:
        """Whether each answer may wait for the disk; the property ``WAIT`` of its last message says so."""

    @property
    def targets(self) -> list[tuple[str, int]]:
        """The topic and the id of each queue that gets messages."""

    @property
    def topics(self) -> list[str]:
        """The topics of these queues, each once."""

    @property
    def uses(self) -> list[tuple[int, int, int]]:
        """Which connection sends to which queue: the numbers of the connection, of the queue in `targets`, and of the
        connection's first request that does so."""

    @property
    def counts(self) -> list[int]:
        """For each connection the number of its requests."""

    @property
    def senders(self) -> list[tuple[int, int, str, int]]:
        """The senders that sign requests: the number of the connection, the code, the access key, and the number of the
        queue in `targets`."""

    def signatures(self, connection: int) -> list[tuple[int, bytes, bytes, tuple[bytes, bytes] | None] | None]:
        """Return the signatures of a connection's requests.

        Returns:
            For each request the number of its sender in `senders`, what is signed, the signature, and the scope. Signed
            are the values of the fields in the order of their names, and the body. With the scope, which not every
            client sends, come the names and lengths of the other fields, in JSON. None for a request without an access
            key, or with other fields than clients of 4.9 and 5, and our own, send.

        Raises:
            ValueError: There is no such connection.
        """

    @property
    def tags_codes(self) -> list[list[int]]:
        """For each queue of `targets` the tags codes of its messages."""

    @property
    def longest_body(self) -> int:
        """Length of the longest body of a message or a batch, in bytes."""

    def pack(
        self,
        log: LogState,
        queues: Sequence[QueueState],
        index: IndexState | None,
        store_timestamp: int,
        /,
    ) -> Run:
        """Return the messages as records; write them and their entries, as `Run.write` does, and count them, if all
        files have room.

        Args:
            log: The log.
            queues: The queues of `targets`.
            index: The last file of the index; None if nothing is to be indexed.
            store_timestamp: The time of storing, in milliseconds since 1970.

        Raises:
            OverflowError: A number does not fit its field.
            ValueError: A topic is too long, or a file is read-only. Nothing has changed.
        """

    def answers(self, run: Run, template: AnswerTemplate) -> list[tuple[int, bytes, bool]]:
        """Return for each connection the bytes of its requests, the answers to those that expect one, and whether its
        next request was only left out because of the number of those before it.

        Args:
            run: What `pack` returned.
            template: The header of the answers.
        """

@final
class AnswerTemplate:
    """The header of the answers to sends, without their numbers."""

    def __new__(cls, id_prefix: str, pieces: tuple[str, str, str, str, str]) -> Self:
        """Make a template.

        Args:
            id_prefix: What stands before the commit log offset in the id of a message.
            pieces: The pieces of the header. Between them come the ids of the messages, the queue, the queue offset of
                the first message and the request's number.
        """

class FileState:
    """A file of a store.

    Attributes:
        base: The offset of its first byte.
        size: Its size.
        allocated: Bytes up to here have space on the disk.
        used: Whether its bytes were used since this was set to False.
        view: Its bytes, if it is mapped.
    """

    base: int
    size: int
    allocated: int
    used: bool
    view: memoryview | None

class LogState:
    """The commit log.

    Attributes:
        end: The offset of the next record.
        committed: Readers see records up to here.
        last_record: The offset of the last record.
        last_timestamp: Its store timestamp.
        tail: The last file.
    """

    end: int
    committed: int
    last_record: int
    last_timestamp: int
    tail: FileState | None

class QueueState:
    """A consume queue.

    Attributes:
        max_offset: The number of the next message.
        max_physical: Where the last message ends in the commit log.
        tail: The last file.
    """

    max_offset: int
    max_physical: int
    tail: FileState | None

class IndexState:
    """A file of the index.

    Attributes:
        begin_timestamp: Store timestamp of its first message.
        end_timestamp: Store timestamp of its last message.
        begin_offset: Commit log offset of its first message.
        end_offset: Commit log offset of its last message.
        slots_used: Slots that have entries.
        count: The number of the next entry.
        file: The file; None if it has not been made yet.
        slots: The number of slots.
        chunks_allocated: A byte for each part of the file, 0 if it has no space on the disk.
        chunk_bits: A part has ``1 << chunk_bits`` bytes.
    """

    begin_timestamp: int
    end_timestamp: int
    begin_offset: int
    end_offset: int
    slots_used: int
    count: int
    file: FileState | None
    slots: int
    chunks_allocated: bytearray | None
    chunk_bits: int

_Queue = TypeVar("_Queue", bound=QueueState)

@final
class LoneSends(Generic[_Queue]):
    """Stores and answers lone sends: each is the only one that was received in a turn of the loop."""

    def __new__(
        cls,
        reader: SendReader,
        log: LogState,
        queues: Mapping[tuple[str, int], _Queue],
        last_property: str,
        template: AnswerTemplate,
    ) -> Self:
        """Make an object for one store.

        Args:
            reader: Reads the requests.
            log: The log.
            queues: The queues by topic and id, a `dict`.
            last_property: A name and a value in wire form, stored behind the properties of each message.
            template: The header of the answers.
        """

    def store(
        self,
        received: memoryview,
        host: tuple[bytes, int],
        plain: AbstractSet[tuple[str, int]],
        index: IndexState | None,
        longest_body: int,
        store_timestamp: int,
        /,
    ) -> tuple[int, bytes, _Queue, list[int], int, bool] | PlainSends | None:
        """Store the messages of the first request as `PlainSends.pack` does; return its answer, which is made before.

        Args:
            received: What was received; it begins with a whole frame.
            host: The connection's address, as a record has it; and the bits of the system flag that say which of the
                hosts have IPv6 addresses.
            plain: The queues whose messages are stored as they are.
            index: The last file of the index; None if nothing is to be indexed.
            longest_body: The largest size of a body.
            store_timestamp: The time of storing, in milliseconds since 1970.

        Returns:
            The bytes of the request; the answer, empty if none is expected; the queue, the tags codes of its messages,
            the bytes of their records, and whether entries have been written into the index. Otherwise nothing has
            changed. Then the plain requests that were received are returned if these are several, their queue is none
            of `plain`, or a file has no room; and None if the first request is not plain.

        Raises:
            OverflowError: A number does not fit its field.
            ValueError: A topic is too long, or a file is read-only. Nothing has changed.
        """

@final
class Run:
    """Records, and the entries that lead to them."""

    @property
    def result(self) -> tuple[bool, int, int, IndexHeader | None]:
        """Whether they have been written and counted already; bytes of the records, and of the last one; the header of
        the index file, if entries have been written into it."""

    @property
    def size(self) -> int:
        """Bytes of the records."""

    @property
    def queues(self) -> list[tuple[int, int]]:
        """For each queue the number of its messages, and the commit log offset where the last one's record ends."""

    @property
    def offsets(self) -> list[int]:
        """The commit log offset of each record."""

    @property
    def key_count(self) -> int:
        """The number of keys, each of which has an entry in the index."""

    def parts_without_space(self, slot_count: int, allocated: bytes | bytearray, bits: int) -> list[int]:
        """Return the parts of an index file that have slots of the keys, and no space on the disk.

        Args:
            slot_count: The file's number of slots.
            allocated: A byte for each part of ``1 << bits`` bytes; 0 if it has no space.
            bits: The size of a part.

        Raises:
            ValueError: The file has more parts.
        """

    def write(self, log: Place, queues: Sequence[Place], index: IndexPlace | None) -> IndexHeader | None:
        """Write records and entries into files, which have room for them.

        The order is such that a process may be killed at any time: the records without their first bytes, these bytes,
        the entries of the index, its header, its slots, the entries of the queues.

        Args:
            log: Where the records go.
            queues: Where the entries of each queue go.
            index: The last file of the index; None if nothing is to be indexed.

        Returns:
            The header of the index file.

        Raises:
            ValueError: A file has no room, or is read-only. Nothing has changed.
        """

@final
class LogReader:
    """Reads records that are in the commit log already."""

    def __new__(cls, *, apart: list[str], most_keys: int, checks_bodies: bool) -> Self:
        """Make a reader.

        Args:
            apart: Topics whose records are not plain.
            most_keys: A message with this number of separators in its keys, or more, is not plain.
            checks_bodies: Whether a record whose body does not have its checksum is not plain.
        """

    def read(
        self, data: memoryview, position: int, offset: int, most_bytes: int, index_room: int | None, /
    ) -> LogBlock | None:
        """Read the plain records at a place of the log, up to the first that is not plain or not whole.

        Plain are messages of version 1 of the record that are in a queue, each with the next number of its queue, with
        properties in the usual form and without zero bytes.

        Args:
            data: The bytes of a file of the log, up to where they are written.
            position: Where the first record begins in them.
            offset: Its offset in the log.
            most_bytes: The largest size of all records.
            index_room: The number of keys for which the index has room; None if keys are not indexed.

        Returns:
            The records; None if the first one is not plain, not whole or too large, or the index has no room for its
            keys.
        """

@final
class LogBlock:
    """Records that follow each other in the commit log, and the entries that lead to them."""

    @property
    def records(self) -> tuple[int, int, int, int, int]:
        """The bytes of the records, their number, the bytes of the last one, its store timestamp, and the number of
        messages that have keys."""

    @property
    def queues(self) -> list[BlockQueue]:
        """The queues that have messages in the block."""

    @property
    def tags_codes(self) -> list[list[int]]:
        """For each queue of `queues` the tags codes of its messages."""

    @property
    def key_count(self) -> int:
        """The number of keys, each of which has an entry in the index."""

    def parts_without_space(self, slot_count: int, allocated: bytes | bytearray, bits: int) -> list[int]:
        """Return the parts of an index file that have slots of the keys, and no space on the disk, as `Run` does."""

    def write(self, queues: Sequence[Place], index: IndexPlace | None, /) -> IndexHeader | None:
        """Write the entries into files, which have room for them: those of the index, its header, its slots, those of
        the queues.

        Args:
            queues: Where the entries of each queue go.
            index: The last file of the index; None if nothing is to be indexed.

        Returns:
            The header of the index file.

        Raises:
            ValueError: A file has no room, or is read-only. Nothing has changed.
        """
