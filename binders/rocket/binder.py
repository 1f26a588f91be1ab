"""The binder: connects to RocketMQ, starts an embedded broker if the settings ask for one, and makes bindings."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar
from uuid import uuid4

from msgspec.structs import replace

from binders.rocket.binder_properties import (
    Embedded,
    Provisioning,
    RocketBinderProperties,
    RocketSpringProperties,
)
from binders.rocket.capabilities import CAPABILITIES, POSSIBLE_CAPABILITIES
from binders.rocket.client_settings import ClientSettingsMaker
from binders.rocket.consumer_properties import RocketConsumerProperties
from binders.rocket.encryption import TlsProperties, client_tls, spark_options
from binders.rocket.header_names import MESSAGE_ID, TOPIC
from binders.rocket.name_servers import DEFAULT_NAME_SERVER, PREFIX, STORE, NameServers
from binders.rocket.producer_properties import RocketProducerProperties
from rocket_client import Admin, ClientSettings, TopicNotFoundError
from rocket_client.namespace import Namespace
from rocket_remoting import RemotingError, ResponseError, TlsError
from rocket_remoting.transports.tcp import TcpTransport
from rocket_remoting.transports.transport import Transport
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.topics import validate_group, validate_topic
from streamkit.binder.binder import (
    BatchReceiver,
    Binder,
    BinderContext,
    BindingState,
    ConsumerDestination,
    Health,
    HealthStatus,
    ProducerDestination,
    Receiver,
)
from streamkit.binder.capabilities import Capability
from streamkit.binder.delivery import ExtendedProducerProperties
from streamkit.errors import BinderError, BinderUnavailable, ConfigurationError
from streamkit.messaging.message import Message

if TYPE_CHECKING:
    from binders.rocket.consumer import RocketBatchBinding, RocketConsumerBinding
    from binders.rocket.groups import Subscriptions
    from binders.rocket.polled import RocketPolledSource
    from binders.rocket.producer import RocketProducerBinding
    from rocket_client import PushConsumer
    from streamkit.binder.spark_format import SparkFormat

# What produces, consumes and has transactions is imported for the first binding that does: applications and commands
# that only produce, or only judge settings, start faster.

logger = logging.getLogger(__name__)

B = TypeVar("B", "RocketConsumerBinding", "RocketBatchBinding", "RocketPolledSource")
P = TypeVar("P")

DEFAULT_QUEUES: Final = 4

_CREATE_TOPIC: Final = f". Create it (streamkit topic create {{topic}}), or set {PREFIX}.provisioning=create."

_transport: ContextVar[Transport | None] = ContextVar("rocketmq_binder_transport", default=None)


@contextmanager
def use_transport(transport: Transport) -> Iterator[Transport]:
    """Make the binders that are created inside the block use `transport` instead of TCP."""
    token = _transport.set(transport)
    try:
        yield transport
    finally:
        _transport.reset(token)


class RocketBinder(Binder):
    """Channels on RocketMQ: the bundled broker, or a cluster of Apache RocketMQ."""

    type: ClassVar[str] = "rocketmq"
    multiplexes: ClassVar[bool] = True
    possible_capabilities = POSSIBLE_CAPABILITIES
    consumer_properties = RocketConsumerProperties
    producer_properties = RocketProducerProperties

    def __init__(self, name: str, context: BinderContext) -> None:
        super().__init__(name)
        self._properties = context.environment.bind(PREFIX, RocketBinderProperties)
        spring = context.environment.bind(self.type, RocketSpringProperties)
        self._starter = spring.producer
        self._clock = context.clock
        self._transport: Transport = _transport.get() or TcpTransport()
        self._cluster = NameServers(
            name,
            self._properties,
            self._properties.name_server or spring.name_server,
            self._transport,
            self._clock,
            store=context.environment.get(STORE),
        )
        self._name_servers: tuple[str, ...] = ()
        self._admin: Admin | None = None
        self._discovered: frozenset[Capability] = frozenset()
        self._subscriptions: Subscriptions | None = None
        self._members: list[RocketConsumerBinding | RocketBatchBinding | RocketPolledSource] = []
        self._settings.credentials()  # keys that are incomplete fail before anything is started

    @property
    def address(self) -> str:
        """The addresses of the name servers, and whether the broker is embedded."""
        return self._known_name_servers + (", an embedded broker" if self._cluster.is_embedded else "")

    # Start and stop

    async def start(self) -> None:
        """Connect; start an embedded broker first if the settings ask for one.

        Raises:
            BinderError: The embedded broker cannot be started, and would not start later either, or `embedded=always`
                allows no other broker.
            BinderUnavailable: No name server answers, or the embedded broker cannot be started now.
            ConfigurationError: The store of the embedded broker, or a file of the TLS settings, cannot be used.
        """
        self._check_tls()
        self._name_servers = await self._cluster.find()
        self._admin = Admin(self._client_settings(), transport=self._transport, clock=self._clock)
        try:
            await self._admin.start()
            from binders.rocket.discovery import discover_capabilities

            self._discovered = await discover_capabilities(self._admin)
        except RemotingError as error:
            raise BinderUnavailable(
                f"binder {self.name!r} cannot reach a RocketMQ name server at {self._known_name_servers}: {error}. "
                f"Start one (`streamkit broker`), or set {PREFIX}.name-server.",
                binder=self.name,
            ) from error

    async def stop(self) -> None:
        """Disconnect, and stop the embedded broker if this binder started one."""
        if self._admin is not None:
            await self._admin.shutdown()
            self._admin = None
        await self._cluster.stop()

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[Mapping[str, str]]:
        """Run an embedded broker for several processes inside the block, if the settings ask for one.

        Yields:
            The settings with which other processes use that broker; empty if none was started.

        Raises:
            BinderError: The embedded broker cannot be started, and would not start later either, or `embedded=always`
                allows no other broker.
            BinderUnavailable: The embedded broker cannot be started now.
            ConfigurationError: The store of the embedded broker cannot be used.
        """
        name_servers = await self._cluster.find()
        try:
            if not self._cluster.is_embedded:
                yield {}
                return
            provisioning = self._properties.provisioning
            # The other processes get `embedded=never`, and AUTO would create no topics there.
            if provisioning is Provisioning.AUTO:
                provisioning = Provisioning.CREATE
            yield {
                f"{PREFIX}.name-server": ";".join(name_servers),
                f"{PREFIX}.embedded": Embedded.NEVER.value,
                f"{PREFIX}.provisioning": provisioning.value,
            }
        finally:
            await self.stop()

    def _check_tls(self) -> None:
        """Load the files of the TLS settings, so that a wrong one ends the start."""
        tls, key = self._properties.tls, f"{PREFIX}.tls"
        if tls == TlsProperties() and not self._properties.use_tls:
            return
        from rocket_remoting.tls.contexts import client_context

        try:
            client_context(client_tls(tls))
        except TlsError as error:
            raise ConfigurationError(f"binder {self.name!r}: {error}", key=key) from error

    def _client_settings(self) -> ClientSettings:
        return ClientSettings(
            tls=client_tls(self._properties.tls) if self._properties.use_tls else None,
            name_servers=self._name_servers,
            name_server_domain=self._properties.name_server_domain,
            name_server_subgroup=self._properties.name_server_subgroup,
            unit_name=self._properties.unit_name,
            credentials=self._settings.credentials(),
            poll_name_server_interval=self._properties.poll_name_server_interval,
        )

    # Capabilities and health

    def capabilities(self) -> frozenset[Capability]:
        """Return the capabilities of every RocketMQ, and those that the brokers' settings turn on."""
        return CAPABILITIES | self._discovered

    def origin_of(self, message: Message[bytes]) -> str | None:
        """Return the topic to which a message was sent, also if the message came from the group's retry topic."""
        return message.headers.typed(TOPIC, str)

    def name_of(self, message: Message[bytes]) -> str:
        """Return the message's id, by which `mqadmin queryMsgById` and `queryMsgByUniqueKey` find it."""
        return message.headers.typed(MESSAGE_ID, str) or super().name_of(message)

    def dead_letter_destination(self, destination: ConsumerDestination) -> str | None:
        """Return the group's dead-letter topic, `%DLQ%<group>`; None for an anonymous group."""
        return destination.extended.dead_letter_topic(destination.name, destination.group)

    async def health(self) -> Health:
        """Return UP with the lags if a name server answers and knows a broker, else DOWN with the reason."""
        if self._admin is None:
            return Health(HealthStatus.DOWN, {"reason": "not started"})
        details = {"nameServer": self._known_name_servers}
        try:
            brokers = (await self._admin.cluster_info()).broker_addr_table
        except RemotingError as error:
            return Health(HealthStatus.DOWN, details | {"reason": str(error)})
        details["brokers"] = ", ".join(sorted(brokers)) or "none"
        with suppress(BinderError):  # a broker that is away is no reason to restart the application
            details |= {f"lag.{binding}": str(lag) for binding, lag in (await self.lags()).items()}
        return Health(HealthStatus.UP if brokers else HealthStatus.DOWN, details)

    @property
    def _open_members(self) -> "list[RocketConsumerBinding | RocketBatchBinding | RocketPolledSource]":
        return [member for member in self._members if member.state is not BindingState.STOPPED]

    async def lags(self) -> Mapping[str, int]:
        """Return the number of unsettled messages by binding, in the queues of its members here.

        The retry topic of the group counts. A message that waits for its next delivery is in none of these queues until
        its delay is over.

        Raises:
            BinderError: A broker did not answer.
        """
        members = self._open_members
        try:
            found = await asyncio.gather(*(member.lag() for member in members))
        except RemotingError as error:
            raise BinderError(f"could not read the lag: {error}", binder=self.name) from error
        lags: Counter[str] = Counter()
        for member, lag in zip(members, found, strict=True):
            lags[member.binding] += lag
        return lags

    # Bindings

    def check_producer(self, destination: ProducerDestination) -> None:
        """Refuse names of topics and groups that RocketMQ does not allow.

        Raises:
            ConfigurationError: The destination or a required group has such a name, or a key to sign requests is set
                without the other.
        """
        extended = _require_model(destination.extended, RocketProducerProperties, destination.binding)
        self._settings.credentials(extended)
        namespace = self._settings.namespace(extended)
        _check_name(validate_topic, destination.name, "destination", namespace)
        for group in destination.properties.required_groups:
            _check_name(validate_group, group, "producer.required_groups", namespace)

    def check_consumer(self, destination: ConsumerDestination) -> None:
        """Refuse names that RocketMQ does not allow, and different subscriptions within one group.

        Raises:
            ConfigurationError: The destination or the group has such a name, the group's first binding has another
                subscription, or a key to sign requests is set without the other.
        """
        from binders.rocket.groups import Subscriptions, topics_of

        extended = _require_model(destination.extended, RocketConsumerProperties, destination.binding)
        self._settings.credentials(extended)
        namespace = self._settings.namespace(extended)
        for topic in topics_of(destination.name):
            _check_name(validate_topic, topic, "destination", namespace)
        if destination.group is not None:
            _check_name(validate_group, destination.group, "group", namespace)
            self._subscriptions = self._subscriptions or Subscriptions()
            self._subscriptions.check(namespace.wrap(destination.group), destination)

    def ignored_by_consumer(self, destination: ConsumerDestination, *, polled: bool) -> Mapping[str, str]:
        """Return the settings that are for consumers of another kind."""
        from binders.rocket.ignored_settings import settings_ignored_by_consumer

        return settings_ignored_by_consumer(destination, polled=polled)

    def ignored_by_producer(self, destination: ProducerDestination) -> Mapping[str, str]:
        """Return `partition-count` where no topics are created."""
        provisioning = self._properties.provisioning
        if provisioning in (Provisioning.NONE, Provisioning.VERIFY):
            return {"producer.partition-count": f"provisioning={provisioning.value}: no topic is created"}
        return {}

    async def bind_producer(self, destination: ProducerDestination) -> "RocketProducerBinding":
        """Start a producer for a topic; create the topic first if `provisioning` says so.

        Raises:
            BinderError: The topic is missing and `provisioning=verify`.
            BinderUnavailable: The brokers cannot be reached, or the topic does not exist.
            ConfigurationError: The client refuses the settings.
        """
        extended = _require_model(destination.extended, RocketProducerProperties, destination.binding)
        namespace = self._settings.namespace(extended)
        topic = namespace.wrap(destination.name)
        await self._provision(topic, destination.binding, destination.properties.partition_count)
        binding = self._producer_binding(destination, extended)
        destination.customize(binding.producer)
        try:
            await binding.start()
            await self._commit_missing_offsets(destination, namespace)
        except BaseException as error:
            await binding.stop()
            if isinstance(error, RemotingError):
                advice = _CREATE_TOPIC if isinstance(error, TopicNotFoundError) else ""
                raise self._unavailable(destination.binding, topic, error, advice) from error
            raise
        return binding

    async def _commit_missing_offsets(self, destination: ProducerDestination, namespace: Namespace) -> None:
        """Commit the topic's present end as the offset of each required group that has no offsets yet."""
        from binders.rocket.groups import commit_missing_offsets

        for required in destination.properties.required_groups:
            topic = namespace.wrap(destination.name)
            await commit_missing_offsets(self._require_admin(), namespace.wrap(required), topic)

    async def bind_consumer(self, destination: ConsumerDestination, receiver: Receiver) -> "RocketConsumerBinding":
        """Join the group and start to receive; create the topics first if `provisioning` says so.

        Raises:
            BinderError: A topic is missing and `provisioning=verify`.
            BinderUnavailable: The brokers cannot be reached.
            ConfigurationError: The client refuses the settings, or a broker refuses the SQL expression.
        """
        from binders.rocket.consumer import RocketConsumerBinding

        return await self._bind(
            destination,
            lambda group, extended, delete_group: RocketConsumerBinding(
                destination, self._push_consumer(group, extended, destination), receiver, delete_group
            ),
        )

    async def bind_batch_consumer(
        self, destination: ConsumerDestination, receiver: BatchReceiver
    ) -> "RocketBatchBinding":
        """Do the same as `bind_consumer`, with batches of messages."""
        from binders.rocket.consumer import RocketBatchBinding

        return await self._bind(
            destination,
            lambda group, extended, delete_group: RocketBatchBinding(
                destination, self._push_consumer(group, extended, destination), receiver, delete_group
            ),
        )

    async def bind_polled(self, destination: ConsumerDestination) -> "RocketPolledSource":
        """Do the same as `bind_consumer`, but deliver messages only when the application polls."""
        from binders.rocket.polled import RocketPolledSource
        from rocket_client import LitePullConsumer

        return await self._bind(
            destination,
            lambda group, extended, delete_group: RocketPolledSource(
                destination,
                LitePullConsumer(
                    group,
                    self._settings.lite_pull_consumer(extended, destination),
                    transport=self._transport,
                    clock=self._clock,
                ),
                delete_group,
            ),
        )

    def _push_consumer(
        self, group: str, extended: RocketConsumerProperties, destination: ConsumerDestination
    ) -> "PushConsumer":
        from rocket_client import PushConsumer

        settings = self._settings.push_consumer(extended, destination)
        return PushConsumer(group, settings, transport=self._transport, clock=self._clock)

    async def _bind(
        self,
        destination: ConsumerDestination,
        make: Callable[[str, RocketConsumerProperties, Callable[[], Awaitable[None]] | None], B],
    ) -> B:
        from binders.rocket.groups import create_group_at_end, topics_of

        extended = _require_model(destination.extended, RocketConsumerProperties, destination.binding)
        namespace = self._settings.namespace(extended)
        topics = list(map(namespace.wrap, topics_of(destination.name)))
        for topic in topics:
            await self._provision(topic, destination.binding, 1)
        group = namespace.wrap(destination.group or f"anonymous_{uuid4().hex}")
        delete_group = partial(self._delete_group, group) if destination.group is None else None
        with _as_configuration_errors(destination.binding):
            binding = make(group, extended, delete_group)
        destination.customize(binding.consumer)
        try:
            if destination.group is None:
                # Before the member joins. A message that is sent after this line is behind the committed end, so the
                # group gets it even if the member reads the offset later.
                await create_group_at_end(self._require_admin(), group, topics)
            await binding.start()
        except BaseException as error:
            # This attempt's anonymous group has a random name: no later attempt would use or delete it.
            if delete_group is not None:
                await delete_group()
            if not isinstance(error, RemotingError):
                raise
            if isinstance(error, ResponseError) and error.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED:
                key = "sql" if extended.subscription is None else "subscription"
                raise ConfigurationError(f"binding {destination.binding!r}: {error}", key=key) from error
            raise self._unavailable(destination.binding, destination.name, error) from error
        self._members = [*self._open_members, binding]
        return binding

    def spark_source(self, destination: ConsumerDestination) -> "SparkFormat":
        """Return Spark's format and options to read the topics, with the namespace in front of the names."""
        from binders.rocket.groups import topics_of
        from binders.rocket.spark import spark_source

        extended = _require_model(destination.extended, RocketConsumerProperties, destination.binding)
        namespace = self._settings.namespace(extended)
        known = replace(
            destination,
            name=",".join(map(namespace.wrap, topics_of(destination.name))),
            group=destination.group and namespace.wrap(destination.group),
        )
        return spark_source(
            self._name_servers_of_spark, self._settings.credentials(extended), known, self._tls_of_spark(extended)
        )

    def spark_sink(self, destination: ProducerDestination) -> "SparkFormat":
        """Return Spark's format and options to write to the topic, with the namespace in front of the name."""
        from binders.rocket.spark import spark_sink

        extended = _require_model(destination.extended, RocketProducerProperties, destination.binding)
        namespace = self._settings.namespace(extended)
        group = namespace.wrap(self.producer_group(destination.name, extended))
        known = replace(destination, name=namespace.wrap(destination.name))
        keys = self._settings.credentials(extended)
        return spark_sink(self._name_servers_of_spark, keys, known, group, self._tls_of_spark(extended))

    def _tls_of_spark(self, extended: RocketProducerProperties | RocketConsumerProperties) -> Mapping[str, str]:
        if not self._settings.uses_tls(extended):
            return {}
        try:
            return spark_options(self._properties.tls)
        except ValueError as error:
            raise BinderError(f"binder {self.name!r}: {PREFIX}.tls.key-password: {error}", binder=self.name) from error

    @property
    def _known_name_servers(self) -> str:
        """The addresses of the name servers in use; before the start, those that will be tried first.

        If the clients fetch the addresses, the domain from which they fetch them.
        """
        if self._cluster.domain is not None:
            return self._cluster.domain
        return ";".join(self._name_servers) or ";".join(self._cluster.configured) or DEFAULT_NAME_SERVER

    @property
    def _name_servers_of_spark(self) -> str:
        if self._cluster.domain is not None:
            raise BinderError(
                f"binder {self.name!r} fetches the addresses of its name servers from {self._cluster.domain}, which "
                f"Spark's jobs cannot do: set {PREFIX}.name-server",
                binder=self.name,
            )
        return self._known_name_servers

    @property
    def _settings(self) -> ClientSettingsMaker:
        return ClientSettingsMaker(self._name_servers, self._properties, self._starter)

    async def _provision(self, topic: str, binding: str, queues: int) -> None:
        provisioning = self._properties.provisioning
        if provisioning is Provisioning.AUTO:
            provisioning = Provisioning.CREATE if self._cluster.is_embedded else Provisioning.NONE
        if provisioning is Provisioning.NONE:
            return
        admin = self._require_admin()
        try:
            await admin.topic_route(topic)
        except TopicNotFoundError:
            if provisioning is Provisioning.VERIFY:
                raise BinderError(
                    f"binding {binding!r}: topic {topic!r} does not exist and {PREFIX}.provisioning=verify"
                    + _CREATE_TOPIC.format(topic=topic),
                    binder=self.name,
                    binding=binding,
                ) from None
            await self._create(topic, binding, queues if queues > 1 else DEFAULT_QUEUES)
        except RemotingError as error:
            raise self._unavailable(binding, topic, error) from error

    async def _create(self, topic: str, binding: str, queues: int) -> None:
        try:
            await self._require_admin().create_topic(topic, queues)
            await self._require_admin().await_topic(topic, queues=queues)
        except (RemotingError, TimeoutError) as error:
            raise self._unavailable(binding, topic, error) from error

    async def _delete_group(self, group: str) -> None:
        """Delete an anonymous group at the brokers after its only member has left."""
        try:
            await self._require_admin().delete_group(group)
        except RemotingError as error:
            logger.info("could not delete the anonymous group %s at the broker: %s", group, error)

    def producer_group(self, destination: str, extended: ExtendedProducerProperties) -> str:
        """Return the producer group: the binding's setting, else the binder's setting, else the destination."""
        named = extended.group if isinstance(extended, RocketProducerProperties) else None
        return named or self._properties.group or destination

    def _producer_binding(
        self, destination: ProducerDestination, extended: RocketProducerProperties
    ) -> "RocketProducerBinding":
        from binders.rocket.producer import RocketProducerBinding
        from rocket_client import Producer

        group = self.producer_group(destination.name, extended)
        settings = self._settings.producer(extended)
        kind: type[RocketProducerBinding] = RocketProducerBinding
        with _as_configuration_errors(destination.binding):
            if destination.checker is None:
                producer = Producer(group, settings, transport=self._transport, clock=self._clock)
            else:
                from binders.rocket.transactions import RocketTransactionalProducerBinding, rocket_checker
                from rocket_client import TransactionProducer

                kind = RocketTransactionalProducerBinding
                producer = TransactionProducer(
                    group,
                    settings,
                    rocket_checker(destination.checker),
                    topics=[destination.name],
                    transport=self._transport,
                    clock=self._clock,
                )
        return kind(
            self.name,
            destination,
            producer,
            send_type=extended.effective_send_type,
            delay_levels=self._properties.message_delay_level,
            delays_at_will=Capability.DELAY_ANY in self._discovered,
            clock=self._clock,
        )

    def _require_admin(self) -> Admin:
        if self._admin is None:
            raise BinderError(f"binder {self.name!r} is not started", binder=self.name)
        return self._admin

    def _unavailable(self, binding: str, topic: str, error: Exception, advice: str = "") -> BinderUnavailable:
        return BinderUnavailable(
            f"binding {binding!r} could not be bound to topic {topic!r}: {error}{advice.format(topic=topic)}",
            binder=self.name,
            binding=binding,
        )


def _check_name(validate: Callable[[str], None], name: str, key: str, namespace: Namespace) -> None:
    try:
        validate(namespace.wrap(name))
    except ValueError as error:
        raise ConfigurationError(str(error), key=key, value=name) from error


@contextmanager
def _as_configuration_errors(binding: str) -> Iterator[None]:
    """Raise the client's `ValueError`s as errors of the settings: the client checks more than the models."""
    try:
        yield
    except ValueError as error:
        raise ConfigurationError(f"binding {binding!r}: {error}") from error


def _require_model(extended: object, model: type[P], binding: str) -> P:
    if isinstance(extended, model):
        return extended
    raise TypeError(f"binding {binding!r} has settings of type {type(extended).__name__} instead of {model.__name__}")
