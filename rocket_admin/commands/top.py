"""`streamkit top`: what groups do, live."""

from typing import TYPE_CHECKING

import click

from rocket_admin.commands.connection_options import ClusterConnection, connection_options
from rocket_admin.commands.output import Column, Output

if TYPE_CHECKING:
    from rocket_admin.activity import GroupActivity
    from rocket_client import Admin

__all__ = ["top"]


@click.command()
@click.option("--every", type=click.FloatRange(min=0.1), default=2.0, show_default=True, help="Seconds between looks.")
@click.option("--rounds", type=click.IntRange(min=1), help="End after so many looks; without it, Ctrl-C ends.")
@click.option("--most", type=click.IntRange(min=1), default=20, show_default=True, help="Groups that are shown.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line, for all groups.")
@connection_options
def top(*, every: float, rounds: int | None, most: int, as_json: bool, cluster: ClusterConnection) -> None:
    """Show the groups of a RocketMQ cluster that are behind most, live.

    For each group: its lag, how many messages a second arrive and are consumed, and when it will have caught up.
    """
    from rocket_admin.activity import GroupActivityMeter

    output = Output(as_json=as_json, watch=every, rounds=rounds)
    meter = GroupActivityMeter()

    async def look(admin: "Admin") -> None:
        found = await meter.look(admin)
        output.table(found.groups if as_json else found.groups[:most], _GROUPS)
        if len(found.groups) > most:
            output.hint(f"{len(found.groups) - most:,} more groups; --most shows more.")
        output.failures(found.failures, "what happens there is missing")

    cluster.show(look, output)


def _rate(value: float | None) -> str | None:
    return None if value is None else f"{value:,.1f}"


def _caught_up(group: "GroupActivity") -> str | None:
    """Return in what time the group will have caught up, by its two largest units."""
    if group.arriving_per_second is None:
        return None
    if group.seconds_to_catch_up is None:
        return "never"
    minutes, seconds = divmod(round(group.seconds_to_catch_up), 60)
    hours, minutes = divmod(minutes, 60)
    if hours > 999:
        return "not soon"
    return f"{hours}h {minutes}m" if hours else f"{minutes}m {seconds}s" if minutes else f"{seconds}s"


_GROUPS: "list[Column[GroupActivity]]" = [
    Column(title="GROUP", text=lambda group: group.group, may_wrap=True, width=24),
    Column(title="LAG", text=lambda group: group.lag, is_number=True, width=12),
    Column(title="ARRIVING/S", text=lambda group: _rate(group.arriving_per_second), is_number=True),
    Column(title="CONSUMED/S", text=lambda group: _rate(group.consumed_per_second), is_number=True),
    Column(title="CAUGHT UP IN", text=_caught_up, is_number=True),
]
