"""`streamkit group`: list, show, create, change, delete and rewind consumer groups."""

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import click

from rocket_admin.commands.completion import brokers_option, group_argument, topic_argument
from rocket_admin.commands.confirmation import confirm, yes_option
from rocket_admin.commands.connection_options import ClusterConnection, connection_options
from rocket_admin.commands.moves import dry_run_option, move
from rocket_admin.commands.output import Column, Output, json_option, output_options
from rocket_admin.commands.targets import time_or_end

if TYPE_CHECKING:
    from rocket_admin.groups import Group, GroupDetails, GroupOnBroker, Member, TopicLag
    from rocket_admin.offsets import MovePlan, Target
    from rocket_client import Admin

__all__ = ["group"]


@click.group()
def group() -> None:
    """List, show, create, change, delete and rewind the consumer groups of a RocketMQ cluster."""


@group.command("list", short_help="List groups with their members and lag.")
@click.argument("pattern", default="*")
@click.option("--all", "wants_all", is_flag=True, help="Include the brokers' own groups.")
@click.option("--behind", is_flag=True, help="Only groups that have messages to consume, or whose lag is not known.")
@connection_options
@output_options
def list_(*, pattern: str, wants_all: bool, behind: bool, cluster: ClusterConnection, output: Output) -> None:
    """List the groups that match PATTERN, such as 'shop-*', with their members and lag; all, if none is given."""

    async def show(admin: "Admin") -> None:
        from rocket_admin.groups import group_names, list_groups

        found = await group_names(admin, with_system=wants_all)
        names = [name for name in found.names if fnmatchcase(name, pattern)]
        groups = (group async for group in list_groups(admin, names) if not behind or group.lag != 0)
        longest = max(map(len, names), default=0)
        await output.stream(groups, [Column(title="GROUP", text=_name, may_wrap=True, width=longest), *_LIST])
        output.failures(found.failures, "groups that only it has are missing")

    cluster.show(show, output)


@group.command(short_help="Show a group's lag by topic, subscriptions and settings.")
@group_argument("name", metavar="GROUP")
@connection_options
@output_options
def show(*, name: str, cluster: ClusterConnection, output: Output) -> None:
    """Show the lag of GROUP by topic, its subscriptions, and its settings on each broker."""

    async def print_(admin: "Admin") -> None:
        from rocket_admin.groups import show_group

        found = await show_group(admin, name)
        output.facts(found, _facts(found))
        if not output.as_json:
            expressions = {each.topic: each.expression for each in found.subscriptions}
            if found.topics:
                output.say("")
                subscribed: Column[TopicLag] = Column(
                    title="SUBSCRIBED TO", text=lambda topic: expressions.get(topic.topic), may_wrap=True
                )
                output.table(found.topics, [*_TOPICS, subscribed])
            output.say("")
            output.table(found.brokers, _BROKERS)
        output.failures(found.failures, "what it has of the group is missing")

    cluster.show(print_, output)


@group.command(short_help="Show a group's members, and the queues that each consumes.")
@group_argument("name", metavar="GROUP")
@connection_options
@output_options
def members(*, name: str, cluster: ClusterConnection, output: Output) -> None:
    """Show the connected members of GROUP, each with the queues that it consumes."""

    async def print_(admin: "Admin") -> None:
        from rocket_admin.groups import group_members

        found = await group_members(admin, name)
        if not found.members:
            output.hint(f"Group {name} has no connected members.")
        output.table(found.members, _MEMBERS)
        output.failures(found.failures, "members that are connected only there are missing")

    cluster.show(print_, output)


@group.command()
@click.argument("name", metavar="GROUP")
@click.option("--retries", type=click.IntRange(min=-1), help="Redeliveries before a message becomes a dead letter.")
@click.option("--retry-queues", type=click.IntRange(min=0), help="Queues of the retry topic.")
@click.option("--consume/--no-consume", default=None, help="Whether its members receive messages.")
@click.option("--broadcast/--no-broadcast", default=None, help="Whether members may consume in broadcasting mode.")
@click.option("--ordered/--not-ordered", default=None, help="Whether the group consumes in order, on brokers of 5.x.")
@brokers_option
@connection_options
@json_option
def create(
    *, name: str, brokers: tuple[str, ...], cluster: ClusterConnection, output: Output, **options: object
) -> None:
    """Create GROUP on all brokers."""

    async def make(admin: "Admin") -> None:
        from rocket_admin.groups import create_group

        await create_group(admin, name, changes=_changes(options), brokers=brokers)

    cluster.run(make)
    output.done(f"Created group {name}.", group=name)


@group.command(short_help="Change settings of a group.")
@group_argument("name", metavar="GROUP")
@click.option("--retries", type=click.IntRange(min=-1), help="Redeliveries before a message becomes a dead letter.")
@click.option("--retry-queues", type=click.IntRange(min=0), help="Queues of the retry topic.")
@click.option("--consume/--no-consume", default=None, help="Whether its members receive messages.")
@click.option("--broadcast/--no-broadcast", default=None, help="Whether members may consume in broadcasting mode.")
@click.option("--ordered/--not-ordered", default=None, help="Whether the group consumes in order, on brokers of 5.x.")
@brokers_option
@connection_options
@json_option
def update(
    *, name: str, brokers: tuple[str, ...], cluster: ClusterConnection, output: Output, **options: object
) -> None:
    """Change settings of GROUP on the brokers that have it; other settings stay as they are."""
    changes = _changes(options)
    if not changes:
        raise click.UsageError("nothing to change: give --retries, --no-consume, or another option")

    async def change(admin: "Admin") -> "tuple[GroupOnBroker, ...]":
        from rocket_admin.groups import update_group

        return await update_group(admin, name, changes=changes, brokers=brokers)

    output.table(cluster.run(change), _BROKERS)


@group.command(short_help="Delete a group with its offsets.")
@group_argument("name", metavar="GROUP")
@connection_options
@json_option
@yes_option
def delete(*, name: str, cluster: ClusterConnection, output: Output, is_sure: bool) -> None:
    """Delete GROUP, its offsets and its retry topic from all brokers; its dead letters stay."""

    async def look(admin: "Admin") -> "GroupDetails":
        from rocket_admin.groups import show_group

        return await show_group(admin, name)

    found = cluster.run(look)
    if found.members:
        raise click.ClickException(
            f"group {name} has {found.members} connected member(s), which would make it again: stop them first; "
            f"`streamkit group members {name}` shows them"
        )
    lag = "an unknown number of" if found.lag is None else f"{found.lag:,}"
    confirm(f"Delete group {name}, which has {lag} message(s) to consume?", is_sure=is_sure)

    async def remove(admin: "Admin") -> None:
        await admin.delete_group(name)

    cluster.run(remove)
    output.done(f"Deleted group {name}.", group=name, lag=found.lag)


@group.command(short_help="Move a group to a time, to consume again or to skip.")
@group_argument("name", metavar="GROUP")
@topic_argument("topics", nargs=-1, metavar="[TOPIC]...")
@click.option(
    "--to",
    "target",
    type=time_or_end,
    required=True,
    metavar="TIME",
    help="earliest, latest, 30m (ago; s, m, h, d), or 2026-11-26T14:30, in local time if it has no zone.",
)
@connection_options
@json_option
@dry_run_option
@yes_option
def rewind(
    *,
    name: str,
    topics: tuple[str, ...],
    target: "Target",
    cluster: ClusterConnection,
    output: Output,
    is_dry: bool,
    is_sure: bool,
) -> None:
    """Move GROUP to a time, so that it consumes the messages stored since then, again or for the first time.

    It is moved in TOPIC, or in all topics in which it has committed offsets. Connected members continue there at once.
    """

    async def plan(admin: "Admin") -> "MovePlan":
        from rocket_admin.offsets import plan_move

        return await plan_move(admin, name, target, topics=topics)

    move(cluster, output, plan, is_dry=is_dry, is_sure=is_sure)


_FIELDS = {
    "retries": "retry_max_times",
    "retry_queues": "retry_queue_nums",
    "consume": "consume_enable",
    "broadcast": "consume_broadcast_enable",
    "ordered": "consume_message_orderly",
}


def _changes(options: dict[str, object]) -> dict[str, object]:
    return {_FIELDS[name]: value for name, value in options.items() if value is not None}


def _facts(found: "GroupDetails") -> list[tuple[str, object]]:
    how = " ".join(word for word in (found.model, found.kind) if word is not None)
    return [
        ("group", found.group),
        ("members", found.members if not how or found.members is None else f"{found.members:,} ({how})"),
        ("lag", "unknown" if found.lag is None else found.lag),
    ]


def _name(group: "Group") -> str:
    return group.group


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _queues(member: "Member") -> str | None:
    """Return the queues with their topic named once for each broker; the group's own topic as `retry`."""
    if member.queues is None:
        return None
    from rocket_remoting.wire.topics import is_retry_topic

    numbers: dict[str, list[str]] = {}
    for queue in member.queues:
        place, _, number = queue.rpartition(":")
        if is_retry_topic(place):  # a member has queues of its own group's only
            place = f"retry {place.rpartition(' ')[2]}"
        numbers.setdefault(place, []).append(number)
    return ", ".join(f"{place}:{','.join(found)}" for place, found in numbers.items()) or "none"


_LIST: "list[Column[Group]]" = [
    Column(title="MEMBERS", text=lambda group: group.members, is_number=True),
    Column(title="LAG", text=lambda group: group.lag, is_number=True, width=12),
    Column(title="MODEL", text=lambda group: group.model, width=12),
    Column(title="KIND", text=lambda group: group.kind),
]
_TOPICS: "list[Column[TopicLag]]" = [
    Column(title="TOPIC", text=lambda topic: topic.topic, may_wrap=True),
    Column(title="QUEUES", text=lambda topic: topic.queues, is_number=True),
    Column(title="LAG", text=lambda topic: topic.lag, is_number=True),
]
_BROKERS: "list[Column[GroupOnBroker]]" = [
    Column(title="BROKER", text=lambda on: on.broker, may_wrap=True),
    Column(title="CONSUME", text=lambda on: _yes(on.consume_enabled)),
    Column(title="BROADCAST", text=lambda on: _yes(on.broadcast_enabled)),
    Column(title="ORDERED", text=lambda on: _yes(on.ordered)),
    Column(title="RETRIES", text=lambda on: on.retry_max_times, is_number=True),
    Column(title="RETRY QUEUES", text=lambda on: on.retry_queues, is_number=True),
]
_MEMBERS: "list[Column[Member]]" = [
    Column(title="CLIENT", text=lambda member: member.client_id, may_wrap=True),
    Column(title="ADDRESS", text=lambda member: member.address),
    Column(title="LANGUAGE", text=lambda member: member.language),
    Column(title="VERSION", text=lambda member: member.version),
    Column(title="CACHED", text=lambda member: member.cached, is_number=True),
    Column(title="QUEUES", text=_queues, may_wrap=True),
]
