"""The driver's view of the cluster: its queues, and where they begin and end."""

import logging
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import groupby
from typing import TypeVar

from pyspark_rocketmq.asking import ask
from pyspark_rocketmq.errors import ClusterError, OffsetError, OptionError, suggestion
from pyspark_rocketmq.options import SourceOptions
from pyspark_rocketmq.pool import new_client
from pyspark_rocketmq.starting import EARLIEST, LATEST, Position, Strategy
from rocket_client.blocking import (
    UNREACHABLE_ERRORS,
    BlockingClient,
    MessageQueue,
    PullRequest,
    ResponseError,
    TopicNotFoundError,
)
from rocket_remoting.wire.record import decode_record

logger = logging.getLogger(__name__)

T = TypeVar("T")

SYSTEM_TOPIC_PREFIXES = ("%RETRY%", "%DLQ%", "rmq_sys_", "RMQ_SYS_", "SCHEDULE_TOPIC_", "TBW102")
SAMPLE = 32


class Cluster:
    """Asks the cluster for the driver; a request without an answer is repeated for a while.

    Args:
        options: What is read, and how long may be tried.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._client = new_client(options.cluster)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def queues(self, known: Container[MessageQueue] | None = ()) -> list[MessageQueue]:
        """Return the queues to read that exist, in a fixed order.

        Args:
            known: Queues that were there once: they may be away now. None: any may be.

        Raises:
            ClusterError: A topic that is named does not exist, or no broker answers.
            OptionError: `assign` names a queue that a topic does not have, and never had.
        """
        options = self._options
        if options.assigned is not None:
            return self._assigned(options.assigned, known)
        topics = options.topics
        if options.pattern is not None:
            pattern = re.compile(options.pattern)
            topics = tuple(
                topic
                for topic in sorted(self._ask(BlockingClient.topics))
                if pattern.fullmatch(topic) and not topic.startswith(SYSTEM_TOPIC_PREFIXES)
            )
        return [queue for topic in topics for queue in self._queues_of(topic)]

    def is_deleted(self, topic: str, broker_name: str) -> bool:
        """Return whether no name server knows a topic any more that `subscribePattern` is for, though the broker it
        was at is there. One that is named by an option is missed by :meth:`queues`."""
        pattern = self._options.pattern
        return (
            pattern is not None
            and re.fullmatch(pattern, topic) is not None
            and broker_name in self._ask(BlockingClient.brokers)
            and topic not in self._ask(BlockingClient.topics)
            and broker_name in self._ask(BlockingClient.brokers)  # it was there all the time
        )

    def ends(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        """Return the offset of the next message of each queue."""
        return self._ask(lambda client: client.max_offsets(queues))

    def begins(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        """Return the offset of the oldest message of each queue."""
        return self._ask(lambda client: client.min_offsets(queues))

    def at(self, position: Position, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        """Return the offset of a position in each queue.

        Raises:
            OffsetError: The position leaves out a queue, names one that is not there, or one has no such message.
            ClusterError: Nobody answers.
        """
        if position.kind == "earliest":
            return self.begins(queues)
        if position.kind == "latest":
            return self.ends(queues)
        if position.kind == "committed":
            begins = self.begins(queues)
            return {queue: self._committed(queue, begins[queue]) for queue in queues}
        if position.kind == "timestamp":
            return self._at_times(position, dict.fromkeys(queues, position.timestamp))
        numbers = self._numbers(position, queues)
        if position.kind == "timestamps":
            return self._at_times(position, numbers)
        return self._at_numbers(position, numbers)

    def average_sizes(self, starts: Mapping[MessageQueue, int]) -> dict[MessageQueue, float]:
        """Return the average size of each queue's messages in bytes, by the first few from an offset on; 1 if
        unknown."""
        requests = [PullRequest(queue, offset, SAMPLE) for queue, offset in starts.items()]
        results = self._ask(lambda client: list(client.pull_many(requests)))
        sizes = dict.fromkeys(starts, 1.0)
        for result in results:
            count = result.next_offset - result.request.offset
            if result.records and count > 0:
                sizes[result.request.queue] = len(result.records) / count
        return sizes

    def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit the group's progress for other tools. A failure has no consequence, because the offsets are not read
        back."""
        for _, queues in groupby(sorted(offsets), lambda queue: (queue.topic, queue.broker_name)):
            try:  # those of one broker that is away are no matter to the others
                self._client.commit_offsets({queue: offsets[queue] for queue in queues})
            except (*UNREACHABLE_ERRORS, ResponseError) as error:
                logger.warning("the offsets of group %s could not be published: %s", self._client.group, error)

    # Queues

    def _queues_of(self, topic: str) -> Sequence[MessageQueue]:
        return self._ask(lambda client: client.queues(topic))

    def _assigned(
        self, assigned: Mapping[str, Mapping[str, tuple[int, ...]]], known: Container[MessageQueue] | None
    ) -> list[MessageQueue]:
        found: list[MessageQueue] = []
        for topic, brokers in sorted(assigned.items()):
            there = set(self._queues_of(topic))
            wanted = [MessageQueue(topic, broker, number) for broker in brokers for number in brokers[broker]]
            for queue in sorted(wanted):
                if queue in there:
                    found.append(queue)
                elif known is not None and queue not in known:
                    raise OptionError(
                        f"option 'assign' names {queue}, which does not exist{_there(there, queue.broker_name)}"
                    )
        return found

    # Offsets

    def _committed(self, queue: MessageQueue, begin: int) -> int:
        committed = self._ask(lambda client: client.committed_offset(queue))
        return begin if committed is None else max(begin, committed)

    def _numbers(self, position: Position, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        given = {
            MessageQueue(topic, broker, queue_id): number
            for topic, brokers in position.numbers.items()
            for broker, ids in brokers.items()
            for queue_id, number in ids.items()
        }
        missing, unknown = set(queues) - set(given), set(given) - set(queues)
        if missing or unknown:
            parts = [f"it leaves out {min(missing)}"] if missing else []
            parts += [f"it names {min(unknown)}, which is not read"] if unknown else []
            raise OffsetError(
                f"option {position.option!r} must name all queues that are read and no other: {'; '.join(parts)}"
            )
        return given

    def _at_numbers(self, position: Position, numbers: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        queues = list(numbers)
        begins, ends = self.begins(queues), self.ends(queues)
        offsets: dict[MessageQueue, int] = {}
        for queue, number in numbers.items():
            offset = {EARLIEST: begins[queue], LATEST: ends[queue]}.get(number, number)
            if not begins[queue] <= offset <= ends[queue]:
                raise OffsetError(
                    f"option {position.option!r} says {offset} for {queue}, which holds {begins[queue]} to"
                    f" {ends[queue]}"
                )
            offsets[queue] = offset
        return offsets

    def _at_times(self, position: Position, times: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        queues = list(times)
        begins, ends = self.begins(queues), self.ends(queues)
        return {queue: self._at_time(position, queue, times[queue], begins[queue], ends[queue]) for queue in queues}

    def _at_time(self, position: Position, queue: MessageQueue, moment: int, begin: int, end: int) -> int:
        """Return the first message stored at or after the moment. Brokers may find an earlier one: Apache's 4.9 and
        the bundled one answer with the nearest one, and 5.x with the last when all are older. Of several stored
        at that very moment, as those of a batch are, it may be any."""
        offset = min(max(self._ask(lambda client: client.search_offset(queue, moment)), begin), end)
        while offset < end:
            stored = self._stored_at(queue, offset)
            if stored is None or stored >= moment:
                break
            offset += 1
        if begin < offset < end and self._is_since(queue, offset - 1, moment):
            offset = self._first_since(queue, moment, begin, offset - 1)
        if offset == end and position.strategy is Strategy.ERROR:
            raise OffsetError(
                f"option {position.option!r}: {queue} has no message stored at or after {moment};"
                " with startingOffsetsByTimestampStrategy=latest it begins at its end"
            )
        return offset

    def _first_since(self, queue: MessageQueue, moment: int, begin: int, since: int) -> int:
        """Return the first message stored at or after the moment, of those from `begin` to `since`, which is one."""
        while begin < since:
            middle = (begin + since) // 2
            if self._is_since(queue, middle, moment):
                since = middle
            else:
                begin = middle + 1
        return since

    def _is_since(self, queue: MessageQueue, offset: int, moment: int) -> bool:
        stored = self._stored_at(queue, offset)
        return stored is not None and stored >= moment

    def _stored_at(self, queue: MessageQueue, offset: int) -> int | None:
        records = self._ask(lambda client: client.pull(queue, offset, max_messages=1)).records
        return decode_record(records, decompress=False).store_timestamp if records else None

    # Asking

    def _ask(self, question: Callable[[BlockingClient], T]) -> T:
        try:
            return ask(self._options.cluster, lambda: question(self._client))
        except (*UNREACHABLE_ERRORS, ResponseError) as error:
            raise ClusterError(self._described(error)) from error

    def _described(self, error: Exception) -> str:
        hint = ""
        if isinstance(error, TopicNotFoundError):
            try:
                hint = suggestion(error.topic, self._client.topics())
            except (*UNREACHABLE_ERRORS, ResponseError):
                pass
        return f"{error} (nameServer {self._options.cluster.name_servers}){hint}"


def _there(queues: Iterable[MessageQueue], broker_name: str) -> str:
    ids = sorted(queue.queue_id for queue in queues if queue.broker_name == broker_name)
    brokers = sorted({queue.broker_name for queue in queues})
    return f": {broker_name} has {ids}" if ids else f": its brokers are {', '.join(brokers)}"
