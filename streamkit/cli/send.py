"""`streamkit send`: send one message to a destination of the application, on any messaging system.

This module has the options and texts of the command. What sends is imported when the command runs, so that its help is
fast.
"""

import sys

import click

from streamkit.cli.binding_names import complete_bindings
from streamkit.cli.setting_arguments import expect_settings

__all__ = ["send"]


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("destination", shell_complete=complete_bindings)
@click.argument("payload")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header; may be repeated.")
@click.option(
    "--content-type",
    help="Content type of the payload. Default: application/json if the payload is JSON, else text/plain.",
)
@click.option("--binder", metavar="NAME", help="The binder, if the settings do not name it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Only show where the message would be sent to.")
@click.argument("settings", nargs=-1, type=click.UNPROCESSED, metavar="[--KEY=VALUE]...")
@click.pass_context
def send(
    context: click.Context,
    *,
    destination: str,
    payload: str,
    headers: tuple[str, ...],
    content_type: str | None,
    binder: str | None,
    as_json: bool,
    is_dry: bool,
    settings: tuple[str, ...],
) -> None:
    """Send PAYLOAD to DESTINATION, a binding of the application in the current directory, or a topic.

    A PAYLOAD of - is read from standard input. The settings are those of an application that starts in this directory;
    others can be given as arguments. If DESTINATION is a binding, its settings apply: binder, destination, partitions.

    \b
    streamkit send orders '{"table": 7}'
    streamkit send orders coffee --header priority=5 --binder kafka
    """
    expect_settings(context, "DESTINATION", destination, settings)
    wrong = next((each for each in headers if not each.partition("=")[0] or "=" not in each), None)
    if wrong is not None:
        raise click.UsageError(f"--header {wrong!r}: write it as NAME=VALUE", context)
    from streamkit.cli.destinations import Asked, send_one

    data = sys.stdin.buffer.read() if payload == "-" else payload.encode(errors="surrogateescape")
    named = dict(each.split("=", 1) for each in headers)
    sent = send_one(Asked(destination, binder, settings), data, named, content_type, is_dry=is_dry)
    if as_json:
        click.echo(sent.json())
    else:
        verb = "Would send" if is_dry else "Sent"
        click.echo(f"{verb} {sent.payload_size} bytes to {sent.destination} ({sent.binder}).")
