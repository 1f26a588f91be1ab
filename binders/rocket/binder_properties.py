"""The settings of the binder itself, and those of Spring's RocketMQ starter."""

from datetime import timedelta
from enum import Enum
from typing import Annotated, Final

from binders.rocket.encryption import TlsProperties
from binders.rocket.properties import (
    LOCAL_TRACE,
    NO_NAMESPACE,
    NO_TRACE,
    Group,
    InNamespace,
    PositiveMilliseconds,
)
from rocket_client.settings import is_domain, parse_addresses
from rocket_remoting.session.address import parse_address
from rocket_remoting.wire.errors import ConnectError
from streamkit.binder.delivery import DEFAULT_DELAY_LEVELS
from streamkit.config.durations import Seconds
from streamkit.config.setting_limits import Accepted, NotInMemory, Rejected
from streamkit.config.setting_values import After
from streamkit.config.settings_model import SettingsModel, SharedSettingsModel, setting
from streamkit.config.shape import Separator

_NO_TEMPLATE: Final = "there is no RocketMQTemplate: set it for the binding, below spring.cloud.stream.rocketmq"


class Embedded(Enum):
    """Whether a broker is started in this process."""

    AUTO = "auto"
    """If neither a name server nor `name-server-domain` is configured, and none answers at the default address."""
    ALWAYS = "always"
    """Always; on the port of the configured name server, or on free ports."""
    NEVER = "never"
    """Never; the binder waits until a name server answers."""


class Provisioning(Enum):
    """How missing topics are handled when a binding is made."""

    AUTO = "auto"
    """`create` on an embedded broker, `none` elsewhere."""
    CREATE = "create"
    """Create a missing topic."""
    VERIFY = "verify"
    """Refuse to bind a topic that is missing."""
    NONE = "none"
    """Do not check; the broker may create a missing topic."""


def _split(listed: list[str]) -> list[str]:
    """Return the addresses of name servers, of which one item may have several, separated by `;`."""
    return [address for item in listed for address in parse_addresses(item)]


def _check(addresses: list[str]) -> list[str]:
    """Return the addresses, if all are valid; raise ValueError if not."""
    for address in addresses:
        try:
            parse_address(address)
        except ConnectError:
            raise ValueError(f"{address!r} is not an address: expected host:port, such as 127.0.0.1:9876") from None
    return addresses


def _check_domain(domain: str) -> str:
    """Return the domain, if it is valid; raise ValueError if not."""
    if not is_domain(domain):
        raise ValueError(f"{domain!r} is neither a host, such as mq.example.org, nor host:port")
    return domain


NameServerList = Annotated[list[str], After(_split)]


class RocketBinderProperties(SettingsModel):
    """`spring.cloud.stream.rocketmq.binder.*`."""

    name_server: Annotated[NameServerList, After(_check)] = setting(default=[])
    """The name servers: `host:port`, several as a list or separated by `;` or `,`. Unset: fetched from
    `name-server-domain`. Without both: `127.0.0.1:9876`, see `embedded`."""
    name_server_domain: Annotated[str, After(_check_domain)] | None = None
    """The HTTP server that returns the addresses of the name servers (Apache's `rocketmq.namesrv.domain`): `host:port`,
    or `host` for port 8080. The URL is `http://<host:port>/rocketmq/nsaddr`, with `-<unit-name>?nofix=1` if there is a
    unit name. If `name-server` is set, this setting has no effect."""
    name_server_subgroup: str = "nsaddr"
    """The last part of the path of that URL (Apache's `rocketmq.namesrv.domain.subgroup`)."""
    embedded: Embedded = Embedded.AUTO
    """Whether a broker starts in this process. `auto`: if neither name servers nor their domain are configured, and no
    name server answers at the default address."""
    embedded_store: str = ".streamkit"
    """Where the embedded broker keeps its store."""
    provisioning: Annotated[
        Provisioning, NotInMemory("topics are made when they are used", only=(Provisioning.VERIFY,))
    ] = Provisioning.AUTO
    """How missing topics are handled. `create`: they are created. `verify`: the binding is refused. `none`: not
    checked; the broker may create them. `auto`: `create` on an embedded broker, else `none`."""
    message_delay_level: Annotated[tuple[Seconds, ...], Separator(" ")] = DEFAULT_DELAY_LEVELS
    """The table of delay levels, which must equal the broker's `messageDelayLevel`."""
    group: Group | None = None
    """The group of producers whose binding sets none. Unset: their destination."""
    unit_name: str | None = None
    """A name that is appended to the client id."""
    offset_store: str | None = None
    """The directory in which broadcasting consumers keep their offsets. Unset: `~/.rocketmq_offsets`, as with Apache's
    client."""
    vip_channel_enabled: bool = False
    """Whether the broker's VIP port is used: its port minus 2."""
    access_key: str | None = None
    """The access key of an account in the brokers' access control."""
    secret_key: str | None = None
    """The account's secret key. With both keys, all requests to name servers and brokers are signed."""
    namespace: Annotated[InNamespace | None, NotInMemory(NO_NAMESPACE)] = None
    """The namespace: a prefix of the names of topics and groups at the broker, `<namespace>%<name>`. The application
    uses the names without it."""
    namespace_v2: Annotated[
        str | None,
        Rejected("namespaces are not put into requests: remove it, or use namespace, which is put before names"),
    ] = None
    use_tls: Annotated[bool, setting(aliases=("useTLS",))] = False
    """Whether connections to name servers and brokers are encrypted: those of the binder, and of bindings that do not
    set `use-tls`."""
    tls: TlsProperties = setting(default_factory=TlsProperties)
    """Whom the binder trusts, and the certificate that it shows."""
    enable_msg_trace: Annotated[bool | None, NotInMemory(NO_TRACE)] = None
    """Whether bindings that do not set it write message traces. Unset: only if `customized-trace-topic` is set."""
    customized_trace_topic: Annotated[str | None, NotInMemory(NO_TRACE)] = None
    """The topic of message traces. Unset: `RMQ_SYS_TRACE_TOPIC`."""
    access_channel: Annotated[str | None, Accepted(LOCAL_TRACE)] = None
    enabled: Annotated[bool, Accepted("only the setting of a binding is read")] = True
    poll_name_server_interval: PositiveMilliseconds = timedelta(seconds=30)
    """The time between two updates of the routes from the name servers."""
    heartbeat_broker_interval: PositiveMilliseconds = timedelta(seconds=30)
    """The time between two heartbeats to the brokers."""
    persist_consumer_offset_interval: PositiveMilliseconds = timedelta(seconds=5)
    """How often offsets are committed."""


class RocketSpringProducerProperties(SharedSettingsModel):
    """`rocketmq.producer.*`."""

    group: Annotated[str | None, Accepted(_NO_TEMPLATE)] = None
    access_key: str | None = None
    """The access key, if `spring.cloud.stream.rocketmq.binder.access-key` is not set."""
    secret_key: str | None = None
    """The secret key, if `spring.cloud.stream.rocketmq.binder.secret-key` is not set."""
    enable_msg_trace: bool | None = None
    """Whether producers write message traces, if neither the binding nor the binder sets it."""
    customized_trace_topic: str | None = None
    """The topic of producers' message traces, if neither the binding nor the binder sets one."""
    send_message_timeout: Annotated[int | None, Accepted(_NO_TEMPLATE)] = None
    compress_message_body_threshold: Annotated[int | None, Accepted(_NO_TEMPLATE)] = None
    retry_times_when_send_failed: Annotated[int | None, Accepted(_NO_TEMPLATE)] = None
    retry_times_when_send_async_failed: Annotated[int | None, Accepted(_NO_TEMPLATE)] = None
    retry_next_server: Annotated[bool | None, Accepted(_NO_TEMPLATE)] = None
    max_message_size: Annotated[int | None, Accepted(_NO_TEMPLATE)] = None


class RocketSpringProperties(SharedSettingsModel):
    """`rocketmq.*`, the settings of Spring's RocketMQ starter, which the first generation's binder reads too."""

    name_server: NameServerList = setting(default=[])
    """The name servers, if `spring.cloud.stream.rocketmq.binder.name-server` is not set."""
    producer: RocketSpringProducerProperties = setting(default_factory=RocketSpringProducerProperties)
