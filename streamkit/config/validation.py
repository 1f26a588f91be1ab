"""Validate settings models; errors name file, line, key, value and the expected value."""

import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

import msgspec

from streamkit.config.located_errors import located
from streamkit.config.origin import Value
from streamkit.config.relaxed import format_key, kebab, parse_key
from streamkit.config.setting_limits import Accepted, AcceptedEntries, Limit, NotInMemory, Rejected, limit_of
from streamkit.config.setting_values import InvalidSettingsError, Problem
from streamkit.config.settings_model import SettingsModel
from streamkit.config.shape import AnyModel, Field, Leaf, Listing, Location, Section, Shape, Table, section_of
from streamkit.config.tree import RawTree
from streamkit.config.verdict import SettingWarning
from streamkit.errors import ConfigurationError, ConfigurationErrors

if TYPE_CHECKING:
    from pydantic import BaseModel

logger = logging.getLogger(__name__)

ENVIRONMENT: Final = "_environment"
"""The argument of a `BaseSettings` with the environment that its StreamSettingsSource reads."""

M = TypeVar("M", bound="SettingsModel | BaseModel")


class Bound(msgspec.Struct, Generic[M], frozen=True):
    """A validated model with the origins of its values.

    Attributes:
        value: The model.
        origins: The values that sources set, by their location in the model.
    """

    value: M
    origins: Mapping[Location, Value]


class Reading:
    """The raw values of a settings object, passed to its StreamSettingsSource through the constructor.

    Attributes:
        is_used: Whether the source has read the values.
    """

    def __init__(self, tree: RawTree) -> None:
        self.is_used = False
        self._tree = tree

    def values(self) -> dict[str, object]:
        """Return the raw values, and note that they are used."""
        self.is_used = True
        return self._tree.values


def validate(tree: RawTree, model: type[M], given: Mapping[str, object] = MappingProxyType({})) -> Bound[M]:
    """Return the validated model of raw values.

    Args:
        tree: The raw values.
        model: The model. A `BaseSettings` gets the values through its own sources, of which one must be a
            :class:`streamkit.config.settings_source.StreamSettingsSource`.
        given: Arguments of a `BaseSettings`; they win over the values.

    Raises:
        ConfigurationErrors: All problems of the values.
        TypeError: The model is a `BaseSettings` without a StreamSettingsSource.
    """
    problems = [*tree.problems, *_rejections(tree)]
    try:
        value = _validated(tree, model, given)
    except InvalidSettingsError as error:
        # Not `from error`: see `pydantic_models.validated`.
        raise ConfigurationErrors(in_order([*problems, *_errors_of(tree, error)])) from None
    if problems:
        raise ConfigurationErrors(in_order(problems))
    return Bound(value, tree.origins)


def _validated(tree: RawTree, model: type[M], given: Mapping[str, object]) -> M:
    if issubclass(model, SettingsModel):
        return cast("M", model.model_validate(tree.values))
    from streamkit.config.pydantic_models import validated

    if _is_base_settings(model):
        return cast("M", validated(lambda _: _through_sources(model, tree, given), tree.values))
    return cast("M", validated(model.model_validate, tree.values))


def _is_base_settings(model: "type[BaseModel]") -> bool:
    """Return whether a model is a `BaseSettings`.

    pydantic-settings is slow to import. If nobody has imported it, no such class exists.
    """
    pydantic_settings = sys.modules.get("pydantic_settings")
    return pydantic_settings is not None and issubclass(model, pydantic_settings.BaseSettings)


def _through_sources(model: "type[BaseModel]", tree: RawTree, given: Mapping[str, object]) -> "BaseModel":
    reading = Reading(tree)
    try:
        return model(**{**given, ENVIRONMENT: reading})
    finally:
        if not reading.is_used:
            raise TypeError(
                f"{model.__qualname__} does not read streamkit's settings: let its settings_customise_sources return a "
                "StreamSettingsSource"
            ) from None


def _errors_of(tree: RawTree, error: InvalidSettingsError) -> Iterator[ConfigurationError]:
    """Yield an error for each wrong value, with the place that sets it; secrets are hidden."""
    for problem in error.problems:
        source = tree.origin_of(problem.location)
        known = _key_of(tree, problem.location)
        if source is None or problem.is_missing:
            yield ConfigurationError(f"{known} is not set: {problem.reason}", key=known)
            continue
        yield located(source, problem.reason, secrets=_values_below(tree, problem))


def _values_below(tree: RawTree, problem: Problem) -> Iterator[Value]:
    """Return the values below a location.

    An error about a whole table may repeat any of them, so secrets among them must be hidden.
    """
    location = problem.location
    return (value for at, value in tree.origins.items() if at[: len(location)] == location)


def _key_of(tree: RawTree, location: Location) -> str:
    steps = (step if isinstance(step, int) else kebab(step) for step in location)
    return format_key((*parse_key(tree.prefix), *map(str, steps)))


def _rejections(tree: RawTree) -> Iterator[ConfigurationError]:
    for value, limit in _limited(tree):
        if isinstance(limit, Rejected):
            yield located(value, f"not supported: {limit.reason}", suggestion=limit.reason)


def without_effect(tree: RawTree) -> Iterator[SettingWarning]:
    """Yield a warning for each setting that is set but has no effect."""
    for value, limit in _limited(tree):
        if isinstance(limit, Accepted):
            yield SettingWarning(value, limit.reason)


def not_in_memory(bound: Bound[M]) -> Iterator[SettingWarning]:
    """Yield a warning for each setting that a binder in memory does not imitate."""
    section = section_of(cast("AnyModel", type(bound.value)))
    for location, value in bound.origins.items():
        for known in _fields_on(section, location):
            mark = next((note for note in known.declared.notes if isinstance(note, NotInMemory)), None)
            if mark is not None and _applies(mark, known, value):
                yield SettingWarning(value, f"{mark.reason} (in memory)")


def _limited(tree: RawTree) -> Iterator[tuple[Value, Limit]]:
    """Yield the values that a limit applies to, each with the limit."""
    for location, value in tree.origins.items():
        for known in _fields_on(tree.section, location):
            limit = limit_of(known.declared.notes) or _limit_of_entry(known, str(location[-1]))
            if limit is not None and _applies(limit, known, value):
                yield value, limit
                break


def _limit_of_entry(known: Field, name: str) -> Limit | None:
    """Return the limit of an entry of a table."""
    marks = (mark for mark in known.declared.notes if isinstance(mark, AcceptedEntries))
    reason = next((reason for mark in marks if (reason := mark.why(name)) is not None), None)
    return None if reason is None else Accepted(reason)


def _applies(limit: Limit | NotInMemory, known: Field, value: Value) -> bool:
    if not isinstance(known.shape, Leaf):
        return True
    try:
        validated = known.declared.read(known.shape.prepare(value.value))
    except ValueError:
        return False
    if limit.only:
        return validated in limit.only
    try:
        return bool(validated != known.declared.default())
    except LookupError:  # a required setting has no default
        return True


def _fields_on(section: Section, location: Location) -> Iterator[Field]:
    """Yield the fields that contain a location, the outermost first."""
    shape: Shape = section
    for step in location:
        if isinstance(shape, Section):
            known = next((known for known in shape.fields.values() if known.key == step), None)
            if known is None:
                return
            yield known
            shape = known.shape
        elif isinstance(shape, Table):
            shape = shape.value
        elif isinstance(shape, Listing):
            shape = shape.item


def in_order(problems: Iterable[ConfigurationError]) -> list[ConfigurationError]:
    """Return problems sorted by file and line, each text once: a wrong default is found again for every binding."""
    return sorted({str(problem): problem for problem in problems}.values(), key=_place)


def _place(problem: ConfigurationError) -> tuple[str, int]:
    place, _, line = (problem.origin or "").rpartition(":")
    return (place, int(line)) if line.isdigit() else (problem.origin or "", 0)
