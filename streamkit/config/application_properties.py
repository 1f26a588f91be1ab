"""The settings of an application outside of `spring.cloud.stream`, with Spring Boot's names.

`GROUPS` lists them for the report of settings and for the reference page, which need all settings.
"""

import re
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from streamkit.config.durations import Milliseconds
from streamkit.config.function_properties import CloudFunctionProperties, PollerProperties
from streamkit.config.setting_limits import Accepted, Rejected
from streamkit.config.settings_model import SettingsModel, ShownWithoutSecrets

_ALL_ADDRESSES: Final = ("", "0.0.0.0", "::")
_HOST: Final = re.compile(r"\*|(?:\*\.)?[\w-]+(?:\.[\w-]+)*|\[?[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*\]?", re.ASCII)
NO_REGISTRY: Final = Rejected(
    "there is no schema registry client; pass an AvroConverter with schemas, or a converter of your own, to"
    " StreamApplication(converters=[…])"
)
_NO_LOGIN = Accepted("there is no login: details are shown always, or never")


class SharedSettingsModel(ShownWithoutSecrets):
    """Settings below a prefix that other software uses too. Unknown keys are ignored: they may belong to that."""

    model_config = ConfigDict(extra="ignore", frozen=True, use_attribute_docstrings=True)


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


class ManagementServerProperties(SharedSettingsModel):
    """`management.server.*`."""

    port: int | None = Field(default=None, ge=-1, le=65535)
    """Where the management endpoints are served; 0 takes a free port; unset or -1: they are not."""
    address: str = "127.0.0.1"
    """The address they are served at; others than this machine reach them only when it is not loopback."""
    base_path: str = ""
    """What comes before `management.endpoints.web.base-path`."""
    allowed_hosts: list[str] = Field(default=[])
    """Names, without scheme and port, that the endpoints are reached by, beside those of this machine itself
    (`localhost`), `address`, and the address that a connection came in at: `ops.example.com`, `*.example.com` for all
    names below it, `*` for any."""

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


class ExposureProperties(SharedSettingsModel):
    """`management.endpoints.web.exposure.*`."""

    include: list[str] = Field(default=["health"])
    """Which endpoints are served: `health`, `bindings`, `metrics`, `prometheus`, those of plugins, or `*`."""
    exclude: list[str] = Field(default=[])
    """Which are not, whatever `include` says."""


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

    show_details: Annotated[Show, Accepted(_NO_LOGIN.reason, only=(Show.WHEN_AUTHORIZED,))] = Show.ALWAYS
    """Whether health tells more than the status."""


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
WEB_ENDPOINTS: Final = "management.endpoints.web"
ENDPOINTS: Final = "management.endpoints"
ENDPOINT: Final = "management.endpoint"
HEALTH_ENDPOINT: Final = f"{ENDPOINT}.health"
HEALTH: Final = "management.health"

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
    Group("The management server", MANAGEMENT_SERVER, ManagementServerProperties),
    Group("Its endpoints", WEB_ENDPOINTS, WebEndpointsProperties),
    Group("What may be done by its endpoints", ENDPOINTS, EndpointsProperties),
    Group("The endpoint `health`", HEALTH_ENDPOINT, HealthEndpointProperties),
    *(
        Group(f"The endpoint `{name}`", f"{ENDPOINT}.{name}", EndpointProperties)
        for name in ("bindings", "metrics", "prometheus")
    ),
    Group("What health counts", HEALTH, HealthProperties),
)
