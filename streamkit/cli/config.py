"""`streamkit config`: print the settings with their origins, and report invalid ones.

This module has the options and texts of the commands. What reads settings is imported when one of them runs, so that
their help is fast.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from streamkit.cli.setting_arguments import expect_settings

C = TypeVar("C", bound=Callable[..., Any])


@click.group()
def config() -> None:
    """Show the settings in force, and where each was set."""


def _options(command: C) -> C:
    """Add the options that both commands have."""
    command = click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)
    return click.option(
        "--config-location", metavar="PATHS", help="Files or directories to read instead of ./ and ./config."
    )(command)


@config.command(context_settings={"ignore_unknown_options": True})
@click.argument("binding")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[--KEY=VALUE]...")
@_options
@click.pass_context
def explain(
    context: click.Context,
    binding: str,
    config_location: str | None,
    as_json: bool,
    arguments: tuple[str, ...],
) -> None:
    """Show every setting of BINDING, its value, and where it was set.

    Settings like --key=value count as they would when the application starts.
    """
    expect_settings(context, "BINDING", binding, arguments)
    from streamkit.cli.setting_reports import print_explanation

    print_explanation(context, binding, config_location, as_json, arguments)


@config.command(
    context_settings={"ignore_unknown_options": True},
    short_help="List what becomes of each setting; fail when one is wrong.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[PATH] [--KEY=VALUE]...")
@_options
@click.pass_context
def report(context: click.Context, config_location: str | None, as_json: bool, arguments: tuple[str, ...]) -> None:
    """List what becomes of each setting below PATH: wrong, without effect, honoured, not ours; fail when one is wrong.

    PATH is a settings file, or a directory that is looked in as an application started there would, and in its
    src/main/resources; the current directory, if not given. Settings like --key=value count as they would when the
    application starts.
    """
    paths = [argument for argument in arguments if not argument.startswith("-")]
    expect_settings(context, "PATH", "", [argument for argument in arguments if argument.startswith("-")])
    if len(paths) > 1 or (paths and config_location is not None):
        given = [*paths, *filter(None, [config_location])]
        raise click.UsageError(f"expected one PATH, not {', '.join(given)}")
    from streamkit.cli.setting_reports import print_report

    print_report(context, Path(paths[0]) if paths else None, config_location, as_json, arguments)


@config.command()
@click.option(
    "--update",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Write the tables into this Markdown file, in place of what stands below its marker.",
)
@click.pass_context
def reference(context: click.Context, update: Path | None) -> None:
    """Print the tables of all settings, as Markdown."""
    from streamkit.cli.setting_reports import print_reference

    print_reference(context, update)
