"""`streamkit config`: print the settings with their origins, and report invalid ones.

This module has the options and texts of the commands. What reads settings is imported when one of them runs, so that
their help is fast.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from streamkit.cli.binding_names import complete_bindings
from streamkit.cli.setting_arguments import expect_settings

C = TypeVar("C", bound=Callable[..., Any])


@click.group()
def config() -> None:
    """Show the effective settings, and where each was set."""


def _options(command: C) -> C:
    """Add the options that both commands have."""
    command = click.option(
        "--app",
        metavar="MODULE[:NAME]",
        help="The application: its listeners and functions say which bindings exist.",
    )(command)
    command = click.option("--app-dir", default=".", show_default=True, help="Directory of the application's modules.")(
        command
    )
    command = click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)
    return click.option(
        "--config-location", metavar="PATHS", help="Files or directories to read instead of ./ and ./config."
    )(command)


@config.command(context_settings={"ignore_unknown_options": True})
@click.argument("binding", shell_complete=complete_bindings)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[--KEY=VALUE]...")
@_options
@click.option("--defaults", "with_defaults", is_flag=True, help="Also show settings that nothing sets.")
@click.pass_context
def explain(
    context: click.Context,
    *,
    binding: str,
    config_location: str | None,
    app: str | None,
    app_dir: str,
    as_json: bool,
    with_defaults: bool,
    arguments: tuple[str, ...],
) -> None:
    """Show the settings of BINDING, their values, where they were set, and which of them have no effect.

    Settings such as --key=value apply as at the start of the application.
    """
    expect_settings(context, "BINDING", binding, arguments)
    _refuse_both(app, config_location)
    from streamkit.cli.setting_reports import Asked, print_explanation

    asked = Asked(app, app_dir, config_location, arguments, None, as_json)
    print_explanation(context, binding, asked, with_defaults=with_defaults)


@config.command(
    context_settings={"ignore_unknown_options": True},
    short_help="List the effect of each setting; fail if one is wrong.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[PATH] [--KEY=VALUE]...")
@_options
@click.option(
    "--strict", is_flag=True, help="Also fail if a setting has no effect, names nothing, or is another binder's."
)
@click.pass_context
def report(
    context: click.Context,
    *,
    config_location: str | None,
    app: str | None,
    app_dir: str,
    as_json: bool,
    strict: bool,
    arguments: tuple[str, ...],
) -> None:
    """List the effect of each setting below PATH (wrong, no effect, honoured, not ours); fail if one is wrong.

    PATH is a settings file, or a directory that is read as an application started there would read it, with its
    src/main/resources. Default: the current directory. Settings such as --key=value apply as at the start of the
    application.

    With --app the start of the application is rehearsed without connecting. This also finds settings of bindings that
    its code does not have.
    """
    paths = [argument for argument in arguments if not argument.startswith("-")]
    expect_settings(context, "PATH", "", [argument for argument in arguments if argument.startswith("-")])
    if len(paths) > 1 or (paths and config_location is not None):
        given = [*paths, *filter(None, [config_location])]
        raise click.UsageError(f"expected one PATH, not {', '.join(given)}")
    _refuse_both(app, paths[0] if paths else config_location)
    from streamkit.cli.setting_reports import Asked, print_report

    asked = Asked(app, app_dir, config_location, arguments, Path(paths[0]) if paths else None, as_json)
    print_report(context, asked, strict=strict)


def _refuse_both(app: str | None, location: str | None) -> None:
    if app is not None and location is not None:
        raise click.UsageError(
            f"--app and {location} exclude each other: the application says where its settings are; "
            "--spring.config.location=... changes that"
        )


@config.command()
@click.option(
    "--update",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Write the tables into this Markdown file, replacing everything below its marker.",
)
@click.pass_context
def reference(context: click.Context, update: Path | None) -> None:
    """Print the tables of all settings, as Markdown."""
    from streamkit.cli.setting_reports import print_reference

    print_reference(context, update)
