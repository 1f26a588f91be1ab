"""The options of format ``streamkit``, and the binding that they name.

::

    channel        the binding's name
    application    a running application that publishes its bindings (streamkit.spark.published); without it the
                   settings are read as an application in the driver's directory reads them
    properties     settings files or directories, instead of those in the driver's directory
    profiles       the active profiles

All other options are those of the binder's own format. No option contains secrets: the settings of a cluster are
pickled with the readers and writers, not passed as options.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamkit import StreamApplication
from streamkit.errors import ConfigurationError
from streamkit.spark.publishing import published_channels
from streamkit.spark.snapshot import ChannelSnapshot, snapshot_of

_OWN = {"channel", "application", "properties", "profiles"}
_SPARKS_OWN = {"checkpointlocation", "queryname", "outputmode"}


@dataclass(frozen=True)
class ChannelOptions:
    """A binding, and the other options of a query.

    Attributes:
        channel: The snapshot of the binding, made with the query.
        given: Options of the binder's own format.
    """

    channel: ChannelSnapshot
    given: Mapping[str, str] = field(default_factory=dict)


def channel_options(options: Mapping[str, str]) -> ChannelOptions:
    """Return the binding that the options name.

    Raises:
        ConfigurationError: An option is missing or contradicts another, or there is no such binding.
    """
    own = {name.lower(): value for name, value in options.items() if name.lower() in _OWN}
    given = {name: value for name, value in options.items() if name.lower() not in _OWN | _SPARKS_OWN}
    if not own.get("channel"):
        raise ConfigurationError("option 'channel' is missing: the name of a binding", key="channel")
    return ChannelOptions(_channel(own), given)


def _channel(own: Mapping[str, str]) -> ChannelSnapshot:
    name, application = own["channel"], own.get("application")
    if application is None:
        profiles = own.get("profiles")
        overrides = None if profiles is None else {"spring.profiles.active": profiles}
        return snapshot_of(StreamApplication(config_location=own.get("properties"), properties=overrides), name)
    for other in ("properties", "profiles"):
        if other in own:
            raise ConfigurationError(
                f"options 'application' and {other!r} are both given: a running application has its settings already",
                key=other,
            )
    channels = published_channels(application)
    if name not in channels:
        known = ", ".join(sorted(channels)) or "none"
        raise ConfigurationError(
            f"application {application!r} has no binding {name!r}; it has: {known}", key="channel", value=name
        )
    return channels[name]
