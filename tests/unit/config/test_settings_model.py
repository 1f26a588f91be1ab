"""Models of settings: defaults, bounds, other names, checks, and models of pydantic within them."""

import pickle
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretStr, TypeAdapter, ValidationError, field_validator

from streamkit.config.durations import Milliseconds, Positive, Seconds
from streamkit.config.environment import Environment
from streamkit.config.setting_limits import Accepted
from streamkit.config.setting_values import After, Before, EntryError, InvalidSettingsError
from streamkit.config.settings_model import SettingsModel, SharedSettingsModel, fields_of, setting
from streamkit.errors import ConfigurationErrors


def lower(text: str) -> str:
    if text == "never":
        raise ValueError("never say never")
    return text.lower()


class Nested(SettingsModel):
    size: int = setting(default=1, ge=1)


class Example(SettingsModel):
    name: str
    nested: Nested = setting(default_factory=Nested)
    pause: Annotated[Milliseconds, Positive] = timedelta(seconds=1)
    use_tls: Annotated[bool, setting(aliases=("useTLS", "tls"))] = False
    words: list[Annotated[str, After(lower)]] = setting(default_factory=list)
    low: int = 0
    high: int = 10

    def _check(self) -> None:
        if self.low > self.high:
            raise EntryError("low", "low is above high")


def reasons(values: dict[str, object]) -> list[tuple[tuple[str | int, ...], str]]:
    with pytest.raises(InvalidSettingsError) as caught:
        Example.model_validate(values)
    return [(each.location, each.reason) for each in caught.value.problems]


def test_values_are_read_by_their_types() -> None:
    """Also below other names, in lists and in groups."""
    read = Example.model_validate(
        {"name": "a", "nested": {"size": "7"}, "pause": "5", "tls": "yes", "words": ["A", "b"]}
    )
    assert read.nested == Nested(size=7)
    assert read.pause == timedelta(milliseconds=5)
    assert read.use_tls
    assert read.words == ["a", "b"]
    assert read.model_fields_set == {"name", "nested", "pause", "use_tls", "words"}


def test_all_wrong_values_are_found() -> None:
    """Each with its place; groups are checked when their values are right."""
    assert reasons({"nested": {"size": 0}, "pause": "0", "words": ["a", "never"]}) == [
        (("name",), "Field required"),
        (("nested", "size"), "expected greater than or equal to 1"),
        (("pause",), "expected a duration longer than 0"),
        (("words", 1), "never say never"),
    ]
    assert reasons({"name": "a", "low": 11}) == [(("low",), "low is above high")]


def test_required_setting_of_a_group_is_missing_in_the_group() -> None:
    """A required setting of a group is reported at the group, even if nothing of the group is set."""

    class Outer(SettingsModel):
        inner: Example = setting(default_factory=Example)

    with pytest.raises(InvalidSettingsError) as caught:
        Outer.model_validate({})
    assert [each.location for each in caught.value.problems] == [("inner", "name")]


def test_required_setting_with_a_limit_is_warned_of() -> None:
    """A warning does not need a default."""

    class Old(SettingsModel):
        name: Annotated[str, Accepted("it is old")]

    environment = Environment.load(variables={}, config_location="optional:/none", overrides={"x.name": "a"})
    assert environment.bind("x", Old).name == "a"
    assert len(environment.warnings) == 1


def test_settings_do_not_change() -> None:
    """A copy may have other values."""
    first = Example(name="a")
    with pytest.raises(AttributeError, match="settings are immutable"):
        first.low = 1  # type: ignore[misc]
    second = first.model_copy(update={"low": 2})
    assert (first.low, second.low) == (0, 2)
    assert second.model_fields_set == {"name", "low"}
    assert first != second
    assert first == Example(name="a") == pickle.loads(pickle.dumps(first))
    assert hash(Nested()) == hash(Nested(size=1))


def test_defaults_are_not_shared() -> None:
    """A list of one object is not that of another."""
    Example(name="a").words.append("x")
    assert Example(name="b").words == []


def test_secrets_are_hidden_in_texts() -> None:
    """In `repr` and `str`."""

    class Login(SettingsModel):
        user: str = ""
        password: str = ""

    assert repr(Login(user="me", password="hush")) == "Login(user='me', password='******')"


def test_unknown_argument_is_refused() -> None:
    """An unknown argument raises TypeError."""
    with pytest.raises(TypeError, match="Nested has no setting sise"):
        Nested(sise=1)  # type: ignore[call-arg]


def test_declarations_of_pydantic_are_refused() -> None:
    """pydantic's validators, fields, metadata, options and hooks raise TypeError instead of having no effect."""
    with pytest.raises(TypeError, match=r"WithField\.size uses pydantic"):

        class WithField(SettingsModel):
            size: int = Field(default=1, ge=1)

    with pytest.raises(TypeError, match=r"WithValidator\._size uses pydantic"):

        class WithValidator(SettingsModel):
            size: int = 1

            @field_validator("size")
            @classmethod
            def _size(cls, value: int) -> int:
                return value

    with pytest.raises(TypeError, match=r"WithMetadata\.size: .* is pydantic's"):

        class WithMetadata(SettingsModel):
            size: Annotated[int, Field(ge=1)] = 1

    with pytest.raises(TypeError, match=r"WithOptions\.model_config has no effect.*pydantic's BaseModel"):

        class WithOptions(SettingsModel):
            model_config = ConfigDict(extra="ignore")

    with pytest.raises(TypeError, match=r"WithHook\.model_post_init has no effect.*pydantic's BaseModel"):

        class WithHook(SettingsModel):
            def model_post_init(self, context: object) -> None: ...

    with pytest.raises(TypeError, match=r"OfDataclass\.__post_init__ has no effect.*override _prepared or _check"):

        class OfDataclass(SettingsModel):
            def __post_init__(self) -> None: ...

    with pytest.raises(TypeError, match=r"WithInit\.__init__ has no effect on settings that are read"):

        class WithInit(SettingsModel):
            def __init__(self) -> None: ...


def test_dataclass_is_no_settings_model() -> None:
    """The decorator replaces `__init__`, and freezes nothing that is not frozen already."""

    @dataclass
    class Decorated(SettingsModel):
        size: int = 1

    with pytest.raises(TypeError, match=r"Decorated is a SettingsModel: remove @dataclass"):
        Decorated.model_validate({})


def read_as(annotation: object, text: str) -> object:
    """Return the value of a setting with this annotation whose text in a file is `text`."""
    model: Any = type("Single", (SettingsModel,), {"__annotations__": {"value": annotation}})
    environment = Environment.load(variables={}, config_location="optional:/none", overrides={"x.value": text})
    return environment.bind("x", model).value


@pytest.mark.parametrize(
    "value",
    [
        Decimal("1.50"),
        datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        date(2026, 1, 2),
        UUID("12345678-1234-5678-1234-567812345678"),
        IPv4Address("127.0.0.1"),
        Path("/var/log"),
    ],
    ids=repr,
)
def test_types_of_the_standard_library_are_read(value: object) -> None:
    """Also in lists, and if the value may be missing."""
    type_: Any = Path if isinstance(value, Path) else type(value)
    assert read_as(type_, f" {value} ") == value
    assert read_as(type_ | None, str(value)) == value
    assert read_as(list[type_], f"{value},{value}") == [value, value]


def test_bytes_and_types_of_pydantic_are_read() -> None:
    """Bytes are the UTF-8 of the text."""
    assert read_as(bytes, "é") == "é".encode()
    secret = read_as(SecretStr, "hush")
    assert isinstance(secret, SecretStr)
    assert secret.get_secret_value() == "hush"


@pytest.mark.parametrize(
    "text", ["9" * 30, "9" * 30 + "s", "9" * 400 + "ns", "-" + "9" * 30 + "d", f"P{'9' * 30}D", "-P999999999DT1H"]
)
def test_duration_that_is_too_long_is_refused_with_its_key(text: str) -> None:
    """The error says which is the longest."""
    with pytest.raises(ConfigurationErrors, match=rf"x\.value={text}: expected a duration of at most 999999999d"):
        read_as(Seconds, text)


def test_longest_duration_is_read() -> None:
    """In both notations."""
    assert read_as(Seconds, "999999999d") == read_as(Seconds, "P999999999D") == timedelta(days=999_999_999)


def test_wrong_value_is_refused_in_the_words_of_pydantic() -> None:
    """With its key."""
    with pytest.raises(ConfigurationErrors, match=r"x\.value=one: expected a valid decimal"):
        read_as(Decimal, "one")


class Point:
    """A class that no text describes."""


@pytest.mark.parametrize(
    ("annotation", "reason"),
    [
        (Point, "Point: .*Before"),
        (Point | None, "Point: .*Before"),
        (dict[str, Point], "Point: .*Before"),
        (int | Point, "Point: .*Before"),
        (list, r"list: .*list\[str\]"),
        (dict, r"dict: .*dict\[str, str\]"),
        (tuple[int, str], r"tuple\[int, str\]: .*tuple\[int, \.\.\.\]"),
        (Nested | str, "Nested: .*union"),
        (list[Nested] | str, "Nested: .*union"),
        (dict[str, Annotated[Nested, "note"]] | str | None, "Nested: .*union"),
        (list["Nested"], "Nested"),
        (Annotated[int, setting(default=3)] | None, "default"),
    ],
)
def test_annotation_that_settings_cannot_have_is_refused_when_the_class_is_defined(
    annotation: object, reason: str
) -> None:
    """The error names class, field and annotation, and says what to write."""
    with pytest.raises(TypeError, match=rf"Own\.value: .*{reason}"):
        type("Own", (SettingsModel,), {"__annotations__": {"value": annotation}})


def test_annotations_as_text_are_judged_as_well() -> None:
    """When the class is defined, or, if they name what is defined later, when its fields are needed."""
    with pytest.raises(TypeError, match=r"Own\.value: .*Point"):
        type("Own", (SettingsModel,), {"__annotations__": {"value": "Point"}, "__module__": __name__})
    model: Any = type("Own", (SettingsModel,), {"__annotations__": {"value": "Later"}, "__module__": __name__})
    with pytest.raises(NameError, match="Later"):
        fields_of(model)


def test_class_with_a_function_that_makes_it_is_read() -> None:
    """Such a function is `Before`; `None` stays None."""

    def made(value: object) -> object:
        return Point() if value == "here" else value

    class Own(SettingsModel):
        point: Annotated[Point | None, Before(made)] = None

    assert Own().point is None
    assert isinstance(Own.model_validate({"point": "here"}).point, Point)
    with pytest.raises(InvalidSettingsError, match="point: expected an instance of Point"):
        Own.model_validate({"point": "there"})


def test_default_in_the_metadata_of_an_annotation_counts() -> None:
    """The value in the class goes first, as in pydantic."""

    class Own(SettingsModel):
        tries: Annotated[int, setting(default=3)]
        words: Annotated[list[str], setting(default_factory=list)]
        other: Annotated[int, setting(default=3, ge=2)] = 4
        bounded: Annotated[int, setting(default=3)] = setting(le=9)

    own = Own()  # type: ignore[call-arg]
    assert (own.tries, own.words, own.other, own.bounded) == (3, [], 4, 3)
    with pytest.raises(InvalidSettingsError, match="greater than or equal to 2"):
        Own.model_validate({"other": 1})


class Color(Enum):
    RED = "red"


TEXTS = ("1", "0", "true", "off", "1.0", "1.5", "-7", "red", "", "PT1S", "2026-01-02", "text")


@pytest.mark.parametrize(
    "union",
    [
        bool | int, int | bool, int | str, str | int, float | int, int | float, bool | float, Color | str, str | Color,
        Color | int, Literal["1", "red"] | int, int | Literal["1", "red"], timedelta | int, int | timedelta,
        bool | Decimal, date | int, Seconds | str, int | Seconds, Annotated[Seconds, Positive] | str,
    ],
)  # fmt: skip
def test_unions_are_read_as_pydantic_reads_them(union: Any) -> None:
    """Of texts, and of the numbers and booleans of YAML: the member that fits best, not the first that accepts."""
    own: Any = type("Own", (SettingsModel,), {"__annotations__": {"value": union}})
    for value in (*TEXTS, 1, 0, 2.0, 1.5, True):
        try:
            expected = TypeAdapter(union).validate_python(value)
        except ValidationError:
            with pytest.raises(InvalidSettingsError, match=r"^value: .*, or "):
                own.model_validate({"value": value})
        else:
            assert repr(own.model_validate({"value": value}).value) == repr(expected)


def test_error_of_a_union_has_the_words_of_the_members() -> None:
    """The place, the key, and what is expected as it is said of a setting with one type."""
    with pytest.raises(
        ConfigurationErrors,
        match=r"given in code: x.value=soon: expected a valid duration in ISO 8601, such as PT10S or P1DT12H, "
        "or expected a valid integer, unable to parse string as an integer",
    ):
        read_as(timedelta | int, "soon")


def test_bounds_within_a_union_count() -> None:
    """They belong to one member."""

    class Own(SettingsModel):
        size: Annotated[int, setting(ge=1)] | bool = 1

    assert Own.model_validate({"size": "5"}).size == 5
    with pytest.raises(InvalidSettingsError, match="greater than or equal to 1, or expected a valid boolean"):
        Own.model_validate({"size": "-1"})


def test_duration_of_a_model_of_pydantic_has_our_error() -> None:
    """pydantic names the class and the place in the text, but no example."""

    class Own(BaseModel):
        pause: timedelta

    environment = Environment.load(variables={}, config_location="optional:/none", overrides={"x.pause": "5s"})
    with pytest.raises(ConfigurationErrors, match=r"x\.pause=5s: expected a valid duration in ISO 8601, such as PT10S"):
        environment.bind("x", Own)


def test_dataclass_cannot_be_bound() -> None:
    """The error says what can."""

    @dataclass
    class Own:
        size: int = 1

    environment = Environment.load(variables={}, config_location="optional:/none")
    with pytest.raises(TypeError, match=r"Own is no model of settings: derive it from pydantic's BaseModel"):
        environment.bind("x", Own)  # type: ignore[type-var]


def test_models_of_pydantic_are_read_as_well() -> None:
    """As an application's own settings, with marks and durations of the framework, and as a group within others."""

    class Group(BaseModel):
        size: int = Field(default=1, ge=1)

    class Outer(SharedSettingsModel):
        group: Group = setting(default_factory=Group)

    class Own(BaseModel):
        pause: Milliseconds = timedelta(0)
        old: Annotated[bool, Accepted("it is old")] = False
        count: int = Field(default=0, alias="number")

    environment = Environment.load(
        variables={},
        config_location="optional:/none",
        overrides={"x.group.size": "0", "y.pause": "20", "y.old": "true", "y.number": "3"},
    )
    with pytest.raises(ConfigurationErrors, match=r"x\.group\.size=0: expected greater than or equal to 1"):
        environment.bind("x", Outer)
    own = environment.bind("y", Own)
    assert (own.pause, own.count) == (timedelta(milliseconds=20), 3)
    assert [str(warning) for warning in environment.warnings.values()] == [
        "given in code: y.old has no effect: it is old"
    ]
