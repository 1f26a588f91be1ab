"""The Kafka binder: connects to the brokers, makes topics and bindings, and reports health and lag."""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from functools import partial
from typing import ClassVar, Final, TypeVar
from uuid import uuid4

from binders.kafka.binder_properties import PREFIX, KafkaBinderProperties
from binders.kafka.binder_type import TYPE
from binders.kafka.boot_properties import PREFIX as BOOT
from binders.kafka.boot_properties import boot_properties
from binders.kafka.capabilities import CAPABILITIES
from binders.kafka.client_config import Client
from binders.kafka.clients import ClientMaker, ProducerClient, connect_producer, connect_transactional
from binders.kafka.connecting import RefusedError, located
from binders.kafka.consumer import KafkaConsumerBinding, KafkaMember, Membership
from binders.kafka.dead_letter import DeadLetters, DeadLetterTopic, NoDeadLetters
from binders.kafka.examination import Examination, bound_consumer, bound_producer, check_addresses
from binders.kafka.exploring import KafkaExplorer
from binders.kafka.fetching import ConsumerClient, Subscription
from binders.kafka.handling import to_framework
from binders.kafka.headers import OFFSET, RECEIVED_PARTITION, RECEIVED_TOPIC
from binders.kafka.ignored_settings import settings_ignored_by_consumer
from binders.kafka.partition import Delivery
from binders.kafka.polled import KafkaPolledSource
from binders.kafka.producer import KafkaProducerBinding
from binders.kafka.properties import DEFAULT_BATCH_SIZE, AckMode, KafkaConsumerProperties, KafkaProducerProperties
from binders.kafka.sending import Sender
from binders.kafka.topics import Topics
from binders.kafka.transactions import KafkaTransactionalProducerBinding, Transactions, check_transactional
from kafka.errors import KafkaError
from streamkit.binder.binder import (
    BatchReceiver,
    Binder,
    BinderContext,
    ConsumerDestination,
    Health,
    HealthStatus,
    ProducerDestination,
    Receiver,
)
from streamkit.binder.capabilities import Capability
from streamkit.binder.exploring import Explorer
from streamkit.binder.receiver_calls import in_batches, one_by_one
from streamkit.errors import BinderError, BinderUnavailable, ConfigurationError
from streamkit.findings import Finding, Severity
from streamkit.messaging.message import Message
from streamkit.settlement import Reject

logger = logging.getLogger(__name__)

P = TypeVar("P")
M = TypeVar("M", bound=KafkaMember)

EXTENDED: Final = "spring.cloud.stream.kafka"
_COMMIT_INTERVAL_MS: Final = 5000
_ANY_SIZE: Final = 2**31 - 1
_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


class KafkaBinder(Binder):
    """Channels on Apache Kafka."""

    type: ClassVar[str] = TYPE
    possible_capabilities = CAPABILITIES
    consumer_properties = KafkaConsumerProperties
    producer_properties = KafkaProducerProperties

    def __init__(self, name: str, context: BinderContext) -> None:
        super().__init__(name)
        self._environment = context.environment
        self._properties = context.environment.bind(PREFIX, KafkaBinderProperties)
        self._clients = ClientMaker(self._properties, context.application, boot_properties(context.environment))
        self._topics: Topics | None = None
        self._transactions: Transactions | None = None
        self._members: list[KafkaMember] = []
        self._used: set[str] = set()
        self._lags: Mapping[str, int] = {}
        # Until when `_lags` may be returned again, in seconds of the loop's clock.
        self._lags_until = 0.0

    # Start and stop

    async def start(self) -> None:
        """Connect to the brokers.

        Raises:
            BinderUnavailable: No broker answers.
            ConfigurationError: The brokers refuse the client, for example its password, or the client does not trust
                the brokers' certificate.
        """
        try:
            self._topics = await Topics.connected(self._clients.admin, self._properties)
        except RefusedError as refusal:
            raise self._refused(refusal, "admin") from refusal
        except KafkaError as error:
            raise BinderUnavailable(
                f"binder {self.name!r} cannot reach a Kafka broker at {self.address}: "
                f"{error!r}. Start one, or set {PREFIX}.brokers.",
                binder=self.name,
            ) from error
        if self._properties.transaction.transaction_id_prefix is not None:
            self._transactions = Transactions(self._transactional_sender)

    def _refused(self, refusal: RefusedError, side: str, *own: str) -> ConfigurationError:
        """Return the error for a refused client.

        Args:
            refusal: Why the client was refused.
            side: The kind of client: `consumer`, `producer` or `admin`.
            own: Prefixes of the binding's own properties, the strongest first.
        """
        of_binder = [f"{PREFIX}.{side}-properties", f"{PREFIX}.configuration"]
        of_boot = [f"{BOOT}.{side}.properties", f"{BOOT}.{side}", f"{BOOT}.properties", BOOT]
        places = [*own, *of_binder, *of_boot] if own else [*of_binder[1:], *of_boot]
        key = f"{BOOT}.bootstrap-servers" if self._environment.get(f"{PREFIX}.brokers") is None else f"{PREFIX}.brokers"
        error = located(refusal, self._environment, places, key)
        return ConfigurationError(
            f"binder {self.name!r} at {self.address}: {error}", key=error.key, origin=error.origin
        )

    @property
    def address(self) -> str:
        """The addresses of the brokers in the settings."""
        return ",".join(self._clients.brokers(Client.ADMIN))

    def _transactional_sender(self, number: int, threads: Executor) -> Sender:
        config = self._clients.transactional_config(number)
        timeout = self._properties.transaction.producer.close_timeout.total_seconds()
        return Sender(partial(connect_transactional, config), timeout, threads)

    async def stop(self) -> None:
        """Disconnect."""
        topics, self._topics = self._topics, None
        self._members.clear()
        transactions, self._transactions = self._transactions, None
        if transactions is not None:
            await transactions.close()
        if topics is not None:
            await topics.close()

    @property
    def topics(self) -> Topics:
        """The topics and groups of the brokers.

        Raises:
            BinderError: The binder is not started.
        """
        if self._topics is None:
            raise BinderError(f"binder {self.name!r} is not started", binder=self.name)
        return self._topics

    # Capabilities and health

    def capabilities(self) -> frozenset[Capability]:
        """Return the capabilities, which are the same with all brokers."""
        return CAPABILITIES

    def name_of(self, message: Message[bytes]) -> str:
        """Return the message's topic, partition and offset."""
        topic, partition, offset = map(message.headers.get, (RECEIVED_TOPIC, RECEIVED_PARTITION, OFFSET))
        return f"{topic}-{partition}, offset {offset}"

    def dead_letter_destination(self, destination: ConsumerDestination) -> str | None:
        """Return the dead-letter topic: `error.<destination>.<group>`, unless the binding has another or none."""
        return destination.extended.dead_letter_topic(destination.name, destination.group)

    async def health(self) -> Health:
        """Return the health with the lags as details.

        UP: a broker answers, all partitions in use have a leader, and all consumers fetch.
        """
        details = {"brokers": self.address}
        if self._topics is None:
            return Health(HealthStatus.DOWN, details | {"reason": "not started"})
        try:
            async with asyncio.timeout(self._properties.health_timeout.total_seconds()):
                details["brokers"] = ",".join(await self._topics.brokers())
                leaderless = await self._topics.without_leader(sorted(self._used))
                lags = await self._asked_lags(self._topics)
        except TimeoutError:
            return Health(HealthStatus.DOWN, details | {"reason": "no broker answered in time"})
        except (KafkaError, BinderError) as error:
            return Health(HealthStatus.DOWN, details | {"reason": repr(error)})
        details |= {f"lag.{binding}": str(lag) for binding, lag in lags.items()}
        errors = {each.binding: each.thread.error for each in self._open if each.thread.error is not None}
        details |= {f"error.{binding}": repr(error) for binding, error in errors.items()}
        if leaderless:
            details["withoutLeader"] = ", ".join(leaderless)
            if self._properties.consider_down_when_any_partition_has_no_leader:
                return Health(HealthStatus.DOWN, details)
        return Health(HealthStatus.DOWN if errors else HealthStatus.UP, details)

    @property
    def _open(self) -> list[KafkaMember]:
        return [each for each in self._members if each.is_open]

    async def lags(self) -> Mapping[str, int]:
        """Return the number of unsettled messages by binding; empty if the settings turn that metric off.

        The numbers are read again after `metrics.offset-lag-metrics-interval`.

        Raises:
            BinderError: The ends of the partitions could not be read from the brokers.
        """
        settings = self._properties.metrics
        if self._topics is None or not settings.default_offset_lag_metrics_enabled:
            return {}
        now = asyncio.get_running_loop().time()
        if now >= self._lags_until:
            try:
                self._lags = await self._asked_lags(self._topics)
            except KafkaError as error:
                raise BinderError(f"could not read the lag: {error!r}", binder=self.name) from error
            interval = settings.offset_lag_metrics_interval
            self._lags_until = now + (interval.total_seconds() if interval is not None else 0.0)
        return self._lags

    async def _asked_lags(self, topics: Topics) -> Mapping[str, int]:
        members = self._open
        ends = await topics.ends({key for each in members for key in each.thread.partitions})
        lags: Counter[str] = Counter()
        for member in members:
            lags[member.binding] += member.thread.lag(ends)
        return lags

    async def examine(
        self,
        consumers: Sequence[ConsumerDestination],
        producers: Sequence[ProducerDestination],
        *,
        watch: float,
        answer_within: float,
    ) -> Sequence[Finding]:
        """Return what is wrong with brokers, topics and groups; only the admin client connects."""
        brokers = self._clients.brokers(Client.ADMIN)
        kinds = {Client.ADMIN, *([Client.CONSUMER] if consumers else []), *([Client.PRODUCER] if producers else [])}
        mend = f"start it, or correct {PREFIX}.brokers"
        reached = await check_addresses(
            [address for kind in kinds for address in self._clients.brokers(kind)], mend, answer_within
        )
        findings = [finding for finding in reached.values() if finding is not None]
        if all(reached[address] is not None for address in brokers):
            return findings
        try:
            topics = await Topics.connected(partial(self._clients.admin, answer_within=answer_within), self._properties)
        except KafkaError as error:
            return [*findings, self._unexamined(error)]
        try:
            examination = Examination(
                topics,
                self._properties,
                brokers,
                [bound_consumer(each, self.dead_letter_destination(each)) for each in consumers],
                [bound_producer(each) for each in producers],
            )
            return [*findings, *await examination.findings(watch, answer_within)]
        finally:
            await topics.close()

    def explorer(self) -> Explorer:
        """Return an object that looks at topics, records and groups of the brokers."""
        return KafkaExplorer(self.name, self.address, self._clients, self._properties)

    def _unexamined(self, error: KafkaError) -> Finding:
        """Return the finding that the admin client could not connect, though something listens for it."""
        if isinstance(error, RefusedError):
            text, mend = str(self._refused(error, "admin")), "correct the setting, or the brokers"
        else:
            text = f"no Kafka broker answers at {self.address}, though something listens there: {error!r}"
            mend = f"see that brokers listen there for clients, by the protocol of {PREFIX}.configuration"
        return Finding(severity=Severity.ERROR, check="brokers", about=(self.name,), found=text, mend=mend)

    # Bindings

    def check_producer(self, destination: ProducerDestination) -> None:
        """Refuse a topic name that Kafka does not allow.

        Raises:
            ConfigurationError: The destination is such a name.
        """
        _check_topic(destination.name)

    def check_consumer(self, destination: ConsumerDestination) -> None:
        """Refuse a topic name that Kafka does not allow, and settings that exclude each other.

        Raises:
            ConfigurationError: The destination is not a topic name or not a regular expression, `enable-dlq=true` is
                set without a group or with a pattern, or the binder is transactional and the settings do not fit that.
        """
        extended = _own(destination.extended, KafkaConsumerProperties, destination.binding)
        if extended.destination_is_pattern:
            _check_pattern(destination.name)
        else:
            _check_topic(destination.name)
        if extended.enable_dlq and destination.group is None:
            raise ConfigurationError(
                "enable-dlq=true needs a group: dead-letter topics of anonymous groups would have the same name",
                key="group",
            )
        if extended.enable_dlq and extended.destination_is_pattern:
            raise ConfigurationError(
                "enable-dlq=true and destination-is-pattern=true exclude each other: name a destination",
                key="destination",
            )
        if self._properties.transaction.transaction_id_prefix is not None:
            check_transactional(destination)

    def ignored_by_consumer(self, destination: ConsumerDestination, *, polled: bool) -> Mapping[str, str]:
        """Return the settings that are for consumers of another kind."""
        extended = _own(destination.extended, KafkaConsumerProperties, destination.binding)
        letters = self.dead_letter_destination(destination)
        return settings_ignored_by_consumer(destination, extended, polled=polled, has_letters=letters is not None)

    def ignored_by_producer(self, destination: ProducerDestination) -> Mapping[str, str]:
        """Return `required-groups` and the group of local transactions."""
        return {
            "producer.required-groups": "Kafka keeps messages for all groups: a new one begins at its start-offset",
            f"{TYPE}.producer.group": "Kafka has no local transactions",
        }

    async def bind_producer(self, destination: ProducerDestination) -> KafkaProducerBinding:
        """Start a producer for a topic; create the topic first if `auto-create-topics` allows that.

        Raises:
            BinderError: The topic is missing or has too few partitions, and the settings do not allow to change it.
            BinderUnavailable: The brokers cannot be reached, or refuse.
            ConfigurationError: The brokers refuse the client, or its settings contradict each other.
        """
        extended = _own(destination.extended, KafkaProducerProperties, destination.binding)
        async with self._available(destination, "producer"):
            partitions = await self.topics.ensure(
                destination.name, destination.properties.partition_count, extended.topic
            )
            client = ProducerClient(self._clients.producer_config(extended))
            destination.customize(client)
            sender = Sender(partial(connect_producer, client.config), extended.close_timeout.total_seconds())
            binding = self._producer_binding(destination, extended, sender, partitions)
            try:
                await binding.start()
            except BaseException:
                await sender.close()
                raise
        self._used.add(destination.name)
        return binding

    def _producer_binding(
        self,
        destination: ProducerDestination,
        extended: KafkaProducerProperties,
        sender: Sender,
        partitions: int,
    ) -> KafkaProducerBinding:
        if self._transactions is None:
            return KafkaProducerBinding(self.name, destination, extended, sender, partitions)
        return KafkaTransactionalProducerBinding(
            self.name, destination, extended, sender, partitions, transactions=self._transactions
        )

    async def bind_consumer(self, destination: ConsumerDestination, receiver: Receiver) -> KafkaConsumerBinding:
        """Join the group and start to receive; create the topic first if `auto-create-topics` allows that.

        Raises:
            BinderError: The topic is missing, and the settings do not allow to create it.
            BinderUnavailable: The brokers cannot be reached, or refuse.
            ConfigurationError: The brokers refuse the client, or its settings contradict each other.
        """

        def make(membership: Membership) -> KafkaConsumerBinding:
            read = _reader(membership)
            call_receiver = one_by_one(receiver, destination.binding, read)
            if self._transactions is not None:
                call_receiver = self._transactions.around(
                    call_receiver, destination.binding, membership.client.group_metadata
                )
            return KafkaConsumerBinding(membership, call_receiver)

        return await self._bind(destination, make)

    async def bind_batch_consumer(
        self, destination: ConsumerDestination, receiver: BatchReceiver
    ) -> KafkaConsumerBinding:
        """Do the same as `bind_consumer`, with batches of messages."""

        def make(membership: Membership) -> KafkaConsumerBinding:
            read = _reader(membership)
            return KafkaConsumerBinding(membership, in_batches(receiver, destination.binding, read))

        return await self._bind(destination, make)

    async def bind_polled(self, destination: ConsumerDestination) -> KafkaPolledSource:
        """Do the same as `bind_consumer`, but deliver messages only when the application polls.

        Raises:
            ConfigurationError: As `bind_consumer`, or the binder is transactional.
        """
        if self._transactions is not None:
            raise ConfigurationError(
                f"binding {destination.binding!r} is polled, and its binder is transactional: use a binder without "
                "transaction.transaction-id-prefix"
            )
        extended = _own(destination.extended, KafkaConsumerProperties, destination.binding)
        return await self._bind(
            destination,
            lambda membership: KafkaPolledSource(membership, extended.poll_timeout.total_seconds()),
        )

    async def _bind(self, destination: ConsumerDestination, make: Callable[[Membership], M]) -> M:
        extended = _own(destination.extended, KafkaConsumerProperties, destination.binding)
        async with self._available(destination, "consumer"):
            member = make(await self._membership(destination, extended))
            await member.start()
        self._members = [each for each in self._members if each.is_open] + [member]
        return member

    async def _membership(self, destination: ConsumerDestination, extended: KafkaConsumerProperties) -> Membership:
        is_own = destination.group is None or extended.broadcast
        group = f"{destination.group or 'anonymous'}.{uuid4().hex}" if is_own else str(destination.group)
        partitions = 0
        if not extended.destination_is_pattern:
            calls = destination.instance_count * destination.properties.concurrency
            partitions = await self.topics.ensure(destination.name, calls, extended.topic, may_be_smaller=True)
            if partitions < calls and destination.delivery.ordered:
                logger.warning(
                    "Binding %r: topic %r has %d partition(s), and %d calls at the same time are configured: in order, "
                    "there is one call for each partition, so some of them will stay idle",
                    destination.binding,
                    destination.name,
                    partitions,
                    calls,
                )
            self._used.add(destination.name)
        client = ConsumerClient(self._clients.consumer_config(destination, extended, group))
        destination.customize(client)
        return Membership(
            destination,
            group,
            client,
            _subscription(
                destination,
                extended,
                client,
                partitions,
                is_transactional=self._transactions is not None,
                is_own=is_own,
            ),
            await self._letters(destination, extended),
            _batch_size(destination, extended, client),
            partial(self._forget, group) if is_own else None,
        )

    async def _letters(self, destination: ConsumerDestination, extended: KafkaConsumerProperties) -> DeadLetters:
        topic = self.dead_letter_destination(destination)
        if topic is None:
            return NoDeadLetters()
        producer = extended.dlq_producer_properties
        # Only the brokers limit the size of a letter: kafka-python's own limit of 1 MiB may be lower than theirs.
        config = {"max_request_size": _ANY_SIZE, **self._clients.producer_config(producer)}
        sender = Sender(partial(connect_producer, config), producer.close_timeout.total_seconds())

        async def provision(letters: str, origin: str) -> int:
            wanted = extended.dlq_partitions or await self.topics.partition_count(origin) or 1
            return await self.topics.ensure(letters, wanted, producer.topic, may_be_smaller=True)

        letters = DeadLetterTopic(destination.binding, topic, destination.group, sender, provision)
        if extended.enable_dlq:
            await letters.make(destination.name)
        return letters

    async def _forget(self, group: str) -> None:
        if self._topics is not None:
            await self._topics.forget(group)

    @asynccontextmanager
    async def _available(
        self, destination: ConsumerDestination | ProducerDestination, side: str
    ) -> AsyncIterator[None]:
        """Raise kafka-python's errors as the framework's.

        A refusal is an error of a setting. Any other failure is `BinderUnavailable`: the framework tries to bind again.
        """
        binding = destination.binding
        try:
            yield
        except RefusedError as refusal:
            places = [f"{EXTENDED}.{at}.{side}" for at in (f"bindings[{binding}]", "default")]
            own = [f"{place}{below}" for place in places for below in (".configuration", "")]
            raise self._refused(refusal, side, *own) from refusal
        except KafkaError as error:
            raise BinderUnavailable(
                f"binding {binding!r} could not be bound to topic {destination.name!r}: {error!r}",
                binder=self.name,
                binding=binding,
            ) from error


def _reader(membership: Membership) -> Callable[[Delivery], Message[bytes] | Reject]:
    """Return a function that makes the framework's messages of records."""
    binding, letters = membership.destination.binding, membership.dead_letters.topic
    return partial(to_framework, binding=binding, group=membership.group, letters=letters)


def _subscription(
    destination: ConsumerDestination,
    extended: KafkaConsumerProperties,
    client: ConsumerClient,
    partitions: int,
    *,
    is_transactional: bool,
    is_own: bool,
) -> Subscription:
    assigned = None
    if not extended.auto_rebalance_enabled:
        index, count = destination.instance_index, destination.instance_count
        assigned = tuple(number for number in range(partitions) if number % count == index)
    interval = client.config.get("auto_commit_interval_ms", _COMMIT_INTERVAL_MS)
    assert isinstance(interval, int)
    return Subscription(
        destination.name,
        is_pattern=extended.destination_is_pattern,
        partitions=assigned,
        begins_at_end=client.config["auto_offset_reset"] == "latest",
        resets=extended.reset_offsets,
        commit_every=interval / 1000 if extended.ack_mode is AckMode.TIME else 0.0,
        is_transactional=is_transactional,
        is_own=is_own,
    )


def _batch_size(destination: ConsumerDestination, extended: KafkaConsumerProperties, client: ConsumerClient) -> int:
    """Return the largest number of messages in a list: the binding's own setting, else as many as a poll returns."""
    if not destination.properties.batch_mode:
        return 1
    polled = client.config.get("max_poll_records", DEFAULT_BATCH_SIZE)
    assert isinstance(polled, int)
    return extended.batch_size or polled


def _check_topic(name: str) -> None:
    if not _TOPIC_NAME.fullmatch(name) or name in (".", ".."):
        raise ConfigurationError(
            f"{name!r} is not a valid Kafka topic: expected up to 249 letters, digits, '.', '_' and '-'",
            key="destination",
            value=name,
        )


def _check_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigurationError(
            f"{pattern!r} is not a regular expression: {error}", key="destination", value=pattern
        ) from error


def _own(extended: object, model: type[P], binding: str) -> P:
    if isinstance(extended, model):
        return extended
    raise TypeError(f"binding {binding!r} was given {type(extended).__name__} instead of {model.__name__}")
