"""The settings of an application outside of `spring.cloud.stream`, with Spring Boot's names.

`GROUPS` lists them for the report of settings and for the reference page, which need all settings.
"""

import re
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from ipaddress import ip_address
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from streamkit.config.data_sizes import DataSize
from streamkit.config.durations import Milliseconds, Positive, Seconds
from streamkit.config.function_properties import CloudFunctionProperties, PollerProperties
from streamkit.config.relaxed import uniform
from streamkit.config.setting_limits import Rejected
from streamkit.config.settings_model import SettingsModel, ShownWithoutSecrets

_ALL_ADDRESSES: Final = ("", "0.0.0.0", "::")
_HOST: Final = re.compile(r"\*|(?:\*\.)?[\w-]+(?:\.[\w-]+)*|\[?[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*\]?", re.ASCII)
NO_REGISTRY: Final = Rejected(
    "there is no schema registry client; pass an AvroConverter with schemas, or a converter of your own, to"
    " StreamApplication(converters=[…])"
)
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_ENCODED: Final = re.compile(r"\{.+\}.*", re.DOTALL)
_PLAIN: Final = "{noop}"
"""The prefix of a plain password, as Spring Security has prefixes for encoded ones."""


class SharedSettingsModel(ShownWithoutSecrets):
    """Settings below a prefix that other software uses too. Unknown keys are ignored: they may belong to that."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class SchemaRegistryClientProperties(SharedSettingsModel):
    """`spring.cloud.schema-registry-client.*`."""

    endpoint: Annotated[str | None, NO_REGISTRY] = None
    """The address of the schema registry."""
    cached: Annotated[bool, NO_REGISTRY] = False
    """Whether its answers are kept."""


class SchemaProperties(SharedSettingsModel):
    """`spring.cloud.schema.*`."""

    avro: Annotated[dict[str, str], NO_REGISTRY] = Field(default_factory=dict)
    """The schemas of the registry's Avro converter."""


class LifecycleProperties(SettingsModel):
    """`spring.lifecycle.*`."""

    timeout_per_shutdown_phase: Milliseconds = timedelta(seconds=30)
    """How long calls in flight may take when the application stops."""


class InboxProperties(SettingsModel):
    """`streamkit.inbox.*`."""

    idempotent_by: str | None = None
    """The key of all listeners whose decorator says nothing: an expression over the message, such as `payload.id`, or
    `message-id`, the id that its sender gave it. Messages of one key are handled once. Unset: each delivery is
    handled."""
    store: str | None = None
    """Where the marks of handled messages are kept: the name of a registered `SqlMarks` or `RedisMarks`, or `memory`,
    which forgets them when the process ends. An idempotent listener needs it."""
    expiry: Annotated[Seconds, Positive] = timedelta(days=7)
    """How long a mark is kept: a duplicate that comes later is handled again."""
    wait: Seconds = timedelta(seconds=5)
    """How long a message waits for another run that handles its key at this moment; then it comes again as after a
    failure. 0: at once."""
    memory_limit: int = Field(default=100_000, ge=1)
    """The most marks of a listener that the store `memory` keeps; the oldest one makes room."""
    clean_up_interval: Annotated[Seconds, Positive] = timedelta(minutes=1)
    """The pause between two deletions of expired marks, by a listener that has messages."""
    clean_up_slice: int = Field(default=1000, ge=1)
    """How many expired marks are deleted at a time."""


class KeptBindingProperties(SettingsModel):
    """`streamkit.local-store.bindings.<name>.*`."""

    enabled: bool = True
    """Whether messages of this output binding are kept."""
    keep_expression: str | None = None
    """Which messages are kept: an expression over the message as it is sent, such as `headers['kind'] != 'metric'`.
    Unset: all."""
    keep_name: str | None = None
    """The same, as the name of a registered function of the message."""
    max_age: Annotated[Seconds, Positive] | None = None
    """How long a message of this binding is kept; unset: `streamkit.local-store.max-age`."""


class LocalStoreProperties(SettingsModel):
    """`streamkit.local-store.*`."""

    path: str | None = None
    """The file in which messages are kept that cannot be sent because the messaging system is away or busy. Unset: none
    are kept, and their send fails. One process has the file open. Messages of a binder in memory are kept in memory."""
    max_count: int = Field(default=100_000, ge=1)
    """The most messages in the file; further sends fail as without it."""
    max_size: Annotated[DataSize, Field(ge=1)] = 256 << 20
    """The most bytes of messages in it, such as `256MB`; further sends fail as without it."""
    max_age: Annotated[Seconds, Positive] = timedelta(days=7)
    """How long a message is kept. Then it is given up, and reported to the error channels."""
    rate: int = Field(default=1000, ge=1)
    """The most kept messages that a binding sends in a second."""
    retry_interval: Annotated[Seconds, Positive] = timedelta(seconds=1)
    """The pause until kept messages are tried again; it doubles while none gets through."""
    max_retry_interval: Annotated[Seconds, Positive] = timedelta(seconds=30)
    """The longest such pause."""
    bindings: dict[str, KeptBindingProperties] = Field(default_factory=dict)
    """Settings of single output bindings."""

    def of(self, binding: str) -> KeptBindingProperties:
        """Return the settings of an output binding."""
        found = (own for name, own in self.bindings.items() if uniform(name) == uniform(binding))
        return next(found, KeptBindingProperties())


class ManagementServerProperties(SharedSettingsModel):
    """`management.server.*`."""

    port: int | None = Field(default=None, ge=-1, le=65535)
    """Where the management endpoints are served; 0 takes a free port; unset or -1: they are not."""
    address: str = "127.0.0.1"
    """The address they are served at. Another one than loopback needs a login: `token`, or `spring.security.user`."""
    base_path: str = ""
    """What comes before `management.endpoints.web.base-path`."""
    allowed_hosts: list[str] = Field(default=[])
    """Names, without scheme and port, that the endpoints are reached by, beside those of this machine itself
    (`localhost`), `address`, and the address that a connection came in at: `ops.example.com`, `*.example.com` for all
    names below it, `*` for any."""
    token: str = ""
    """The token with which programs log in: `Authorization: Bearer …`. It has letters, digits and `-._~+/`."""

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches the endpoints, or they are not served."""
        if self.port is None or self.port < 0:
            return True
        name = self.address.strip("[]").lower()
        try:
            return ip_address(name.partition("%")[0]).is_loopback
        except ValueError:
            return f".{name}".endswith(".localhost")

    @property
    def hosts(self) -> list[str]:
        """The hosts by which the endpoints are reached: `allowed_hosts`, and `address` unless it means all."""
        own = [self.address] if self.address not in _ALL_ADDRESSES else []
        return [*self.allowed_hosts, *own]

    @field_validator("allowed_hosts")
    @classmethod
    def _names(cls, value: list[str]) -> list[str]:
        for host in value:
            if not _HOST.fullmatch(host):
                raise ValueError(
                    f"{host!r} is not a host: expected a name or an address, without scheme and port, such as "
                    "ops.example.com, *.example.com or *"
                )
        return value

    @field_validator("token")
    @classmethod
    def _can_be_sent(cls, value: str) -> str:
        if value and not _TOKEN.fullmatch(value):
            raise ValueError("the token has characters that cannot be sent: expected letters, digits and -._~+/")
        return value


class SecurityUserProperties(SharedSettingsModel):
    """`spring.security.user.*`."""

    name: str = "user"
    """The name with which people and programs log in to the management endpoints, by HTTP's basic authentication."""
    password: str = ""
    """The password, plain or after `{noop}`. Without it nobody logs in by a name; Spring makes one up."""
    roles: list[str] = Field(default=[])
    """The roles that the user has, for `management.endpoint.health.roles`."""

    @property
    def plain_password(self) -> str:
        """The password without its prefix; empty if there is none."""
        return self.password.removeprefix(_PLAIN)

    @field_validator("name")
    @classmethod
    def _has_no_colon(cls, value: str) -> str:
        if ":" in value:
            raise ValueError("a name with a colon cannot be sent: the colon ends it")
        return value

    @field_validator("password")
    @classmethod
    def _is_plain(cls, value: str) -> str:
        if _ENCODED.fullmatch(value) and not value.startswith(_PLAIN):
            raise ValueError(
                f"encoded passwords are not supported: expected a plain one, which may begin with {_PLAIN}"
            )
        return value


class ExposureProperties(SharedSettingsModel):
    """`management.endpoints.web.exposure.*`."""

    include: list[str] = Field(default=["health"])
    """Which endpoints are served: `health`, `bindings`, `metrics`, `prometheus`, those of plugins, or `*`."""
    exclude: list[str] = Field(default=[])
    """Which are not, whatever `include` says."""

    def exposes(self, name: str) -> bool:
        """Return whether an endpoint is served. Case, hyphens and dots in names make no difference, as in Spring."""
        names = {"*", _endpoint_id(name)}
        included = {_endpoint_id(each) for each in self.include or _HEALTH_ONLY}
        return not names.isdisjoint(included) and names.isdisjoint(map(_endpoint_id, self.exclude))


_HEALTH_ONLY: Final = ("health",)


def _endpoint_id(name: str) -> str:
    return re.sub("[-.]", "", name).lower()


class Access(Enum):
    """The operations that an endpoint permits."""

    NONE = "none"
    """No operation: the endpoint does not exist."""
    READ_ONLY = "read-only"
    """Operations that read."""
    UNRESTRICTED = "unrestricted"
    """Operations that read and operations that change something."""


_ACCESSES: Final = tuple(Access)
_NOT_BOTH: Final = "set enabled or access, not both: they say the same, enabled in Spring Boot's older words"


class EndpointProperties(SharedSettingsModel):
    """`management.endpoint.<name>.*`."""

    enabled: bool | None = None
    """Whether there is the endpoint: the older spelling of `access`, `unrestricted` or `none`."""
    access: Access | None = None
    """What may be done by it; unset: `management.endpoints.access.default`."""

    @model_validator(mode="after")
    def _not_both(self) -> Self:
        if self.enabled is not None and self.access is not None:
            raise ValueError(_NOT_BOTH)
        return self


class AccessProperties(SharedSettingsModel):
    """`management.endpoints.access.*`."""

    default: Access | None = None
    """What may be done by endpoints that say nothing of it; unset: `unrestricted`."""
    max_permitted: Access = Access.UNRESTRICTED
    """The most that may be done by any, whatever they say."""


class EndpointsProperties(SharedSettingsModel):
    """`management.endpoints.*`."""

    enabled_by_default: bool | None = None
    """The older spelling of `access.default`, `unrestricted` or `none`."""
    access: AccessProperties = AccessProperties()
    """What may be done by endpoints."""

    def access_to(self, endpoint: EndpointProperties) -> Access:
        """Return which access an endpoint gives: its own setting or the default, limited by `access.max-permitted`."""
        asked = _access(endpoint.enabled, endpoint.access)
        default = _access(self.enabled_by_default, self.access.default)
        return min(asked or default or Access.UNRESTRICTED, self.access.max_permitted, key=_ACCESSES.index)

    @model_validator(mode="after")
    def _not_both(self) -> Self:
        if self.enabled_by_default is not None and self.access.default is not None:
            raise ValueError(_NOT_BOTH)
        return self


def _access(enabled: bool | None, access: Access | None) -> Access | None:
    if enabled is None:
        return access
    return Access.UNRESTRICTED if enabled else Access.NONE


class WebEndpointsProperties(SharedSettingsModel):
    """`management.endpoints.web.*`."""

    base_path: str = "/actuator"
    """The path they are found below."""
    exposure: ExposureProperties = ExposureProperties()
    """Which endpoints are served."""


class Show(Enum):
    """When details are shown."""

    NEVER = "never"
    WHEN_AUTHORIZED = "when-authorized"
    ALWAYS = "always"


class HealthEndpointProperties(EndpointProperties):
    """`management.endpoint.health.*`."""

    show_details: Show | None = None
    """To whom health shows details, `when-authorized` to those who have logged in. Unset: `when-authorized` if there is
    a login, else `always`."""
    show_components: Show | None = None
    """To whom health shows its parts with their status; unset: as `show-details`."""
    roles: list[str] = Field(default=[])
    """With `when-authorized`: the roles of which the user must have one; unset: none. Whoever has the token has all."""


class BindersHealthProperties(SharedSettingsModel):
    """`management.health.binders.*`."""

    enabled: bool | None = None
    """Whether the binders' health counts; unset: `management.health.defaults.enabled`."""


class DefaultHealthProperties(SharedSettingsModel):
    """`management.health.defaults.*`."""

    enabled: bool = True
    """Whether health counts what is not said to count."""


class HealthProperties(SharedSettingsModel):
    """`management.health.*`."""

    binders: BindersHealthProperties = BindersHealthProperties()
    """The binders' health."""
    defaults: DefaultHealthProperties = DefaultHealthProperties()
    """What counts unless something else is said."""


@dataclass(frozen=True, slots=True)
class Group:
    """Settings below one prefix.

    Attributes:
        title: The heading of the group on the reference page.
        prefix: The key below which the settings are.
        model: The model of the settings.
    """

    title: str
    prefix: str
    model: type[BaseModel]


LIFECYCLE: Final = "spring.lifecycle"
MANAGEMENT_SERVER: Final = "management.server"
SECURITY_USER: Final = "spring.security.user"
WEB_ENDPOINTS: Final = "management.endpoints.web"
ENDPOINTS: Final = "management.endpoints"
ENDPOINT: Final = "management.endpoint"
HEALTH_ENDPOINT: Final = f"{ENDPOINT}.health"
HEALTH: Final = "management.health"

INBOX: Final = "streamkit.inbox"
LOCAL_STORE: Final = "streamkit.local-store"

FUNCTION: Final = "spring.cloud.function"
POLLER: Final = "spring.integration.poller"
SCHEMA: Final = "spring.cloud.schema"
SCHEMA_REGISTRY_CLIENT: Final = "spring.cloud.schema-registry-client"

GROUPS: Final = (
    Group("Functions", FUNCTION, CloudFunctionProperties),
    Group("How suppliers are polled", POLLER, PollerProperties),
    Group("The client of a schema registry", SCHEMA_REGISTRY_CLIENT, SchemaRegistryClientProperties),
    Group("The schemas of its converter", SCHEMA, SchemaProperties),
    Group("Stopping", LIFECYCLE, LifecycleProperties),
    Group("Idempotent listeners", INBOX, InboxProperties),
    Group("The local store", LOCAL_STORE, LocalStoreProperties),
    Group("The management server", MANAGEMENT_SERVER, ManagementServerProperties),
    Group("Who logs in to it", SECURITY_USER, SecurityUserProperties),
    Group("Its endpoints", WEB_ENDPOINTS, WebEndpointsProperties),
    Group("What may be done by its endpoints", ENDPOINTS, EndpointsProperties),
    Group("The endpoint `health`", HEALTH_ENDPOINT, HealthEndpointProperties),
    *(
        Group(f"The endpoint `{name}`", f"{ENDPOINT}.{name}", EndpointProperties)
        for name in ("bindings", "metrics", "prometheus")
    ),
    Group("What health counts", HEALTH, HealthProperties),
)
