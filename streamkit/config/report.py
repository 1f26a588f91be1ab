"""What becomes of each setting: honoured, without effect, wrong, or nothing of ours."""

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
"""What decides which files are read, and what else of them."""

_FOREIGN_REASONS: Mapping[Segments, str] = {
    ("spring", "cloud", "nacos"): "settings kept in Nacos are not read, and nothing is registered there",
    ("spring", "cloud", "config"): "settings kept in a config server are not read",
    ("server",): "streamkit serves no web pages; management.server.port is for the management endpoints",
    ("logging",): "logging is Python's: streamkit run --log-level, or the logging module",
}
_NOT_OURS = "not streamkit's: left to whoever reads it"


class Verdict(Enum):
    """What becomes of a setting."""

    WRONG = "wrong"
    """Unknown, of the wrong kind, or not supported: the application does not start."""
    NO_EFFECT = "no effect"
    """It has no meaning here."""
    OVERRIDDEN = "overridden"
    """Something stronger sets the same."""
    HONOURED = "honoured"
    """It does what it says."""
    FOREIGN = "not ours"
    """It is below no prefix of ours."""


@dataclass(frozen=True, slots=True)
class ReportedSetting:
    """One setting, as it was written.

    Attributes:
        key: Its key.
        value: Its value; a secret's is hidden.
        origin: Where it was set.
        verdict: What becomes of it.
        reason: Why, unless it is honoured.
        suggestion: What to write instead, of one that is wrong.
    """

    key: str
    value: str
    origin: str
    verdict: Verdict
    reason: str | None = None
    suggestion: str | None = None


class KnownTypes(Protocol):
    """The binder types there are."""

    names: list[str]

    @property
    def extended_models(self) -> ExtendedModels:
        """The models of a type's `consumer.*` and `producer.*`."""
        ...

    @property
    def settings_models(self) -> Callable[[str], Mapping[str, type[BaseModel]]]:
        """The models of a type's other settings, by their prefix."""
        ...


def report_settings(environment: Environment, types: KnownTypes) -> list[ReportedSetting]:
    """Every setting of the files, the arguments and the code, and of the environment variables those that count."""
    problems = list(_problems(environment, types))
    told = [_wrong(problem) for problem in in_order(problems)]
    said = {(row.origin, row.key) for row in told}
    no_effect = {(str(w.value.origin), w.value.key): w.reason for w in environment.warnings.values()}
    strongest: dict[Segments, Value] = {}
    for value in _written(environment):
        segments = tuple(map(uniform, parse_key(value.key)))
        place = (str(value.origin), value.key)
        stronger = strongest.setdefault(segments, value)
        if place in said:
            continue
        said.add(place)
        if stronger is not value:
            told.append(_row(value, Verdict.OVERRIDDEN, f"by {stronger.origin}"))
        elif place in no_effect:
            told.append(_row(value, Verdict.NO_EFFECT, no_effect[place]))
        elif place in environment.asked or segments[:2] in _OF_THE_READER:
            told.append(_row(value, Verdict.HONOURED))
        elif (variable := _variable_for(environment, value)) is not None:
            told.append(_row(value, Verdict.OVERRIDDEN, f"by {variable.origin}"))
        else:
            told.append(_row(value, Verdict.FOREIGN, _why_foreign(segments)))
    order = list(Verdict)
    return sorted(told, key=lambda row: order.index(row.verdict))


def _written(environment: Environment) -> Iterator[Value]:
    """The values, the strongest first; of the environment variables those somebody asked for."""
    for source in environment.sources:
        if isinstance(source, KeyedSource):
            yield from (entry.value for entry in source.entries())
    yield from (value for (origin, _), value in environment.asked.items() if "environment variable" in origin)


def _variable_for(environment: Environment, value: Value) -> Value | None:
    """The environment variable that sets the same as a key nobody has asked for; its name alone does not tell."""
    variables = (source for source in environment.sources if isinstance(source, EnvironmentVariables))
    found = (source.get(value.key) for source in variables)
    return next((each for each in found if each and (str(each.origin), each.key) in environment.asked), None)


def _problems(environment: Environment, types: KnownTypes) -> Iterator[ConfigurationError]:
    """What is wrong with the settings, found by reading them as an application would."""
    environment.text("spring.application.name")
    groups: dict[str, type[BaseModel]] = {group.prefix: group.model for group in GROUPS}
    for type_ in types.names:
        groups |= types.settings_models(type_)
    for prefix, model in groups.items():
        yield from _attempt(partial(environment.bind, prefix, model))
    yield from _attempt(lambda: StreamSettings.load(environment, types.names, types.extended_models))
    yield from _problems_of_binders(environment, types)


def _problems_of_binders(environment: Environment, types: KnownTypes) -> Iterator[ConfigurationError]:
    """What is wrong with what only one binder sees."""
    try:
        binders = StreamSettings.load(environment, types.names).binders
    except ConfigurationErrors:
        return  # told already
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
    """The rows of one verdict."""
    return [row for row in rows if row.verdict is verdict]
