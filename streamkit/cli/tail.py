"""`streamkit tail`: show the messages that arrive at a destination of the application, on any messaging system.

This module has the options and texts of the command. What receives is imported when the command runs, so that its help
is fast.
"""

import click

from streamkit.cli.binding_names import complete_bindings
from streamkit.cli.setting_arguments import expect_settings

__all__ = ["tail"]


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("destination", shell_complete=complete_bindings)
@click.option("--count", type=click.IntRange(min=1), help="End after this many messages.")
@click.option("--headers", "with_headers", is_flag=True, help="Also show the headers.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line, with headers and whole payload.")
@click.option("--binder", metavar="NAME", help="The binder, if the settings do not name it.")
@click.argument("settings", nargs=-1, type=click.UNPROCESSED, metavar="[--KEY=VALUE]...")
@click.pass_context
def tail(
    context: click.Context,
    *,
    destination: str,
    count: int | None,
    with_headers: bool,
    as_json: bool,
    binder: str | None,
    settings: tuple[str, ...],
) -> None:
    """Show the messages that arrive at DESTINATION, a binding of the application in this directory, or a topic.

    A group of its own receives the messages, and is removed at the end, so no other group misses a message. Ctrl-C ends
    the command. The settings are those of an application that starts in this directory; others can be given as
    arguments.

    \b
    streamkit tail orders
    streamkit tail orders --headers --binder kafka
    """
    expect_settings(context, "DESTINATION", destination, settings)
    from streamkit.cli.destinations import Asked, show_arrivals

    show_arrivals(Asked(destination, binder, settings), count=count, with_headers=with_headers, as_json=as_json)
