"""The name servers of the application in the current directory, as its RocketMQ binder would find them."""

from typing import Final

import click

from streamkit.config.environment import Environment
from streamkit.config.origin import Value
from streamkit.errors import ConfigurationError

__all__ = ["KEYS", "addresses_at", "name_servers_of_application"]

KEYS: Final = ("spring.cloud.stream.rocketmq.binder.name-server", "rocketmq.name-server")
"""The settings with the addresses, the stronger first."""


def name_servers_of_application() -> tuple[str, str] | None:
    """Return the addresses in the settings of the current directory, and where they are set; None if they are not.

    Raises:
        click.ClickException: A settings file cannot be read.
    """
    try:
        settings = Environment.load()
        for key in KEYS:
            if (found := addresses_at(settings, key)) is not None:
                return str(found), f"{key} at {found.origin}"
    except ConfigurationError as error:
        raise click.ClickException(
            f"the settings of the application in this directory cannot be read: {error}. Give --name-server."
        ) from error
    return None


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
