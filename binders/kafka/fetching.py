"""The consumer's thread: it polls, commits, pauses and resumes; the application's loop handles what it got.

::

    thread   poll ─▶ one call_soon_threadsafe with all that came ─▶ loop
      ▲                                                              │ settles: moves the partition's position
      │  a partition with a full window is paused, and resumed       │ wakes the thread when a full one has room
      └─ positions that moved are committed, one request at a time ◀─┘

kafka-python's consumer may be used by one thread only, and that one must poll again and again, or its group takes it
for dead: so the thread polls also while nothing may be fetched. Heartbeats and rebalances run on a thread of
kafka-python's own, but rebalances only inside of a poll, so that they meet nothing of this thread's under way.
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
"""Messages of one partition that are not settled: with so many nothing more of it is fetched."""
WINDOW_SIZE: Final = 64 << 20
"""Bytes of them, the same: 64 times Kafka's largest message by default. What one poll brings comes on top."""
_HALF: Final = 2
_POLL_MS: Final = 100
# While a full partition waits to be resumed, the others' poll must not hold it up.
_BRIEF_POLL_MS: Final = 10
_AFTER_ERROR: Final = 1.0
_LAST_COMMIT_MS: Final = 3000
# Calls under way get so long when their partitions are revoked: the whole group waits meanwhile. It puts a member out
# that does not rejoin within its max.poll.interval.ms, so no more than a part of that is spent.
_LAST_CALLS: Final = 5.0
_MAX_POLL_INTERVAL_MS: Final = 300_000
_PART: Final = 4


class RebalanceListener(Protocol):
    """What an application may do when partitions come and go; called on kafka-python's thread, so it must not block.

    The consumer is kafka-python's: ``consumer.seek(partition, offset)`` is allowed when partitions are assigned.
    """

    def on_partitions_assigned(self, consumer: Consumer, partitions: set[TopicPartition]) -> None:
        """These are this member's from now on."""
        ...

    def on_partitions_revoked(self, consumer: Consumer, partitions: set[TopicPartition]) -> None:
        """These may go to other members."""
        ...


@dataclass(slots=True)
class ConsumerClient:
    """What customizers of consumers are given, before it connects.

    Attributes:
        config: The configuration of kafka-python's `KafkaConsumer`.
        rebalance_listener: Told when partitions come and go.
        consumer: The consumer, once it is connected.
    """

    config: Config
    rebalance_listener: RebalanceListener | None = None
    consumer: Consumer = None

    def group_metadata(self) -> object:
        """The consumer's membership, as a transaction's producer takes it; may be asked for on any thread."""
        return self.consumer.group_metadata()


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a consumer reads.

    Attributes:
        topic: The topic, or the pattern of topics.
        is_pattern: Whether it is a pattern.
        partitions: The numbers of the partitions it takes, where no group deals them out.
        begins_now: Whether a group that has no offset begins with what is sent from now on.
        resets: Whether what the group has committed is ignored.
        commit_every: Seconds between commits; 0: whenever something is settled.
        is_transactional: Whether each call commits its message's offset itself.
        is_own: Whether the group has no other member, ever.
    """

    topic: str
    is_pattern: bool = False
    partitions: tuple[int, ...] | None = None
    begins_now: bool = False
    resets: bool = False
    commit_every: float = 0.0
    is_transactional: bool = False
    is_own: bool = False


class FetchThread:
    """A consumer and the thread it lives on."""

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
        """Make one that does not run yet.

        Args:
            binding: The binding's name, for logs.
            client: The consumer's configuration.
            subscription: What it reads.
            deliver: Called on the loop with what came.
            wake: Called on the loop when calls of a partition may begin again.
            recall: Called on the loop when none may begin, not even one that waits for its handler.
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
        # Written by the loop.
        self._is_paused = False
        self._is_stopping = False
        self._wake = threading.Event()
        # The thread's, and kafka-python's inside of a poll.
        self._partitions: dict[TopicPartition, AssignedPartition] = {}
        self._seen: set[TopicPartition] = set()
        # Where partitions ended before the group was joined, if it begins there.
        self._ends: dict[TopicPartition, int] = {}
        # Which partitions there were by then.
        self._old: frozenset[TopicPartition] = frozenset()
        # The group's generation in which all partitions were given up that are not dealt out again yet.
        self._given_up: int | None = None
        self._committing: object = None
        self._due: dict[TopicPartition, int] = {}
        self._commit_at = 0.0

    # The loop's

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
        """Fetch nothing until `resume`; the membership is kept."""
        self._is_paused = True

    def resume(self) -> None:
        """Fetch again."""
        self._is_paused = False
        self._wake.set()

    def made_room(self, partition: AssignedPartition) -> None:
        """Have a full partition be fetched again, if enough of it is settled."""
        if partition.is_full and _has_room(partition):
            self._wake.set()

    async def stop(self) -> None:
        """Commit what is settled, leave the group and end the thread."""
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
        """This member's partitions."""
        return list(self._partitions)

    def lag(self, ends: Mapping[TopicPartition, int]) -> int:
        """How many messages of this member's partitions are not settled, where these are the partitions' ends."""
        mine = list(self._partitions.items())
        return sum(partition.lag(ends[key]) for key, partition in mine if key in ends)

    # The thread's

    def _run(self) -> None:
        try:
            consumer = connect_consumer(self.client.config)
        except Exception as error:  # told to whoever starts it
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
        except RuntimeError:  # the loop is closed: nobody is there to be told
            logger.debug("Binding %r: its loop is closed", self._binding)

    def _fail_start(self, error: Exception) -> None:
        if not self._started.done():
            self._started.set_exception(error)

    def _subscribe(self, consumer: Consumer) -> None:
        wanted = self._subscription
        if wanted.begins_now and (ends := _ends(consumer, wanted)):
            begin_now(consumer, ends, wanted.topic)
            self._ends = ends
            self._old = frozenset(ends)
        if wanted.partitions is not None:
            keys = {TopicPartition(wanted.topic, number) for number in wanted.partitions}
            consumer.assign(sorted(keys))
            self._adopt(consumer, keys)
        elif wanted.is_pattern:
            # As Java's `Pattern.matches`: the whole name.
            consumer.subscribe(
                pattern=f"^(?:{re.compile(wanted.topic).pattern})$", listener=_Rebalance(self, consumer)
            )
        else:
            consumer.subscribe([wanted.topic], listener=_Rebalance(self, consumer))
            # Should this member be the one that deals the partitions out, it has to know them: without, it would have
            # the group join once more as soon as it does.
            consumer.topics()

    def turn(self, consumer: Consumer) -> None:
        """One round: fetch, hand over, commit."""
        try:
            records = consumer.poll(timeout_ms=self._steer(consumer))
            # First of all: the consumer will not fetch them again.
            if records:
                self._hand_over(records)
            self._reconcile(consumer)
            self._begin(consumer)
            self._pass_over(consumer)
            self._commit(consumer)
            self.error = None
        except Exception as error:  # whatever it is, the brokers may be back the next time
            if self.error is None:
                logger.warning("Binding %r: fetching failed, and is tried again: %r", self._binding, error)
            self.error = error
            self._wake.wait(_AFTER_ERROR)

    def _steer(self, consumer: Consumer) -> int:
        """Pause what may not be fetched, resume what may; returns how long the poll may take, in milliseconds."""
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
        if not held:
            return _POLL_MS
        if len(held) < len(self._partitions):
            return _BRIEF_POLL_MS
        # Nothing can come: wait here, where the loop can end it.
        self._wake.wait(_POLL_MS / 1000)
        return 0

    def _reconcile(self, consumer: Consumer) -> None:
        """Forget partitions that are another member's now: it knows better how far they are settled."""
        assigned = consumer.assignment()
        if len(assigned) != len(self._partitions) or not assigned.issuperset(self._partitions):
            self._forget([key for key in self._partitions if key not in assigned])

    def _forget(self, keys: Iterable[TopicPartition]) -> None:
        for key in keys:
            partition = self._partitions.pop(key, None)
            if partition is not None:
                self._tell(self._lose, partition)

    def _adopt(self, consumer: Consumer, keys: Iterable[TopicPartition]) -> None:
        """Take partitions over; what was ours before the rebalance goes on where it is."""
        fresh = [key for key in keys if key not in self._seen]
        self._seen.update(fresh)
        for key in keys:
            known = self._partitions.get(key)
            if known is None:
                self._partitions[key] = AssignedPartition(key)
            elif known.has_begun:
                consumer.seek(key, known.fetched)
        if self._subscription.resets:
            self._reset(consumer, fresh)
        if self._subscription.is_own:
            for key in filter(self._was_added, fresh):
                # Whatever it has was sent since the group began.
                consumer.seek_to_beginning(key)
        # Later on, others may have handled what came since.
        self._ends = {}

    def _was_added(self, key: TopicPartition) -> bool:
        """Whether its topic was there before it was."""
        return key not in self._old and any(each.topic == key.topic for each in self._old)

    def _reset(self, consumer: Consumer, keys: Sequence[TopicPartition]) -> None:
        """Begin where settings say, whatever was committed."""
        is_late = self.client.config["auto_offset_reset"] == "latest"
        for key in keys:
            if key in self._ends:
                consumer.seek(key, self._ends[key])
            elif is_late:
                consumer.seek_to_end(key)
            else:
                consumer.seek_to_beginning(key)

    def _begin(self, consumer: Consumer) -> None:
        """Note where new partitions begin, so that this is committed, too: the next start then goes on from there."""
        for key, partition in self._partitions.items():
            if not partition.has_begun:
                offset = consumer.position(key, timeout_ms=_BRIEF_POLL_MS)
                if offset is not None:
                    partition.begin(offset)

    def _pass_over(self, consumer: Consumer) -> None:
        """Note what was fetched and is nothing to hand over: markers of transactions, what was aborted."""
        for key, partition in self._partitions.items():
            if partition.has_begun and not partition.in_flight:
                offset = consumer.begins_at(key)
                if offset is not None and offset > partition.fetched:
                    partition.fetched = offset
                    self._tell(partition.pass_to, offset)

    def _hand_over(self, records: dict[TopicPartition, list[Record]]) -> None:
        batches: list[Batch] = []
        for key, found in records.items():
            partition = self._partitions[key]
            partition.begin(found[0].offset)
            partition.handed += len(found)
            partition.handed_size += sum(map(record_size, found))
            partition.fetched = found[-1].offset + 1
            batches.append((partition, found))
        self._tell(self._deliver, batches)

    def _commit(self, consumer: Consumer) -> None:
        """Commit the positions that moved, unless the last commit is still under way."""
        committing = self._committing
        if committing is not None:
            if not committing.is_done:  # type: ignore[attr-defined]  # kafka-python's Future
                return
            self._committing = None
            if committing.succeeded():  # type: ignore[attr-defined]
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
        """Whether the position would not take back what the transaction of a call commits meanwhile.

        To the brokers the offset counts that came last, and not the greatest one.
        """
        return not (self._subscription.is_transactional and partition.calls)

    def _close(self, consumer: Consumer) -> None:
        try:
            due = self._positions(self._partitions)
            if due:
                consumer.commit(_offsets(due), timeout_ms=_LAST_COMMIT_MS)
        except Exception as error:  # whatever it is, the thread is to end
            logger.warning(
                "Binding %r: offsets could not be committed at the end, so that some messages come again: %r",
                self._binding,
                error,
            )
        self._forget(list(self._partitions))
        try:
            consumer.close(autocommit=False, timeout_ms=_LAST_COMMIT_MS)
        except Exception as error:  # as above
            logger.warning("Binding %r: its consumer did not close cleanly: %r", self._binding, error)

    # kafka-python's thread, while this one polls

    async def before_revocation(self, consumer: Consumer, keys: set[TopicPartition]) -> None:
        """End the calls of partitions that may go to other members, and commit what is settled of them.

        What is handled after that, somebody else handles again; so nothing new begins until it is known whose they are.
        """
        # A cooperative member gives up only what is another's by now.
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
        if not await consumer.comes_true(lambda: all(each.is_quiet for each in partitions), self._patience):
            logger.warning(
                "Binding %r: calls outlast a rebalance, so that their messages may be handled twice: %s",
                self._binding,
                _named(each.key for each in partitions if not each.is_quiet),
            )

    @property
    def _patience(self) -> float:
        interval = self.client.config.get("max_poll_interval_ms", _MAX_POLL_INTERVAL_MS)
        assert isinstance(interval, int)
        return min(_LAST_CALLS, interval / 1000 / _PART)

    def assigned(self, consumer: Consumer, keys: set[TopicPartition]) -> None:
        """Take these partitions over, and forget those that are gone."""
        given_up, self._given_up = self._given_up, None
        if given_up is not None and consumer.generation != given_up + 1:
            # They were dealt out in between, and whoever had them knows better how far they are settled.
            consumer.begin_anew()
            self._forget(list(self._partitions))
        self._reconcile(consumer)
        self._adopt(consumer, keys)
        self._tell(self._release, list(self._partitions.values()))
        logger.info("Binding %r has partitions %s", self._binding, _named(self._partitions))
        if self.client.rebalance_listener is not None:
            self.client.rebalance_listener.on_partitions_assigned(consumer, keys)

    def lost(self, consumer: Consumer, keys: set[TopicPartition]) -> None:
        """Forget partitions that others have already: nothing can be committed."""
        logger.warning("Binding %r was put out of its group and joins again", self._binding)
        self._given_up = None
        self._forget(keys)
        if self.client.rebalance_listener is not None:
            self.client.rebalance_listener.on_partitions_revoked(consumer, keys)


class _Rebalance(AsyncConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no annotations
    """What kafka-python tells of partitions that come and go."""

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
    """Whether a full partition may be fetched again: half of its window is settled."""
    return partition.in_flight <= WINDOW // _HALF and partition.size_in_flight <= WINDOW_SIZE // _HALF


def _ends(consumer: Consumer, wanted: Subscription) -> dict[TopicPartition, int]:
    """Where the partitions end that there are."""
    topics = _matching(consumer, wanted.topic) if wanted.is_pattern else [wanted.topic]
    keys = [
        TopicPartition(topic, number) for topic in topics for number in consumer.partitions_for_topic(topic)
    ]
    return consumer.end_offsets(keys) if keys else {}


def begin_now(consumer: Consumer, ends: dict[TopicPartition, int], topic: str) -> None:
    """Commit the ends of the partitions that the group has no offset of: what is sent from now on is for it."""
    fresh = {key: end for key, end in ends.items() if consumer.committed(key) is None}
    if not fresh:
        return
    try:
        consumer.commit(_offsets(fresh), timeout_ms=_LAST_COMMIT_MS)
    except KafkaError as error:  # members of the group are at work, so it is not new
        logger.debug("Where group and topic %r begin is left to the group's members: %r", topic, error)


def _matching(consumer: Consumer, pattern: str) -> list[str]:
    """The topics there are of that pattern, without Kafka's own."""
    return [each for each in consumer.topics() if re.fullmatch(pattern, each)]


def _offsets(positions: dict[TopicPartition, int]) -> dict[TopicPartition, OffsetAndMetadata]:
    return {key: OffsetAndMetadata(offset, "", -1) for key, offset in positions.items()}


def _named(keys: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{key.topic}-{key.partition}" for key in sorted(keys)) or "none"


def _done(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
