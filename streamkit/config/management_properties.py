"""The settings of the management endpoints, and of those who log in to them, with Spring Boot's names."""

import re
from enum import Enum
from ipaddress import ip_address
from typing import Annotated, Final

from streamkit.config.setting_values import After
from streamkit.config.settings_model import SharedSettingsModel, setting

_ALL_ADDRESSES: Final = ("", "0.0.0.0", "::")
_HOST: Final = re.compile(r"\*|(?:\*\.)?[\w-]+(?:\.[\w-]+)*|\[?[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*\]?", re.ASCII)
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_ENCODED: Final = re.compile(r"\{.+\}.*", re.DOTALL)
_PLAIN: Final = "{noop}"
"""The prefix of a plain password, as Spring Security has prefixes for encoded ones."""


def _checked_hosts(listed: list[str]) -> list[str]:
    for host in listed:
        if not _HOST.fullmatch(host):
            raise ValueError(
                f"{host!r} is not a host: expected a name or an address, without scheme and port, such as "
                "ops.example.com, *.example.com or *"
            )
    return listed


def _checked_token(text: str) -> str:
    if text and not _TOKEN.fullmatch(text):
        raise ValueError("the token has characters that cannot be sent: expected letters, digits and -._~+/")
    return text


class ManagementServerProperties(SharedSettingsModel):
    """`management.server.*`."""

    port: int | None = setting(default=None, ge=-1, le=65535)
    """The port of the management endpoints. 0: a free port. Unset or -1: they are not served."""
    address: str = "127.0.0.1"
    """The address at which the endpoints are served. An address other than loopback requires a login: `token` or
    `spring.security.user`."""
    base_path: str = ""
    """The path in front of `management.endpoints.web.base-path`."""
    allowed_hosts: Annotated[list[str], After(_checked_hosts)] = setting(default=[])
    """Further host names, without scheme and port, that requests may name: `ops.example.com`, `*.example.com` for all
    names below it, `*` for any. Always allowed are this machine's own names (`localhost`), `address`, and the address
    that a connection came in at."""
    token: Annotated[str, After(_checked_token)] = ""
    """The token with which programs log in: `Authorization: Bearer …`. It may have letters, digits and `-._~+/`."""

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


def _checked_name(text: str) -> str:
    if ":" in text:
        raise ValueError("a name with a colon cannot be sent: the colon ends it")
    return text


def _checked_password(text: str) -> str:
    if _ENCODED.fullmatch(text) and not text.startswith(_PLAIN):
        raise ValueError(f"encoded passwords are not supported: expected a plain one, which may begin with {_PLAIN}")
    return text


class SecurityUserProperties(SharedSettingsModel):
    """`spring.security.user.*`."""

    name: Annotated[str, After(_checked_name)] = "user"
    """The name with which people and programs log in to the management endpoints, by HTTP's basic authentication."""
    password: Annotated[str, After(_checked_password)] = ""
    """The password, plain or after `{noop}`. Without it nobody can log in by name; Spring would generate one."""
    roles: list[str] = setting(default=[])
    """The user's roles, for `management.endpoint.health.roles`."""

    @property
    def plain_password(self) -> str:
        """The password without its prefix; empty if there is none."""
        return self.password.removeprefix(_PLAIN)


class ExposureProperties(SharedSettingsModel):
    """`management.endpoints.web.exposure.*`."""

    include: list[str] = setting(default=["health"])
    """The endpoints that are served: `health`, `bindings`, `metrics`, `prometheus`, those of plugins, or `*` for
    all."""
    exclude: list[str] = setting(default=[])
    """The endpoints that are not served, even if `include` lists them."""

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
    """The older spelling of `access`: true is `unrestricted`, false is `none`."""
    access: Access | None = None
    """The operations that the endpoint permits. Unset: `management.endpoints.access.default`."""

    def _check(self) -> None:
        """Refuse both spellings at once."""
        if self.enabled is not None and self.access is not None:
            raise ValueError(_NOT_BOTH)


class AccessProperties(SharedSettingsModel):
    """`management.endpoints.access.*`."""

    default: Access | None = None
    """The operations that an endpoint permits if its own `access` is unset. Unset: `unrestricted`."""
    max_permitted: Access = Access.UNRESTRICTED
    """The most that any endpoint permits, whatever its own `access`."""


class EndpointsProperties(SharedSettingsModel):
    """`management.endpoints.*`."""

    enabled_by_default: bool | None = None
    """The older spelling of `access.default`: true is `unrestricted`, false is `none`."""
    access: AccessProperties = setting(default_factory=AccessProperties)
    """What may be done by endpoints."""

    def access_to(self, endpoint: EndpointProperties) -> Access:
        """Return which access an endpoint gives: its own setting or the default, limited by `access.max-permitted`."""
        asked = _access(endpoint.enabled, endpoint.access)
        default = _access(self.enabled_by_default, self.access.default)
        return min(asked or default or Access.UNRESTRICTED, self.access.max_permitted, key=_ACCESSES.index)

    def _check(self) -> None:
        """Refuse both spellings at once."""
        if self.enabled_by_default is not None and self.access.default is not None:
            raise ValueError(_NOT_BOTH)


def _access(enabled: bool | None, access: Access | None) -> Access | None:
    if enabled is None:
        return access
    return Access.UNRESTRICTED if enabled else Access.NONE


class WebEndpointsProperties(SharedSettingsModel):
    """`management.endpoints.web.*`."""

    base_path: str = "/actuator"
    """The path below which the endpoints are served."""
    exposure: ExposureProperties = setting(default_factory=ExposureProperties)
    """Which endpoints are served."""


class Show(Enum):
    """When details are shown."""

    NEVER = "never"
    WHEN_AUTHORIZED = "when-authorized"
    ALWAYS = "always"


class HealthEndpointProperties(EndpointProperties):
    """`management.endpoint.health.*`."""

    show_details: Show | None = None
    """Who sees the details of health. `when-authorized`: those who have logged in. Unset: `when-authorized` if a login
    is configured, else `always`."""
    show_components: Show | None = None
    """Who sees the components of health with their status. Unset: as `show-details`."""
    roles: list[str] = setting(default=[])
    """With `when-authorized`: roles of which the user must have one. Unset: no role is required. The token has all
    roles."""


class BindersHealthProperties(SharedSettingsModel):
    """`management.health.binders.*`."""

    enabled: bool | None = None
    """Whether the binders count for health. Unset: `management.health.defaults.enabled`."""


class DefaultHealthProperties(SharedSettingsModel):
    """`management.health.defaults.*`."""

    enabled: bool = True
    """Whether a component counts for health if no setting of its own says so."""


class HealthProperties(SharedSettingsModel):
    """`management.health.*`."""

    binders: BindersHealthProperties = setting(default_factory=BindersHealthProperties)
    """The binders' health."""
    defaults: DefaultHealthProperties = setting(default_factory=DefaultHealthProperties)
    """What counts unless something else is said."""
