"""Shell completion of the names of topics, groups and brokers: it asks the cluster, for a second at most.

A shell waits for this while the user types. So nothing is printed, and a cluster that cannot be asked offers nothing.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from rocket_client import Admin

__all__ = ["broker_argument", "brokers_option", "group_argument", "topic_argument"]

C = TypeVar("C", bound=Callable[..., Any])

SECONDS: Final = 1.0
MOST: Final = 200
"""Names that are offered; a shell that lists more is of no help."""


def topic_argument(name: str = "topic", **more: Any) -> Callable[[C], C]:
    """Return the decorator for an argument that is the name of a topic."""
    return click.argument(name, shell_complete=complete_topics, **more)


def group_argument(name: str = "group", **more: Any) -> Callable[[C], C]:
    """Return the decorator for an argument that is the name of a group."""
    return click.argument(name, shell_complete=complete_groups, **more)


def broker_argument(name: str = "broker", **more: Any) -> Callable[[C], C]:
    """Return the decorator for an argument that is the name of a broker."""
    return click.argument(name, shell_complete=complete_brokers, **more)


def brokers_option(command: C) -> C:
    """Add `--broker`, which may be repeated, to a command, which gets the names as its argument `brokers`."""
    return click.option(
        "--broker",
        "brokers",
        multiple=True,
        metavar="NAME",
        shell_complete=complete_brokers,
        help="On this broker only; may be repeated.",
    )(command)


def complete_topics(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the topics that begin with `incomplete`; those of applications, until it begins as another one does."""

    async def ask(admin: "Admin") -> Iterable[str]:
        return await admin.topics()

    return _offered(context, incomplete, ask)


def complete_groups(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the groups that begin with `incomplete`."""

    async def ask(admin: "Admin") -> Iterable[str]:
        from rocket_admin.groups import group_names

        return (await group_names(admin)).names

    return _offered(context, incomplete, ask)


def complete_brokers(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of brokers that begin with `incomplete`."""

    async def ask(admin: "Admin") -> Iterable[str]:
        return (await admin.cluster_info()).broker_addr_table

    return _offered(context, incomplete, ask)


def _offered(context: click.Context, incomplete: str, ask: "Callable[[Admin], Awaitable[Iterable[str]]]") -> list[str]:
    import asyncio
    import logging

    from rocket_admin.commands.connection_options import cluster_of
    from rocket_remoting.wire.topics import is_system_topic

    async def bounded(admin: "Admin") -> Iterable[str]:
        async with asyncio.timeout(SECONDS):
            return await ask(admin)

    disabled = logging.root.manager.disable
    logging.disable()
    try:
        names = cluster_of(context).run(bounded)
    except (click.ClickException, TimeoutError, OSError):
        return []
    finally:
        logging.disable(disabled)
    fitting = (name for name in names if name.startswith(incomplete))
    return sorted(name for name in fitting if incomplete or not (name.startswith("%") or is_system_topic(name)))[:MOST]
