"""What commands that move offsets have in common: the plan is shown, then they ask, then they carry it out."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rocket_admin.commands.confirmation import confirm
from rocket_admin.commands.connection_options import ClusterConnection
from rocket_admin.commands.output import UNKNOWN, Column, Output

if TYPE_CHECKING:
    from rocket_admin.offsets import Move, MovePlan
    from rocket_client import Admin

__all__ = ["dry_run_option", "move"]

C = TypeVar("C", bound=Callable[..., Any])


def dry_run_option(command: C) -> C:
    """Add `--dry-run` to a command, which gets it as its argument `is_dry`."""
    text = "Show how many messages of each queue would be delivered again or skipped, and change nothing."
    return click.option("--dry-run", "is_dry", is_flag=True, help=text)(command)


def move(
    cluster: ClusterConnection,
    output: Output,
    plan: "Callable[[Admin], Awaitable[MovePlan]]",
    *,
    is_dry: bool,
    is_sure: bool,
) -> None:
    """Show a plan; unless it is a dry run, ask and carry it out.

    Args:
        cluster: The cluster.
        output: What to print with; JSON has a line for each queue.
        plan: Makes the plan.
        is_dry: Whether only the plan is shown.
        is_sure: Whether not to ask.
    """
    planned = cluster.run(plan)
    output.table(planned.moves, _MOVES)
    again, skipped = (UNKNOWN if number is None else f"{number:,}" for number in (planned.again, planned.skipped))
    output.say(f"\nGroup {planned.group}: {again} messages again, {skipped} skipped.")
    if is_dry:
        output.say("Nothing was changed.")
        return
    members = f" and its {planned.members} connected member(s)" if planned.members else ""
    confirm(f"Move group {planned.group}{members}?", is_sure=is_sure)

    async def carry_out(admin: "Admin") -> None:
        from rocket_admin.offsets import apply_plan

        await apply_plan(admin, planned)

    cluster.run(carry_out)
    output.say(f"Moved group {planned.group}.")


_MOVES: "list[Column[Move]]" = [
    Column(title="TOPIC", text=lambda move: move.topic, may_wrap=True),
    Column(title="BROKER", text=lambda move: move.broker, may_wrap=True),
    Column(title="QUEUE", text=lambda move: move.queue, is_number=True),
    Column(title="FROM", text=lambda move: move.committed, is_number=True),
    Column(title="TO", text=lambda move: move.target, is_number=True),
    Column(title="AGAIN", text=lambda move: move.again, is_number=True),
    Column(title="SKIPPED", text=lambda move: move.skipped, is_number=True),
]
