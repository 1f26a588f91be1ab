"""Settings models out of raw values; what is wrong is said with file, line, key, value and expectation."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings

from streamkit.config.origin import Value
from streamkit.config.places import located
from streamkit.config.relaxed import format_key, kebab, parse_key
from streamkit.config.shape import Field, Leaf, Listing, Location, Section, Shape, Table
from streamkit.config.support import Accepted, Limit, Rejected, limit_of
from streamkit.config.tree import RawTree
from streamkit.errors import ConfigurationError, ConfigurationErrors

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class SettingWarning:
    """A setting that has no effect.

    Attributes:
        value: What was set, and where.
        reason: Why it has none.
    """

    value: Value
    reason: str

    def __str__(self) -> str:
        return f"{self.value.origin}: {self.value.key} has no effect: {self.reason}"


@dataclass(frozen=True, slots=True)
class Bound(Generic[M]):
    """A validated model with the origins of its values.

    Attributes:
        value: The model.
        origins: Where each value that was set comes from, by its place in the model.
    """

    value: M
    origins: Mapping[Location, Value]


def validate(tree: RawTree, model: type[M]) -> Bound[M]:
    """Return the model of the raw values; a model that is a `BaseSettings` gets them from its own sources.

    Raises:
        ConfigurationErrors: Everything that is wrong with the values.
    """
    problems = [*tree.problems, *_rejections(tree)]
    make = model if issubclass(model, BaseSettings) else partial(model.model_validate, tree.values)
    try:
        value: M = make()
    except ValidationError as error:
        # Not `from error`: its text, which tracebacks print, repeats the values, secrets among them.
        raise ConfigurationErrors(in_order([*problems, *errors_of(tree, error)])) from None
    if problems:
        raise ConfigurationErrors(in_order(problems))
    return Bound(value, tree.origins)


def errors_of(tree: RawTree, error: ValidationError) -> Iterator[ConfigurationError]:
    """Yield pydantic's complaints, each with the place where the value was set; secrets are hidden."""
    for details in error.errors(include_url=False):
        location: Location = details["loc"]
        source = tree.origin_of(location)
        known = _key_of(tree, location)
        if source is None or details["type"] == "missing":
            yield ConfigurationError(f"{known} is not set: {_expectation(details)}", key=known)
            continue
        # A complaint about a whole table names one of its keys, and may repeat any of its values.
        below = (value for at, value in tree.origins.items() if at[: len(location)] == location)
        yield located(source, _expectation(details), secrets=below)


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
    """The settings that were given, but have no effect."""
    for value, limit in _limited(tree):
        if isinstance(limit, Accepted):
            yield SettingWarning(value, limit.reason)


def _limited(tree: RawTree) -> Iterator[tuple[Value, Limit]]:
    """The values set at fields that are not, or not for this value, honoured."""
    for location, value in tree.origins.items():
        for known in _fields_on(tree.section, location):
            limit = limit_of(known.info)
            if limit is not None and _applies(limit, known, value):
                yield value, limit
                break


def _applies(limit: Limit, known: Field, value: Value) -> bool:
    if not isinstance(known.shape, Leaf):
        return True
    # The field has metadata: the limit itself.
    annotation: Any = Annotated[known.info.annotation, *known.info.metadata]
    try:
        validated = TypeAdapter(annotation).validate_python(known.shape.prepare(value.value))
    except ValidationError:
        return False
    if limit.only:
        return validated in limit.only
    return bool(validated != known.info.get_default(call_default_factory=True))


def _fields_on(section: Section, location: Location) -> Iterator[Field]:
    """The fields on the way to `location`, the outermost first."""
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
    """The problems in the order of the files, each once: a wrong default is wrong for every binding."""
    return sorted({str(problem): problem for problem in problems}.values(), key=_place)


def _place(problem: ConfigurationError) -> tuple[str, int]:
    place, _, line = (problem.origin or "").rpartition(":")
    return (place, int(line)) if line.isdigit() else (problem.origin or "", 0)
