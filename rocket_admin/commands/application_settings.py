"""The cluster of the application in the current directory, as its RocketMQ binder would reach it."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from rocket_admin.commands.found_cluster import FoundCluster
from streamkit.config.environment import Environment
from streamkit.config.origin import Value
from streamkit.errors import ConfigurationError

if TYPE_CHECKING:
    from rocket_admin.application_bindings import ApplicationBinding
    from rocket_client import ClientTls, Credentials

__all__ = ["KEYS", "addresses_at", "bindings_of_application", "cluster_of_application"]

_BINDER: Final = "spring.cloud.stream.rocketmq.binder"
KEYS: Final = (f"{_BINDER}.name-server", "rocketmq.name-server")
"""The settings with the addresses, the stronger first."""

_ACCOUNTS: Final = (_BINDER, "rocketmq.producer")
"""Where the settings `access-key` and `secret-key` are, the stronger first."""
_BINDER_TYPES: Final = ("rocketmq", "kafka", "inmemory")
"""The types whose settings of bindings are not taken for unknown ones."""
_TRUE: Final = frozenset({"true", "1", "on", "yes", "t", "y"})
_FALSE: Final = frozenset({"false", "0", "off", "no", "f", "n"})


def cluster_of_application() -> FoundCluster | None:
    """Return the cluster in the settings of the current directory; None if they name none.

    Raises:
        click.ClickException: A settings file cannot be read, or a setting is wrong.
    """
    try:
        settings = Environment.load()
        for key in KEYS:
            if (found := addresses_at(settings, key)) is not None:
                return FoundCluster(
                    name_servers=str(found),
                    origin=f"{key} at {found.origin}",
                    credentials=_credentials(settings),
                    tls=_tls(settings),
                )
    except ConfigurationError as error:
        raise click.ClickException(
            f"the settings of the application in this directory cannot be read: {error}. Give --name-server."
        ) from error
    return None


def bindings_of_application() -> "tuple[ApplicationBinding, ...]":
    """Return the bindings in the settings of the current directory, sorted by name.

    Raises:
        click.ClickException: The settings are wrong.
    """
    from rocket_admin.application_bindings import ApplicationBinding
    from streamkit.config.settings import StreamSettings

    try:
        stream = StreamSettings.explain(Environment.load(), _BINDER_TYPES).value
        names = sorted(stream.bindings)
        bindings = [(name, stream.binding(name)) for name in names]
    except ConfigurationError as error:
        raise click.ClickException(
            f"the bindings of the application in this directory cannot be read: {error}. Give --name-server."
        ) from error
    return tuple(
        ApplicationBinding(
            binding=name,
            topics=tuple(topic.strip() for topic in (binding.destination or name).split(",")),
            group=binding.group,
        )
        for name, binding in bindings
    )


def _credentials(settings: Environment) -> "Credentials | None":
    access_key, secret_key = (
        next(filter(None, (settings.text(f"{prefix}.{name}") for prefix in _ACCOUNTS)), None)
        for name in ("access-key", "secret-key")
    )
    if access_key is None and secret_key is None:
        return None
    if access_key is None or secret_key is None:
        missing = "access-key" if access_key is None else "secret-key"
        raise click.ClickException(f"the application here signs its requests: set {_BINDER}.{missing}, too")
    from rocket_client import Credentials

    return Credentials(access_key, secret_key)


def _tls(settings: Environment) -> "ClientTls | None":
    """Return how the application encrypts its connections; None if it does not."""
    if not _is_true(settings, f"{_BINDER}.use-tls", default=False):
        return None
    from rocket_client import ClientTls
    from rocket_remoting.tls.properties import client_tls_of_file

    below = f"{_BINDER}.tls"
    if (file := settings.text(f"{below}.config-file")) is not None:
        return client_tls_of_file(Path(file))

    def path(name: str) -> Path | None:
        text = settings.text(f"{below}.{name}")
        return None if text is None else Path(text)

    return ClientTls(
        trust_certificates=path("trust-cert-path"),
        certificate=path("cert-path"),
        key=path("key-path"),
        key_password=settings.text(f"{below}.key-password"),
        verify=_is_true(settings, f"{below}.auth-server", default=True),
        check_host_name=_is_true(settings, f"{below}.check-host-name", default=True),
    )


def _is_true(settings: Environment, key: str, *, default: bool) -> bool:
    found = settings.get(key)
    if found is None:
        return default
    text = str(found).strip().lower()
    if text not in _TRUE | _FALSE:
        raise click.ClickException(f"{key} at {found.origin} is {str(found)!r}: expected true or false")
    return text in _TRUE


def addresses_at(settings: Environment, key: str) -> Value | None:
    """Return the addresses that a key sets as one text or as a list, with where the first is set; None if it does not.

    Raises:
        ConfigurationError: A placeholder in them cannot be replaced.
    """
    found = settings.get(key)
    if found is not None:
        return found
    listed: list[Value] = []
    while (item := settings.get(f"{key}[{len(listed)}]")) is not None:
        listed.append(item)
    return Value(";".join(map(str, listed)), listed[0].origin, key) if listed else None
