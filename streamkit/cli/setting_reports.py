"""What `streamkit config explain`, `report` and `reference` do: read the settings of an application and print them."""

import json
import logging
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path

import click
from rich.text import Text

from streamkit.binder.binder_type import BinderTypes
from streamkit.cli.setting_lists import Line, console_for_settings, print_settings
from streamkit.config.application_properties import POLLER
from streamkit.config.environment import Environment
from streamkit.config.explain import ExplainedSetting, explain_binding, explain_model
from streamkit.config.function_properties import PollerProperties
from streamkit.config.reference import MARKER, reference_tables
from streamkit.config.report import ReportedSetting, Verdict, by_verdict, report_settings
from streamkit.config.settings import PREFIX, StreamSettings
from streamkit.errors import ConfigurationError
from streamkit.plugins.application_plugins import ApplicationPlugins

__all__ = ["print_explanation", "print_reference", "print_report"]

_PLACES = (".", "config", "src/main/resources", "src/main/resources/config")
_TITLES: Mapping[Verdict, tuple[str, str]] = {
    Verdict.WRONG: ("Wrong: the application does not start", "red"),
    Verdict.NO_EFFECT: ("Without effect here", "yellow"),
    Verdict.OVERRIDDEN: ("Overridden by something stronger", "dim"),
    Verdict.HONOURED: ("Honoured", "green"),
    Verdict.FOREIGN: ("Not streamkit's", "dim"),
}


def print_explanation(
    context: click.Context, binding: str, config_location: str | None, as_json: bool, arguments: tuple[str, ...]
) -> None:
    """Print every setting of a binding; the arguments are those of `streamkit config explain`.

    Raises:
        click.ClickException: The settings cannot be read.
    """
    plugins = _plugins(context)
    types = plugins.binder_types()
    try:
        environment = _environment(plugins, config_location, arguments)
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


def print_report(
    context: click.Context, path: Path | None, config_location: str | None, as_json: bool, arguments: tuple[str, ...]
) -> None:
    """Print what becomes of each setting; the arguments are those of `streamkit config report`.

    Raises:
        click.ClickException: The settings cannot be read.
        click.exceptions.Exit: A setting is wrong.
    """
    plugins = _plugins(context)
    types = plugins.binder_types()
    try:
        environment = _environment(plugins, config_location, arguments, path)
    except ConfigurationError as error:
        raise click.ClickException(str(error)) from error
    rows = report_settings(environment, types)
    if as_json:
        click.echo(json.dumps({verdict.value: _as_dicts(rows, verdict) for verdict in Verdict}, indent=2))
    else:
        _print_verdicts(rows)
    if by_verdict(rows, Verdict.WRONG):
        raise click.exceptions.Exit(1)


def print_reference(context: click.Context, update: Path | None) -> None:
    """Print the tables of all settings, or write them into the file `update`.

    Raises:
        click.ClickException: The file has no place for the tables.
    """
    tables = reference_tables(_plugins(context).binder_types())
    if update is None:
        click.echo(tables, nl=False)
        return
    written, marker, _ = update.read_text(encoding="utf-8").partition(MARKER)
    if not marker:
        raise click.ClickException(f"{update} has no line {MARKER!r}: the tables are written below it")
    update.write_text(f"{written}{marker}\n\n{tables}", encoding="utf-8")


def _plugins(context: click.Context) -> ApplicationPlugins:
    given = context.find_object(ApplicationPlugins)
    try:
        return ApplicationPlugins() if given is None else given
    except ConfigurationError as error:
        raise click.ClickException(str(error)) from error


def _environment(
    plugins: ApplicationPlugins,
    config_location: str | None,
    arguments: tuple[str, ...],
    path: Path | None = None,
) -> Environment:
    # These commands print the settings without effect; the warnings in the log would repeat them.
    logging.getLogger("streamkit.config").addHandler(logging.NullHandler())
    load = partial(Environment.load, arguments=arguments, more_sources=plugins.settings_sources)
    if path is None:
        return load(config_location=config_location)
    if not path.exists():
        raise click.UsageError(f"there is no file or directory {str(path)!r}")
    if path.is_file():
        return load(config_location=path.name, directory=path.parent)
    places = ",".join(f"optional:{place}" for place in _PLACES)
    return load(config_location=places, directory=path)


def _extended_rows(
    environment: Environment, types: BinderTypes, settings: StreamSettings, binding: str
) -> list[ExplainedSetting]:
    """Return the binder's own settings of the binding."""
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
    """Return the binder type of a binding; None if the settings do not determine the binder."""
    name = settings.binding(binding).binder or settings.default_binder
    configured = settings.binders.get(name) if name else None
    type_ = configured.type or name if configured else name
    candidates = [each for each in types.names if types.get(each).is_default_candidate]
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


def _print_verdicts(rows: Sequence[ReportedSetting]) -> None:
    console = console_for_settings()
    lists = []
    for verdict, (title, style) in _TITLES.items():
        listed = by_verdict(rows, verdict)
        if listed:
            lines = [Line(row.key, row.value, row.origin, row.reason) for row in listed]
            lists.append((Text(title, f"bold {style}"), lines))
    print_settings(console, lists)
    console.print(", ".join(f"{len(by_verdict(rows, verdict))} {verdict.value}" for verdict in Verdict), style="bold")


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
