"""Settings are read as pydantic reads them: its judgement of any raw value is the measure, and so are its words."""

import math
from datetime import timedelta
from enum import Enum
from typing import Annotated, Any, Literal

from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, TypeAdapter, ValidationError

from streamkit.config.data_sizes import DataSize
from streamkit.config.durations import Milliseconds, Positive
from streamkit.config.setting_values import InvalidSettingsError
from streamkit.config.settings_model import annotated_reader, setting


class Choice(Enum):
    SOME = "some"
    MORE = "more"
    NUMBER = 3


SCALARS = st.one_of(
    st.text(max_size=6),
    st.text("+-0123456789.eE ", max_size=8),
    st.sampled_from(["true", "Yes", "OFF", "t", "0", "1", " 1 ", "1.0", "1.5", "1_000", "inf", "nan", "some", "3", ""]),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.booleans(),
    st.none(),
)
RAW = st.one_of(SCALARS, st.lists(SCALARS, max_size=3), st.dictionaries(st.text(max_size=3), SCALARS, max_size=3))
ANNOTATIONS: list[tuple[Any, Any]] = [
    (annotation, annotation)
    for annotation in (
        bool, int, float, str, int | None, Choice, Literal["a", "b"], list[int], tuple[int, ...], dict[str, bool],
        dict[int, list[int]], dict[str, Any], DataSize,
    )
]  # fmt: skip
DURATIONS = (timedelta, Milliseconds, Annotated[Milliseconds, Positive] | None)
BOUNDED = (Annotated[int, setting(ge=1, le=9)], Annotated[int, Field(ge=1, le=9)])


def of_pydantic(annotation: Any, value: object) -> object:
    """The value that pydantic reads, or the places and reasons of what it refuses."""
    try:
        return TypeAdapter(annotation).validate_python(value)
    except ValidationError as error:
        return [
            (each["loc"], each["msg"].removeprefix("Value error, ").replace("Input should be ", "expected ", 1))
            for each in error.errors()
        ]


def ours(annotation: Any, value: object) -> object:
    """The same of what a setting of that type reads."""
    try:
        return annotated_reader(annotation)(value)
    except InvalidSettingsError as error:
        return [(each.location, each.reason) for each in error.problems]
    except ValueError as error:
        return [((), str(error))]


@given(st.sampled_from([*ANNOTATIONS, BOUNDED]), RAW)
def test_values_and_errors_are_those_of_pydantic(annotations: tuple[Any, Any], value: object) -> None:
    """Of any raw value: texts, numbers, booleans, lists and tables."""
    own, other = annotations
    read, expected = ours(own, value), of_pydantic(other, value)
    if isinstance(read, float) and math.isnan(read):
        assert isinstance(expected, float)
        assert math.isnan(expected)
        return
    assert repr(read) == repr(expected)


@given(st.sampled_from(DURATIONS), RAW.filter(lambda value: not isinstance(value, bool | int | float)))
def test_durations_are_those_of_pydantic(annotation: Any, value: object) -> None:
    """They are read in the same notations; the words for what is no duration in ISO 8601 are our own."""
    read, expected = ours(annotation, value), of_pydantic(annotation, value)
    assert isinstance(read, list) == isinstance(expected, list)
    if not isinstance(read, list):
        assert read == expected


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=1000)))
def test_durations_in_iso_8601_are_those_of_pydantic(duration: timedelta) -> None:
    """As pydantic writes them."""
    text = TypeAdapter(timedelta).dump_python(duration, mode="json")
    assert ours(timedelta, text) == of_pydantic(timedelta, text) == duration
