"""The routing function calls the function that a message selects."""

import gc
import logging
from collections.abc import AsyncIterator, Callable

import pytest

from streamkit import Message, Requeue
from streamkit.application import StreamApplication
from streamkit.errors import ConfigurationError, ExpressionError, ExpressionLimitExceeded
from streamkit.expression import Expression
from streamkit.functions.routing import EXPRESSIONS_KEPT

MakeApplication = Callable[..., StreamApplication]

NAME = "spring.cloud.function.definition"
EXPRESSION = "spring.cloud.function.routing-expression"
ROUTED = {"stream__function__routing__enabled": "true"}
GROUP = {"stream__bindings__functionRouter-in-0__group": "g"}
EXPRESSIONS_OF_MESSAGES = {"stream__function__routing__expression-header-enabled": "true"}


@pytest.fixture
def seen() -> list[str]:
    """Return what functions were called with."""
    return []


@pytest.fixture
def with_functions(seen: list[str]) -> Callable[[StreamApplication], StreamApplication]:
    """Register `note`, `upper`, `twice` and the stream `stream`."""

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


def test_header_names_the_function(make_app: MakeApplication, with_functions: Register, seen: list[str]) -> None:
    """One, or several composed; the output is bound at the first result."""
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


def test_expression_selects_the_function(make_app: MakeApplication, with_functions: Register, seen: list[str]) -> None:
    """Of the message's header if enabled, else of the setting."""
    app = with_functions(make_app(**ROUTED, **EXPRESSIONS_OF_MESSAGES, function__routing_expression="headers['kind']"))
    with app.test() as test:
        test.input("functionRouter-in-0").send("a", {"kind": "note"})
        test.input("functionRouter-in-0").send("b", {EXPRESSION: "headers['to'] == 1 ? 'note' : 'x'", "to": 1})
    assert seen == ["a", "b"]


def test_definition_is_the_fallback_function(
    make_app: MakeApplication, with_functions: Register, seen: list[str]
) -> None:
    """When it names one function; that one has its own bindings too."""
    app = with_functions(make_app(**ROUTED, function__definition="note"))
    with app.test() as test:
        assert sorted(test.app.bindings) == ["functionRouter-in-0", "note-in-0"]
        test.input("functionRouter-in-0").send("a")
    assert seen == ["a"]


def test_routing_expression_binds_the_routing_function(make_app: MakeApplication, with_functions: Register) -> None:
    """Without a definition, as in Spring; a definition is bound as it is."""
    with with_functions(make_app(function__routing_expression="headers['kind']")).test() as test:
        assert set(test.app.bindings) == {"functionRouter-in-0"}
    app = with_functions(make_app(function__routing_expression="headers['kind']", function__definition="note"))
    with app.test() as test:
        assert "functionRouter-in-0" not in test.app.bindings


def test_routing_function_may_be_defined(make_app: MakeApplication, with_functions: Register, seen: list[str]) -> None:
    """As `functionRouter`, whose binding has another name."""
    settings = {"stream__function__bindings__functionRouter-in-0": "inbox"}
    app = with_functions(make_app(function__definition="functionRouter", **settings))
    with app.test() as test:
        test.input("inbox").send("a", {NAME: "note"})
    assert seen == ["a"]


def test_callback_is_asked_first(make_app: MakeApplication, with_functions: Register, seen: list[str]) -> None:
    """A function or a coroutine function; None leaves the choice to the headers."""
    app = with_functions(make_app(**ROUTED))

    @app.message_routing_callback
    async def choose(message: Message[bytes]) -> str | None:
        return "note" if message.payload == b"mine" else None

    with app.test() as test:
        test.input("functionRouter-in-0").send("mine", {NAME: "upper"})
        test.input("functionRouter-in-0").send("yours", {NAME: "upper"})
        assert test.output("functionRouter-out-0").receive(str).payload == "YOURS"
    assert seen == ["mine"]


def test_result_of_the_callback_is_awaited_until_it_is_not_awaitable(
    make_app: MakeApplication, with_functions: Register, seen: list[str]
) -> None:
    """A coroutine that nobody awaits is the name of no function."""
    app = with_functions(make_app(**ROUTED))

    async def choose() -> str:
        return "note"

    @app.message_routing_callback
    async def lacks_await(message: Message[bytes]) -> object:
        return choose()

    with app.test() as test:
        test.input("functionRouter-in-0").send("x")
    assert seen == ["x"]


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({}, "there is no routing callback, no header"),
        ({NAME: "upperr"}, "there is no function 'upperr'; did you mean 'upper'?"),
        ({NAME: "stream"}, "'stream' is bound to streams"),
        ({NAME: "note|upper"}, "'note|upper' cannot be composed"),
        ({NAME: "note;upper"}, "not the name of one function"),
        ({NAME: "|"}, "has no name of a function"),
        ({NAME: "|".join(["upper"] * 11)}, "it composes 11 functions, more than 10"),
        ({NAME: "|".join(["upper"] * 200)}, "its definition has 1,199 characters, more than 1,000"),
        ({EXPRESSION: "headers['no']"}, "there is no routing callback, no header"),
    ],
)
def test_unrouted_message_is_dropped(
    make_app: MakeApplication,
    with_functions: Register,
    caplog: pytest.LogCaptureFixture,
    headers: dict[str, str],
    reason: str,
) -> None:
    """With a warning that has the reason; it is neither retried nor an error."""
    app = with_functions(make_app(**ROUTED, **GROUP, **EXPRESSIONS_OF_MESSAGES))
    with app.test() as test, caplog.at_level(logging.WARNING):
        test.input("functionRouter-in-0").send("a", headers)
        test.advance(hours=1)
        assert not test.errors
    warnings = [record.getMessage() for record in caplog.records if "cannot be routed" in record.getMessage()]
    assert len(warnings) == 1
    assert reason in warnings[0]


@pytest.mark.parametrize("count", [11, 200])
def test_the_application_s_own_definition_has_no_limits(
    make_app: MakeApplication, with_functions: Register, count: int
) -> None:
    """They are for names that anybody may send."""
    app = with_functions(make_app(**ROUTED, function__definition="|".join(["upper"] * count)))
    with app.test() as test:
        test.input("functionRouter-in-0").send("a")
        assert test.output("functionRouter-out-0").receive(str).payload == "A"


def test_routing_expression_of_a_message_is_ignored_by_default(
    make_app: MakeApplication, with_functions: Register, seen: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """With one warning that names setting, function and header."""
    app = with_functions(make_app(**ROUTED, function__routing_expression="headers['kind']"))
    with app.test() as test, caplog.at_level(logging.WARNING):
        for text in ("a", "b"):
            test.input("functionRouter-in-0").send(text, {EXPRESSION: "'upper'", "kind": "note"})
        test.input("functionRouter-in-0").send("c", {EXPRESSION: "'upper'"})
        test.input("functionRouter-in-0").send("d", {EXPRESSION: "'upper'", NAME: "note"})
        assert test.output("functionRouter-out-0").is_empty
    assert seen == ["a", "b", "d"]
    warnings = [record.getMessage() for record in caplog.records if record.name.endswith("routing")]
    assert len(warnings) == 2
    assert f"Function functionRouter ignores header {EXPRESSION} of message" in warnings[0]
    assert "Set spring.cloud.stream.function.routing.expression-header-enabled=true" in warnings[0]
    assert "which cannot be routed" in warnings[1]


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("headers[", ExpressionError),
        ("payload.missing", ExpressionError),
        ("payload" + ".replace('a', 'aaaaaaaaaaaaaaaa')" * 6, ExpressionLimitExceeded),
        ("(" * 4000, ExpressionLimitExceeded),
        ("payload.matches('(a+)\\1')", ExpressionError),
    ],
)
def test_message_with_a_failing_expression_is_a_dead_letter(
    make_app: MakeApplication,
    with_functions: Register,
    seen: list[str],
    expression: str,
    error: type[ExpressionError],
) -> None:
    """After its attempts; later messages are handled."""
    app = with_functions(make_app(**ROUTED, **GROUP, **EXPRESSIONS_OF_MESSAGES))
    with app.test() as test:
        test.input("functionRouter-in-0").send("a" * 100_000, {EXPRESSION: expression})
        test.input("functionRouter-in-0").send("later", {EXPRESSION: "payload.length() == 5 ? 'note' : ''"})
        test.advance(hours=100)
        assert seen == ["later"]
        assert test.dead_letters("functionRouter-in-0").receive(str).payload == "a" * 100_000
        assert {type(each.payload.__cause__) for each in test.errors} == {error}


def test_pattern_of_a_message_matches_in_linear_time(
    make_app: MakeApplication, with_functions: Register, seen: list[str]
) -> None:
    """A backtracking engine took 2^40 steps for 60 characters."""
    app = with_functions(make_app(**ROUTED, **EXPRESSIONS_OF_MESSAGES))
    with app.test() as test:
        headers = {EXPRESSION: "payload.matches('(a|aa)+$') ? 'upper' : 'note'"}
        test.input("functionRouter-in-0").send("a" * 60 + "b", headers)
        test.input("functionRouter-in-0").send("later", {NAME: "note"})
    assert seen == ["a" * 60 + "b", "later"]


def test_cache_of_message_expressions_is_bounded(
    make_app: MakeApplication, with_functions: Register, seen: list[str]
) -> None:
    """Each message may bring a new one; the least recently used is removed."""
    sent = ["'note'", *(f"{number} > -1 ? 'note' : ''" for number in range(2 * EXPRESSIONS_KEPT))]
    app = with_functions(make_app(**ROUTED, **EXPRESSIONS_OF_MESSAGES))
    with app.test() as test:
        for source in sent:
            test.input("functionRouter-in-0").send("a", {EXPRESSION: source})
            test.input("functionRouter-in-0").send("b", {EXPRESSION: "'note'"})
        gc.collect()
        alive = [each.source for each in gc.get_objects() if isinstance(each, Expression)]
    kept = [source for source in alive if source in sent]
    assert len(seen) == 2 * len(sent)
    assert len(kept) == EXPRESSIONS_KEPT
    assert kept.count("'note'") == 1


def test_error_of_a_routed_function_fails_the_message(make_app: MakeApplication) -> None:
    """As for a bound function."""
    app = make_app(**ROUTED, **GROUP)
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


def test_wrong_functions_are_reported_at_startup(make_app: MakeApplication) -> None:
    """Although no definition mentions them; so is a wrong expression, with its origin."""

    async def wrong(number: complex) -> None: ...

    app = make_app(**ROUTED)
    app.function(wrong)
    with pytest.raises(ConfigurationError, match="complex"), app.test():
        pass
    app = make_app(**ROUTED, function__routing_expression="headers[")
    with pytest.raises(ConfigurationError, match=r"routing_expression=headers\["), app.test():
        pass
