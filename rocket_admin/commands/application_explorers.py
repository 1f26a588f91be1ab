"""What the application in the current directory uses: RocketMQ or not, and what can be looked at of other systems."""

import logging
import sys
from collections.abc import Mapping, Sequence

import click
import msgspec

from streamkit.binder.exploring import Explorer
from streamkit.config.environment import Environment
from streamkit.errors import ConfigurationError

__all__ = ["UsedSystems", "systems_of_application"]

_OF_APPLICATIONS = ("spring.cloud.stream", "spring.cloud.function", "rocketmq")


class UsedSystems(msgspec.Struct, frozen=True, kw_only=True):
    """The messaging systems that the bindings of an application use, as its settings name them.

    Attributes:
        needs_rocketmq: Whether a binding uses RocketMQ, or none is named, so that the code may have some that do.
        explorers: What looks at the others, by the names of their binders.
        problems: Why the application would not start with its settings, so that they say nothing about its binders.
    """

    needs_rocketmq: bool = True
    explorers: Mapping[str, Explorer] = msgspec.field(default_factory=dict)
    problems: Sequence[str] = ()


def systems_of_application() -> UsedSystems:
    """Return the messaging systems of the application in the current directory; RocketMQ alone without settings.

    Raises:
        click.ClickException: The settings cannot be read.
    """
    try:
        if not any(Environment.load().sets_below(prefix) for prefix in _OF_APPLICATIONS):
            return UsedSystems()
        # What the framework would log about settings is said by `streamkit config report`.
        logging.getLogger("streamkit").addHandler(logging.NullHandler())
        # Settings name classes of the application, which are imported from here.
        sys.path.insert(0, ".")
        try:
            return _read()
        finally:
            sys.path.remove(".")
    except ConfigurationError as error:
        raise click.ClickException(
            f"the settings of the application in this directory cannot be read: {error}. Give --name-server."
        ) from error


def _read() -> UsedSystems:
    # These are slow to import, and needed only where there is an application.
    from streamkit.plugins.application_plugins import ApplicationPlugins
    from streamkit.running.rehearsal import rehearse_settings

    plugins = ApplicationPlugins()
    start = rehearse_settings(Environment.load(more_sources=plugins.settings_sources), plugins)
    if start.problems:
        return UsedSystems(problems=tuple(map(str, start.problems)))
    binders = {binding.binder.binder.name: binding.binder.binder for binding in start.bindings}
    explorers = {name: explorer for name, binder in binders.items() if (explorer := binder.explorer()) is not None}
    is_rocketmq = any(binder.type == "rocketmq" for binder in binders.values())
    return UsedSystems(needs_rocketmq=is_rocketmq or not binders, explorers=explorers)
