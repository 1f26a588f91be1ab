"""The name servers of the application in the current directory, as its RocketMQ binder would find them."""

from typing import Final

import click

from streamkit.config.environment import Environment
from streamkit.config.origin import Value
from streamkit.errors import ConfigurationError

__all__ = ["name_servers_of_application"]

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
            found = settings.get(key)
            if found is not None:
                return str(found), f"{key} at {found.origin}"
            listed: list[Value] = []
            while (item := settings.get(f"{key}[{len(listed)}]")) is not None:
                listed.append(item)
            if listed:
                return ";".join(map(str, listed)), f"{key} at {listed[0].origin}"
    except ConfigurationError as error:
        raise click.ClickException(
            f"the settings of the application in this directory cannot be read: {error}. Give --name-server."
        ) from error
    return None
