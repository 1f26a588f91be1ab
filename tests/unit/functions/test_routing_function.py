"""The routing function: each message goes to the function it is meant for."""

import logging
from collections.abc import AsyncIterator, Callable

import pytest

from streamkit import Message, Requeue
from streamkit.application import StreamApplication
from streamkit.errors import ConfigurationError

MakeApplication = Callable[..., StreamApplication]

NAME = "spring.cloud.function.definition"
EXPRESSION = "spring.cloud.function.routing-expression"
ROUTED = {"stream__function__routing__enabled": "true"}


@pytest.fixture
def seen() -> list[str]:
    """What functions were called with."""
    return []


@pytest.fixture
def with_functions(seen: list[str]) -> Callable[[StreamApplication], StreamApplication]:
    """Registers `note`, `upper`, `twice` and the stream `stream`."""

    def register(app: StreamApplication) -> StreamApplication:
        @app.function
        async def note(text: str) -> None:
            seen.append(text)

        @app.function
        def upper(text: str) -> str:
            return text.upper()

        @app.function
        def twice(text: str) -> str:
            return 2 * text

        @app.function
        async def stream(texts: AsyncIterator[str]) -> None: ...

        return app

    return register


Register = Callable[[StreamApplication], StreamApplication]


def test_a_header_names_the_function(
    make_app: MakeApplication, with_functions: Register, seen: list[str]
) -> None:
    """One, or several composed; the output is bound when there is something to send."""
    app = with_functions(make_app(**ROUTED))
    with app.test() as test:
        assert list(test.app.bindings) == ["functionRouter-in-0"]
        test.input("functionRouter-in-0").send("a", {NAME: "note"})
        output = test.output("functionRouter-out-0")
        assert output.is_empty
        test.input("functionRouter-in-0").send("b", {NAME: "upper|twice", "customer": "c"})
        routed = output.receive(str)
    assert (routed.payload, routed.headers["customer"]) == ("BB", "c")
    assert NAME not in routed.headers
    assert seen == ["a"]


def test_an_expression_finds_it(make_app: MakeApplication, with_functions: Register, seen: list[str]) -> None:
    """Of the message's header, else of the setting."""
    app = with_functions(make_app(**ROUTED, function__routing_expression="headers['kind']"))
    with app.test() as test:
        test.input("functionRouter-in-0").send("a", {"kind": "note"})
        test.input("functionRouter-in-0").send(
            "b", {EXPRESSION: "headers['to'] == 1 ? 'note' : 'x'", "to": 1}
        )
    assert seen == ["a", "b"]


def test_the_definition_is_where_the_others_go(
    make_app: MakeApplication, with_functions: Register, seen: list[str]
) -> None:
    """When it names one function; that one has its own bindings too."""
    app = with_functions(make_app(**ROUTED, function__definition="note"))
    with app.test() as test:
        assert sorted(test.app.bindings) == ["functionRouter-in-0", "note-in-0"]
        test.input("functionRouter-in-0").send("a")
    assert seen == ["a"]


def test_it_may_be_a_definition_itself(
    make_app: MakeApplication, with_functions: Register, seen: list[str]
) -> None:
    """`functionRouter`, with another name for its binding."""
    settings = {"stream__function__bindings__functionRouter-in-0": "inbox"}
    app = with_functions(make_app(function__definition="functionRouter", **settings))
    with app.test() as test:
        test.input("inbox").send("a", {NAME: "note"})
    assert seen == ["a"]


def test_a_callback_is_asked_first(
    make_app: MakeApplication, with_functions: Register, seen: list[str]
) -> None:
    """A function or a coroutine function; None leaves it to the headers."""
    app = with_functions(make_app(**ROUTED))

    @app.message_routing_callback
    async def choose(message: Message[bytes]) -> str | None:
        return "note" if message.payload == b"mine" else None

    with app.test() as test:
        test.input("functionRouter-in-0").send("mine", {NAME: "upper"})
        test.input("functionRouter-in-0").send("yours", {NAME: "upper"})
        assert test.output("functionRouter-out-0").receive(str).payload == "YOURS"
    assert seen == ["mine"]


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({}, "neither a callback, nor a header"),
        ({NAME: "upperr"}, "there is no function 'upperr'; did you mean 'upper'?"),
        ({NAME: "stream"}, "'stream' is not called for each message"),
        ({NAME: "note|upper"}, "'note|upper' cannot be composed"),
        ({NAME: "note;upper"}, "not the name of one function"),
        ({NAME: "|"}, "lacks the name of a function"),
        ({EXPRESSION: "headers["}, "headers["),
        ({EXPRESSION: "headers['no']"}, "neither a callback, nor a header"),
    ],
)
def test_what_nothing_routes_is_dropped(
    make_app: MakeApplication,
    with_functions: Register,
    caplog: pytest.LogCaptureFixture,
    headers: dict[str, str],
    reason: str,
) -> None:
    """With a warning that says why; it is neither retried nor an error."""
    app = with_functions(make_app(**ROUTED, **{"stream__bindings__functionRouter-in-0__group": "g"}))
    with app.test() as test, caplog.at_level(logging.WARNING):
        test.input("functionRouter-in-0").send("a", headers)
        test.advance(hours=1)
        assert not test.errors
    warnings = [record.getMessage() for record in caplog.records if "unroutable" in record.getMessage()]
    assert len(warnings) == 1
    assert reason in warnings[0]


def test_what_a_routed_function_raises_counts(make_app: MakeApplication) -> None:
    """As for a function that is bound."""
    app = make_app(**ROUTED, **{"stream__bindings__functionRouter-in-0__group": "g"})
    calls: list[str] = []

    @app.function
    async def again(text: str) -> None:
        calls.append(text)
        if len(calls) == 1:
            raise Requeue

    with app.test() as test:
        test.input("functionRouter-in-0").send("a", {NAME: "again"})
        test.advance(seconds=11)
    assert calls == ["a", "a"]


def test_wrong_functions_are_told_at_start(make_app: MakeApplication) -> None:
    """Although no definition mentions them; so is a wrong expression, with its place."""

    async def wrong(number: complex) -> None: ...

    app = make_app(**ROUTED)
    app.function(wrong)
    with pytest.raises(ConfigurationError, match="complex"), app.test():
        pass
    app = make_app(**ROUTED, function__routing_expression="headers[")
    with pytest.raises(ConfigurationError, match=r"routing_expression=headers\["), app.test():
        pass
