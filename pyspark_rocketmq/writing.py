"""The writer of a sink's task: encodes its rows and sends them until all are stored.

::

    row ─► topic ─► queue            by queue_id, by order_key, or in turns of `TURN` rows
                    └► sequence      its number among the rows of this task for this queue
    UNIQ_KEY = writer (query, partition, queue, all queues of the topic) | epoch | sequence

The keys depend only on the rows, their order and the topic's queues, so a repeated task gives each row the same key.
The key includes the queues: with other queues, such as while a broker is away, a row has another sequence number,
which may have been another row's, and the broker would refuse the row as stored.
"""

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_rocketmq import pool
from pyspark_rocketmq.encode import Entries, blocks, encode, own_properties, sequence_keys, with_keys
from pyspark_rocketmq.errors import ClusterError, OptionError, UnsendableError
from pyspark_rocketmq.options import Delivery, SinkOptions
from pyspark_rocketmq.requests import batch_request, deduplicated_request, single_request
from pyspark_rocketmq.schema import SinkColumns
from rocket_client.blocking import (
    UNREACHABLE_ERRORS,
    BatchSender,
    EncodedBatch,
    MessageQueue,
    Patience,
    ResponseError,
    TopicNotFoundError,
)
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.deduplication import MAX_NUMBER, writer_id
from rocket_remoting.wire.java_hash import java_hash
from rocket_remoting.wire.properties import PROPERTY_DELAY_TIME_LEVEL, PROPERTY_TIMER_DELIVER_MS

TURN = 1024
"""The number of consecutive rows for one queue. Must never change, because rows would get other keys."""

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Identity:
    """The identity of a task's rows.

    Attributes:
        query: The query, or the write: the same in each attempt and after each restart.
        epoch: The batch.
        partition: The task's partition.
    """

    query: str
    epoch: int
    partition: int


class _Target(NamedTuple):
    """The queues for the rows of a topic, which do not change during the task, and a hash of these queues."""

    queues: Sequence[MessageQueue]
    layout: str


class TaskWriter:
    """Sends the rows of one task.

    Args:
        options: The options of the sink.
        columns: The meaning of the rows' columns.
        identity: Which rows these are.
        queues: Those of the option's topic, where all tasks are to take the same; None: those there are.
    """

    def __init__(
        self,
        options: SinkOptions,
        columns: SinkColumns,
        identity: Identity,
        queues: Sequence[MessageQueue] | None = None,
    ) -> None:
        self._options = options
        self._columns = columns
        self._identity = identity
        self._client = pool.client(options.cluster)
        self._targets: dict[str, _Target] = {}
        if queues is not None and options.topic is not None:
            self._targets[options.topic] = _target(queues)
        self._sequences: dict[MessageQueue, int] = {}
        self._writers: dict[MessageQueue, str] = {}
        self._rows = 0

    def write(self, batches: Iterator[pa.RecordBatch]) -> int:
        """Return how many rows were sent, all of them stored.

        Raises:
            UnsendableError: A row cannot be sent.
            ClusterError: A broker refused rows, or stayed away.
        """
        options = self._options
        with self._client.batch_sender(
            depth=options.depth, patience=options.patience, in_order=self._is_ordered
        ) as sender:
            try:
                for batch in batches:
                    self._send(sender, batch)
                sender.flush()
            except ResponseError as error:
                raise self._refused(error) from error
            except UNREACHABLE_ERRORS as error:
                raise ClusterError(
                    f"rows could not be sent within {options.patience:g} s (option 'sendTimeoutMs'): {error}"
                ) from error
        return self._rows

    @property
    def _is_ordered(self) -> bool:
        """Whether rows of one queue must not overtake each other; a broker that deduplicates refuses those that do."""
        columns = self._columns
        chooses_queues = columns.order_key is not None or columns.queue_id is not None
        return chooses_queues and self._options.delivery is not Delivery.DEDUPLICATED

    def _send(self, sender: BatchSender, batch: pa.RecordBatch) -> None:
        columns, rows = self._columns, batch.num_rows
        body = batch[columns.body].cast(pa.binary())
        self._check_bodies(body)
        properties = own_properties(
            self._tags(batch), _column(batch, columns.keys), _column(batch, columns.properties), rows
        )
        flags = _column(batch, columns.flag)
        delays = self._delays(batch)
        pieces = (
            self._pieces(batch, queue, chosen, body=body, properties=properties, flags=flags, delays=delays)
            for topic, of_topic in self._topics(batch)
            for queue, chosen in self._queues(batch, topic, of_topic)
        )
        for piece in _in_turns(pieces) if self._is_ordered else chain.from_iterable(pieces):
            sender.put(piece)
        self._rows += rows

    # What is sent

    def _pieces(
        self,
        batch: pa.RecordBatch,
        queue: MessageQueue,
        chosen: Rows,
        *,
        body: pa.Array,
        properties: pa.Array,
        flags: pa.Array | None,
        delays: Sequence[Mapping[str, str]] | None,
    ) -> Iterator[EncodedBatch]:
        """Yield the chosen rows, which are those for one queue, in pieces."""
        take = pa.array(chosen)
        keys = self._keys(queue, batch, take)
        sent = with_keys(properties.take(take), keys)
        own_flags = None if flags is None else flags.take(take)
        if delays is not None:
            own_delays = [delays[row] for row in chosen]
            return self._one_by_one(queue, body.take(take), sent, flags=own_flags, delays=own_delays)
        entries = encode(body.take(take), sent, own_flags)
        return self._blocks(queue, entries, self._sequences[queue] - len(chosen))

    def _tags(self, batch: pa.RecordBatch) -> pa.Array | None:
        tags, default = _column(batch, self._columns.tags), self._options.tag
        if default is None:
            return tags
        constant = pa.repeat(pa.scalar(default), batch.num_rows)
        return constant if tags is None else pc.coalesce(tags, constant)

    def _keys(self, queue: MessageQueue, batch: pa.RecordBatch, take: pa.Array) -> pa.Array:
        identity = self._identity
        writer = self._writers.get(queue)
        if writer is None:
            layout = self._targets[queue.topic].layout
            writer = self._writers[queue] = writer_id(
                identity.query, identity.partition, queue.topic, queue.broker_name, queue.queue_id, layout
            )
        first = self._sequences.get(queue, 0)
        self._sequences[queue] = first + len(take)
        if self._sequences[queue] > MAX_NUMBER:
            raise UnsendableError(f"more than {MAX_NUMBER} rows of one task for {queue}: use more partitions")
        if self._columns.id_column is not None:
            return self._keys_by_id(batch[self._columns.id_column].take(take))
        return sequence_keys(f"{writer}{identity.epoch:08X}", first, len(take))

    def _keys_by_id(self, ids: pa.Array) -> pa.Array:
        if ids.null_count:
            raise UnsendableError(f"option 'idColumn': column {self._columns.id_column!r} is null in a row")
        return pa.array([writer_id(0, value) + writer_id(1, value) for value in ids.to_pylist()], pa.string())

    def _check_bodies(self, body: pa.Array) -> None:
        """Empty bodies are refused as well: Apache's Java consumers cannot read a record without a body."""
        column, limit = self._columns.body, self._options.max_message_size
        if body.null_count:
            raise UnsendableError(f"column {column!r} is null in a row: a message needs a body")
        lengths = np.asarray(pc.binary_length(body))
        if len(lengths) and lengths.min() == 0:
            raise UnsendableError(f"column {column!r} is empty in a row: a message needs a body")
        if len(lengths) and lengths.max() > limit:
            raise UnsendableError(
                f"column {column!r} has {lengths.max()} bytes in a row, at most {limit} can be sent"
                " (option 'maxMessageSize', and the broker's)"
            )

    def _delays(self, batch: pa.RecordBatch) -> list[dict[str, str]] | None:
        """Return the properties that delay each row; None if no row is delayed."""
        levels = _column(batch, self._columns.delay_level)
        moments = _column(batch, self._columns.deliver_at)
        default = self._options.delay_level
        if (
            not default
            and (levels is None or not pc.any(pc.greater(levels, 0)).as_py())
            and (moments is None or moments.null_count == len(moments))
        ):
            return None
        rows = range(batch.num_rows)
        due = moments.to_pylist() if moments is not None else [None for _ in rows]
        asked = levels.to_pylist() if levels is not None else [None for _ in rows]
        return [_delay(due[row], default if asked[row] is None else asked[row]) for row in rows]

    # Where to

    def _topics(self, batch: pa.RecordBatch) -> Iterator[tuple[str, Rows]]:
        rows = np.arange(batch.num_rows, dtype=np.int64)
        if self._columns.topic is None:
            assert self._options.topic is not None
            yield self._options.topic, rows
            return
        encoded = batch[self._columns.topic].dictionary_encode()
        if encoded.null_count:
            raise UnsendableError(f"column {self._columns.topic!r} is null in a row, and there is no option 'topic'")
        codes = np.asarray(encoded.indices)
        for code, topic in enumerate(encoded.dictionary.to_pylist()):
            yield topic, rows[codes == code]

    def _queues(self, batch: pa.RecordBatch, topic: str, rows: Rows) -> Iterator[tuple[MessageQueue, Rows]]:
        target = self._targets.get(topic)
        if target is None:
            target = self._targets[topic] = _target(self._publish_queues(topic))
        queues = target.queues
        numbers = self._numbers(batch, queues, rows)
        for number in np.unique(numbers):
            yield queues[number], rows[numbers == number]

    def _publish_queues(self, topic: str) -> Sequence[MessageQueue]:
        """Return the topic's queues; wait for a topic that existed when the query started."""
        options = self._options
        create = options.delivery is not Delivery.DEDUPLICATED
        waiting = Patience(options.patience)
        while True:
            try:
                return self._client.publish_queues(topic, create=create)
            except UNREACHABLE_ERRORS as error:
                if isinstance(error, TopicNotFoundError) and topic != options.topic:
                    raise
                waiting.failed(error)
            time.sleep(waiting.pause())

    def _numbers(self, batch: pa.RecordBatch, queues: Sequence[MessageQueue], rows: Rows) -> Rows:
        columns = self._columns
        if columns.queue_id is not None:
            return self._by_queue_id(batch[columns.queue_id].take(pa.array(rows)), queues)
        if columns.order_key is not None:
            return _by_order_key(batch[columns.order_key].take(pa.array(rows)), len(queues))
        turns = (self._rows + rows) // TURN
        return (self._identity.partition + turns) % len(queues)

    def _by_queue_id(self, ids: pa.Array, queues: Sequence[MessageQueue]) -> Rows:
        number_of = {queue.queue_id: number for number, queue in reversed(list(enumerate(queues)))}
        wanted = ids.to_pylist()
        unknown = {queue_id for queue_id in wanted if queue_id not in number_of}
        if unknown:
            raise UnsendableError(
                f"column {self._columns.queue_id!r} asks for queue {min(unknown, key=str)} of {queues[0].topic},"
                f" which has {sorted(number_of)}"
            )
        return np.array([number_of[queue_id] for queue_id in wanted], dtype=np.int64)

    # Sending

    def _blocks(self, queue: MessageQueue, entries: Entries, first: int) -> Iterator[EncodedBatch]:
        options = self._options
        for start, end in blocks(entries, options.batch_size, options.max_request_size):
            body = entries.data[entries.offsets[start] : entries.offsets[end]]
            if options.delivery is Delivery.DEDUPLICATED:
                request = deduplicated_request(
                    options,
                    queue,
                    body,
                    writer=self._writers[queue],
                    epoch=self._identity.epoch,
                    sequence=first + start,
                )
            elif len(body) > options.max_message_size:  # its body alone is not too large
                request = single_request(options, queue, body)
            else:
                request = batch_request(options, queue, body)
            yield EncodedBatch(queue, request, end - start)

    def _one_by_one(
        self,
        queue: MessageQueue,
        bodies: pa.Array,
        properties: pa.Array,
        *,
        flags: pa.Array | None,
        delays: Sequence[Mapping[str, str]],
    ) -> Iterator[EncodedBatch]:
        numbers = [0 for _ in delays] if flags is None else flags.fill_null(0).to_pylist()
        rows = zip(bodies.to_pylist(), properties.to_pylist(), numbers, delays, strict=True)
        for body, own, flag, delay in rows:
            text = own + "".join(f"{name}\x01{value}\x02" for name, value in delay.items())
            yield EncodedBatch(queue, single_request(self._options, queue, body, text, flag), 1)

    def _refused(self, error: ResponseError) -> Exception:
        if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return OptionError(not_deduplicating(str(error.address)))
        return ClusterError(f"a broker refused rows: {error}")


def _in_turns(sources: Iterable[Iterator[EncodedBatch]]) -> Iterator[EncodedBatch]:
    """Yield one item of each source in turn: if each queue may have one request under way, many queues then have
    one."""
    waiting = deque(sources)
    while waiting:
        source = waiting.popleft()
        piece = next(source, None)
        if piece is not None:
            waiting.append(source)
            yield piece


def _target(queues: Sequence[MessageQueue]) -> _Target:
    return _Target(queues, writer_id(*(f"{queue.broker_name}/{queue.queue_id}" for queue in queues)))


def not_deduplicating(broker: str) -> str:
    """Return the error for a broker that does not support `deduplicated`."""
    return (
        f"delivery=deduplicated: broker {broker} cannot refuse what it has stored already, only streamkit's can;"
        " use delivery=at-least-once, and let consumers drop messages whose UNIQ_KEY they have seen"
    )


def _column(batch: pa.RecordBatch, name: str | None) -> pa.Array | None:
    return None if name is None else batch[name]


def _by_order_key(keys: pa.Array, count: int) -> Rows:
    """Return the queue of each key as Java's SelectMessageQueueByHash does; rows without a key go to the first
    queue."""
    # As bytes: those of a binary key need not be text.
    encoded = keys.cast(pa.string() if pa.types.is_integer(keys.type) else pa.binary()).cast(pa.binary())
    encoded = encoded.fill_null(b"").dictionary_encode()
    texts = [key.decode(errors="replace") for key in encoded.dictionary.to_pylist()]
    numbers = [abs(java_hash(text)) % count for text in texts]
    chosen: Rows = np.array(numbers, dtype=np.int64)[np.asarray(encoded.indices)]
    return chosen


def _delay(moment: datetime | None, level: int | None) -> dict[str, str]:
    if moment is not None:
        return {PROPERTY_TIMER_DELIVER_MS: str(int(moment.timestamp() * 1000))}
    return {PROPERTY_DELAY_TIME_LEVEL: str(level)} if level else {}
