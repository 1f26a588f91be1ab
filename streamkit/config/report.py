"""A report that says of each setting whether it is honoured, without effect, overridden, wrong or foreign."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Protocol

from pydantic import BaseModel

from streamkit.config.application_properties import GROUPS
from streamkit.config.environment import Environment
from streamkit.config.extended import ExtendedModels
from streamkit.config.origin import Value
from streamkit.config.relaxed import Segments, parse_key, uniform
from streamkit.config.secret import shown_text
from streamkit.config.settings import PREFIX, StreamSettings
from streamkit.config.source import EnvironmentVariables, KeyedSource
from streamkit.config.validation import in_order
from streamkit.errors import ConfigurationError, ConfigurationErrors

_OF_THE_READER = (("spring", "profiles"), ("spring", "config"))
"""Prefixes of the settings that decide which files and documents are read."""

_FOREIGN_REASONS: Mapping[Segments, str] = {
    ("spring", "cloud", "nacos"): "settings kept in Nacos are not read, and nothing is registered there",
    ("spring", "cloud", "config"): "settings kept in a config server are not read",
    ("server",): "streamkit serves no web pages; management.server.port is for the management endpoints",
    ("logging",): "logging is Python's: streamkit run --log-level, or the logging module",
}
_NOT_OURS = "not streamkit's: left to whoever reads it"


class Verdict(Enum):
    """The effect of a setting."""

    WRONG = "wrong"
    """Unknown, of the wrong kind, or not supported: the application does not start."""
    NO_EFFECT = "no effect"
    """The setting is ignored."""
    OVERRIDDEN = "overridden"
    """A stronger source sets the same key."""
    HONOURED = "honoured"
    """The setting has its effect."""
    FOREIGN = "not ours"
    """The key is below none of streamkit's prefixes."""


@dataclass(frozen=True, slots=True)
class ReportedSetting:
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


class KnownTypes(Protocol):
    """The installed binder types."""

    names: list[str]

    @property
    def extended_models(self) -> ExtendedModels:
        """A function that returns the models of a type's `consumer.*` and `producer.*`."""
        ...

    @property
    def settings_models(self) -> Callable[[str], Mapping[str, type[BaseModel]]]:
        """A function that returns the models of a type's other settings, by prefix."""
        ...


def report_settings(environment: Environment, types: KnownTypes) -> list[ReportedSetting]:
    """Return a row for each setting, sorted by verdict.

    The settings are those of the files, the arguments and the code, and the environment variables that were read.

    Args:
        environment: All settings.
        types: The installed binder types.
    """
    problems = list(_problems(environment, types))
    rows = [_wrong(problem) for problem in in_order(problems)]
    reported = {(row.origin, row.key) for row in rows}
    no_effect = {(str(w.value.origin), w.value.key): w.reason for w in environment.warnings.values()}
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
        elif place in no_effect:
            rows.append(_row(value, Verdict.NO_EFFECT, no_effect[place]))
        elif place in environment.asked or segments[:2] in _OF_THE_READER:
            rows.append(_row(value, Verdict.HONOURED))
        elif (variable := _variable_for(environment, value)) is not None:
            rows.append(_row(value, Verdict.OVERRIDDEN, f"by {variable.origin}"))
        else:
            rows.append(_row(value, Verdict.FOREIGN, _why_foreign(segments)))
    order = list(Verdict)
    return sorted(rows, key=lambda row: order.index(row.verdict))


def _written(environment: Environment) -> Iterator[Value]:
    """Yield the values of keyed sources, the strongest first, then the environment variables that were read."""
    for source in environment.sources:
        if isinstance(source, KeyedSource):
            yield from (entry.value for entry in source.entries())
    yield from (value for (origin, _), value in environment.asked.items() if "environment variable" in origin)


def _variable_for(environment: Environment, value: Value) -> Value | None:
    """Return the environment variable that overrides a value; None if there is none.

    The name of a variable alone does not tell which key it sets, so each variable source is asked for the value's key,
    and the variable counts only if it was read.
    """
    variables = (source for source in environment.sources if isinstance(source, EnvironmentVariables))
    found = (source.get(value.key) for source in variables)
    return next((each for each in found if each and (str(each.origin), each.key) in environment.asked), None)


def _problems(environment: Environment, types: KnownTypes) -> Iterator[ConfigurationError]:
    """Yield the problems of the settings, found by reading the settings as an application does."""
    environment.text("spring.application.name")
    groups: dict[str, type[BaseModel]] = {group.prefix: group.model for group in GROUPS}
    for type_ in types.names:
        groups |= types.settings_models(type_)
    for prefix, model in groups.items():
        yield from _attempt(partial(environment.bind, prefix, model))
    yield from _attempt(lambda: StreamSettings.load(environment, types.names, types.extended_models))
    yield from _problems_of_binders(environment, types)


def _problems_of_binders(environment: Environment, types: KnownTypes) -> Iterator[ConfigurationError]:
    """Yield the problems of the settings in the environments of single binders."""
    try:
        binders = StreamSettings.load(environment, types.names).binders
    except ConfigurationErrors:
        return  # `_problems` has yielded these errors
    for name, binder in binders.items():
        type_ = binder.type or name
        if type_ not in types.names:
            continue
        own = environment.below(f"{PREFIX}.binders[{name}].environment", inherit=binder.inherit_environment)
        for prefix, model in types.settings_models(type_).items():
            yield from _attempt(partial(own.bind, prefix, model))


def _attempt(read: Callable[[], object]) -> Sequence[ConfigurationError]:
    try:
        read()
    except ConfigurationErrors as found:
        return found.errors
    except ConfigurationError as error:
        return [error]
    return ()


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
