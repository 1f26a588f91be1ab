"""Read single values of settings by their annotations: text as it is in a file becomes a number, a choice, a duration.

Values and error messages are those of pydantic, so that settings of the framework and of applications behave alike.
This module does not import pydantic, whose import takes longer than the rest of a command's start.

    bool, int, float, str, timedelta, an Enum, Path, Literal      as pydantic reads them from Python's values
    Annotated[..., Before(function)]                              `function` prepares the value for the annotation
    Annotated[..., After(function)]                               `function` judges or changes the value that was read
"""

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, get_args, get_origin

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

__all__ = [
    "DURATION_LIMIT",
    "NO_DURATION",
    "After",
    "Before",
    "EntryError",
    "InvalidSettingsError",
    "Problem",
    "Reader",
    "instance_reader",
    "leaf_reader",
    "problems_of",
]

Reader: TypeAlias = Callable[[object], object]
"""A function that returns the value of a setting, given the raw value; it raises ValueError if that is wrong."""

_LEAST_LONG: Final = -(2**63)
"""pydantic reads a number as a boolean only if it is an integer of 64 bits."""
_TRUE: Final = frozenset({"1", "on", "t", "true", "y", "yes"})
_FALSE: Final = frozenset({"0", "off", "f", "false", "n", "no"})
_INTEGER: Final = re.compile(r"[+-]?[0-9]+(?:_[0-9]+)*(?:\.0+)?")
_SPACES: Final = "\t\n\v\f\r \x85\xa0\u2028\u2029\u3000"
"""What may stand around a number; `str.strip` without it removes some control characters, too."""
DURATION_LIMIT: Final = f"expected a duration of at most {timedelta.max.days}d"
"""The reason why a longer duration is refused: Python's `timedelta` cannot hold it."""
NO_DURATION: Final = "expected a valid duration in ISO 8601, such as PT10S or P1DT12H"
"""The reason why a text is refused that is no duration."""
_ISO_DURATION: Final = re.compile(
    r"(?P<sign>[+-])?P(?=.)(?:(?P<years>\d+)Y)?(?:(?P<months>\d+)M)?(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?=.)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:[.,]\d{1,9})?)S)?)?",
    re.IGNORECASE | re.ASCII,
)


class EntryError(ValueError):
    """One entry of a table, or one field of a model, is wrong; raised by the functions that judge it.

    Attributes:
        name: The name of the entry, as in the table or the model.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name = name


class Problem(NamedTuple):
    """A wrong value of a settings model.

    Attributes:
        location: The place in the raw values: names of fields, keys of tables, indexes of lists.
        reason: What is wrong.
        is_missing: Whether the value is not set.
    """

    location: tuple[str | int, ...]
    reason: str
    is_missing: bool = False


class InvalidSettingsError(ValueError):
    """Raw values are not those of a settings model.

    Attributes:
        problems: What is wrong, in the order of the fields.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{'.'.join(map(str, each.location))}: {each.reason}" for each in self.problems))


def problems_of(error: ValueError) -> Iterator[Problem]:
    """Yield the problems that an error stands for; an `EntryError` is about one entry of what was read."""
    if isinstance(error, InvalidSettingsError):
        yield from error.problems
    else:
        yield Problem((error.name,) if isinstance(error, EntryError) else (), str(error))


class Before:
    """Annotates a setting with a function that prepares its raw value; pydantic's models understand it, too."""

    def __init__(self, function: Reader) -> None:
        """Make the annotation.

        Args:
            function: Returns the prepared value; raises ValueError if the raw value is wrong.
        """
        self.function = function

    def __get_pydantic_core_schema__(self, source: object, handler: "GetCoreSchemaHandler") -> "CoreSchema":
        """Return the schema of pydantic for the annotated type."""
        from pydantic_core.core_schema import no_info_before_validator_function

        return no_info_before_validator_function(self.function, handler(source))


class After:
    """Annotates a setting with a function that judges or changes its value; pydantic's models understand it, too."""

    def __init__(self, function: Callable[[Any], object]) -> None:
        """Make the annotation.

        Args:
            function: Returns the value of the setting; raises ValueError if the value that was read is wrong.
        """
        self.function = function

    def __get_pydantic_core_schema__(self, source: object, handler: "GetCoreSchemaHandler") -> "CoreSchema":
        """Return the schema of pydantic for the annotated type."""
        from pydantic_core.core_schema import no_info_after_validator_function

        return no_info_after_validator_function(self.function, handler(source))


def leaf_reader(annotation: object) -> Reader | None:
    """Return the function that reads values of a type; None if this module does not know the type.

    Args:
        annotation: A class, `Literal`, `Any` or `object`.
    """
    if annotation is Any or annotation is object:
        return _unchanged
    if get_origin(annotation) is Literal:
        choices = get_args(annotation)
        return _choice_reader({choice: choice for choice in choices})
    if not isinstance(annotation, type):
        return None
    if issubclass(annotation, Enum):
        return _choice_reader({member.value: member for member in annotation}, annotation)
    return _READERS.get(annotation)


def _choice_reader(choices: dict[Any, object], type_: type | None = None) -> Reader:
    """Return the function that reads one of several values.

    Args:
        choices: What is read, by the raw values.
        type_: The type of what is read; None if it is not an enum.
    """
    shown = [repr(choice) for choice in choices]
    listed = f"{', '.join(shown[:-1])} or {shown[-1]}" if len(shown) > 1 else "".join(shown)

    def read(value: object) -> object:
        if type_ is not None and isinstance(value, type_):
            return value
        try:
            return choices[value]
        except (KeyError, TypeError):  # an unhashable value is not a choice
            raise ValueError(f"expected {listed}") from None

    return read


def _unchanged(value: object) -> object:
    return value


def instance_reader(type_: type) -> Reader:
    """Return the function that accepts instances of a class, which `Before` makes, and nothing else."""

    def read(value: object) -> object:
        if isinstance(value, type_):
            return value
        raise ValueError(f"expected an instance of {type_.__name__}")

    return read


def _bool(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        text = value.lower()
        if text in _TRUE or text in _FALSE:
            return text in _TRUE
    elif not (isinstance(value, int | float) and _LEAST_LONG <= value < -_LEAST_LONG and value == int(value)):
        raise ValueError("expected a valid boolean")
    elif value in (0, 1):
        return bool(value)
    raise ValueError("expected a valid boolean, unable to interpret input")


def _int(value: object) -> int:
    if isinstance(value, int):  # bools included
        return int(value)
    if isinstance(value, float):
        if value - value != 0:
            raise ValueError("expected a finite number")
        if not value.is_integer():
            raise ValueError("expected a valid integer, got a number with a fractional part")
        if not _LEAST_LONG <= value < -_LEAST_LONG:
            raise ValueError("Unable to parse input string as an integer, exceeded maximum size")
        return int(value)
    if not isinstance(value, str):
        raise ValueError("expected a valid integer")
    text = value.strip(_SPACES)
    if not _INTEGER.fullmatch(text) or len(text) > _LONGEST_NUMBER:
        raise ValueError("expected a valid integer, unable to parse string as an integer")
    return int(text.partition(".")[0])


_LONGEST_NUMBER: Final = 4_000
"""Characters of an integer's text; Python refuses to convert more than 4,300 digits."""


def _float(value: object) -> float:
    if not isinstance(value, int | float | str):
        raise ValueError("expected a valid number")
    if isinstance(value, str):
        value = value.strip(_SPACES)
        if not value.isprintable() or not value.isascii():
            raise ValueError("expected a valid number, unable to parse string as a number")
    try:
        return float(value)
    except OverflowError:
        raise ValueError("expected a valid number") from None
    except ValueError:
        raise ValueError("expected a valid number, unable to parse string as a number") from None


def _str(value: object) -> str:
    if isinstance(value, str):
        return value
    raise ValueError("expected a valid string")


def _path(value: object) -> Path:
    if isinstance(value, str | Path):
        return Path(value)
    raise ValueError("expected a path")


def _timedelta(value: object) -> timedelta:
    if isinstance(value, timedelta):
        return value
    found = _ISO_DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(NO_DURATION)
    amounts = {unit: float((found[unit] or "0").replace(",", ".")) for unit in _UNITS}
    days = 365 * amounts.pop("years") + 30 * amounts.pop("months") + amounts.pop("days")
    try:
        duration = timedelta(days=days, **amounts)
        return -duration if found["sign"] == "-" else duration
    except OverflowError:
        raise ValueError(DURATION_LIMIT) from None


_UNITS: Final = ("years", "months", "weeks", "days", "hours", "minutes", "seconds")
_READERS: Final[dict[type, Reader]] = {
    bool: _bool,
    int: _int,
    float: _float,
    str: _str,
    timedelta: _timedelta,
    Path: _path,
}
