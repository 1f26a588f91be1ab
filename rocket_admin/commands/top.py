"""`streamkit top`: what groups do, live."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import click

from rocket_admin.commands.connection_options import ClusterConnection, connection_options
from rocket_admin.commands.output import Column, Output

if TYPE_CHECKING:
    from rocket_admin.activity import GroupActivity
    from rocket_client import Admin

__all__ = ["previews", "top"]

PREVIEW_EVERY: Final = 0.4
"""Seconds until the groups that have answered so far are shown, at the first update, and between two such tables."""


@click.command()
@click.option(
    "--every", type=click.FloatRange(min=0.1), default=2.0, show_default=True, help="Seconds between two checks."
)
@click.option("--rounds", type=click.IntRange(min=1), help="End after this many rounds. Without it: until Ctrl-C.")
@click.option(
    "--most", type=click.IntRange(min=1), default=20, show_default=True, help="The most groups that are shown."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line, for all groups by name.")
@connection_options
def top(*, every: float, rounds: int | None, most: int, as_json: bool, cluster: ClusterConnection) -> None:
    """Show the groups of a RocketMQ cluster with the largest lag, live.

    For each group: its lag, how many messages per second arrive and are consumed, and when it will have caught up.
    """
    from rocket_admin.activity import GroupActivityMeter

    output = Output(as_json=as_json, watch=every, rounds=rounds)
    meter = GroupActivityMeter()
    has_table = False

    async def look(admin: "Admin") -> None:
        nonlocal has_table
        # A later update leaves the whole table of the one before on the screen.
        seen = output.json if as_json else None if has_table else previews(output, most)
        found = await meter.sample(admin, seen)
        if not as_json:
            has_table = True
            output.table(found.groups[:most], _GROUPS)
        if len(found.groups) > most:
            output.hint(f"{len(found.groups) - most:,} more group(s); --most shows more.")
        output.failures(found.failures, "what happens there is missing")

    cluster.show(look, output)


def previews(output: Output, most: int, every: float = PREVIEW_EVERY) -> "Callable[[GroupActivity], None]":
    """Return a function to call with each group as it answers, which shows a table of the groups so far now and then.

    Args:
        output: Where they are shown, if it is a terminal.
        most: How many groups are shown.
        every: The least seconds between two tables.
    """
    from rocket_admin.activity import by_lag

    groups: list[GroupActivity] = []
    shown_at = time.monotonic()

    def seen(group: "GroupActivity") -> None:
        nonlocal shown_at
        groups.append(group)
        if time.monotonic() >= shown_at + every:
            output.preview(
                by_lag(groups)[:most], _GROUPS, f"{len(groups):,} group(s) so far; the others are being asked."
            )
            shown_at = time.monotonic()

    return seen


def _rate(value: float | None) -> str | None:
    return None if value is None else f"{value:,.1f}"


def _caught_up(group: "GroupActivity") -> str | None:
    """Return in what time the group will have caught up, by its two largest units."""
    if group.arriving_per_second is None or group.lag is None:
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
