"""The settings of an application that stand beside `spring.cloud.stream`, with Spring Boot's names.

`GROUPS` lists them for what must know all settings: the report, and the reference page.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from streamkit.config.durations import Milliseconds
from streamkit.config.function_properties import CloudFunctionProperties, PollerProperties
from streamkit.config.settings_model import SettingsModel, ShownWithoutSecrets
from streamkit.config.support import Accepted

_NO_LOGIN = Accepted("nobody logs in here: details are shown always, or never")


class SharedSettingsModel(ShownWithoutSecrets):
    """Settings below a prefix where others have theirs too: what is not known is left to them."""

    model_config = ConfigDict(extra="ignore", frozen=True, use_attribute_docstrings=True)


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


class ExposureProperties(SharedSettingsModel):
    """`management.endpoints.web.exposure.*`."""

    include: list[str] = Field(default=["health"])
    """Which endpoints are served: `health`, `bindings`, `metrics`, `prometheus`, or `*`."""
    exclude: list[str] = Field(default=[])
    """Which are not, whatever `include` says."""


class WebEndpointsProperties(SharedSettingsModel):
    """`management.endpoints.web.*`."""

    base_path: str = "/actuator"
    """The path they are found below."""
    exposure: ExposureProperties = ExposureProperties()
    """Which endpoints are served."""


class Show(Enum):
    """Who is shown something."""

    NEVER = "never"
    WHEN_AUTHORIZED = "when-authorized"
    ALWAYS = "always"


class HealthEndpointProperties(SharedSettingsModel):
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
        title: What they are about.
        prefix: The prefix.
        model: What they are.
    """

    title: str
    prefix: str
    model: type[BaseModel]


LIFECYCLE: Final = "spring.lifecycle"
MANAGEMENT_SERVER: Final = "management.server"
WEB_ENDPOINTS: Final = "management.endpoints.web"
HEALTH_ENDPOINT: Final = "management.endpoint.health"
HEALTH: Final = "management.health"

FUNCTION: Final = "spring.cloud.function"
POLLER: Final = "spring.integration.poller"

GROUPS: Final = (
    Group("Functions", FUNCTION, CloudFunctionProperties),
    Group("How suppliers are polled", POLLER, PollerProperties),
    Group("Stopping", LIFECYCLE, LifecycleProperties),
    Group("The management server", MANAGEMENT_SERVER, ManagementServerProperties),
    Group("Its endpoints", WEB_ENDPOINTS, WebEndpointsProperties),
    Group("What health shows", HEALTH_ENDPOINT, HealthEndpointProperties),
    Group("What health counts", HEALTH, HealthProperties),
)
