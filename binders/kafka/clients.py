"""Makes kafka-python's clients from settings, with repairs. Connecting blocks, so threads make the clients."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from binders.kafka.binder_properties import DEFAULT_BROKERS, KafkaBinderProperties
from binders.kafka.boot_properties import KafkaProperties
from binders.kafka.client_config import Client, Config, translated
from binders.kafka.connecting import Interruption, connected
from binders.kafka.headers import Record
from binders.kafka.properties import ClientProducerProperties, KafkaConsumerProperties, StartOffset
from binders.kafka.record_size import PollBudget
from binders.kafka.repairs import known_topics, transaction_waits
from binders.kafka.repairs.appended_records import Headers, NewRecord, append
from binders.kafka.repairs.interrupted_joins import continue_join
from binders.kafka.repairs.kept_positions import forget_positions, position_of
from binders.kafka.repairs.listener_waits import sleep
from binders.kafka.repairs.parked_records import drop_consumed_records
from binders.kafka.repairs.partition_records import read_all
from binders.kafka.repairs.poll_budget import bound_polls
from binders.kafka.repairs.produce_requests import write_requests
from binders.kafka.repairs.producer_closing import force_close
from binders.kafka.repairs.refused_messages import continue_after_refused_messages
from binders.kafka.repairs.sending_turns import SendingTurns
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
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

# Milliseconds of one attempt to connect; the framework makes further attempts.
_BOOTSTRAP_TIMEOUT_MS: Final = 10_000

# Nothing reads kafka-python's metrics. They are more than a third of what a send costs.
_UNMEASURED: Final = {"metrics_enabled": False}

# The pause between two checks of a condition that a rebalance waits for, in seconds.
_LOOK: Final = 0.01

_ASSIGNORS: Final = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


class ClientMaker:
    """Makes the clients of one binder from its settings."""

    def __init__(self, binder: KafkaBinderProperties, application: str, boot: KafkaProperties) -> None:
        """Make a maker of clients.

        Args:
            binder: The settings of the binder.
            application: The application's name.
            boot: `spring.kafka.*`, which is weaker than the binder's settings.
        """
        self._binder = binder
        self._boot = boot
        self._name = application or "streamkit"

    def brokers(self, client: Client) -> list[str]:
        """Return the addresses of the brokers of clients of a kind.

        As in Spring's binder, `brokers` of the binder win only if they are others than the default.
        """
        own = self._binder.bootstrap_servers
        return self._boot.brokers_of(client) if own == DEFAULT_BROKERS else own

    def _common(self, client: Client) -> Config:
        return {
            "bootstrap_servers": self.brokers(client),
            "bootstrap_timeout_ms": _BOOTSTRAP_TIMEOUT_MS,
            "client_id": self._name,
        }

    def admin(self, interruption: Interruption, answer_within: float | None = None) -> Admin:
        """Return a connected client for topics and groups.

        Args:
            interruption: Ends the attempt when another thread calls it.
            answer_within: Seconds that brokers may take to accept the client, and to answer a request; None: as the
                settings say.

        Raises:
            RefusedError: The brokers refuse the client, or the client refuses them.
            KafkaError: The brokers are away.
        """
        layers = (self._boot.of(Client.ADMIN), self._binder.configuration)
        properties = translated(Client.ADMIN, *layers)
        config = self._common(Client.ADMIN) | properties
        if answer_within is not None:
            limit = max(1, round(answer_within * 1000))
            config |= {"bootstrap_timeout_ms": limit, "request_timeout_ms": limit}
        return connected(KafkaAdminClient, config, interruption)

    def consumer_config(
        self, destination: ConsumerDestination, extended: KafkaConsumerProperties, group: str
    ) -> Config:
        """Return the configuration of a binding's consumer, with kafka-python's automatic commits turned off."""
        properties = translated(
            Client.CONSUMER,
            self._boot.of(Client.CONSUMER),
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
            **self._common(Client.CONSUMER),
            **_UNMEASURED,
            "auto_offset_reset": StartOffset.EARLIEST.value,
            "isolation_level": "read_committed" if transactional else "read_uncommitted",
            "partition_assignment_strategy": ("range",),
            "client_id": f"{self._name}-{destination.binding}",
            "allow_auto_create_topics": False,
            **properties,
            "enable_auto_commit": False,
            "group_id": group,
        }

    def reader_config(self) -> Config:
        """Return the configuration of a consumer without a group, which reads what it is told and commits nothing."""
        layers = (self._boot.of(Client.CONSUMER), self._binder.configuration, self._binder.consumer_properties)
        return {
            **self._common(Client.CONSUMER),
            **_UNMEASURED,
            "partition_assignment_strategy": ("range",),
            "allow_auto_create_topics": False,
            **translated(Client.CONSUMER, *layers),
            "auto_offset_reset": StartOffset.EARLIEST.value,
            "enable_auto_commit": False,
            "group_id": None,
        }

    def transactional_config(self, number: int) -> Config:
        """Return the configuration of the transactional producer with a number, which ends its `transactional.id`."""
        settings = self._binder.transaction
        config = self.producer_config(settings.producer)
        return {**config, "transactional_id": f"{settings.transaction_id_prefix}{number}"}

    def producer_config(self, properties: ClientProducerProperties) -> Config:
        """Return the configuration of a producer.

        Args:
            properties: The producer's settings.
        """
        own = {
            "acks": self._binder.required_acks,
            "batch.size": str(properties.buffer_size),
            "linger.ms": f"{properties.batch_timeout.total_seconds() * 1000:.0f}",
            "compression.type": properties.compression_type.value,
        }
        # As in Spring's binder, properties of all producers win over these settings of one.
        layers = (
            own,
            self._boot.of(Client.PRODUCER),
            self._binder.configuration,
            self._binder.producer_properties,
            properties.configuration,
        )
        return {
            **self._common(Client.PRODUCER),
            **_UNMEASURED,
            "allow_auto_create_topics": False,
            **translated(Client.PRODUCER, *layers),
        }


class RepairedConsumer(KafkaConsumer):  # type: ignore[misc]  # kafka-python has no annotations
    """A consumer with bounded polls, which lose neither a join nor records and pass over unreadable records."""

    def __init__(self, **config: object) -> None:
        super().__init__(**config)
        self._budget = PollBudget()
        read_all(self._fetcher, self.highwater, self._budget)
        bound_polls(self._fetcher, self._budget)

    def poll(self, timeout_ms: int = 0) -> Records:
        """Return the records that were fetched, by partition.

        Args:
            timeout_ms: How long to wait, in milliseconds; while the group is being joined, a second.
        """
        timeout_ms = continue_join(self, timeout_ms)
        drop_consumed_records(self)
        self._budget.begin()
        records: Records = super().poll(timeout_ms=timeout_ms)
        return records

    def begins_at(self, key: TopicPartition) -> int | None:
        """Return the offset at which the next fetch of a partition begins; None if the offset is not known yet."""
        return position_of(self, key)

    @property
    def generation(self) -> int:
        """The generation of the group's last assignment of partitions that this member knows."""
        return int(self.group_metadata().generation_id)

    def reset_positions(self) -> None:
        """Make each partition begin at the group's committed offset; to be called during a rebalance."""
        forget_positions(self)

    async def wait_until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait for a condition during a rebalance, and return whether it became true. Heartbeats go on meanwhile.

        Args:
            condition: The condition.
            seconds: How long to wait, in seconds.
        """
        for _ in range(int(seconds / _LOOK)):
            if condition():
                return True
            await sleep(self, _LOOK)
        return condition()


def connect_consumer(config: Config) -> Consumer:
    """Return a connected consumer.

    Raises:
        RefusedError: The brokers refuse the client, or the client refuses them.
        KafkaError: The brokers are away.
    """
    assignors = config["partition_assignment_strategy"]
    assert isinstance(assignors, tuple)
    known = tuple(_ASSIGNORS.get(each, each) if isinstance(each, str) else each for each in assignors)
    return connected(RepairedConsumer, {**config, "partition_assignment_strategy": known})


class RepairedProducer(KafkaProducer):  # type: ignore[misc]  # kafka-python has no annotations
    """A producer that stays usable after a refused message, and whose waits for transactions end when it is closed."""

    def __init__(self, **config: object) -> None:
        super().__init__(**config)
        continue_after_refused_messages(self)
        write_requests(self._sender)
        self._turns = SendingTurns(self)

    def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Any:
        """Append a record to its batch, and return kafka-python's future of the acknowledgment.

        Args:
            topic: The topic.
            value: The record's value.
            key: The record's key.
            headers: The record's headers.
            partition: The partition; None: that of the key, else any.
            timestamp_ms: The record's time in milliseconds since 1970; None: now.

        Raises:
            KafkaError: The record is too large, the topic cannot be found, or the producer is closed.
            ValueError: The record has neither key nor value, or the topic has no such partition.
            TypeError: A part of the record is of a wrong type.
        """
        record = NewRecord(topic, value, key, headers, partition, timestamp_ms)
        future = append(self, record)
        return super().send(*record) if future is None else future

    def close(self, timeout: float | None = None, null_logger: bool = False) -> None:
        """Disconnect.

        Args:
            timeout: How long to wait for messages that are not acknowledged, in seconds; after that they fail. None: no
                limit.
            null_logger: Whether kafka-python logs nothing.
        """
        try:
            super().close(timeout, null_logger)
        except KafkaTimeoutError:
            force_close(self)

    def lend(self) -> None:
        """Move the work of this producer's thread to the running loop, as far as that can do it."""
        self._turns.lend()

    def take_back(self) -> None:
        """Move the work back to the thread; call this on the loop, before the producer is closed."""
        self._turns.take_back()

    def send_offsets_to_transaction(self, offsets: object, group_metadata: object) -> None:
        """Add offsets to the transaction.

        Args:
            offsets: kafka-python's `OffsetAndMetadata` by partition.
            group_metadata: The consumer's membership in its group.
        """
        transaction_waits.send_offsets(self, offsets, group_metadata)

    def commit_transaction(self) -> None:
        """Commit the transaction."""
        transaction_waits.commit(self)

    def abort_transaction(self) -> None:
        """Abort the transaction."""
        transaction_waits.abort(self)

    def knows(self, topic: str) -> bool:
        """Return whether the partitions of a topic are known, so that `send` only appends to a buffer."""
        return known_topics.partition_count(self, topic) is not None

    def partition_count(self, topic: str) -> int:
        """Return the number of a topic's partitions in the last metadata from the brokers; 0 if unknown."""
        return known_topics.partition_count(self, topic) or 0


def connect_transactional(config: Config) -> Producer:
    """Return a connected transactional producer.

    Brokers abort the open transaction of an earlier producer with the same `transactional.id`.

    Raises:
        RefusedError: The brokers refuse the client, or the client refuses them.
        KafkaError: The brokers are away, or refuse.
    """
    producer = connect_producer(config)
    try:
        producer.init_transactions()
    except BaseException:
        producer.close(timeout=0)
        raise
    return producer


def connect_producer(config: Config) -> Producer:
    """Return a connected producer.

    Raises:
        RefusedError: The brokers refuse the client, or the client refuses them.
        KafkaError: The brokers are away.
    """
    return connected(RepairedProducer, config)


@dataclass(slots=True)
class ProducerClient:
    """The argument of customizers of producers, passed before the producer connects.

    Attributes:
        config: The configuration of kafka-python's `KafkaProducer`.
    """

    config: Config
