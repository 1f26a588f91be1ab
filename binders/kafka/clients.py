"""kafka-python's clients, made of settings; each blocks while it connects, so it is made on a thread."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from binders.kafka.binder_properties import KafkaBinderProperties
from binders.kafka.client_config import Client, Config, translated
from binders.kafka.connecting import connected
from binders.kafka.headers import Record
from binders.kafka.properties import ClientProducerProperties, KafkaConsumerProperties, StartOffset
from binders.kafka.record_size import PollBudget
from binders.kafka.records import bound_polls, read_all
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.consumer.subscription_state import TopicPartitionState
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaTimeoutError
from streamkit.binder.binder import ConsumerDestination

Records: TypeAlias = dict[TopicPartition, list[Record]]
Consumer: TypeAlias = Any
"""A `KafkaConsumer`; kafka-python has no annotations."""
Producer: TypeAlias = Any
"""A `KafkaProducer`."""
Admin: TypeAlias = Any
"""A `KafkaAdminClient`."""

# A broker that is away is looked for again by the framework, so one look need not take long.
_BOOTSTRAP_TIMEOUT_MS: Final = 10_000

# How long a poll may take while the group deals its partitions out.
_JOIN_MS: Final = 1000
# How often it is looked whether what a rebalance waits for has come true.
_LOOK: Final = 0.01
# How often it is looked whether the producer was closed that a transaction waits for.
_LOOK_MS: Final = 100

_ASSIGNORS: Final = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


class ClientMaker:
    """Makes the clients of one binder."""

    def __init__(self, binder: KafkaBinderProperties, application: str) -> None:
        self._binder = binder
        self._common: Config = {
            "bootstrap_servers": binder.bootstrap_servers,
            "bootstrap_timeout_ms": _BOOTSTRAP_TIMEOUT_MS,
            "client_id": application or "streamkit",
        }

    def admin(self) -> Admin:
        """A client for topics and groups, connected."""
        properties = translated(Client.ADMIN, "the Kafka binder", self._binder.configuration)
        return connected(KafkaAdminClient, self._common | properties)

    def consumer_config(
        self, destination: ConsumerDestination, extended: KafkaConsumerProperties, group: str
    ) -> Config:
        """The configuration of a binding's consumer; its offsets are committed as messages are settled."""
        properties = translated(
            Client.CONSUMER,
            f"binding {destination.binding!r}",
            self._binder.configuration,
            self._binder.consumer_properties,
            extended.configuration,
        )
        if extended.start_offset is not None:
            properties["auto_offset_reset"] = extended.start_offset.value
        elif destination.group is None or extended.broadcast:
            properties.setdefault("auto_offset_reset", StartOffset.LATEST.value)
        transactional = self._binder.transaction.transaction_id_prefix is not None
        return {
            **self._common,
            "auto_offset_reset": StartOffset.EARLIEST.value,
            "isolation_level": "read_committed" if transactional else "read_uncommitted",
            "partition_assignment_strategy": ("range",),
            "client_id": f"{self._common['client_id']}-{destination.binding}",
            "allow_auto_create_topics": False,
            **properties,
            "enable_auto_commit": False,
            "group_id": group,
        }

    def transactional_config(self, number: int) -> Config:
        """The configuration of the producer of transactions with that number."""
        settings = self._binder.transaction
        config = self.producer_config("the producers of transactions", settings.producer)
        return {**config, "transactional_id": f"{settings.transaction_id_prefix}{number}"}

    def producer_config(self, place: str, properties: ClientProducerProperties) -> Config:
        """The configuration of a producer; `place` says whose, for warnings."""
        own = {
            "acks": self._binder.required_acks,
            "batch.size": str(properties.buffer_size),
            "linger.ms": f"{properties.batch_timeout.total_seconds() * 1000:.0f}",
            "compression.type": properties.compression_type.value,
        }
        layers = (self._binder.configuration, own, self._binder.producer_properties, properties.configuration)
        return {
            **self._common,
            "allow_auto_create_topics": False,
            **translated(Client.PRODUCER, place, *layers),
        }


class PatientConsumer(KafkaConsumer):  # type: ignore[misc]  # kafka-python has no annotations
    """A consumer whose short polls do not lose a join that is under way, nor records of a paused partition.

    kafka-python 3.0 forgets a join that began because a topic's partitions changed, when a poll's timeout interrupts
    it: the member then has no partitions, sends no heartbeats and does not join again.

    It also puts the records of a paused partition aside, and takes them up again only while it has no other ones in
    hand; other ones that are used up it keeps in hand, and so the partition may never be fetched again.
    """

    def __init__(self, **config: object) -> None:
        super().__init__(**config)
        self._budget = PollBudget()
        read_all(self._fetcher, self.highwater, self._budget)
        bound_polls(self._fetcher, self._budget)

    def poll(self, timeout_ms: int = 0) -> Records:
        """What came within the time; a join under way is given more."""
        coordinator = self._coordinator
        if coordinator.rejoining:
            coordinator.request_rejoin()
            timeout_ms = max(timeout_ms, _JOIN_MS)
        fetcher = self._fetcher
        if not fetcher._next_partition_records:
            fetcher._next_partition_records = None
        self._budget.begin()
        records: Records = super().poll(timeout_ms=timeout_ms)
        return records

    def begins_at(self, key: TopicPartition) -> int | None:
        """Where the next fetch of a partition begins, as far as that is known: nobody is asked."""
        state = self._subscription.assignment.get(key)
        return None if state is None or state.position is None else int(state.position.offset)

    @property
    def generation(self) -> int:
        """The number under which the group dealt its partitions out last, as far as this member has heard."""
        return int(self._coordinator._generation.generation_id)

    def begin_anew(self) -> None:
        """Inside of a rebalance: begin each partition where the group has committed; kafka-python keeps positions."""
        assignment = self._subscription.assignment
        for key in assignment:
            assignment[key] = TopicPartitionState()

    async def comes_true(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Inside of a rebalance: wait until it is so, no longer than that; heartbeats go on meanwhile."""
        for _ in range(int(seconds / _LOOK)):
            if condition():
                return True
            await self._coordinator._net.sleep(_LOOK)
        return condition()


def connect_consumer(config: Config) -> Consumer:
    """A consumer, connected."""
    assignors = config["partition_assignment_strategy"]
    assert isinstance(assignors, tuple)
    known = tuple(_ASSIGNORS.get(each, each) if isinstance(each, str) else each for each in assignors)
    return connected(PatientConsumer, {**config, "partition_assignment_strategy": known})


class LastingProducer(KafkaProducer):  # type: ignore[misc]  # kafka-python has no annotations
    """A producer that outlives messages brokers refuse, and tells whether a topic's partitions are known.

    After one message that is too large, say, kafka-python's idempotent producer sends no other one ever again. Here it
    goes on as Java's does, with the next epoch.

    Its transactions wait for the brokers' answers for ever. Here, until it is closed.
    """

    def __init__(self, **config: object) -> None:
        super().__init__(**config)
        state = self._transaction_manager
        if state is not None and not state.is_transactional():
            state.classify_batch_error = partial(_after_refusal, state)

    def close(self, timeout: float | None = None, null_logger: bool = False) -> None:
        """Disconnect; messages that are not acknowledged within the time fail.

        kafka-python 3.0 raises in their place, and leaves its thread running.
        """
        try:
            super().close(timeout, null_logger)
        except KafkaTimeoutError:
            self._sender.force_close()
            self._closed = True

    def send_offsets_to_transaction(self, offsets: object, group_metadata: object) -> None:
        """Make offsets part of the transaction."""
        self._await(self._transaction_manager.send_offsets_to_transaction(offsets, group_metadata))

    def commit_transaction(self) -> None:
        """Let the transaction count."""
        self._await(self._transaction_manager.begin_commit())

    def abort_transaction(self) -> None:
        """Let nothing of the transaction count."""
        self._await(self._transaction_manager.begin_abort())

    def _await(self, result: Any) -> None:
        self._sender.wakeup()
        while not result.wait(_LOOK_MS):
            if self._closed:
                raise KafkaTimeoutError("the producer was closed before the brokers answered")

    def knows(self, topic: str) -> bool:
        """Whether `send` to the topic only appends to a buffer."""
        return self._metadata.partitions_for_topic(topic) is not None

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has, as brokers told last; 0 if it is not known."""
        return len(self._metadata.partitions_for_topic(topic) or ())


def _after_refusal(state: Any, error: object, *details: object, **more: object) -> str:
    """What becomes of an idempotent producer after an error: one about a message is not the producer's end."""
    kinds = type(state)
    kind: str = kinds.classify_batch_error(state, error, *details, **more)
    is_about_message = kind == kinds.ERROR_CLASS_FATAL and type(error) not in kinds._FATAL_ERRORS
    return kinds.ERROR_CLASS_NEEDS_EPOCH_BUMP if is_about_message and state._supports_epoch_bump() else kind


def connect_transactional(config: Config) -> Producer:
    """A producer of transactions, connected; whatever one of its name had begun is ended."""
    producer = connect_producer(config)
    try:
        producer.init_transactions()
    except BaseException:
        producer.close(timeout=0)
        raise
    return producer


def connect_producer(config: Config) -> Producer:
    """A producer, connected."""
    return connected(LastingProducer, config)


@dataclass(slots=True)
class ProducerClient:
    """What customizers of producers are given, before it connects.

    Attributes:
        config: The configuration of kafka-python's `KafkaProducer`.
    """

    config: Config
