"""The consumer's thread: it polls, commits, pauses and resumes. The application's loop handles the records.

::

    thread   poll ─▶ one call_soon_threadsafe with all records ───▶ loop
      ▲                                                              │ settles: moves the partition's position
      │  a partition with a full window is paused, and resumed       │ wakes the thread when a full one has room
      └─ positions that moved are committed, one request at a time ◀─┘

Only one thread may use a consumer of kafka-python. That thread must poll at least every `max.poll.interval.ms`, or the
member is removed from its group: so the thread polls also while all partitions are paused. Heartbeats and rebalances
run on a thread of kafka-python. Rebalances run only while this thread waits in a poll, so they never interrupt its
work.

A rebalance::

    before_revocation   hold the partitions: no new calls; wait some seconds for calls in flight; commit
    assigned            lose partitions that other members have now; release the others: calls begin again
    lost                the member was removed from the group: lose the partitions without a commit
"""

import asyncio
import logging
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from binders.kafka.client_config import Config
from binders.kafka.clients import Consumer, connect_consumer
from binders.kafka.headers import Record
from binders.kafka.partition import AssignedPartition
from binders.kafka.record_size import record_size
from kafka import AsyncConsumerRebalanceListener, OffsetAndMetadata, TopicPartition
from kafka.errors import KafkaError

logger = logging.getLogger(__name__)

Batch: TypeAlias = tuple[AssignedPartition, Sequence[Record]]

WINDOW: Final = 1000
"""The number of unsettled messages of a partition at which fetching the partition is paused."""
WINDOW_SIZE: Final = 64 << 20
"""The bytes of unsettled messages at which fetching the partition is paused: 64 times Kafka's largest message by
default. The records of one poll may come on top."""
_HALF: Final = 2
_POLL_MS: Final = 100
# The first poll's timeout while some partitions are full; each further one is twice as long. So a partition of which
# half was settled in some time is resumed before the same time is over again, in which the other half is settled.
_BRIEF_POLL_MS: Final = 10
_AFTER_ERROR: Final = 1.0
_LAST_COMMIT_MS: Final = 3000
# How long calls in flight may take when their partitions are revoked, in seconds; the whole group waits meanwhile. A
# member that does not rejoin within its max.poll.interval.ms is removed from the group, so only a quarter of that
# interval may be spent.
_LAST_CALLS: Final = 5.0
_MAX_POLL_INTERVAL_MS: Final = 300_000
_PART: Final = 4


class RebalanceListener(Protocol):
    """The application's reaction to assigned and revoked partitions. kafka-python's thread calls it; it must not block.

    The consumer is kafka-python's: ``consumer.seek(partition, offset)`` is allowed when partitions are assigned.
    """

    def on_partitions_assigned(self, consumer: Consumer, partitions: set[TopicPartition]) -> None:
        """React to partitions that this member has from now on."""
        ...

    def on_partitions_revoked(self, consumer: Consumer, partitions: set[TopicPartition]) -> None:
        """React to partitions that other members may get."""
        ...


@dataclass(slots=True)
class ConsumerClient:
    """The argument of customizers of consumers, passed before the consumer connects.

    Attributes:
        config: The configuration of kafka-python's `KafkaConsumer`.
        rebalance_listener: Called when partitions are assigned and revoked.
        consumer: The consumer; None until it is connected.
    """

    config: Config
    rebalance_listener: RebalanceListener | None = None
    consumer: Consumer = None

    def group_metadata(self) -> object:
        """Return the consumer's membership for a transactional producer; any thread may call this."""
        return self.consumer.group_metadata()


@dataclass(frozen=True, slots=True)
class Subscription:
    """The topics or partitions that a consumer reads, and where it begins.

    Attributes:
        topic: The topic, or the pattern of topics.
        is_pattern: Whether `topic` is a pattern.
        partitions: The numbers of the partitions to read; None if the group assigns partitions.
        begins_at_end: Whether a group without committed offset begins with messages sent from now on.
        resets: Whether the group's committed offsets are ignored at the start.
        commit_every: The time between commits in seconds; 0: commit after each poll.
        is_transactional: Whether each call commits its message's offset in a transaction.
        is_own: Whether this member is the group's only one, for the group's whole life.
    """

    topic: str
    is_pattern: bool = False
    partitions: tuple[int, ...] | None = None
    begins_at_end: bool = False
    resets: bool = False
    commit_every: float = 0.0
    is_transactional: bool = False
    is_own: bool = False


class FetchThread:
    """A consumer and its thread.

    Attributes:
        client: The consumer's configuration, and the consumer once it is connected.
        error: The error of the last turn; None if it succeeded.
    """

    def __init__(
        self,
        binding: str,
        client: ConsumerClient,
        subscription: Subscription,
        deliver: Callable[[Sequence[Batch]], None],
        wake: Callable[[AssignedPartition], None],
        *,
        recall: Callable[[AssignedPartition], None],
    ) -> None:
        """Prepare a consumer; its thread does not run yet.

        Args:
            binding: The binding's name, for logs.
            client: The consumer's configuration.
            subscription: The topics or partitions to read.
            deliver: Called on the loop with fetched records.
            wake: Called on the loop when calls of a partition may begin again.
            recall: Called on the loop when no call of a partition may begin any more, including calls that wait for a
                handler.
        """
        self.client = client
        self.error: Exception | None = None
        self._binding = binding
        self._subscription = subscription
        self._deliver = deliver
        self._wake_partition = wake
        self._recall = recall
        self._loop = asyncio.get_running_loop()
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name=f"kafka {binding}", daemon=True)
        # Written by the loop, read by the thread.
        self._is_paused = False
        self._is_stopping = False
        self._wake = threading.Event()
        # Used by the thread, and by kafka-python's thread during a poll.
        self._partitions: dict[TopicPartition, AssignedPartition] = {}
        self._seen: set[TopicPartition] = set()
        # The ends of the partitions before the group was joined, if the group begins there.
        self._ends: dict[TopicPartition, int] = {}
        # The partitions that existed at that time.
        self._old: frozenset[TopicPartition] = frozenset()
        # The group's generation in which this member gave all its partitions up; None after the next assignment.
        self._given_up: int | None = None
        self._committing: object = None
        self._due: dict[TopicPartition, int] = {}
        self._commit_at = 0.0
        self._brief = _BRIEF_POLL_MS

    # Called by the loop

    async def start(self) -> None:
        """Connect and subscribe.

        Raises:
            KafkaError: The brokers are away, or refuse.
        """
        self._thread.start()
        try:
            await asyncio.shield(self._started)
        except asyncio.CancelledError:
            await self.stop()
            raise

    def pause(self) -> None:
        """Stop fetching until `resume`; the member stays in its group."""
        self._is_paused = True

    def resume(self) -> None:
        """Start fetching again."""
        self._is_paused = False
        self._wake.set()

    def wake_if_room(self, partition: AssignedPartition) -> None:
        """Wake the thread to resume a full partition, if half of its window is settled."""
        if partition.is_full and _has_room(partition):
            self._wake.set()

    async def stop(self) -> None:
        """Commit the settled offsets, leave the group and end the thread."""
        self._is_stopping = True
        self._wake.set()
        if self._thread.is_alive() or not self._ended.done():
            await asyncio.shield(self._ended)

    def _hold(self, partition: AssignedPartition) -> None:
        partition.hold()
        self._recall(partition)

    def _lose(self, partition: AssignedPartition) -> None:
        partition.lose()
        self._recall(partition)

    def _release(self, partitions: Sequence[AssignedPartition]) -> None:
        for partition in partitions:
            partition.release()
            self._wake_partition(partition)

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions that this member has."""
        return list(self._partitions)

    def lag(self, ends: Mapping[TopicPartition, int]) -> int:
        """Return the number of unsettled messages in this member's partitions.

        Args:
            ends: The offset behind the last message, by partition; other partitions are not counted.
        """
        mine = list(self._partitions.items())
        return sum(partition.lag(ends[key]) for key, partition in mine if key in ends)

    # Called by the thread

    def _run(self) -> None:
        try:
            consumer = connect_consumer(self.client.config)
        except Exception as error:  # `start` raises it
            self._tell(self._fail_start, error)
            self._tell(_done, self._ended)
            return
        self.client.consumer = consumer
        try:
            self._subscribe(consumer)
            self._tell(_done, self._started)
            while not self._is_stopping:
                self.turn(consumer)
        except Exception as error:
            logger.exception("The consumer of binding %r ended", self._binding)
            self._tell(self._fail_start, error)
            self.error = error
        finally:
            self._close(consumer)
            self._tell(_done, self._ended)

    def _tell(self, call: Callable[..., object], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:  # the loop is closed, so nothing waits for the call
            logger.debug("Binding %r: its loop is closed", self._binding)

    def _fail_start(self, error: Exception) -> None:
        if not self._started.done():
            self._started.set_exception(error)

    def _subscribe(self, consumer: Consumer) -> None:
        wanted = self._subscription
        if wanted.begins_at_end and (ends := _ends(consumer, wanted)):
            begin_now(consumer, ends, wanted.topic)
            self._ends = ends
            self._old = frozenset(ends)
        if wanted.partitions is not None:
            keys = {TopicPartition(wanted.topic, number) for number in wanted.partitions}
            consumer.assign(sorted(keys))
            self._adopt(consumer, keys)
        elif wanted.is_pattern:
            # The pattern must match the whole name, as with Java's `Pattern.matches`.
            consumer.subscribe(pattern=f"^(?:{re.compile(wanted.topic).pattern})$", listener=_Rebalance(self, consumer))
        else:
            consumer.subscribe([wanted.topic], listener=_Rebalance(self, consumer))
            # Read the topic's partitions before joining: if this member becomes the leader, which assigns the
            # partitions, and reads them later, the whole group has to join once more.
            consumer.topics()

    def turn(self, consumer: Consumer) -> None:
        """Do one turn of the thread: poll, deliver records to the loop, commit.

        If anything fails, keep the error in `error` and wait a second.
        """
        try:
            records = consumer.poll(timeout_ms=self._pause_and_resume(consumer))
            # Before anything that can fail, since the consumer does not fetch these records again.
            if records:
                self._hand_over(records)
            self._reconcile(consumer)
            self._begin(consumer)
            self._skip_gaps(consumer)
            self._commit(consumer)
            self.error = None
        except Exception as error:  # after any error, the next turn may succeed
            if self.error is None:
                logger.warning("Binding %r: fetching failed and is tried again: %r", self._binding, error)
            self.error = error
            self._wake.wait(_AFTER_ERROR)

    def _pause_and_resume(self, consumer: Consumer) -> int:
        """Pause full partitions, resume those with room, and return the next poll's timeout in milliseconds."""
        # Before the windows are read: a wake of the loop that comes after this line ends the wait below at once.
        self._wake.clear()
        for partition in self._partitions.values():
            if partition.is_full:
                partition.is_full = not _has_room(partition)
            else:
                partition.is_full = partition.in_flight >= WINDOW or partition.size_in_flight >= WINDOW_SIZE
        held = {key for key, each in self._partitions.items() if self._is_paused or each.is_full}
        paused = consumer.paused()
        if held != paused:
            consumer.pause(*held - paused)
            consumer.resume(*paused - held)
            self._brief = _BRIEF_POLL_MS
        if not held:
            return _POLL_MS
        if len(held) < len(self._partitions):
            brief, self._brief = self._brief, min(2 * self._brief, _POLL_MS)
            return brief
        # All partitions are paused, so a poll fetches nothing. Wait here instead, where the loop can end the wait.
        self._wake.wait(_POLL_MS / 1000)
        return 0

    def _reconcile(self, consumer: Consumer) -> None:
        """Forget partitions that other members have now; only these members commit their offsets from now on."""
        assigned = consumer.assignment()
        if len(assigned) != len(self._partitions) or not assigned.issuperset(self._partitions):
            self._forget([key for key in self._partitions if key not in assigned])

    def _forget(self, keys: Iterable[TopicPartition]) -> None:
        for key in keys:
            partition = self._partitions.pop(key, None)
            if partition is not None:
                self._tell(self._lose, partition)

    def _adopt(self, consumer: Consumer, keys: Iterable[TopicPartition]) -> None:
        """Take over assigned partitions; those that this member had before the rebalance continue where they were."""
        # A partition that comes back after another member had it is not fresh: it must not be reset a second time.
        fresh = [key for key in keys if key not in self._seen]
        self._seen.update(fresh)
        for key in keys:
            known = self._partitions.get(key)
            if known is None:
                self._partitions[key] = AssignedPartition(key)
            elif known.has_begun:
                # The consumer would begin at the committed offset and return the unsettled records again.
                consumer.seek(key, known.fetched)
        if self._subscription.resets:
            self._reset(consumer, fresh)
        if self._subscription.is_own:
            for key in filter(self._was_added, fresh):
                # The partition was added after the group began, so all its messages are new to the group.
                consumer.seek_to_beginning(key)
        # After the first assignment these ends are out of date: other members may have handled later messages.
        self._ends = {}

    def _was_added(self, key: TopicPartition) -> bool:
        """Return whether a partition was added, after the group began, to a topic that existed then."""
        return key not in self._old and any(each.topic == key.topic for each in self._old)

    def _reset(self, consumer: Consumer, keys: Sequence[TopicPartition]) -> None:
        """Move partitions to the start that the settings name, without regard to committed offsets."""
        is_late = self.client.config["auto_offset_reset"] == "latest"
        for key in keys:
            if key in self._ends:
                consumer.seek(key, self._ends[key])
            elif is_late:
                consumer.seek_to_end(key)
            else:
                consumer.seek_to_beginning(key)

    def _begin(self, consumer: Consumer) -> None:
        """Note the first offsets of new partitions. They are committed too, so that the next start continues there."""
        for key, partition in self._partitions.items():
            if not partition.has_begun:
                offset = consumer.position(key, timeout_ms=_BRIEF_POLL_MS)
                if offset is not None:
                    partition.begin(offset)

    def _skip_gaps(self, consumer: Consumer) -> None:
        """Move positions past fetched offsets without messages: transaction markers and aborted messages."""
        for key, partition in self._partitions.items():
            if partition.has_begun and not partition.in_flight:
                offset = consumer.begins_at(key)
                if offset is not None and offset > partition.fetched:
                    partition.fetched = offset
                    self._tell(partition.skip_to, offset)

    def _hand_over(self, records: dict[TopicPartition, list[Record]]) -> None:
        batches: list[Batch] = []
        for key, found in records.items():
            partition = self._partitions[key]
            partition.begin(found[0].offset)
            # Counted before the loop gets the records: it may settle them at once, and `in_flight` must not become
            # negative.
            partition.handed += len(found)
            partition.handed_size += sum(map(record_size, found))
            partition.fetched = found[-1].offset + 1
            batches.append((partition, found))
        self._tell(self._deliver, batches)

    def _commit(self, consumer: Consumer) -> None:
        """Commit the positions that moved, unless the last commit is not answered yet."""
        committing = self._committing
        if committing is not None:
            if not committing.is_done:  # type: ignore[attr-defined]  # kafka-python's Future
                return
            self._committing = None
            if committing.succeeded():  # type: ignore[attr-defined]
                # A commit that failed leaves `committed` as it was, so the positions are still due, and go with the
                # next commit.
                self._committed()
        now = self._loop.time()
        if now < self._commit_at:
            return
        self._commit_at = now + self._subscription.commit_every
        self._due = self._positions(self._partitions)
        if self._due:
            self._committing = consumer.commit_async(_offsets(self._due))

    def _committed(self) -> None:
        for key, offset in self._due.items():
            if key in self._partitions:
                self._partitions[key].committed = offset

    def _positions(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        found = {key: self._partitions[key] for key in keys if key in self._partitions}
        return {key: each.position for key, each in found.items() if each.is_due and self._may_commit(each)}

    def _may_commit(self, partition: AssignedPartition) -> bool:
        """Return whether a partition's position may be committed now.

        A call in flight may commit a greater offset in its transaction at the same time. Brokers keep the offset that
        arrives last, not the greatest, so a commit from here could take the transaction's offset back.
        """
        return not (self._subscription.is_transactional and partition.calls)

    def _close(self, consumer: Consumer) -> None:
        try:
            # Before the member leaves the group: brokers refuse the commits of a member that has left.
            due = self._positions(self._partitions)
            if due:
                consumer.commit(_offsets(due), timeout_ms=_LAST_COMMIT_MS)
        except Exception as error:  # after any error, the thread still has to end
            logger.warning(
                "Binding %r: the last offsets could not be committed, so some messages will be delivered again: %r",
                self._binding,
                error,
            )
        self._forget(list(self._partitions))
        try:
            consumer.close(autocommit=False, timeout_ms=_LAST_COMMIT_MS)
        except Exception as error:  # as above
            logger.warning("Binding %r: its consumer did not close cleanly: %r", self._binding, error)

    # Called by kafka-python's thread, while this thread polls

    async def before_revocation(self, consumer: Consumer, keys: set[TopicPartition]) -> None:
        """Wait for the calls of partitions that other members may get, and commit the settled offsets.

        No call begins until the partitions are assigned again: its message would not be committed in time, and the
        partition's next member would handle the message too.

        Args:
            consumer: The consumer.
            keys: The revoked partitions.
        """
        # With the eager protocol, all partitions are revoked while they are still in the assignment; the generation
        # tells `assigned` whether another member had them in between. With the cooperative protocol, the revoked
        # partitions are not in the assignment any more, and the others are never given up.
        self._given_up = consumer.generation if keys <= consumer.assignment() else None
        await self._end_calls(consumer, [self._partitions[key] for key in keys if key in self._partitions])
        due = self._positions(keys)
        if due:
            try:
                await consumer.commit_async(_offsets(due))
            except KafkaError as error:
                logger.warning(
                    "Binding %r: offsets could not be committed before a rebalance: %r", self._binding, error
                )
        if self.client.rebalance_listener is not None:
            self.client.rebalance_listener.on_partitions_revoked(consumer, keys)

    async def _end_calls(self, consumer: Consumer, partitions: Sequence[AssignedPartition]) -> None:
        for partition in partitions:
            self._tell(self._hold, partition)
        if not await consumer.wait_until(lambda: all(each.is_quiet for each in partitions), self._patience):
            logger.warning(
                "Binding %r: calls are still running at the end of a rebalance, so their messages may be handled "
                "twice: %s",
                self._binding,
                _named(each.key for each in partitions if not each.is_quiet),
            )

    @property
    def _patience(self) -> float:
        interval = self.client.config.get("max_poll_interval_ms", _MAX_POLL_INTERVAL_MS)
        assert isinstance(interval, int)
        return min(_LAST_CALLS, interval / 1000 / _PART)

    def assigned(self, consumer: Consumer, keys: set[TopicPartition]) -> None:
        """Take over the assigned partitions, forget those of other members, and let calls begin again.

        Args:
            consumer: The consumer.
            keys: The partitions that were assigned.
        """
        given_up, self._given_up = self._given_up, None
        if given_up is not None and consumer.generation != given_up + 1:
            # The group has had another generation without this member. Other members had the partitions in it and may
            # have committed later offsets.
            consumer.reset_positions()
            self._forget(list(self._partitions))
        self._reconcile(consumer)
        self._adopt(consumer, keys)
        self._tell(self._release, list(self._partitions.values()))
        logger.info("Binding %r has partitions %s", self._binding, _named(self._partitions))
        if self.client.rebalance_listener is not None:
            self.client.rebalance_listener.on_partitions_assigned(consumer, keys)

    def lost(self, consumer: Consumer, keys: set[TopicPartition]) -> None:
        """Forget partitions that other members have already; offsets of them cannot be committed any more.

        Args:
            consumer: The consumer.
            keys: The lost partitions.
        """
        logger.warning("Binding %r was removed from its group and joins it again", self._binding)
        self._given_up = None
        self._forget(keys)
        if self.client.rebalance_listener is not None:
            self.client.rebalance_listener.on_partitions_revoked(consumer, keys)


class _Rebalance(AsyncConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no annotations
    """Passes kafka-python's calls about assigned, revoked and lost partitions to the thread's object."""

    def __init__(self, thread: FetchThread, consumer: Consumer) -> None:
        self._thread = thread
        self._consumer = consumer

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        await self._thread.before_revocation(self._consumer, set(revoked))

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._thread.assigned(self._consumer, set(assigned))

    async def on_partitions_lost(self, lost: Iterable[TopicPartition]) -> None:
        self._thread.lost(self._consumer, set(lost))


def _has_room(partition: AssignedPartition) -> bool:
    """Return whether a full partition may be fetched again: at least half of its window is settled."""
    return partition.in_flight <= WINDOW // _HALF and partition.size_in_flight <= WINDOW_SIZE // _HALF


def _ends(consumer: Consumer, wanted: Subscription) -> dict[TopicPartition, int]:
    """Return the ends of all partitions that match: the offset behind the last message, by partition."""
    topics = _matching(consumer, wanted.topic) if wanted.is_pattern else [wanted.topic]
    keys = [TopicPartition(topic, number) for topic in topics for number in consumer.partitions_for_topic(topic)]
    return consumer.end_offsets(keys) if keys else {}


def begin_now(consumer: Consumer, ends: dict[TopicPartition, int], topic: str) -> None:
    """Commit the end of each partition without committed offset, so that the group gets messages sent from now on.

    Args:
        consumer: The consumer, which has not joined the group yet.
        ends: The offset behind the last message, by partition.
        topic: The topic or pattern, for logs.
    """
    fresh = {key: end for key, end in ends.items() if consumer.committed(key) is None}
    if not fresh:
        return
    try:
        consumer.commit(_offsets(fresh), timeout_ms=_LAST_COMMIT_MS)
    except KafkaError as error:  # refused because the group has members, so it is not new
        logger.debug(
            "Could not set the first offsets of the group in topic %r, so its members' settings decide where it "
            "begins: %r",
            topic,
            error,
        )


def _matching(consumer: Consumer, pattern: str) -> list[str]:
    """Return the topics whose whole names match a pattern, without Kafka's internal topics."""
    return [each for each in consumer.topics() if re.fullmatch(pattern, each)]


def _offsets(positions: dict[TopicPartition, int]) -> dict[TopicPartition, OffsetAndMetadata]:
    return {key: OffsetAndMetadata(offset, "", -1) for key, offset in positions.items()}


def _named(keys: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{key.topic}-{key.partition}" for key in sorted(keys)) or "none"


def _done(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
