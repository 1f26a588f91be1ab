"""A report that says of each setting what the start of the application makes of it.

The start is rehearsed first (`streamkit.running.rehearsal`): it returns the problems, and leaves the warnings and the
values that it has read in the environment.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from streamkit.config.environment import Environment
from streamkit.config.origin import Value
from streamkit.config.relaxed import Segments, parse_key, uniform
from streamkit.config.secret import shown_text
from streamkit.config.source import EnvironmentVariables, KeyedSource
from streamkit.config.verdict import SettingWarning, Verdict
from streamkit.errors import ConfigurationError

__all__ = ["ReportedSetting", "by_verdict", "report_settings"]

_OF_THE_READER = (("spring", "profiles"), ("spring", "config"))
"""Prefixes of the settings that decide which files and documents are read."""

_OURS = (("spring", "cloud", "stream"), ("spring", "cloud", "function"))
"""Prefixes below which nobody else has settings."""

_FOREIGN_REASONS: Mapping[Segments, str] = {
    ("spring", "cloud", "nacos"): "settings kept in Nacos are not read, and nothing is registered there",
    ("spring", "cloud", "config"): "settings kept in a config server are not read",
    ("server",): "streamkit serves no web pages; management.server.port is for the management endpoints",
    ("logging",): "logging is Python's: streamkit run --log-level and --log-format, or the logging module",
}
_NOT_OURS = "not streamkit's: left to whoever reads it"


class ReportedSetting(msgspec.Struct, frozen=True):
    """A setting as written at its place.

    Attributes:
        key: The key.
        value: The value; a secret is hidden.
        origin: The place that sets the value.
        verdict: The effect of the setting.
        reason: The reason for the verdict; None if the setting is honoured.
        suggestion: What to write instead of a wrong setting.
    """

    key: str
    value: str
    origin: str
    verdict: Verdict
    reason: str | None = None
    suggestion: str | None = None


def report_settings(environment: Environment, problems: Iterable[ConfigurationError]) -> list[ReportedSetting]:
    """Return a row for each setting, sorted by verdict.

    The settings are those of the files, the arguments and the code, and the environment variables that were read.

    Args:
        environment: All settings, after the start was rehearsed with them.
        problems: What the start refuses.
    """
    rows = [_wrong(problem) for problem in problems]
    reported = {(row.origin, row.key) for row in rows}
    warnings: dict[tuple[str, str], SettingWarning] = {}
    for warning in environment.warnings.values():
        warnings.setdefault((str(warning.value.origin), warning.value.key), warning)
    strongest: dict[Segments, Value] = {}
    for value in _written(environment):
        segments = tuple(map(uniform, parse_key(value.key)))
        place = (str(value.origin), value.key)
        stronger = strongest.setdefault(segments, value)
        if place in reported:
            continue
        reported.add(place)
        if stronger is not value:
            rows.append(_row(value, Verdict.OVERRIDDEN, f"by {stronger.origin}"))
        elif place in warnings:
            rows.append(_row(value, warnings[place].verdict, warnings[place].reason))
        elif place in environment.asked or segments[:2] in _OF_THE_READER:
            rows.append(_row(value, Verdict.HONOURED))
        elif (variable := _variable_for(environment, value)) is not None:
            rows.append(_row(value, Verdict.OVERRIDDEN, f"by {variable.origin}"))
        elif any(segments[: len(prefix)] == prefix for prefix in _OURS):
            rows.append(_row(value, Verdict.NO_EFFECT, "nothing reads it"))
        else:
            rows.append(_row(value, Verdict.FOREIGN, _why_foreign(segments)))
    for place, warning in warnings.items():
        if place not in reported:  # a document sets its key again
            rows.append(_row(warning.value, warning.verdict, warning.reason))
    order = list(Verdict)
    return sorted(rows, key=lambda row: order.index(row.verdict))


def _written(environment: Environment) -> Iterator[Value]:
    """Yield the values of keyed sources, the strongest first, then the environment variables that are streamkit's."""
    for source in environment.sources:
        if isinstance(source, KeyedSource):
            yield from (entry.value for entry in source.entries())
    yield from (value for (origin, _), value in environment.asked.items() if "environment variable" in origin)
    for source in environment.sources:
        if isinstance(source, EnvironmentVariables):
            for prefix in _OURS:
                yield from (entry.value for entry in source.entries(prefix))


def _variable_for(environment: Environment, value: Value) -> Value | None:
    """Return the environment variable that overrides a value; None if there is none.

    The name of a variable alone does not tell which key it sets, so each variable source is asked for the value's key,
    and the variable counts only if it was read.
    """
    variables = (source for source in environment.sources if isinstance(source, EnvironmentVariables))
    found = (source.get(value.key) for source in variables)
    return next((each for each in found if each and (str(each.origin), each.key) in environment.asked), None)


def _wrong(problem: ConfigurationError) -> ReportedSetting:
    key, origin = problem.key or "", problem.origin or ""
    reason = str(problem).removeprefix(f"{origin}: ")
    value = "" if problem.value is None else str(problem.value)
    return ReportedSetting(key, shown_text(key, value), origin, Verdict.WRONG, reason, problem.suggestion)


def _row(value: Value, verdict: Verdict, reason: str | None = None) -> ReportedSetting:
    return ReportedSetting(value.key, value.shown, str(value.origin), verdict, reason)


def _why_foreign(segments: Segments) -> str:
    return next(
        (reason for prefix, reason in _FOREIGN_REASONS.items() if segments[: len(prefix)] == prefix),
        _NOT_OURS,
    )


def by_verdict(rows: Iterable[ReportedSetting], verdict: Verdict) -> list[ReportedSetting]:
    """Return the rows with a verdict."""
    return [row for row in rows if row.verdict is verdict]
