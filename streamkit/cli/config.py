"""`streamkit config`: what the settings are, and what is wrong with them."""

import json
import logging
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.table import Table

from streamkit.binder.registry import BinderTypes
from streamkit.config.environment import Environment
from streamkit.config.explain import ExplainedSetting, explain_binding, explain_model
from streamkit.config.settings import PREFIX, StreamSettings
from streamkit.config.validation import SettingWarning
from streamkit.errors import ConfigurationError, ConfigurationErrors

C = TypeVar("C", bound=Callable[..., Any])


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
            *explain_binding(settings, binding),
            *_extended_rows(environment, types, settings.value, binding),
        ]
    except ConfigurationError as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(json.dumps([_row_as_dict(row) for row in rows], indent=2))
        return
    console = Console()
    console.print(_settings_table(binding, rows))
    if settings.value.configured_name(binding) is None:
        console.print(_nothing_sets(settings.value, binding))


@config.command(context_settings={"ignore_unknown_options": True})
@_options
@click.pass_context
def report(
    context: click.Context, config_location: str | None, as_json: bool, arguments: tuple[str, ...]
) -> None:
    """List settings that are wrong or have no effect; fail when one is wrong.

    ARGUMENTS like --key=value count as they would when the application starts.
    """
    try:
        environment = _environment(config_location, arguments)
    except ConfigurationError as error:
        raise click.ClickException(str(error)) from error
    problems = _problems(environment, _types(context))
    warnings = list(environment.warnings.values())
    if as_json:
        click.echo(json.dumps(_report_as_dict(problems, warnings), indent=2))
    else:
        _print_report(problems, warnings)
    if problems:
        raise click.exceptions.Exit(1)


def _types(context: click.Context) -> BinderTypes:
    return context.find_object(BinderTypes) or BinderTypes()


def _environment(config_location: str | None, arguments: tuple[str, ...]) -> Environment:
    # Settings without effect are part of what these commands print: the log need not say it too.
    logging.getLogger("streamkit.config").addHandler(logging.NullHandler())
    return Environment.load(config_location=config_location, arguments=arguments)


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


def _problems(environment: Environment, types: BinderTypes) -> tuple[ConfigurationError, ...]:
    try:
        StreamSettings.load(environment, types.names, types.extended_models)
    except ConfigurationErrors as found:
        return found.errors
    return ()


def _settings_table(binding: str, rows: Sequence[ExplainedSetting]) -> Table:
    table = Table(title=f"binding {binding}", title_justify="left")
    for column in ("setting", "value", "origin"):
        table.add_column(column, overflow="fold")
    for row in rows:
        origin = row.origin if row.note is None else f"{row.origin} (no effect: {row.note})"
        table.add_row(row.key, row.value, origin, style="dim" if row.is_default else None)
    return table


def _nothing_sets(settings: StreamSettings, binding: str) -> str:
    near = get_close_matches(binding, settings.bindings, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return f"Nothing sets {PREFIX}.bindings.{binding}; these are the defaults.{hint}"


def _print_report(problems: Sequence[ConfigurationError], warnings: Sequence[SettingWarning]) -> None:
    for problem in problems:
        click.secho("wrong      ", fg="red", nl=False)
        click.echo(str(problem))
    for warning in warnings:
        click.secho("no effect  ", fg="yellow", nl=False)
        click.echo(f"{warning.value.origin}: {warning.value.key}: {warning.reason}")
    if not problems and not warnings:
        click.echo("Every setting is known and has an effect.")


def _row_as_dict(row: ExplainedSetting) -> dict[str, str | None]:
    return {"setting": row.key, "value": row.value, "origin": row.origin, "note": row.note}


def _report_as_dict(
    problems: Sequence[ConfigurationError], warnings: Sequence[SettingWarning]
) -> dict[str, list[dict[str, str | None]]]:
    return {
        "wrong": [
            {"setting": p.key, "origin": p.origin, "text": str(p), "suggestion": p.suggestion}
            for p in problems
        ],
        "no_effect": [
            {"setting": w.value.key, "origin": str(w.value.origin), "text": w.reason} for w in warnings
        ],
    }
