"""Settings of producers, consumers and admins, with Apache's names in snake_case and Apache's defaults.

Durations are `timedelta`, sizes are bytes unless the name says otherwise. Each field is documented below it. Settings
do not change; `msgspec.structs.replace` returns a copy with other values. They are structs, not dataclasses: Python
would compile a dataclass's methods at each start, which takes longer than the rest of this module.
"""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path

import msgspec
from msgspec.structs import force_setattr

from rocket_client.allocation import AllocateMessageQueueStrategy, averagely
from rocket_client.metrics import ClientMetrics
from rocket_client.namespace import Namespace, namespace_of
from rocket_remoting.tls.settings import ClientTls
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.compression import DEFAULT_LIMIT
from rocket_remoting.wire.credentials import Credentials
from rocket_remoting.wire.topics import AUTO_CREATE_TOPIC


class MessageModel(Enum):
    """Which members of a group receive a message."""

    CLUSTERING = "CLUSTERING"
    """One member; the broker stores the group's offsets."""
    BROADCASTING = "BROADCASTING"
    """Every member; each stores its offsets in a local file, and failed messages are dropped."""


class ConsumeFromWhere(Enum):
    """Where a group begins in a queue without a committed offset."""

    LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    """With the messages from now on; at the beginning of a queue whose first message the broker has in memory."""
    FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    """With the queue's oldest message."""
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"
    """With the messages stored from `PushConsumerSettings.consume_timestamp` on, in every queue."""


def parse_addresses(text: str) -> tuple[str, ...]:
    """Return the addresses in a text such as ``"a:9876;b:9876"``, separated by semicolons or commas."""
    return tuple(part.strip() for part in text.replace(",", ";").split(";") if part.strip())


def is_address(text: str) -> bool:
    """Return whether a text has the form ``host:port``."""
    host, colon, port = text.rpartition(":")
    return bool(host and colon and port.isdecimal())


def is_domain(text: str) -> bool:
    """Return whether a text is a host or ``host:port``, as `ClientSettings.name_server_domain` must be."""
    match = re.fullmatch(_DOMAIN, text)  # few settings have a domain: the pattern is compiled for the first one
    return match is not None and int(match["port"] or 0) <= 65535


_LABEL = r"[A-Za-z0-9_-]{1,63}"
_DOMAIN = rf"({_LABEL}(\.{_LABEL})*|\[[0-9A-Fa-f:.]+\])(:(?P<port>[0-9]{{1,5}}))?"


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of all producers, consumers and admins."""

    name_servers: Sequence[str] | str = ()
    """Addresses ``host:port``, as a sequence or as ``"a:9876;b:9876"``. Empty: fetched from `name_server_domain`."""
    name_server_domain: str | None = None
    """A host (port 8080) or ``host:port`` of an HTTP server that answers with the addresses, where `name_servers` is
    empty (Apache's ``rocketmq.namesrv.domain``). The URL is ``http://<host:port>/rocketmq/<name_server_subgroup>``; a
    unit name adds ``-<unit_name>?nofix=1``."""
    name_server_subgroup: str = "nsaddr"
    """Last part of that URL's path (Apache's ``rocketmq.namesrv.domain.subgroup``)."""
    name_server_refresh_interval: timedelta = timedelta(minutes=2)
    """How often the addresses are fetched again. If that fails, those known stay in use."""
    instance_name: str | None = None
    """Second part of the client id. Unset: a name that is unique to this process and event loop."""
    client_ip: str | None = None
    """First part of the client id. Unset: an address of this machine."""
    unit_name: str | None = None
    """Third part of the client id."""
    namespace: str | None = None
    """Put before the names of topics and groups, see `rocket_client.namespace`. Unset: that of an address such as
    ``MQ_INST_1_a.example:80``, else none."""
    poll_name_server_interval: timedelta = timedelta(seconds=30)
    """How often the routes of all topics in use are looked up again."""
    heartbeat_broker_interval: timedelta = timedelta(seconds=30)
    """How often each broker gets a heartbeat with the groups of this client."""
    persist_consumer_offset_interval: timedelta = timedelta(seconds=5)
    """How often consumers commit the settled offsets."""
    request_timeout: timedelta = timedelta(seconds=3)
    """How long one request to a name server or broker may take (Apache's ``mqClientApiTimeout``)."""
    connect_timeout: timedelta = timedelta(seconds=3)
    """How long opening a connection may take."""
    tls: ClientTls | None = None
    """How connections to name servers and brokers are encrypted. None: they are plain."""
    credentials: Credentials | None = None
    """The keys with which all requests to name servers and brokers are signed. Unset: requests have no signature."""
    trace_topic: str | None = None
    """Topic that producers and push consumers write message traces to, such as ``RMQ_SYS_TRACE_TOPIC`` (Apache's
    ``enableMsgTrace`` and ``customizedTraceTopic``). None: they write none."""
    vip_channel_enabled: bool = False
    """Producers send to the broker's second port, its port minus 2."""
    max_decompressed_body_size: int = DEFAULT_LIMIT
    """Bytes that a compressed body may have when it is decompressed; 64 MiB, 16 times the largest body that producers
    send by default. A message whose body has more goes to the group's dead letters without a call of the listener."""
    max_decompressed_size: int = 2 * DEFAULT_LIMIT
    """Bytes of large bodies, over 256 KiB each, that a member has decompressed at once; the others stay compressed and
    wait for their turn. At least `max_decompressed_body_size`."""

    def __post_init__(self) -> None:
        addresses = self.name_servers
        addresses = parse_addresses(addresses) if isinstance(addresses, str) else tuple(addresses)
        force_setattr(self, "name_servers", addresses)
        if not addresses and self.name_server_domain is None:
            raise ValueError(
                "name_servers is empty: give at least one address, such as '127.0.0.1:9876', or set name_server_domain"
            )
        for address in addresses:
            if not is_address(address):
                raise ValueError(f"name_servers: {address!r} is not host:port")
        if self.name_server_domain is not None and not is_domain(self.name_server_domain):
            raise ValueError(
                f"name_server_domain: {self.name_server_domain!r} is neither a host, such as 'mq.example.org', "
                "nor host:port"
            )
        if self.namespace is None:
            force_setattr(self, "namespace", namespace_of(addresses))
        Namespace(self.namespace)
        _positive(
            self,
            "name_server_refresh_interval",
            "poll_name_server_interval",
            "heartbeat_broker_interval",
            "persist_consumer_offset_interval",
            "request_timeout",
            "connect_timeout",
        )
        _at_least(self, 1, "max_decompressed_body_size")
        _at_least(self, self.max_decompressed_body_size, "max_decompressed_size")

    @property
    def name_server_addresses(self) -> tuple[str, ...]:
        """`name_servers` as a tuple of addresses; empty if they are fetched from `name_server_domain`."""
        return tuple(self.name_servers)

    @property
    def name_servers_text(self) -> str:
        """The addresses, or the domain from which they are fetched."""
        return ", ".join(self.name_servers) or f"name servers from {self.name_server_domain}"


class ProducerSettings(ClientSettings, frozen=True, kw_only=True):
    """Settings of producers."""

    send_timeout: timedelta = timedelta(seconds=3)
    """How long a send may take, including all its attempts."""
    retry_times_when_send_failed: int = 2
    """Further attempts of `Producer.send` after the first."""
    retry_times_when_send_async_failed: int = 2
    """Further attempts of `Producer.send_async` after the first."""
    retry_another_broker_when_not_store_ok: bool = False
    """Try another broker when the message was stored but the status is not SEND_OK."""
    retry_response_codes: frozenset[int] = frozenset(
        {
            ResponseCode.TOPIC_NOT_EXIST,
            ResponseCode.SERVICE_NOT_AVAILABLE,
            ResponseCode.SYSTEM_ERROR,
            ResponseCode.NO_PERMISSION,
            ResponseCode.NO_BUYER_ID,
            ResponseCode.NOT_IN_CURRENT_UNIT,
        }
    )
    """Response codes after which `Producer.send` tries again; other refusals are final."""
    compress_body_threshold: int = 4096
    """Bodies of this many bytes and more are compressed (zlib)."""
    compress_level: int = 5
    """zlib's level."""
    max_message_size: int = 4 * 1024 * 1024
    """Largest body, before compression, and largest batch."""
    create_topic_key: str = AUTO_CREATE_TOPIC
    """The topic whose route is used for a topic that does not exist yet, if brokers create topics."""
    default_topic_queue_nums: int = 4
    """Maximum number of queues that such a topic gets on each broker."""
    send_latency_fault_enable: bool = False
    """Avoid brokers that answer slowly or not at all, see `rocket_client.core.faults`."""
    metrics: ClientMetrics | None = None
    """Counts the sends, and the pulls of a blocking client. None: nothing is counted."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _positive(self, "send_timeout")
        _at_least(self, 0, "retry_times_when_send_failed", "retry_times_when_send_async_failed")
        _at_least(self, 1, "compress_body_threshold", "max_message_size", "default_topic_queue_nums")


class TransactionProducerSettings(ProducerSettings, frozen=True, kw_only=True):
    """Settings of transaction producers."""

    check_concurrency: int = 8
    """Maximum number of calls of the checker under way at once."""
    check_request_hold_max: int = 2000
    """Maximum number of checks that wait for a call; further checks are dropped, and the broker sends them again."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _at_least(self, 1, "check_concurrency", "check_request_hold_max")


class ConsumerSettings(ClientSettings, frozen=True, kw_only=True):
    """Settings of push and lite pull consumers."""

    message_model: MessageModel = MessageModel.CLUSTERING
    """Whether a message goes to one member of the group or to all."""
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.LAST_OFFSET
    """Where the group begins in a queue without a committed offset."""
    consume_timestamp: datetime | None = None
    """For `ConsumeFromWhere.TIMESTAMP`. Unset: half an hour before the start."""
    allocate_message_queue_strategy: AllocateMessageQueueStrategy = msgspec.field(default=averagely)
    """How the members of the group share the queues; all must use the same strategy. Names include the namespace."""
    rebalance_interval: timedelta = timedelta(seconds=20)
    """How often the queues are rebalanced even if no change was reported."""
    pull_batch_size: int = 32
    """Maximum number of messages asked for in one pull."""
    pull_interval: timedelta = timedelta()
    """Pause between two pulls of a queue."""
    pull_threshold_for_queue: int = 1000
    """A queue is not pulled while more messages than this wait here."""
    pull_threshold_size_for_queue: int = 100
    """The same, by the size of the bodies in MiB: compressed while they wait, decompressed while they are consumed."""
    pull_threshold_for_topic: int = -1
    """Limit over all of a topic's queues, divided among those assigned; -1: none."""
    pull_threshold_size_for_topic: int = -1
    """The same, in MiB."""
    pull_time_delay_when_exception: timedelta = timedelta(seconds=3)
    """Pause of pulling after a pull failed."""
    broker_suspend_max_time: timedelta = timedelta(seconds=15)
    """How long the broker may hold a pull that finds nothing."""
    consumer_timeout_when_suspend: timedelta = timedelta(seconds=30)
    """How long a pull may take in all."""
    metrics: ClientMetrics | None = None
    """Counts pulls, what waits here, and the calls of a push consumer's listener. None: nothing is counted."""
    local_offset_store_dir: Path | None = None
    """Broadcasting: where offsets are kept. Unset: ``~/.rocketmq_offsets``, as Apache's client does."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _positive(self, "broker_suspend_max_time", "consumer_timeout_when_suspend", "rebalance_interval")
        _at_least(self, -1, "pull_threshold_for_topic", "pull_threshold_size_for_topic")
        _at_least(self, 1, "pull_batch_size", "pull_threshold_for_queue", "pull_threshold_size_for_queue")


class PushConsumerSettings(ConsumerSettings, frozen=True, kw_only=True):
    """Settings of push consumers."""

    concurrency: int | None = 20
    """Maximum number of listener calls under way at once; None for no limit."""
    consume_message_batch_max_size: int = 1
    """Maximum number of messages of one listener call."""
    max_reconsume_times: int = -1
    """Redeliveries before the dead letter topic; -1: 16 for concurrent, no limit for orderly listeners."""
    suspend_current_queue_time: timedelta = timedelta(seconds=1)
    """Orderly: how long a queue waits before a failed message is delivered again."""
    consume_timeout: timedelta = timedelta(minutes=15)
    """Concurrent: a message whose listener call takes longer is sent back to be delivered again."""
    consume_concurrently_max_span: int = 2000
    """Concurrent: a queue is not pulled while its first and last unsettled offset are further apart than this."""
    post_subscription_when_pull: bool = False
    """Send the subscription with each pull; otherwise brokers use the one of the last heartbeat."""
    lock_interval: timedelta = timedelta(seconds=20)
    """Orderly: how often the locks on the assigned queues are renewed."""
    lock_max_live_time: timedelta = timedelta(seconds=30)
    """Orderly: how long a lock is valid after its last renewal."""
    await_termination: timedelta = timedelta(seconds=30)
    """How long a shutdown waits for listener calls under way."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _positive(self, "consume_timeout", "lock_interval", "lock_max_live_time")
        _at_least(self, -1, "max_reconsume_times")
        _at_least(self, 1, "consume_message_batch_max_size", "consume_concurrently_max_span")
        if self.concurrency is not None:
            _at_least(self, 1, "concurrency")


class LitePullConsumerSettings(ConsumerSettings, frozen=True, kw_only=True):
    """Settings of lite pull consumers."""

    auto_commit: bool = True
    """Commit polled messages periodically, when the next `poll` has come; otherwise only `commit` commits."""
    auto_commit_interval: timedelta = timedelta(seconds=5)
    """How often `auto_commit` commits."""
    poll_timeout: timedelta = timedelta(seconds=5)
    """How long `poll` waits for messages by default."""
    pull_batch_size: int = 10
    """Maximum number of messages asked for in one pull, and returned by one `poll`."""
    pull_threshold_for_all: int = 10_000
    """No queue is pulled while more messages than this wait here, all queues together."""
    pull_time_delay_when_exception: timedelta = timedelta(seconds=1)
    """Pause of pulling after a pull failed."""
    broker_suspend_max_time: timedelta = timedelta(seconds=20)
    """How long the broker may hold a pull that finds nothing."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _positive(self, "auto_commit_interval")
        _at_least(self, 1, "pull_threshold_for_all")


class PullConsumerSettings(ClientSettings, frozen=True, kw_only=True):
    """Settings of pull consumers."""

    consumer_pull_timeout: timedelta = timedelta(seconds=10)
    """How long `PullConsumer.pull` waits for the broker's answer."""
    broker_suspend_max_time: timedelta = timedelta(seconds=20)
    """How long the broker may hold a `pull_block_if_not_found` that finds nothing."""
    consumer_timeout_when_suspend: timedelta = timedelta(seconds=30)
    """How long such a pull may take in all."""
    metrics: ClientMetrics | None = None
    """Counts the pulled messages. None: nothing is counted."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _positive(self, "consumer_pull_timeout", "broker_suspend_max_time", "consumer_timeout_when_suspend")


def _positive(settings: ClientSettings, *names: str) -> None:
    for name in names:
        value: timedelta = getattr(settings, name)
        if value <= timedelta():
            raise ValueError(f"{name} must be longer than 0, not {value}")


def _at_least(settings: ClientSettings, least: int, *names: str) -> None:
    for name in names:
        value: int = getattr(settings, name)
        if value < least:
            raise ValueError(f"{name} must be at least {least}, not {value}")
