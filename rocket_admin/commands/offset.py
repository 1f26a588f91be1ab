"""`streamkit offset`: show, set and copy the committed offsets of groups."""

from typing import TYPE_CHECKING

import click

from rocket_admin.commands.completion import brokers_option, group_argument, topic_argument
from rocket_admin.commands.confirmation import yes_option
from rocket_admin.commands.connection_options import ClusterConnection, connection_options
from rocket_admin.commands.moves import dry_run_option, move
from rocket_admin.commands.output import Column, Output, json_option, output_options, time_text
from rocket_admin.commands.targets import offset_or_time

if TYPE_CHECKING:
    from rocket_admin.offsets import GroupQueue, MovePlan, Target
    from rocket_client import Admin

__all__ = ["offset"]


@click.group()
def offset() -> None:
    """Show, set and copy the offsets that the groups of a RocketMQ cluster have committed."""


@offset.command(short_help="Show how far a group is in each queue.")
@group_argument("group")
@topic_argument("topics", nargs=-1, metavar="[TOPIC]...")
@connection_options
@output_options
def show(*, group: str, topics: tuple[str, ...], cluster: ClusterConnection, output: Output) -> None:
    """Show how far GROUP is in each queue of TOPIC, or of all topics that it has committed offsets in."""

    async def print_(admin: "Admin") -> None:
        from rocket_admin.groups import require_group
        from rocket_admin.offsets import group_queues

        found = await group_queues(admin, group, topics=topics)
        if not found.queues:
            await require_group(admin, group)
        output.table(found.queues, _QUEUES)
        output.failures(found.failures, "its queues are missing")

    cluster.show(print_, output)


@offset.command("set", short_help="Set a group's offsets in a topic.")
@group_argument("group")
@topic_argument("topic")
@click.argument("target", type=offset_or_time, metavar="TARGET")
@brokers_option
@click.option(
    "--queue", "numbers", type=click.IntRange(min=0), multiple=True, help="In this queue only; may be repeated."
)
@connection_options
@json_option
@dry_run_option
@yes_option
def set_(
    *,
    group: str,
    topic: str,
    target: "Target",
    brokers: tuple[str, ...],
    numbers: tuple[int, ...],
    cluster: ClusterConnection,
    output: Output,
    is_dry: bool,
    is_sure: bool,
) -> None:
    """Set the committed offsets of GROUP in the queues of TOPIC; the group must have no connected members.

    TARGET is an offset, earliest, latest, or a time: 30m (ago; s, m, h, d) or 2026-11-26T14:30. To move a group with
    members, use `streamkit group rewind`.
    """

    async def plan(admin: "Admin") -> "MovePlan":
        from rocket_admin.offsets import plan_move

        queues = []
        if brokers or numbers:
            every = (await admin.topic_route(topic)).subscribe_queues
            queues = [queue for queue in every if not brokers or queue.broker_name in brokers]
            queues = [queue for queue in queues if not numbers or queue.queue_id in numbers]
            if not queues:
                raise click.ClickException(f"topic {topic} has no such queue; it has {', '.join(map(str, every))}")
        planned = await plan_move(admin, group, target, topics=[topic], queues=queues)
        if planned.members and not is_dry:
            raise click.ClickException(
                f"group {group} has {planned.members} connected member(s), which would overwrite the offsets: stop "
                f"them, or move the group to a time with `streamkit group rewind {group}`"
            )
        return planned

    move(cluster, output, plan, is_dry=is_dry, is_sure=is_sure)


@offset.command(short_help="Set a group's offsets to those of another group.")
@group_argument("source", metavar="FROM")
@group_argument("group", metavar="TO")
@topic_argument("topics", nargs=-1, metavar="[TOPIC]...")
@connection_options
@json_option
@dry_run_option
@yes_option
def clone(
    *,
    source: str,
    group: str,
    topics: tuple[str, ...],
    cluster: ClusterConnection,
    output: Output,
    is_dry: bool,
    is_sure: bool,
) -> None:
    """Set the offsets of group TO to those of group FROM, in TOPIC or in all topics that FROM has committed offsets in.

    Group TO must exist, and have no connected members.
    """

    async def plan(admin: "Admin") -> "MovePlan":
        from rocket_admin.offsets import plan_clone

        return await plan_clone(admin, source, group, topics=topics)

    move(cluster, output, plan, is_dry=is_dry, is_sure=is_sure)


_QUEUES: "list[Column[GroupQueue]]" = [
    Column(title="TOPIC", text=lambda queue: queue.topic, may_wrap=True),
    Column(title="BROKER", text=lambda queue: queue.broker, may_wrap=True),
    Column(title="QUEUE", text=lambda queue: queue.queue, is_number=True),
    Column(title="COMMITTED", text=lambda queue: queue.committed, is_number=True),
    Column(title="MAX OFFSET", text=lambda queue: queue.max_offset, is_number=True),
    Column(title="LAG", text=lambda queue: queue.lag, is_number=True),
    Column(title="LAST CONSUMED", text=lambda queue: time_text(queue.last_consumed)),
]
