"""Request 70001: store those messages of a batch that are not stored yet; see `rocket_remoting.wire.deduplication`.

The index of keys tells which messages are stored. The index is as durable as the messages, so nothing else is
written, and a broker that was killed knows as much as before. The last message of each live writer is kept in memory,
so only the first batch of a writer after a start is looked up in the index.
"""

from collections import OrderedDict
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

import msgspec

from rocket_broker.limits.refusal import Refusal
from rocket_broker.processors.batches import BatchPart
from rocket_broker.processors.broker_context import BrokerContext
from rocket_broker.processors.send import SendProcessor
from rocket_broker.requests.request_steps import Steps
from rocket_broker.requests.serving import Answer
from rocket_broker.store.message_store import MOST_ENTRIES
from rocket_broker.store.messages import PutResult, PutStatus, StoredRun
from rocket_broker.writing.message_keys import check_keys
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.batch import BatchEntry
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.deduplication import MAX_NUMBER, WRITER_DIGITS, sequence_key, sequence_prefix
from rocket_remoting.wire.headers import SendDeduplicatedRequestHeader
from rocket_remoting.wire.properties import (
    MAX_PROPERTIES_LENGTH,
    PROPERTY_KEYS,
    PROPERTY_UNIQUE_KEY,
    decode_properties,
    decode_stored_properties,
)
from rocket_remoting.wire.record import peek_record

if TYPE_CHECKING:
    from rocket_native import PlainBatch

__all__ = ["DeduplicatedSends"]

MAX_WRITERS = 100_000
"""Maximum number of writers in memory; beyond it the writer that stored longest ago is forgotten and looked up in the
index when it sends again."""

LONGEST_PROPERTIES = MAX_PROPERTIES_LENGTH - 512
"""Maximum bytes of a message's properties; the rest of the store's limit is for those that the broker adds."""

_SAME_KEY_HASH = 64
_MOST_ENTRIES = 4 * MOST_ENTRIES
"""Maximum number of index entries that are read for one key. If there are more, the batch is refused."""
_EVER = 2**63 - 1


class _Stored(msgspec.Struct, gc=False):
    """The last message that a writer stored in its epoch.

    Attributes:
        epoch: The writer's epoch.
        sequence: Sequence number of the last stored message; -1 if the writer has stored none in the epoch.
        last: Where that message is; None if there is none.
    """

    epoch: int
    sequence: int
    last: PutResult | None


class DeduplicatedSends:
    """Stores those messages of a batch that are not stored yet."""

    def __init__(self, context: BrokerContext, sending: SendProcessor) -> None:
        self._settings = context.settings
        self._store = context.store
        self._sending = sending
        self._writers: OrderedDict[tuple[str, int, str], _Stored] = OrderedDict()
        self._under_way: set[tuple[str, int, str]] = set()

    def send(self, connection: Connection, command: RemotingCommand) -> Answer:
        """SEND_DEDUPLICATED (70001); an empty body asks only whether the broker supports the request."""
        if not self._settings.message_index_enable:
            raise Refusal(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                "deduplication needs the index of keys: set messageIndexEnable=true",
            )
        header = command.header(SendDeduplicatedRequestHeader)
        if not command.body:
            return RemotingCommand.response(command, ResponseCode.SUCCESS)
        return self._send(connection, command, header)

    def _send(self, connection: Connection, command: RemotingCommand, header: SendDeduplicatedRequestHeader) -> Steps:
        writer = (header.topic, header.queue_id, header.writer)
        # Batches of one writer must not be stored in turns with each other: both would find the same
        # messages missing and store them twice.
        if writer in self._under_way:  # sent again while the first attempt is being stored
            raise _gap(header, "a batch of its writer is being stored")
        self._under_way.add(writer)
        try:
            batch = yield from self._sending.read_batch(command.body)
            return (yield from self._put(connection, command, header, batch))
        finally:
            self._under_way.remove(writer)

    def _put(
        self,
        connection: Connection,
        command: RemotingCommand,
        header: SendDeduplicatedRequestHeader,
        batch: Sequence[BatchPart],
    ) -> Steps:
        count = yield from _checked_count(batch, header)
        known = yield from self._known(header, count)
        # Nothing is left to store: a repetition, whose first answer was lost, or a batch of an epoch that
        # has ended.
        if header.epoch < known.epoch or header.sequence + count - 1 <= known.sequence:
            last = known.last or (yield from self._found(header, header.sequence + count - 1))
            if last is None:
                raise _gap(header, "its writer has begun a later epoch")
            return self._sending.answer_stored(connection, command, StoredRun.of(last), header.queue_id)
        # Storing it would leave a gap, and the binary search below relies on sequences without gaps.
        if header.sequence > known.sequence + 1:
            raise _gap(header, f"{known.sequence + 1} is the next of epoch {header.epoch}")
        writer = (header.topic, header.queue_id, header.writer)
        # Forget the writer until the whole batch is stored: after a failure half way the index tells how far it got.
        self._writers.pop(writer, None)

        def stored(last: PutResult) -> None:
            self._remember(writer, _Stored(header.epoch, header.sequence + count - 1, last))

        first = known.sequence + 1 - header.sequence
        return (yield from self._sending.put_batch(connection, command, header, batch, first=first, stored=stored))

    def _remember(self, writer: tuple[str, int, str], stored: _Stored) -> None:
        self._writers[writer] = stored
        if len(self._writers) > MAX_WRITERS:
            self._writers.popitem(last=False)

    def _known(self, header: SendDeduplicatedRequestHeader, count: int) -> Generator[None, None, _Stored]:
        """Return the writer's last stored message, as far as it matters for this batch."""
        stored = self._writers.get((header.topic, header.queue_id, header.writer))
        if stored is None:
            return (yield from self._looked_for(header, count))
        if header.epoch > stored.epoch:
            return _Stored(header.epoch, -1, None)
        return stored

    def _looked_for(self, header: SendDeduplicatedRequestHeader, count: int) -> Generator[None, None, _Stored]:
        """Find by a binary search in the index how much of the batch is stored.

        A writer's messages are stored in sequence without a gap, so if one is stored all earlier ones are.
        """
        # Without this, messages of the last moments would look missing and be stored twice.
        self._store.commit()  # messages that wait for the commit are not in the index yet
        low, high = header.sequence - 1, header.sequence + count - 1
        last = (yield from self._found(header, low)) if low >= 0 else None
        if low >= 0 and last is None:
            return _Stored(header.epoch, -1, None)
        while low < high:
            middle = (low + high + 1) // 2
            found = yield from self._found(header, middle)
            if found is None:
                high = middle - 1
            else:
                low, last = middle, found
        return _Stored(header.epoch, low, last)

    def _found(self, header: SendDeduplicatedRequestHeader, sequence: int) -> Generator[None, None, PutResult | None]:
        key = sequence_key(header.writer, header.epoch, sequence)
        found = yield from self._store.find(header.topic, key, _SAME_KEY_HASH, 0, _EVER, _MOST_ENTRIES)
        for record in found.records:
            message = peek_record(record)
            # The index compares hashes of keys, so another key's messages may be found.
            if decode_stored_properties(message.properties).get(PROPERTY_UNIQUE_KEY) == key:
                return PutResult(
                    PutStatus.OK,
                    message.commit_log_offset,
                    message.total_size,
                    message.queue_offset,
                    message.store_timestamp,
                )
        # "Not found" would be a guess here: storing the message could double it, and skipping it could lose
        # it.
        if not found.is_complete:
            raise Refusal(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"cannot find out whether {key} is stored: {_MOST_ENTRIES} entries of the index share its slot",
            )
        return None


def _checked_count(batch: Sequence[BatchPart], header: SendDeduplicatedRequestHeader) -> Generator[None, None, int]:
    """Return the number of messages of the batch, once their keys are checked against the header.

    Raises:
        Refusal: A key does not match the header, or a number or a message is beyond its limits.
    """
    count = sum(map(len, batch))
    if len(header.writer) > WRITER_DIGITS:
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"the id of a writer must have {WRITER_DIGITS} digits")
    if not (0 <= header.epoch <= MAX_NUMBER and 0 <= header.sequence <= MAX_NUMBER - count):
        raise Refusal(
            ResponseCode.MESSAGE_ILLEGAL,
            f"epoch {header.epoch} or sequence {header.sequence} is out of range",
        )
    first = header.sequence
    for part in batch:
        if part.plain is None or not _is_right(part.plain, header, first):
            _check_entries(part.entries, header, first)
        first += len(part)
        yield
    return count


def _check_entries(entries: Sequence[BatchEntry], header: SendDeduplicatedRequestHeader, first: int) -> None:
    for sequence, entry in enumerate(entries, first):
        properties = decode_properties(entry.properties)
        if properties.get(PROPERTY_UNIQUE_KEY) != sequence_key(header.writer, header.epoch, sequence):
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the UNIQ_KEYs of the batch are not those of writer {header.writer}, epoch {header.epoch},"
                f" sequence {header.sequence} and following",
            )
        # A message that the store refuses would leave a gap before the next message.
        check_keys(properties.get(PROPERTY_KEYS, ""))
        if b"\0" in entry.properties or len(entry.properties) > LONGEST_PROPERTIES:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"a message's properties have a zero byte or more than {LONGEST_PROPERTIES} bytes",
            )


def _is_right(messages: "PlainBatch", header: SendDeduplicatedRequestHeader, first: int) -> bool:
    """Return whether all messages of a part are valid; if not, `_check_entries` finds the error."""
    prefix = sequence_prefix(header.writer, header.epoch)
    return messages.longest_properties <= LONGEST_PROPERTIES and messages.has_sequence(prefix, first)


def _gap(header: SendDeduplicatedRequestHeader, why: str) -> Refusal:
    """Return the refusal of a batch that may not be stored now; the sender sends the missing messages first."""
    return Refusal(
        ResponseCode.SERVICE_NOT_AVAILABLE,
        f"sequence {header.sequence} of writer {header.writer} is out of sequence: {why}",
    )
