"""The work of `streamkit config explain`, `report` and `reference`: read an application's settings and print them."""

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from msgspec.structs import replace

from streamkit.binder.binder_type import BinderTypes
from streamkit.cli.setting_lists import Line, SettingList, print_settings
from streamkit.config.application_properties import POLLER
from streamkit.config.environment import Environment
from streamkit.config.function_properties import PollerProperties
from streamkit.config.report import ReportedSetting, by_verdict, report_settings
from streamkit.config.settings import PREFIX, StreamSettings
from streamkit.config.verdict import Verdict
from streamkit.errors import ConfigurationError
from streamkit.plugins.application_plugins import ApplicationPlugins
from streamkit.running.rehearsal import Rehearsed, rehearse, rehearse_settings
from streamkit.terminal_tables import terminal_width

if TYPE_CHECKING:
    from streamkit.config.explain import ExplainedSetting

__all__ = ["Asked", "print_explanation", "print_reference", "print_report"]

_PLACES = (".", "config", "src/main/resources", "src/main/resources/config")
_REFUSED = frozenset({Verdict.WRONG})
_REFUSED_IF_STRICT = _REFUSED | {Verdict.NAMES_NOTHING, Verdict.ANOTHER_BINDER, Verdict.NO_EFFECT}
_TITLES: Mapping[Verdict, tuple[str, str | None]] = {
    Verdict.WRONG: ("Wrong: the application does not start", "red"),
    Verdict.NAMES_NOTHING: ("For bindings that nothing makes", "yellow"),
    Verdict.ANOTHER_BINDER: ("For a binder that is not used", "yellow"),
    Verdict.NO_EFFECT: ("Without effect here", "yellow"),
    Verdict.OVERRIDDEN: ("Overridden by something stronger", None),
    Verdict.HONOURED: ("Honoured", "green"),
    Verdict.FOREIGN: ("Not streamkit's", None),
}


class Asked(msgspec.Struct, frozen=True):
    """The arguments that `config explain` and `config report` share.

    Attributes:
        app: `MODULE[:NAME]` of the application whose settings are meant, or None for settings alone.
        app_dir: The directory to import the module from.
        config_location: Files or directories to read, or None.
        arguments: Settings as arguments.
        path: The file or directory to report on, or None.
        as_json: Whether to print JSON.
    """

    app: str | None
    app_dir: str
    config_location: str | None
    arguments: tuple[str, ...]
    path: Path | None
    as_json: bool


class _Judged(msgspec.Struct, frozen=True):
    """The settings of an application after its start was rehearsed.

    Attributes:
        environment: All settings.
        types: The installed binder types.
        start: The outcome of the rehearsal.
    """

    environment: Environment
    types: BinderTypes
    start: Rehearsed


def _judged(context: click.Context, asked: Asked) -> _Judged:
    """Read the settings and rehearse the start.

    Raises:
        click.ClickException: The settings cannot be read, or the application cannot be imported.
    """
    # These commands print the settings without effect; the warnings in the log would repeat them.
    logging.getLogger("streamkit").addHandler(logging.NullHandler())
    # Settings name exception classes of the application, which is imported from there.
    place = asked.app_dir if asked.path is None or asked.path.is_file() else str(asked.path)
    sys.path.insert(0, place)
    try:
        if asked.app is not None:
            from streamkit.cli.run import load_application

            application = load_application(asked.app)
            application.take_arguments(asked.arguments)
            container = application.container
            return _Judged(application.environment, container.binder_types(), rehearse(container))
        plugins = _plugins(context)
        environment = _environment(plugins, asked.config_location, asked.arguments, asked.path)
        return _Judged(environment, plugins.binder_types(), rehearse_settings(environment, plugins))
    except ConfigurationError as error:
        raise click.ClickException(str(error)) from error
    finally:
        sys.path.remove(place)


def print_explanation(context: click.Context, binding: str, asked: Asked, *, with_defaults: bool) -> None:
    """Print the settings of a binding; the arguments are those of `streamkit config explain`.

    Raises:
        click.ClickException: The settings cannot be read, or are wrong.
    """
    from streamkit.config.explain import explain_binding

    judged = _judged(context, asked)
    if judged.start.problems:
        raise click.ClickException("\n".join(map(str, judged.start.problems)))
    environment = judged.environment
    settings = StreamSettings.explain(environment, judged.types.names)
    poller = environment.bound(environment.tree(POLLER, PollerProperties), PollerProperties)
    rows = [
        *explain_binding(settings, binding, poller),
        *_extended_rows(environment, judged, binding),
    ]
    reasons = {each.value: each.reason for each in environment.warnings.values()}
    rows = [
        row if row.set_by is None else replace(row, note=reasons.get(row.set_by, row.note))
        for row in rows
        if with_defaults or not row.is_default
    ]
    if asked.as_json:
        click.echo(json.dumps([_row_as_dict(row) for row in rows], indent=2))
        return
    print_settings([SettingList(f"binding {binding}", [_explained_line(row) for row in rows])], terminal_width())
    if settings.value.configured_name(binding) is None:
        click.echo(_nothing_sets(settings.value, binding))
    if not with_defaults:
        click.secho("All other settings have their defaults: --defaults lists them.", dim=True)


def print_report(context: click.Context, asked: Asked, *, strict: bool) -> None:
    """Print what becomes of each setting; the arguments are those of `streamkit config report`.

    Raises:
        click.ClickException: The settings cannot be read.
        click.exceptions.Exit: A setting is wrong; with `strict`, also if one is without effect.
    """
    judged = _judged(context, asked)
    rows = report_settings(judged.environment, judged.start.problems)
    if asked.as_json:
        click.echo(json.dumps({verdict.value: _as_dicts(rows, verdict) for verdict in Verdict}, indent=2))
    else:
        _print_verdicts(rows)
    if any(row.verdict in (_REFUSED if not strict else _REFUSED_IF_STRICT) for row in rows):
        raise click.exceptions.Exit(1)


def print_reference(context: click.Context, update: Path | None) -> None:
    """Print the tables of all settings, or write them into the file `update`.

    Raises:
        click.ClickException: The file has no place for the tables.
    """
    from streamkit.config.reference import MARKER, reference_tables

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
    load = partial(Environment.load, arguments=arguments, more_sources=plugins.settings_sources)
    if path is None:
        return load(config_location=config_location)
    if not path.exists():
        raise click.UsageError(f"there is no file or directory {str(path)!r}")
    if path.is_file():
        return load(config_location=path.name, directory=path.parent)
    places = ",".join(f"optional:{place}" for place in _PLACES)
    return load(config_location=places, directory=path)


def _extended_rows(environment: Environment, judged: _Judged, binding: str) -> "list[ExplainedSetting]":
    """Return the binder's own settings of the binding."""
    from streamkit.config.explain import explain_model

    type_ = judged.start.type_of(binding)
    if type_ is None:
        return []
    rows = []
    for side, model in zip(("consumer", "producer"), judged.types.extended_models(type_), strict=True):
        bound = environment.explain_extended(type_, binding, side, model)
        for row in explain_model(bound.value, bound.origins):
            rows.append(replace(row, key=f"{type_}.{side}.{row.key}"))
    return rows


def _explained_line(row: "ExplainedSetting") -> Line:
    why = None if row.note is None else f"no effect: {row.note}"
    return Line(row.key, row.value, row.origin, why, is_dim=row.is_default)


def _nothing_sets(settings: StreamSettings, binding: str) -> str:
    near = get_close_matches(binding, settings.bindings, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return f"Nothing sets {PREFIX}.bindings.{binding}; these are the defaults.{hint}"


def _print_verdicts(rows: Sequence[ReportedSetting]) -> None:
    lists = []
    for verdict, (title, color) in _TITLES.items():
        listed = by_verdict(rows, verdict)
        if listed:
            lines = [Line(row.key, row.value, row.origin, row.reason) for row in listed]
            lists.append(SettingList(title, lines, color))
    print_settings(lists, terminal_width())
    counts = {verdict: len(by_verdict(rows, verdict)) for verdict in Verdict}
    shown = [f"{count} {verdict.value}" for verdict, count in counts.items() if count or verdict is Verdict.WRONG]
    click.secho(", ".join(shown), bold=True)


def _row_as_dict(row: "ExplainedSetting") -> dict[str, str | None]:
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
