"""Request 70001: store a batch of which some or all may be stored already; see `rocket_remoting.wire.deduplication`.

What is stored is found by the index of keys, which is as durable as the messages are: nothing else is written,
and a broker that was killed knows as much as before. What a live writer stored last is kept in memory, so only
the first batch of a writer after a start is looked for.
"""

from collections import OrderedDict
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

import msgspec

from rocket_broker.limits.refusal import Refusal
from rocket_broker.processors.batches import BatchPart
from rocket_broker.processors.send import SendProcessor
from rocket_broker.requests.request_steps import Steps
from rocket_broker.requests.serving import Answer
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.store.message_store import MOST_ENTRIES, MessageStore
from rocket_broker.store.messages import PutResult, PutStatus, StoredRun
from rocket_broker.writing.message_keys import check_keys
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.batch import BatchEntry
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.deduplication import MAX_NUMBER, WRITER_DIGITS, sequence_key
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
    from rocket_broker.writing.batch_columns import BatchColumns

__all__ = ["DeduplicatedSends"]

MAX_WRITERS = 100_000
"""Writers remembered; those that were silent for longest are looked for again when they come back."""

LONGEST_PROPERTIES = MAX_PROPERTIES_LENGTH - 512
"""Bytes that a message may bring; the broker adds its cluster's name."""

_SAME_KEY_HASH = 64
_MOST_ENTRIES = 4 * MOST_ENTRIES
"""Entries of the index that are looked at for one key. If there are more, the batch is refused."""
_EVER = 2**63 - 1


class _Stored(msgspec.Struct, gc=False):
    """The last message that a writer stored in its epoch, None if it stored none, and where it is."""

    epoch: int
    sequence: int
    last: PutResult | None


class DeduplicatedSends:
    """Stores the part of a batch that is not stored yet."""

    def __init__(self, *, settings: BrokerSettings, store: MessageStore, sending: SendProcessor) -> None:
        self._settings = settings
        self._store = store
        self._sending = sending
        self._writers: OrderedDict[tuple[str, int, str], _Stored] = OrderedDict()
        self._under_way: set[tuple[str, int, str]] = set()

    def send(self, connection: Connection, command: RemotingCommand) -> Answer:
        """SEND_DEDUPLICATED (70001)."""
        if not self._settings.message_index_enable:
            raise Refusal(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                "messages are told by the index of keys, which messageIndexEnable=false turns off",
            )
        header = command.header(SendDeduplicatedRequestHeader)
        if not command.body:
            return RemotingCommand.response(command, ResponseCode.SUCCESS)
        return self._send(connection, command, header)

    def _send(
        self, connection: Connection, command: RemotingCommand, header: SendDeduplicatedRequestHeader
    ) -> Steps:
        writer = (header.topic, header.queue_id, header.writer)
        if writer in self._under_way:  # a batch sent again while the first try is being stored
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
        if header.epoch < known.epoch or header.sequence + count - 1 <= known.sequence:
            last = known.last or (yield from self._found(header, header.sequence + count - 1))
            if last is None:
                raise _gap(header, "its writer has begun a later epoch")
            return self._sending.answer_stored(connection, command, StoredRun.of(last), header.queue_id)
        if header.sequence > known.sequence + 1:
            raise _gap(header, f"{known.sequence + 1} is the next of epoch {header.epoch}")
        writer = (header.topic, header.queue_id, header.writer)
        # Until all are stored nothing is known: a batch that fails half way is looked for by the index again.
        self._writers.pop(writer, None)

        def stored(last: PutResult) -> None:
            self._remember(writer, _Stored(header.epoch, header.sequence + count - 1, last))

        first = known.sequence + 1 - header.sequence
        return (
            yield from self._sending.put_batch(connection, command, header, batch, first=first, stored=stored)
        )

    def _remember(self, writer: tuple[str, int, str], stored: _Stored) -> None:
        self._writers[writer] = stored
        if len(self._writers) > MAX_WRITERS:
            self._writers.popitem(last=False)

    def _known(self, header: SendDeduplicatedRequestHeader, count: int) -> Generator[None, None, _Stored]:
        """Return what the writer has stored, as far as this batch is concerned."""
        stored = self._writers.get((header.topic, header.queue_id, header.writer))
        if stored is None:
            return (yield from self._looked_for(header, count))
        if header.epoch > stored.epoch:
            return _Stored(header.epoch, -1, None)
        return stored

    def _looked_for(
        self, header: SendDeduplicatedRequestHeader, count: int
    ) -> Generator[None, None, _Stored]:
        """Find by the index how much of the batch is stored: all up to one of its messages, as none leaves a gap."""
        self._store.commit()  # what waits for that is not in the index
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

    def _found(
        self, header: SendDeduplicatedRequestHeader, sequence: int
    ) -> Generator[None, None, PutResult | None]:
        key = sequence_key(header.writer, header.epoch, sequence)
        found = yield from self._store.find(header.topic, key, _SAME_KEY_HASH, 0, _EVER, _MOST_ENTRIES)
        for record in found.records:
            message = peek_record(record)
            if decode_stored_properties(message.properties).get(PROPERTY_UNIQUE_KEY) == key:
                return PutResult(
                    PutStatus.OK,
                    message.commit_log_offset,
                    message.total_size,
                    message.queue_offset,
                    message.store_timestamp,
                )
        if not found.is_complete:
            raise Refusal(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"whether {key} is stored is not known: {_MOST_ENTRIES} entries of the index have its slot",
            )
        return None


def _checked_count(
    batch: Sequence[BatchPart], header: SendDeduplicatedRequestHeader
) -> Generator[None, None, int]:
    """Return how many messages the batch has, after looking whether their keys are those of its header.

    Raises:
        Refusal: They are not.
    """
    count = sum(map(len, batch))
    if len(header.writer) > WRITER_DIGITS:
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"a writer's id has {WRITER_DIGITS} digits")
    if not (0 <= header.epoch <= MAX_NUMBER and 0 <= header.sequence <= MAX_NUMBER - count):
        raise Refusal(
            ResponseCode.MESSAGE_ILLEGAL,
            f"epoch {header.epoch} or sequence {header.sequence} is out of range",
        )
    first = header.sequence
    for part in batch:
        if part.columns is None or not _is_right(part.columns, header, first):
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
        # What the store would refuse of one message would leave a gap before the next.
        check_keys(properties.get(PROPERTY_KEYS, ""))
        if b"\0" in entry.properties or len(entry.properties) > LONGEST_PROPERTIES:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"a message's properties have a zero byte or more than {LONGEST_PROPERTIES} bytes",
            )


def _is_right(columns: "BatchColumns", header: SendDeduplicatedRequestHeader, first: int) -> bool:
    """Whether nothing is wrong with a part of a batch; if something is, its entries tell what."""
    return columns.longest_properties <= LONGEST_PROPERTIES and columns.has_sequence(
        header.writer, header.epoch, first
    )


def _gap(header: SendDeduplicatedRequestHeader, why: str) -> Refusal:
    """Return how a message is refused before which another one is missing: the sender sends that first."""
    return Refusal(
        ResponseCode.SERVICE_NOT_AVAILABLE,
        f"sequence {header.sequence} of writer {header.writer} comes out of turn: {why}",
    )
