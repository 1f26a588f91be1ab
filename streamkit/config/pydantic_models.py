"""Read with pydantic what the framework's own readers do not: models of pydantic, unions, types such as Decimal.

This module imports pydantic. It is imported when such a model or value is first read.
"""

from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from streamkit.config.setting_values import NO_DURATION, EntryError, InvalidSettingsError, Problem, Reader

__all__ = ["model_reader", "pydantic_fields", "read_by_pydantic", "validated"]

_PLACEHOLDER: Final = object()
_WRONG_DURATIONS: Final = ("time_delta_parsing", "time_delta_type")

M = TypeVar("M", bound=BaseModel)


class PydanticField:
    """A `DeclaredField` (`shape.py`) of a model of pydantic."""

    def __init__(self, name: str, info: FieldInfo) -> None:
        alias = info.validation_alias or info.alias
        choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
        self.name = name
        self.aliases = tuple(choice for choice in choices if isinstance(choice, str))
        self.key = self.aliases[0] if self.aliases else name
        self.annotation: object = info.annotation
        self.notes = tuple(info.metadata)
        self.description = info.description or ""
        self._info = info

    def default(self) -> object:
        """Return its default value; raise LookupError if it is required."""
        if self._info.is_required():
            raise LookupError(f"the setting {self.name} has no default")
        return self._info.get_default(call_default_factory=True, validated_data={})

    def read(self, value: object) -> object:
        """Return its value, given the raw one; raise ValueError if that is wrong."""
        # `Annotated` needs at least one argument of metadata, so a placeholder comes first.
        annotation: Any = Annotated[self._info.annotation, _PLACEHOLDER, *self._info.metadata]
        return TypeAdapter(annotation).validate_python(value)


def pydantic_fields(model: type[BaseModel]) -> Iterator[PydanticField]:
    """Yield the fields of a model of pydantic."""
    for name, info in model.model_fields.items():
        yield PydanticField(name, info)


def model_reader(model: type[BaseModel]) -> Reader:
    """Return the function that reads a model of pydantic from its raw values."""
    return lambda value: validated(model.model_validate, value)


def read_by_pydantic(annotation: Any, value: object) -> object:
    """Return the value that pydantic reads for an annotation; of a union, that of the member which fits best.

    Raises:
        ValueError: The value is wrong; the text has the reasons of all members of a union.
    """
    # Classes that pydantic does not know may be members of unions if `Before` makes them.
    adapter = TypeAdapter(annotation, config=ConfigDict(arbitrary_types_allowed=True))
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        reasons = dict.fromkeys(_problem(each).reason for each in error.errors(include_url=False))
        raise ValueError(", or ".join(reasons)) from None  # not `from error`, as in `validated`


def validated(make: Callable[[object], M], values: object) -> M:
    """Return the model of raw values.

    Args:
        make: Makes the model of them.
        values: The raw values.

    Raises:
        InvalidSettingsError: Values are wrong, or required ones are missing.
    """
    try:
        return make(values)
    except ValidationError as error:
        # Not `from error`: tracebacks would print the text of that error, which repeats the values, secrets included.
        raise InvalidSettingsError(map(_problem, error.errors(include_url=False))) from None


def _problem(details: ErrorDetails) -> Problem:
    error = details.get("ctx", {}).get("error")
    entry = (error.name,) if isinstance(error, EntryError) else ()
    text = details["msg"].removeprefix("Value error, ").replace("Input should be ", "expected ", 1)
    if details["type"] in _WRONG_DURATIONS and isinstance(details["input"], str):
        text = NO_DURATION  # pydantic names the class and the place in the text, but no example
    return Problem((*details["loc"], *entry), text, is_missing=details["type"] == "missing")
