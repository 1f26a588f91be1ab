"""Listener parameters, and errors for unsupported ones."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import msgspec
import pydantic
import pytest
from dependency_injector.wiring import Provide

from streamkit import Acknowledgment, Header, Headers, Message, MessageHeaders, Payload
from streamkit.application import StreamApplication
from streamkit.errors import ConfigurationError
from streamkit.testing.harness import Harness

Start = Callable[[], Harness]


@dataclasses.dataclass
class Plain:
    """A dataclass."""

    number: int


class Struct(msgspec.Struct):
    """A msgspec struct."""

    number: int


class Model(pydantic.BaseModel):
    """A pydantic model."""

    number: int


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        (Plain, Plain(7)),
        (Struct, Struct(7)),
        (Model, Model(number=7)),
        (dict, {"number": 7}),
        (dict[str, int], {"number": 7}),
        (str, '{"number": 7}'),
        (bytes, b'{"number": 7}'),
        (Any, b'{"number": 7}'),
        (object, b'{"number": 7}'),
        (Plain | None, Plain(7)),
    ],
)
def test_payload_is_converted_by_annotation(
    app: StreamApplication, test: Start, type_: object, expected: object
) -> None:
    """Classes and builtins are read from JSON; text, bytes and anything untyped are not."""
    seen: list[object] = []

    async def listener(payload: object) -> None:
        seen.append(payload)

    listener.__annotations__["payload"] = type_
    app.stream_listener("a")(listener)
    test().input("a").send('{"number": 7}')
    assert seen == [expected]


def test_listener_may_take_every_kind_of_argument(app: StreamApplication, test: Start) -> None:
    """Payload, message, headers, single headers, acknowledgment; by position and by name."""
    seen: list[object] = []

    @app.stream_listener("a")
    async def listener(  # noqa: PLR0917
        order: Plain,
        message: Message[Plain],
        raw: Message[Any],
        headers: MessageHeaders,
        table: Annotated[dict[str, object], Headers()],
        colour: Annotated[str, Header()],
        acknowledgment: Acknowledgment,
        *,
        number: Annotated[int, Header("n")],
        missing: Annotated[str | None, Header()],
    ) -> None:
        acknowledgment.accept()
        seen.extend([order, message.payload, raw.payload, headers["colour"], table["colour"], colour])
        seen.extend([number, missing])

    test().input("a").send(Plain(1), {"colour": "red", "n": "42"})
    assert seen == [Plain(1), Plain(1), b'{"number":1}', "red", "red", "red", 42, None]


def test_class_of_a_marker_is_the_marker(app: StreamApplication, test: Start) -> None:
    """In an annotation or as a default, `Header` does as `Header()`; it does not count as a second payload."""
    seen: list[object] = []

    @app.stream_listener("a")
    async def listener(
        colour: Annotated[str, Header],
        table: Annotated[dict[str, object], Headers],
        text: Annotated[str, Payload],
        size: int = Header,  # type: ignore[assignment]
    ) -> None:
        seen.extend([colour, table["colour"], text, size])

    test().input("a").send("x", {"colour": "red", "size": "3"})
    assert seen == ["red", "red", "x", 3]


def test_listener_needs_no_payload(app: StreamApplication, test: Start) -> None:
    """A listener without parameters is called."""
    calls: list[int] = []
    app.stream_listener("a")(lambda: calls.append(1))
    test().input("a").send("x")
    assert calls == [1]


def test_missing_header_is_a_conversion_error(app: StreamApplication, test: Start) -> None:
    """The listener is not called; the message becomes a dead letter."""

    @app.stream_listener("a")
    async def listener(payload: str, colour: Annotated[str, Header()]) -> None:
        raise AssertionError("not to be called")

    harness = test()
    harness.input("a").send("x")
    letter = harness.dead_letters("a").receive()
    assert letter.headers["FAILURE_MESSAGE"] == (
        f"the message has no header 'colour'; the listener is {__name__}.{listener.__qualname__}"
    )


def two_payloads(first: str, second: str) -> None:
    """Have two parameters that could be the payload."""


def variadic(*payloads: str) -> None:
    """Have a variable number of parameters."""


def unresolvable(payload: "Nowhere") -> None:  # type: ignore[name-defined]  # noqa: F821
    """Have an annotation that is no type."""


def missing_attribute(payload: "dataclasses.Nothing") -> None:  # type: ignore[name-defined]
    """Annotate a parameter with a name that the module `dataclasses` does not have."""


def header_as_annotation(payload: str, key: Header("k")) -> None:  # type: ignore[valid-type]
    """Annotate a parameter with a marker alone, without a type."""


def header_without_parentheses(payload: str, key: Header) -> None:
    """Annotate a parameter with the class of a marker, without a type."""


class NotJson:
    """A class without JSON form."""


def unreadable(payload: NotJson) -> None:
    """Take a type that no converter reads."""


def unreadable_message(message: Message[list[NotJson]]) -> None:
    """Take a message of such a type."""


def odd_header(payload: str, value: Annotated[NotJson, Header()]) -> None:
    """Take a header of a type that headers cannot have."""


def constrained(payload: Annotated[int, pydantic.Field(gt=3)]) -> None:
    """Take a payload whose constraint no converter reads."""


def constrained_header(payload: str, size: Annotated[pydantic.PositiveInt, Header()]) -> None:
    """Take a header with such a constraint."""


def provide_without_provider(payload: str, repository: Annotated[NotJson, Provide]) -> None:
    """Take an object of a container, without saying which."""


@pytest.mark.parametrize(
    ("listener", "text"),
    [
        (constrained, r"'payload' with the constraint FieldInfo.*, which would have no effect: declare it for a field"),
        (constrained_header, r"'size' with the constraint Gt\(gt=0\)"),
        (provide_without_provider, r"'repository': Provide names no provider: write Provide\[...\] with one of a"),
        (two_payloads, "has two parameters for the payload, 'first' and 'second'"),
        (two_payloads, r'mark the other with Annotated\[str, Header\("second"\)\] or Annotated'),
        (header_as_annotation, r"'key' with a marker in place of its type: write Annotated\[..., Header\(name='k', "),
        (header_without_parentheses, r"'key' with a marker in place of its type: write Annotated\[..., Header\(\)\]"),
        (variadic, r"takes \*payloads: str; name each argument"),
        (unresolvable, "cannot be resolved, of 'payload': name 'Nowhere' is not defined. .*TYPE_CHECKING"),
        (missing_attribute, "cannot be resolved: .*has no attribute 'Nothing'"),
        (unreadable, "cannot be given its parameter 'payload': .*NotJson is neither a dataclass"),
        (unreadable_message, "cannot be given its parameter 'message': .*NotJson is neither a dataclass"),
        (odd_header, "takes header 'value' as .*NotJson'>, to which no header can be converted"),
    ],
)
def test_unsupported_annotation_is_an_error_at_startup(
    app: StreamApplication, test: Start, listener: Callable[..., None], text: str
) -> None:
    """With the function, its file and line, and the reason."""
    app.stream_listener("a")(listener)
    with pytest.raises(ConfigurationError, match=text) as caught:
        test()
    assert f"{__file__}:" in str(caught.value)


def test_description_of_a_parameter_is_no_constraint(app: StreamApplication, test: Start) -> None:
    """It has no effect on values."""
    seen: list[int] = []

    @app.stream_listener("a")
    async def listener(size: Annotated[int, pydantic.Field(description="in metres"), "a note"]) -> None:
        seen.append(size)

    @app.stream_listener("b")
    async def described(size: Annotated[int, msgspec.Meta(description="in metres", examples=[3])]) -> None:
        seen.append(size)

    harness = test()
    harness.input("a").send(7)
    harness.input("b").send(8)
    assert seen == [7, 8]


def test_what_is_never_missing_may_be_optional(app: StreamApplication, test: Start) -> None:
    """A default serves callers of the function, such as tests."""
    seen: list[object] = []

    @app.stream_listener("a")
    async def listener(
        message: Message[Plain] | None,
        headers: MessageHeaders | None = None,
        acknowledgment: Acknowledgment | None = None,
    ) -> None:
        assert message is not None
        assert headers is not None
        assert acknowledgment is not None
        acknowledgment.accept()
        seen.extend([message.payload, headers["colour"]])

    test().input("a").send(Plain(1), {"colour": "red"})
    assert seen == [Plain(1), "red"]


def test_payload_parameter_can_be_marked(app: StreamApplication, test: Start) -> None:
    """Payload() marks it."""
    seen: list[str] = []

    @app.stream_listener("a")
    async def listener(text: Annotated[str, Payload()]) -> None:
        seen.append(text)

    test().input("a").send("x")
    assert seen == ["x"]


def test_bound_arguments_of_a_partial_are_not_injected(app: StreamApplication, test: Start) -> None:
    """The listener is called with the payload alone."""
    seen: list[object] = []

    async def note(payload: int, repository: list[object], *, factor: int) -> None:
        repository.append(payload * factor)

    app.stream_listener("a")(partial(note, repository=seen, factor=2))
    test().input("a").send(21)
    assert seen == [42]
