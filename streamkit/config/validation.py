"""Validate settings models; errors name file, line, key, value and the expected value."""

import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Final, Generic, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from streamkit.config.located_errors import EntryError, located
from streamkit.config.origin import Value
from streamkit.config.relaxed import format_key, kebab, parse_key
from streamkit.config.setting_limits import Accepted, AcceptedEntries, Limit, NotInMemory, Rejected, limit_of
from streamkit.config.shape import Field, Leaf, Listing, Location, Section, Shape, Table, section_of
from streamkit.config.tree import RawTree
from streamkit.config.verdict import SettingWarning
from streamkit.errors import ConfigurationError, ConfigurationErrors

logger = logging.getLogger(__name__)

ENVIRONMENT: Final = "_environment"
"""The argument of a `BaseSettings` with the environment that its StreamSettingsSource reads."""

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Bound(Generic[M]):
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
        reads_sources = _is_base_settings(model)
        value: M = _through_sources(model, tree, given) if reads_sources else model.model_validate(tree.values)
    except ValidationError as error:
        # Not `from error`: tracebacks would print the text of that error, which repeats the values, secrets included.
        raise ConfigurationErrors(in_order([*problems, *errors_of(tree, error)])) from None
    if problems:
        raise ConfigurationErrors(in_order(problems))
    return Bound(value, tree.origins)


def _is_base_settings(model: type[BaseModel]) -> bool:
    """Return whether a model is a `BaseSettings`.

    pydantic-settings is slow to import. If nobody has imported it, no such class exists.
    """
    pydantic_settings = sys.modules.get("pydantic_settings")
    return pydantic_settings is not None and issubclass(model, pydantic_settings.BaseSettings)


def _through_sources(model: type[M], tree: RawTree, given: Mapping[str, object]) -> M:
    reading = Reading(tree)
    try:
        return model(**{**given, ENVIRONMENT: reading})
    finally:
        if not reading.is_used:
            raise TypeError(
                f"{model.__qualname__} does not read streamkit's settings: let its settings_customise_sources return a "
                "StreamSettingsSource"
            ) from None


def errors_of(tree: RawTree, error: ValidationError) -> Iterator[ConfigurationError]:
    """Yield an error for each of pydantic's errors, with the place that sets the value; secrets are hidden."""
    for details in error.errors(include_url=False):
        location: Location = (*details["loc"], *_entry(details))
        source = tree.origin_of(location)
        known = _key_of(tree, location)
        if source is None or details["type"] == "missing":
            yield ConfigurationError(f"{known} is not set: {_expectation(details)}", key=known)
            continue
        # An error about a whole table names one of its keys and may repeat any of its values.
        below = (value for at, value in tree.origins.items() if at[: len(location)] == location)
        yield located(source, _expectation(details), secrets=below)


def _entry(details: ErrorDetails) -> Location:
    """Return the name of the table's entry that the error is about; empty if it is about no entry."""
    error = details.get("ctx", {}).get("error")
    return (error.name,) if isinstance(error, EntryError) else ()


def _expectation(details: ErrorDetails) -> str:
    text = details["msg"].removeprefix("Value error, ")
    return text.replace("Input should be ", "expected ", 1)


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
    section = section_of(type(bound.value))
    for location, value in bound.origins.items():
        for known in _fields_on(section, location):
            mark = next((note for note in known.info.metadata if isinstance(note, NotInMemory)), None)
            if mark is not None and _applies(mark, known, value):
                yield SettingWarning(value, f"{mark.reason} (in memory)")


def _limited(tree: RawTree) -> Iterator[tuple[Value, Limit]]:
    """Yield the values that a limit applies to, each with the limit."""
    for location, value in tree.origins.items():
        for known in _fields_on(tree.section, location):
            limit = limit_of(known.info) or _limit_of_entry(known, str(location[-1]))
            if limit is not None and _applies(limit, known, value):
                yield value, limit
                break


def _limit_of_entry(known: Field, name: str) -> Limit | None:
    """Return the limit of an entry of a table."""
    marks = (mark for mark in known.info.metadata if isinstance(mark, AcceptedEntries))
    reason = next((reason for mark in marks if (reason := mark.why(name)) is not None), None)
    return None if reason is None else Accepted(reason)


def _applies(limit: Limit | NotInMemory, known: Field, value: Value) -> bool:
    if not isinstance(known.shape, Leaf):
        return True
    # `Annotated` needs at least one argument of metadata: the limit is one.
    annotation: Any = Annotated[known.info.annotation, *known.info.metadata]
    try:
        validated = TypeAdapter(annotation).validate_python(known.shape.prepare(value.value))
    except ValidationError:
        return False
    if limit.only:
        return validated in limit.only
    return bool(validated != known.info.get_default(call_default_factory=True))


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
