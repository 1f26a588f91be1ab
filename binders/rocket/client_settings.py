"""Translates the binder's settings to the settings of `rocket_client`'s clients."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict

from binders.rocket.binder_properties import RocketBinderProperties, RocketSpringProducerProperties
from binders.rocket.consumer_properties import AllocateStrategy, RocketConsumerProperties
from binders.rocket.encryption import client_tls
from binders.rocket.producer_properties import RocketProducerProperties
from rocket_client import (
    ConsumeFromWhere,
    Credentials,
    LitePullConsumerSettings,
    MessageModel,
    PushConsumerSettings,
    TransactionProducerSettings,
)
from rocket_client.connection.shared_clients import BROADCASTING_INSTANCE
from rocket_client.namespace import Namespace, namespace_of
from rocket_remoting.tls.settings import ClientTls
from rocket_remoting.wire.topics import TRACE_TOPIC
from streamkit.binder.binder import ConsumerDestination
from streamkit.binder.delivery import Delivery, StartPosition
from streamkit.errors import ConfigurationError

if TYPE_CHECKING:
    from rocket_client.allocation import AllocateMessageQueueStrategy

_START: Final = {
    StartPosition.LATEST: ConsumeFromWhere.LAST_OFFSET,
    StartPosition.LAST_OFFSET: ConsumeFromWhere.LAST_OFFSET,
    StartPosition.EARLIEST: ConsumeFromWhere.FIRST_OFFSET,
    StartPosition.TIMESTAMP: ConsumeFromWhere.TIMESTAMP,
}


class _Client(TypedDict):
    """The settings that all clients have."""

    name_servers: Sequence[str]
    name_server_domain: str | None
    name_server_subgroup: str
    namespace: str
    unit_name: str | None
    tls: ClientTls | None
    credentials: Credentials | None
    trace_topic: str | None
    vip_channel_enabled: bool
    poll_name_server_interval: timedelta
    heartbeat_broker_interval: timedelta


class _Consumer(TypedDict):
    """The settings that push consumers and lite pull consumers have."""

    instance_name: str | None
    persist_consumer_offset_interval: timedelta
    message_model: MessageModel
    consume_from_where: ConsumeFromWhere
    consume_timestamp: datetime | None
    allocate_message_queue_strategy: "AllocateMessageQueueStrategy"
    pull_batch_size: int
    pull_interval: timedelta
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue: int
    pull_threshold_for_topic: int
    pull_threshold_size_for_topic: int
    pull_time_delay_when_exception: timedelta
    max_decompressed_body_size: int
    max_decompressed_size: int
    local_offset_store_dir: Path | None


class ClientSettingsMaker:
    """Makes the settings of the clients of one binder."""

    def __init__(
        self, name_servers: Sequence[str], binder: RocketBinderProperties, starter: RocketSpringProducerProperties
    ) -> None:
        """Make a maker.

        Args:
            name_servers: The addresses of the name servers, `host:port`; empty if the clients fetch them.
            binder: The binder's settings, used where a binding's are unset.
            starter: The settings of Spring's RocketMQ starter, whose keys are used where the binder has none.
        """
        self._name_servers = tuple(name_servers)
        self._binder = binder
        self._starter = starter

    def producer(self, extended: RocketProducerProperties) -> TransactionProducerSettings:
        """Return the settings of a producer."""
        return TransactionProducerSettings(
            **self._client(extended),
            send_timeout=extended.send_message_timeout,
            retry_times_when_send_failed=extended.retry_times_when_send_failed,
            retry_times_when_send_async_failed=extended.retry_times_when_send_async_failed,
            retry_another_broker_when_not_store_ok=extended.retry_next_server,
            compress_body_threshold=extended.compress_message_body_threshold,
            max_message_size=extended.max_message_size,
        )

    def push_consumer(
        self, extended: RocketConsumerProperties, destination: ConsumerDestination
    ) -> PushConsumerSettings:
        """Return the settings of a push consumer, which calls the receiver."""
        delivery = destination.delivery
        return PushConsumerSettings(
            **self._client(extended),
            **self._consumer(extended, destination),
            # The permits of the destination limit the calls; the pull thresholds limit the cached messages.
            concurrency=None,
            consume_message_batch_max_size=delivery.batch_size if destination.properties.batch_mode else 1,
            max_reconsume_times=redelivery_limit(delivery),
            suspend_current_queue_time=delivery.suspend,
            consume_timeout=extended.push.consume_timeout,
            consume_concurrently_max_span=extended.consume_max_span,
        )

    def lite_pull_consumer(
        self, extended: RocketConsumerProperties, destination: ConsumerDestination
    ) -> LitePullConsumerSettings:
        """Return the settings of a lite pull consumer, which is polled; settlements decide what is committed."""
        return LitePullConsumerSettings(
            **self._client(extended),
            **self._consumer(extended, destination),
            auto_commit=False,
            poll_timeout=extended.poll_timeout,
            pull_threshold_for_all=extended.pull.pull_threshold_for_all,
        )

    def namespace(self, extended: RocketProducerProperties | RocketConsumerProperties) -> Namespace:
        """Return the namespace of a binding: its own, else the binder's, else that of the name servers' address."""
        return Namespace(extended.namespace or self._binder.namespace or namespace_of(self._name_servers))

    def tls(self, extended: RocketProducerProperties | RocketConsumerProperties) -> ClientTls | None:
        """Return how the connections of a binding are encrypted; None for plain ones."""
        return client_tls(self._binder.tls) if self.uses_tls(extended) else None

    def uses_tls(self, extended: RocketProducerProperties | RocketConsumerProperties) -> bool:
        """Return whether a binding's connections are encrypted: its own setting, else the binder's."""
        return self._binder.use_tls if extended.use_tls is None else extended.use_tls

    def credentials(
        self, extended: RocketProducerProperties | RocketConsumerProperties | None = None
    ) -> Credentials | None:
        """Return the keys that sign a binding's requests, or without a binding the binder's own; None if unset.

        Raises:
            ConfigurationError: One of the two keys is set without the other.
        """
        levels = [level for level in (extended, self._binder, self._starter) if level is not None]
        access_key = next((level.access_key for level in levels if level.access_key), None)
        secret_key = next((level.secret_key for level in levels if level.secret_key), None)
        if access_key and secret_key:
            return Credentials(access_key, secret_key)
        if access_key or secret_key:
            given, missing = ("access-key", "secret-key") if access_key else ("secret-key", "access-key")
            raise ConfigurationError(
                f"{given} is set without {missing}: requests are signed with both; set {missing}, or remove {given}",
                key=given,
            )
        return None

    def trace_topic(self, extended: RocketProducerProperties | RocketConsumerProperties) -> str | None:
        """Return the topic of a binding's message trace; None if it writes none.

        The binding's settings come first, then the binder's, then, for a producer, the starter's.
        """
        levels = [extended, self._binder, *([self._starter] if isinstance(extended, RocketProducerProperties) else [])]
        topic = next((level.customized_trace_topic for level in levels if level.customized_trace_topic), None)
        enabled = next((level.enable_msg_trace for level in levels if level.enable_msg_trace is not None), topic)
        return (topic or TRACE_TOPIC) if enabled else None

    def _client(self, extended: RocketProducerProperties | RocketConsumerProperties) -> _Client:
        binder = self._binder
        vip = extended.vip_channel_enabled
        return _Client(
            name_servers=self._name_servers,
            name_server_domain=binder.name_server_domain,
            name_server_subgroup=binder.name_server_subgroup,
            namespace=self.namespace(extended).name,
            unit_name=extended.unit_name or binder.unit_name,
            tls=self.tls(extended),
            credentials=self.credentials(extended),
            trace_topic=self.trace_topic(extended),
            vip_channel_enabled=binder.vip_channel_enabled if vip is None else vip,
            poll_name_server_interval=extended.poll_name_server_interval or binder.poll_name_server_interval,
            heartbeat_broker_interval=extended.heartbeat_broker_interval or binder.heartbeat_broker_interval,
        )

    def _consumer(self, extended: RocketConsumerProperties, destination: ConsumerDestination) -> _Consumer:
        binder, push, delivery = self._binder, extended.push, destination.delivery
        start_time = delivery.start_time_ms
        return _Consumer(
            instance_name=_instance_name(destination),
            persist_consumer_offset_interval=extended.persist_consumer_offset_interval
            or binder.persist_consumer_offset_interval,
            message_model=MessageModel.BROADCASTING if delivery.broadcast else MessageModel.CLUSTERING,
            consume_from_where=_START[delivery.start],
            consume_timestamp=None if start_time is None else datetime.fromtimestamp(start_time / 1000, UTC),
            allocate_message_queue_strategy=_allocation(extended.allocate_message_queue_strategy),
            pull_batch_size=extended.pull_batch_size,
            pull_interval=push.pull_interval,
            pull_threshold_for_queue=extended.pull_threshold_for_queue,
            pull_threshold_size_for_queue=extended.pull_threshold_size_for_queue,
            pull_threshold_for_topic=push.pull_threshold_for_topic,
            pull_threshold_size_for_topic=push.pull_threshold_size_for_topic,
            pull_time_delay_when_exception=extended.pull_time_delay_mills_when_exception,
            max_decompressed_body_size=extended.max_decompressed_body_size,
            max_decompressed_size=extended.max_decompressed_size,
            local_offset_store_dir=Path(binder.offset_store) if binder.offset_store else None,
        )


def _allocation(strategy: AllocateStrategy) -> "AllocateMessageQueueStrategy":
    from rocket_client.allocation import ConsistentHash, averagely, averagely_by_circle

    match strategy:
        case AllocateStrategy.AVERAGELY:
            return averagely
        case AllocateStrategy.AVERAGELY_BY_CIRCLE:
            return averagely_by_circle
        case AllocateStrategy.CONSISTENT_HASH:
            return ConsistentHash()


def _instance_name(destination: ConsumerDestination) -> str | None:
    """Return the instance name of a broadcasting member; None for the client's default.

    The name has the instance index, so that instances on one machine keep their offsets in different files.
    """
    if not destination.delivery.broadcast or not destination.instance_index:
        return None
    return f"{BROADCASTING_INSTANCE}-{destination.instance_index}"


def redelivery_limit(delivery: Delivery) -> int:
    """Return `maxReconsumeTimes` for the client; -1, no limit, is for ordered delivery only.

    The value is the framework's limit, so that no broker ends the redeliveries before the framework does.
    """
    limit = delivery.redelivery_limit
    return -1 if limit is None else limit
