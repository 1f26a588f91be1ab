"""`streamkit config`: what the settings are, and what is wrong with them."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.table import Table

from streamkit.binder.registry import BinderTypes
from streamkit.config.application_properties import POLLER
from streamkit.config.environment import Environment
from streamkit.config.explain import ExplainedSetting, explain_binding, explain_model
from streamkit.config.function_properties import PollerProperties
from streamkit.config.reference import MARKER, reference_tables
from streamkit.config.report import ReportedSetting, Verdict, by_verdict, report_settings
from streamkit.config.settings import PREFIX, StreamSettings
from streamkit.errors import ConfigurationError

C = TypeVar("C", bound=Callable[..., Any])

_PLACES = (".", "config", "src/main/resources", "src/main/resources/config")
_UNFOLDED = 1000
_TITLES: Mapping[Verdict, tuple[str, str]] = {
    Verdict.WRONG: ("Wrong: the application does not start", "red"),
    Verdict.NO_EFFECT: ("Without effect here", "yellow"),
    Verdict.OVERRIDDEN: ("Overridden by something stronger", "dim"),
    Verdict.HONOURED: ("Honoured", "green"),
    Verdict.FOREIGN: ("Not streamkit's", "dim"),
}


@click.group()
def config() -> None:
    """Show the settings in force, and where each was set."""


def _options(command: C) -> C:
    """What both commands take."""
    command = click.argument("arguments", nargs=-1, type=click.UNPROCESSED)(command)
    command = click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)
    return click.option(
        "--config-location", metavar="PATHS", help="Files or directories to read instead of ./ and ./config."
    )(command)


@config.command(context_settings={"ignore_unknown_options": True})
@click.argument("binding")
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

    ARGUMENTS like --key=value count as they would when the application starts.
    """
    types = _types(context)
    try:
        environment = _environment(config_location, arguments)
        settings = StreamSettings.explain(environment, types.names)
        rows = [
            *explain_binding(
                settings,
                binding,
                environment.bound(environment.tree(POLLER, PollerProperties), PollerProperties),
            ),
            *_extended_rows(environment, types, settings.value, binding),
        ]
    except ConfigurationError as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(json.dumps([_row_as_dict(row) for row in rows], indent=2))
        return
    console = wide_console()
    console.print(_settings_table(binding, rows))
    if settings.value.configured_name(binding) is None:
        console.print(_nothing_sets(settings.value, binding))


@config.command(context_settings={"ignore_unknown_options": True})
@_options
@click.pass_context
def report(
    context: click.Context, config_location: str | None, as_json: bool, arguments: tuple[str, ...]
) -> None:
    """List what becomes of each setting below PATH: wrong, without effect, honoured, not ours; fail when one is wrong.

    PATH is a settings file, or a directory that is looked in as an application started there would, and in its
    src/main/resources; the current directory, if not given. ARGUMENTS like --key=value count as they would when the
    application starts.
    """
    paths = [argument for argument in arguments if not argument.startswith("--")]
    if len(paths) > 1 or (paths and config_location is not None):
        raise click.UsageError(f"one PATH can be reported on, not {', '.join(arguments)}")
    try:
        environment = _environment(config_location, arguments, Path(paths[0]) if paths else None)
    except ConfigurationError as error:
        raise click.ClickException(str(error)) from error
    rows = report_settings(environment, _types(context))
    if as_json:
        click.echo(json.dumps({verdict.value: _as_dicts(rows, verdict) for verdict in Verdict}, indent=2))
    else:
        _print_report(rows)
    if by_verdict(rows, Verdict.WRONG):
        raise click.exceptions.Exit(1)


@config.command()
@click.option(
    "--update",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Write the tables into this Markdown file, in place of what stands below its marker.",
)
@click.pass_context
def reference(context: click.Context, update: Path | None) -> None:
    """Print the tables of all settings, as Markdown."""
    tables = reference_tables(_types(context))
    if update is None:
        click.echo(tables, nl=False)
        return
    written, marker, _ = update.read_text(encoding="utf-8").partition(MARKER)
    if not marker:
        raise click.ClickException(f"{update} has no line {MARKER!r}: the tables are written below it")
    update.write_text(f"{written}{marker}\n\n{tables}", encoding="utf-8")


def _types(context: click.Context) -> BinderTypes:
    return context.find_object(BinderTypes) or BinderTypes()


def _environment(
    config_location: str | None, arguments: tuple[str, ...], path: Path | None = None
) -> Environment:
    # Settings without effect are part of what these commands print: the log need not say it too.
    logging.getLogger("streamkit.config").addHandler(logging.NullHandler())
    if path is None:
        return Environment.load(config_location=config_location, arguments=arguments)
    if not path.exists():
        raise click.UsageError(f"there is no file or directory {str(path)!r}")
    if path.is_file():
        return Environment.load(config_location=path.name, arguments=arguments, directory=path.parent)
    places = ",".join(f"optional:{place}" for place in _PLACES)
    return Environment.load(config_location=places, arguments=arguments, directory=path)


def _extended_rows(
    environment: Environment, types: BinderTypes, settings: StreamSettings, binding: str
) -> list[ExplainedSetting]:
    """The settings of the binding that are its binder's own."""
    type_ = _binder_type(types, settings, binding)
    if type_ is None:
        return []
    rows = []
    for side, model in zip(("consumer", "producer"), types.extended_models(type_), strict=True):
        bound = environment.explain_extended(type_, binding, side, model)
        for row in explain_model(bound.value, bound.origins):
            rows.append(ExplainedSetting(f"{type_}.{side}.{row.key}", row.value, row.origin, row.note))
    return rows


def _binder_type(types: BinderTypes, settings: StreamSettings, binding: str) -> str | None:
    """The type whose own settings the binding has; None when it is not told which binder it gets."""
    name = settings.binding(binding).binder or settings.default_binder
    configured = settings.binders.get(name) if name else None
    type_ = configured.type or name if configured else name
    candidates = [each for each in types.names if types.is_default_candidate(each)]
    if type_ is None and len(candidates) == 1:
        return candidates[0]
    return type_ if type_ in types.names else None


def _settings_table(binding: str, rows: Sequence[ExplainedSetting]) -> Table:
    table = Table(title=f"binding {binding}", title_justify="left")
    table.add_column("setting", no_wrap=True)
    for column in ("value", "origin"):
        table.add_column(column, overflow="fold")
    for row in rows:
        origin = row.origin if row.note is None else f"{row.origin} (no effect: {row.note})"
        table.add_row(row.key, row.value, origin, style="dim" if row.is_default else None)
    return table


def _nothing_sets(settings: StreamSettings, binding: str) -> str:
    near = get_close_matches(binding, settings.bindings, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return f"Nothing sets {PREFIX}.bindings.{binding}; these are the defaults.{hint}"


def _print_report(rows: Sequence[ReportedSetting]) -> None:
    console = wide_console()
    for verdict, (title, style) in _TITLES.items():
        listed = by_verdict(rows, verdict)
        if listed:
            console.print(title, style=f"bold {style}")
            console.print(_report_table(listed))
    console.print(
        ", ".join(f"{len(by_verdict(rows, verdict))} {verdict.value}" for verdict in Verdict), style="bold"
    )


def _report_table(rows: Sequence[ReportedSetting]) -> Table:
    table = Table()
    table.add_column("setting", no_wrap=True)
    for column in ("value", "origin"):
        table.add_column(column, overflow="fold")
    has_reasons = any(row.reason for row in rows)
    if has_reasons:
        table.add_column("why", overflow="fold")
    for row in rows:
        table.add_row(row.key, row.value, row.origin, *([row.reason or ""] if has_reasons else []))
    return table


def wide_console() -> Console:
    """A console that folds nothing unless a person looks at it, on a terminal that has a width."""
    console = Console()
    return console if console.is_terminal else Console(width=_UNFOLDED)


def _row_as_dict(row: ExplainedSetting) -> dict[str, str | None]:
    return {"setting": row.key, "value": row.value, "origin": row.origin, "note": row.note}


def _as_dicts(rows: Sequence[ReportedSetting], verdict: Verdict) -> list[dict[str, str | None]]:
    return [
        {
            "setting": row.key,
            "value": row.value,
            "origin": row.origin,
            "why": row.reason,
            "suggestion": row.suggestion,
        }
        for row in by_verdict(rows, verdict)
    ]
