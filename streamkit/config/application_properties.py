"""The settings of an application outside of `spring.cloud.stream`, with Spring Boot's names.

`GROUPS` lists them for the report of settings and for the reference page, which need all settings. The model of a group
is imported when it is needed: most applications and commands need few.
"""

from datetime import timedelta
from importlib import import_module
from typing import Annotated, Final

import msgspec

from streamkit.config.durations import Milliseconds
from streamkit.config.setting_limits import Rejected
from streamkit.config.settings_model import SettingsModel, SharedSettingsModel, setting
from streamkit.log_format import LogFormat

NO_REGISTRY: Final = Rejected(
    "there is no schema registry client; pass an AvroConverter with schemas, or a converter of your own, to"
    " StreamApplication(converters=[…])"
)


class SchemaRegistryClientProperties(SharedSettingsModel):
    """`spring.cloud.schema-registry-client.*`."""

    endpoint: Annotated[str | None, NO_REGISTRY] = None
    """The address of the schema registry."""
    cached: Annotated[bool, NO_REGISTRY] = False
    """Whether the registry's answers are cached."""


class SchemaProperties(SharedSettingsModel):
    """`spring.cloud.schema.*`."""

    avro: Annotated[dict[str, str], NO_REGISTRY] = setting(default_factory=dict)
    """The schemas of the registry's Avro converter."""


class LoggingProperties(SettingsModel):
    """`streamkit.logging.*`."""

    format: LogFormat | None = None
    """The format of the log of `streamkit run`: `text`, or `json` for a JSON object on each line. The option
    `--log-format` takes precedence. Unset: `text`. A program that calls `app.run()` formats its log itself."""


class LifecycleProperties(SettingsModel):
    """`spring.lifecycle.*`."""

    timeout_per_shutdown_phase: Milliseconds = timedelta(seconds=30)
    """How long the stop of the application waits for calls in flight."""


class Group(msgspec.Struct, frozen=True):
    """Settings below one prefix.

    Attributes:
        title: The heading of the group on the reference page.
        prefix: The key below which the settings are.
        name: The module of the model, and its name there.
    """

    title: str
    prefix: str
    name: str

    @property
    def model(self) -> type[SettingsModel]:
        """The model of the settings."""
        module, _, name = self.name.partition(":")
        found: type[SettingsModel] = getattr(import_module(f"streamkit.config.{module}"), name)
        return found


LIFECYCLE: Final = "spring.lifecycle"
LOGGING: Final = "streamkit.logging"
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
    Group("Functions", FUNCTION, "function_properties:CloudFunctionProperties"),
    Group("Polling of suppliers", POLLER, "function_properties:PollerProperties"),
    Group(
        "The client of a schema registry",
        SCHEMA_REGISTRY_CLIENT,
        "application_properties:SchemaRegistryClientProperties",
    ),
    Group("The schemas of the registry's converter", SCHEMA, "application_properties:SchemaProperties"),
    Group("Stopping", LIFECYCLE, "application_properties:LifecycleProperties"),
    Group("The log of `streamkit run`", LOGGING, "application_properties:LoggingProperties"),
    Group("Idempotent listeners", INBOX, "pattern_properties:InboxProperties"),
    Group("The local store", LOCAL_STORE, "pattern_properties:LocalStoreProperties"),
    Group("The management server", MANAGEMENT_SERVER, "management_properties:ManagementServerProperties"),
    Group("The user of the management server", SECURITY_USER, "management_properties:SecurityUserProperties"),
    Group("The management endpoints", WEB_ENDPOINTS, "management_properties:WebEndpointsProperties"),
    Group("Access to the management endpoints", ENDPOINTS, "management_properties:EndpointsProperties"),
    Group("The endpoint `health`", HEALTH_ENDPOINT, "management_properties:HealthEndpointProperties"),
    *(
        Group(f"The endpoint `{name}`", f"{ENDPOINT}.{name}", "management_properties:EndpointProperties")
        for name in ("bindings", "metrics", "prometheus")
    ),
    Group("The components of health", HEALTH, "management_properties:HealthProperties"),
)
