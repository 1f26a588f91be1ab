"""Models of settings: defaults, bounds, other names, checks, and models of pydantic within them."""

import pickle
from datetime import timedelta
from typing import Annotated

import pytest
from pydantic import BaseModel, Field, field_validator

from streamkit.config.durations import Milliseconds, Positive
from streamkit.config.environment import Environment
from streamkit.config.setting_limits import Accepted
from streamkit.config.setting_values import After, EntryError, InvalidSettingsError
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
    """pydantic's validators, fields and metadata raise TypeError instead of having no effect."""

    class WithField(SettingsModel):
        size: int = Field(default=1, ge=1)

    class WithValidator(SettingsModel):
        size: int = 1

        @field_validator("size")
        @classmethod
        def _size(cls, value: int) -> int:
            return value

    class WithMetadata(SettingsModel):
        size: Annotated[int, Field(ge=1)] = 1

    for model in (WithField, WithValidator):
        with pytest.raises(TypeError, match="uses pydantic"):
            fields_of(model)
    with pytest.raises(TypeError, match="is pydantic's"):
        WithMetadata(size=1)


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
