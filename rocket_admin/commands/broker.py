"""The subcommands of `streamkit broker`, which administer brokers that run; without one it starts a broker."""

from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import click

from rocket_admin.commands.completion import broker_argument, complete_groups
from rocket_admin.commands.confirmation import confirm, yes_option
from rocket_admin.commands.connection_options import ClusterConnection, connection_options
from rocket_admin.commands.output import Column, Output, json_option, output_options

if TYPE_CHECKING:
    from rocket_admin.brokers import Backlog, Broker, Draining
    from rocket_client import Admin

__all__ = ["BROKERS", "add_perm", "config", "drain", "list_", "show", "wipe_perm"]


@click.command("list", short_help="List all brokers.")
@connection_options
@output_options
def list_(*, cluster: ClusterConnection, output: Output) -> None:
    """List the brokers of all clusters with their versions, rates and disks."""

    async def print_(admin: "Admin") -> None:
        from rocket_admin.brokers import list_brokers

        found = await list_brokers(admin)
        output.table(found.brokers, BROKERS)
        output.failures(found.failures, "it did not answer")

    cluster.show(print_, output)


@click.command(short_help="Show a broker's own figures.")
@broker_argument("name", metavar="BROKER")
@click.argument("pattern", default="*")
@connection_options
@output_options
def show(*, name: str, pattern: str, cluster: ClusterConnection, output: Output) -> None:
    """Show the figures that BROKER reports about itself, by Apache's names; all, or those that match PATTERN."""

    async def print_(admin: "Admin") -> None:
        from rocket_admin.brokers import show_broker

        found = await show_broker(admin, name)
        matching = {figure: value for figure, value in found.items() if fnmatchcase(figure, pattern)}
        output.facts(matching, matching.items())

    cluster.show(print_, output)


@click.command(short_help="Show or change a broker's settings.")
@broker_argument("name", metavar="BROKER")
@click.argument("pattern", default="*")
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change a setting; may be repeated.")
@connection_options
@json_option
@yes_option
def config(
    *,
    name: str,
    pattern: str,
    changes: tuple[str, ...],
    cluster: ClusterConnection,
    output: Output,
    is_sure: bool,
) -> None:
    """Show the settings of BROKER, or only those that match PATTERN; change them with --set.

    A change applies at once, and is written into the broker's file if it was started with one.
    """
    pairs = dict(change.split("=", 1) for change in changes if "=" in change)
    if len(pairs) < len(changes):
        raise click.UsageError("write each setting as --set KEY=VALUE, and each key once")

    async def read(admin: "Admin") -> dict[str, str]:
        (address,) = (await admin.masters([name])).values()
        return await admin.broker_config(address)

    before = cluster.run(read)
    if not pairs:
        matching = {key: value for key, value in sorted(before.items()) if fnmatchcase(key, pattern)}
        output.facts(matching, matching.items())
        return
    unknown = [key for key in pairs if key not in before]
    if unknown:
        raise click.ClickException(f"broker {name} has no setting {unknown[0]}; without --set it shows all")
    for key, value in pairs.items():
        output.say(f"{key}: {before[key] or '(empty)'} → {value or '(empty)'}")
    confirm(f"Change broker {name}?", is_sure=is_sure)

    async def change(admin: "Admin") -> dict[str, str]:
        (address,) = (await admin.masters([name])).values()
        await admin.update_broker_config(address, pairs)
        return await admin.broker_config(address)

    after = cluster.run(change)
    kept = [key for key, value in pairs.items() if after.get(key) != value]
    if kept:
        raise click.ClickException(f"broker {name} accepted the request, but {', '.join(kept)} did not change")
    output.facts({key: after[key] for key in pairs}, ())
    output.say(f"Changed broker {name}.")


@click.command("wipe-perm", short_help="Remove a broker's write permission.")
@broker_argument("name", metavar="BROKER")
@connection_options
@json_option
@yes_option
def wipe_perm(*, name: str, cluster: ClusterConnection, output: Output, is_sure: bool) -> None:
    """Remove the write permission of BROKER from all routes: producers choose other brokers within 30 seconds.

    Consumers continue. The broker itself still accepts messages. A restart of the broker restores the permission, and a
    topic that is created or changed on it can be written to again.
    """
    others = cluster.run(lambda admin: _others(admin, name))
    alone = "" if others else " It is the only one: nothing could be sent any more."
    confirm(f"Take the write permission of broker {name} away?{alone}", is_sure=is_sure)
    topics = cluster.run(lambda admin: admin.wipe_write_perm(name))
    text = f"Broker {name}: {topics:,} topic(s) cannot be written to. Undo: streamkit broker add-perm {name}"
    output.done(text, broker=name, topics=topics)


@click.command("add-perm", short_help="Restore a broker's write permission.")
@broker_argument("name", metavar="BROKER")
@connection_options
@json_option
def add_perm(*, name: str, cluster: ClusterConnection, output: Output) -> None:
    """Restore the write permission of BROKER in all routes."""
    cluster.run(lambda admin: _others(admin, name))
    topics = cluster.run(lambda admin: admin.add_write_perm(name))
    output.done(f"Broker {name}: {topics:,} topic(s) can be written to.", broker=name, topics=topics)


@click.command(short_help="Empty a broker before it is removed.")
@broker_argument("name", metavar="BROKER")
@click.option(
    "--every", type=click.FloatRange(min=0.05), default=5.0, show_default=True, help="Seconds between two checks."
)
@click.option("--timeout", type=click.FloatRange(min=0), help="Give up after this many seconds.")
@click.option(
    "--without",
    multiple=True,
    metavar="GROUP",
    shell_complete=complete_groups,
    help="Do not wait for this group; may be repeated.",
)
@connection_options
@json_option
@yes_option
def drain(
    *,
    name: str,
    every: float,
    timeout: float | None,
    without: tuple[str, ...],
    cluster: ClusterConnection,
    output: Output,
    is_sure: bool,
) -> None:
    """Empty BROKER before it is removed: remove its write permission, and wait until everything is consumed.

    It counts as empty when no message has arrived between two checks, no message waits for a delay level, and no group
    has a message to consume there. Other timed messages are not checked. The exit status is 1 if the broker is not
    empty in time.
    """
    others = cluster.run(lambda admin: _others(admin, name))
    alone = "" if others else " It is the only one: nothing could be sent any more."
    confirm(f"Take the write permission of broker {name} away, and wait until it is empty?{alone}", is_sure=is_sure)

    async def empty(admin: "Admin") -> bool:
        import asyncio

        from rocket_admin.brokers import drain as emptied

        topics = await admin.wipe_write_perm(name)
        output.say(f"{topics:,} topic(s) of broker {name} cannot be written to. Undo: streamkit broker add-perm {name}")
        before: Draining | None = None
        try:
            async with asyncio.timeout(timeout):
                async for state in emptied(admin, name, every=every, without=without):
                    if output.as_json:
                        output.json(state)
                    elif state != before:
                        _report(state, output)
                    before = state
        except TimeoutError:
            return False
        return True

    if not cluster.run(empty):
        raise click.ClickException(
            f"broker {name} is not empty after {timeout:g} s, and its topics still cannot be written to: run the "
            f"command again to wait on, or undo it with `streamkit broker add-perm {name}`"
        )
    output.say(f"Broker {name} is empty: it can be stopped.")


def _report(state: "Draining", output: Output) -> None:
    counts = {
        "arrived": state.arriving,
        "delayed": state.delayed,
        "transactions open": state.transactions,
        "groups behind": len(state.backlogs),
    }
    output.say(f"{', '.join(f'{number:,} {what}' for what, number in counts.items() if number is not None)}.")
    if state.backlogs:
        output.table(state.backlogs, _BACKLOGS)
    for backlog in state.backlogs:
        if not backlog.members:
            name = backlog.group
            output.hint(f"Nobody consumes as {name}: start a member, or leave it out with --without {name}.")


async def _others(admin: "Admin", name: str) -> list[str]:
    """Return the other brokers.

    Raises:
        ValueError: No master of the broker is registered.
    """
    await admin.masters([name])
    return [broker for broker in await admin.masters() if broker != name]


def _rate(value: float | None) -> str | None:
    return None if value is None else f"{value:,.1f}"


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{share:.0%}"


def _age(started: datetime | None) -> str | None:
    """Return how long ago a time was, by its two largest units."""
    if started is None:
        return None
    minutes = max(0, int((datetime.now(UTC) - started).total_seconds())) // 60
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days}d {hours}h" if days else f"{hours}h {minutes}m"


BROKERS: "list[Column[Broker]]" = [
    Column(title="BROKER", text=lambda broker: broker.broker, may_wrap=True),
    Column(title="ID", text=lambda broker: broker.broker_id, is_number=True),
    Column(title="CLUSTER", text=lambda broker: broker.cluster, may_wrap=True),
    Column(title="ADDRESS", text=lambda broker: broker.address),
    Column(title="VERSION", text=lambda broker: broker.version),
    Column(title="IN/S", text=lambda broker: _rate(broker.sends_per_second), is_number=True),
    Column(title="OUT/S", text=lambda broker: _rate(broker.deliveries_per_second), is_number=True),
    Column(title="DISK", text=lambda broker: _percent(broker.disk_used), is_number=True),
    Column(title="UP", text=lambda broker: _age(broker.started), is_number=True),
]
_BACKLOGS: "list[Column[Backlog]]" = [
    Column(title="GROUP", text=lambda backlog: backlog.group, may_wrap=True),
    Column(title="LAG", text=lambda backlog: backlog.lag, is_number=True),
    Column(title="MEMBERS", text=lambda backlog: backlog.members, is_number=True),
]
