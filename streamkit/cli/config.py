"""`streamkit config`: what the settings are, and what is wrong with them."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.text import Text

from streamkit.binder.registry import BinderTypes
from streamkit.cli.setting_arguments import expect_settings
from streamkit.cli.setting_lists import Line, console_for_settings, print_settings
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
    console = console_for_settings()
    print_settings(console, [(Text(f"binding {binding}", "bold"), [_explained_line(row) for row in rows])])
    if settings.value.configured_name(binding) is None:
        console.print(_nothing_sets(settings.value, binding))


@config.command(
    context_settings={"ignore_unknown_options": True},
    short_help="List what becomes of each setting; fail when one is wrong.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[PATH] [--KEY=VALUE]...")
@_options
@click.pass_context
def report(
    context: click.Context, config_location: str | None, as_json: bool, arguments: tuple[str, ...]
) -> None:
    """List what becomes of each setting below PATH: wrong, without effect, honoured, not ours; fail when one is wrong.

    PATH is a settings file, or a directory that is looked in as an application started there would, and in its
    src/main/resources; the current directory, if not given. Settings like --key=value count as they would when the
    application starts.
    """
    paths = [argument for argument in arguments if not argument.startswith("-")]
    expect_settings(context, "PATH", "", [argument for argument in arguments if argument.startswith("-")])
    if len(paths) > 1 or (paths and config_location is not None):
        given = [*paths, *filter(None, [config_location])]
        raise click.UsageError(f"one PATH can be reported on, not {', '.join(given)}")
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


def _explained_line(row: ExplainedSetting) -> Line:
    why = None if row.note is None else f"no effect: {row.note}"
    return Line(row.key, row.value, row.origin, why, is_dim=row.is_default)


def _nothing_sets(settings: StreamSettings, binding: str) -> str:
    near = get_close_matches(binding, settings.bindings, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return f"Nothing sets {PREFIX}.bindings.{binding}; these are the defaults.{hint}"


def _print_report(rows: Sequence[ReportedSetting]) -> None:
    console = console_for_settings()
    lists = []
    for verdict, (title, style) in _TITLES.items():
        listed = by_verdict(rows, verdict)
        if listed:
            lines = [Line(row.key, row.value, row.origin, row.reason) for row in listed]
            lists.append((Text(title, f"bold {style}"), lines))
    print_settings(console, lists)
    console.print(
        ", ".join(f"{len(by_verdict(rows, verdict))} {verdict.value}" for verdict in Verdict), style="bold"
    )


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
