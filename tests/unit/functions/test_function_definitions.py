"""Errors of functions and their settings are reported at startup, with their place and a remedy."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from streamkit import Acknowledgment, stream_listener
from streamkit.application import StreamApplication
from streamkit.errors import ConfigurationError, ConfigurationErrors
from streamkit.functions.definition import Definition, parse_definitions
from streamkit.messaging.headers import MessageHeaders

MakeApplication = Callable[..., StreamApplication]


def refusal(app: StreamApplication) -> str:
    """Return the error of the start."""
    with pytest.raises(ConfigurationError) as caught, app.test():
        pass
    return str(caught.value)


def upper(text: str) -> str:
    """Return the text in upper case."""
    return text.upper()


def unannotated(text):
    """Have no annotations."""


async def total(numbers: AsyncIterator[int]) -> AsyncIterator[int]:
    """Sum a stream."""
    async for number in numbers:
        yield number


def test_definition_syntax() -> None:
    """`;` separates, `|` and `,` compose, spaces are ignored."""
    assert parse_definitions(" a ; b|c ;; d , e;") == [
        Definition(("a",)),
        Definition(("b", "c")),
        Definition(("d", "e")),
    ]
    assert Definition(("b", "c")).input(1) == "bc-in-1"
    with pytest.raises(ValueError, match=r"'\|a' has no name"):
        parse_definitions("|a")


def test_unknown_names_are_reported_with_file_line_and_the_nearest(tmp_path: Path) -> None:
    """All of them at once."""
    settings = tmp_path / "application.properties"
    settings.write_text("# shop\nspring.cloud.function.definition=uper;count|upper\n")
    app = StreamApplication(config_location=str(settings))
    app.function(upper)
    text = refusal(app)
    place = f"{settings}:2: spring.cloud.function.definition=uper;count|upper: "
    assert f"{place}there is no function 'uper'; did you mean 'upper'?" in text
    assert f"{place}there is no function 'count'. Known functions: upper" in text


def test_several_functions_need_a_definition(make_app: MakeApplication) -> None:
    """The error proposes one; if the only one is ineligible, none is bound."""
    app = make_app()
    app.function(upper)
    app.function(total)
    assert "set spring.cloud.function.definition=total;upper" in refusal(app)
    alone = make_app(function__ineligible_definitions="upper")
    alone.function(upper)
    with alone.test() as test:
        assert not test.app.bindings


@pytest.mark.parametrize("functions", [(upper,), (upper, total)])
def test_autodetect_may_be_turned_off(make_app: MakeApplication, functions: tuple[Callable[..., object], ...]) -> None:
    """Then no function is bound without a definition, as in Spring."""
    app = make_app(stream__function__autodetect="false")
    for each in functions:
        app.function(each)
    with app.test() as test:
        assert not test.app.bindings


def test_duplicate_function_name_is_reported(make_app: MakeApplication) -> None:
    """Both functions with file and line."""
    app = make_app()
    app.function(upper)
    app.function("upper")(total)
    text = refusal(app)
    assert "are both called 'upper'" in text
    assert f"upper ({__file__}:" in text
    assert f"total ({__file__}:" in text


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (unannotated, "has no return annotation: add one, -> None for a consumer"),
        (lambda: None, "has no return annotation"),
    ],
)
def test_function_needs_a_return_annotation(
    make_app: MakeApplication, function: Callable[..., object], reason: str
) -> None:
    """It distinguishes consumers from functions."""
    app = make_app()
    app.function("it")(function)
    text = refusal(app)
    assert reason in text
    assert f"({__file__}:" in text


def test_unsupported_annotations_are_reported(make_app: MakeApplication) -> None:
    """Each with the function's place."""

    def nothing() -> None: ...

    async def mixed(numbers: AsyncIterator[int], headers: MessageHeaders) -> AsyncIterator[int]:
        yield 1

    def blocking(numbers: AsyncIterator[int]) -> None: ...

    async def value(numbers: AsyncIterator[int]) -> int:
        return 1

    async def unreadable(number: complex) -> None: ...

    async def unreadable_stream(numbers: AsyncIterator[complex]) -> None: ...

    functions = (nothing, mixed, blocking, value, unreadable, unreadable_stream)
    app = make_app(function__definition=";".join(each.__name__ for each in functions))
    for each in functions:
        app.function(each)
    with pytest.raises(ConfigurationErrors) as caught, app.test():
        pass
    reported = [str(error) for error in caught.value.errors]
    assert len(reported) == len(functions)
    for each, part in zip(
        functions,
        (
            "has neither a parameter nor a result",
            "takes streams, so it cannot take 'headers'",
            "consumes a stream, so it has to be `async def`",
            "so it must return async iterators or None",
            "complex",
            "complex",
        ),
        strict=True,
    ):
        assert any(part in text and f"{each.__name__} ({__file__}:" in text for text in reported), reported


def test_functions_that_cannot_be_composed_are_reported(make_app: MakeApplication) -> None:
    """One output is composed with one input."""

    async def note(text: str) -> None: ...

    async def two(a: AsyncIterator[int], b: AsyncIterator[int]) -> AsyncIterator[int]:
        yield 1

    def tick() -> int:
        return 1

    def hold(text: str, acknowledgment: Acknowledgment) -> str:
        return text

    app = make_app(function__definition="note|upper;upper|two;upper|tick;upper|hold")
    for each in (note, upper, two, tick, hold):
        app.function(each)
    text = refusal(app)
    assert "'note|upper' cannot be composed" in text
    assert "'upper|two' cannot be composed" in text
    assert "'upper|tick' cannot be composed" in text
    assert "only the first function can take it" in text


def test_binding_serves_a_function_or_a_listener(make_app: MakeApplication) -> None:
    """Not both."""

    @stream_listener("upper-in-0")
    async def listen(text: str) -> None: ...

    app = make_app(**{"stream__bindings__upper-in-0__group": "g"})
    app.function(upper)
    app.stream_listener("upper-in-0")(listen)
    assert "binding 'upper-in-0' is the input of a function, and of" in refusal(app)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"function__defintion": "a"}, "did you mean spring.cloud.function.definition?"),
        ({"stream__poller__cron": "* * * * *"}, "has 5 fields: expected six"),
        ({"stream__poller__cron": "* * * * * 9"}, "is not a cron expression"),
        ({"stream__poller__cron": "0 * * * * *", "stream__poller__fixed_delay": "1"}, "exclude each other"),
        ({"stream__poller__fixed_delay": "0"}, "longer than 0"),
    ],
)
def test_wrong_settings_are_reported(make_app: MakeApplication, settings: dict[str, str], reason: str) -> None:
    """Are told as any others."""
    app = make_app(**settings)
    app.function(upper)
    assert reason in refusal(app)
