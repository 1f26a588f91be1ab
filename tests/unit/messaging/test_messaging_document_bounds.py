"""Documents that would become large, deep or slow fail as conversions in bounded memory."""

import decimal
from dataclasses import dataclass, field
from typing import Any, Literal

import pydantic
import pytest

from streamkit.errors import MessageConversionError
from streamkit.messaging import CompositeMessageConverter, Message
from streamkit.messaging.document_limits import MAX_DOCUMENT_SIZE, UNCOUNTED_SIZE
from streamkit.messaging.java_headers import declared_types, from_json
from streamkit.messaging.json_converter import JsonConverter
from tests.traced_memory import memory_below

CONVERTER = CompositeMessageConverter()
MIB = 1 << 20


@dataclass
class Order:
    """An order that contains the previous one."""

    number: int = 0
    before: "Order | None" = None
    price: decimal.Decimal = decimal.Decimal(0)


class Model(pydantic.BaseModel):
    """The same, as a pydantic model."""

    number: int = 0
    before: "Model | None" = None
    anything: Any = None
    items: list["Model"] = []


@dataclass
class Anything:
    """A field of any type."""

    value: object = None
    values: list[object] = field(default_factory=list)


def read(type_: object, data: bytes, converter: CompositeMessageConverter = CONVERTER) -> object:
    """Read the payload as JSON."""
    return converter.payload_reader(type_)(Message(data))


DEEP = 200_000


@pytest.mark.parametrize("type_", [dict, list, Order, Anything, Model, list[Model], Order | None])
@pytest.mark.parametrize(
    "data",
    [
        b"[" * DEEP,
        b"[" * DEEP + b"]" * DEEP,
        b'{"number":1,"unknown":' + b"[" * DEEP + b"]" * DEEP + b"}",
        b'{"before":' * DEEP + b"null" + b"}" * DEEP,
        b'{"anything":' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}",
        b'{"value":' + b"[" * DEEP + b"]" * DEEP + b"}",
    ],
)
def test_deeply_nested_json_is_a_conversion_error(type_: object, data: bytes) -> None:
    """Neither stack nor memory grows with the depth."""
    with memory_below(4 * MIB), pytest.raises(MessageConversionError):
        read(type_, data)


@pytest.mark.parametrize("type_", [list, Model])
def test_nesting_error_names_the_nesting(type_: object) -> None:
    """The reason names the nesting."""
    data = {list: b"[" * DEEP, Model: b'{"anything":' + b"[" * DEEP}[type_]  # type: ignore[index]
    with pytest.raises(MessageConversionError, match=r"nested too deeply|recursion"):
        read(type_, data)


@pytest.mark.parametrize(
    ("type_", "data"),
    [
        (int, b"1e999999999"),
        (int, b"9" * 100_000),
        (float, b"1e999999999"),
        (Order, b'{"number":1e999999999}'),
        (Order, b'{"number":' + b"9" * 100_000 + b"}"),
        (Model, b'{"number":1e999999999}'),
        (Model, b'{"number":' + b"9" * 100_000 + b"}"),
        (Model, b'{"number":"' + b"9" * 100_000 + b'"}'),
        (dict, b'{"number":' + b"9" * 100_000 + b"}"),
        (dict, b'{"number":1e999999999}'),
    ],
)
def test_number_with_thousands_of_digits_is_a_conversion_error(type_: object, data: bytes) -> None:
    """It is not built."""
    with memory_below(2 * MIB), pytest.raises(MessageConversionError) as caught:
        read(type_, data)
    assert len(str(caught.value)) < 1000


def test_exponent_of_a_decimal_is_not_expanded() -> None:
    """No digits are written out."""
    with memory_below(MIB):
        order = read(Order, b'{"price":"1e999999999"}')
    assert order == Order(price=decimal.Decimal("1e999999999"))


@pytest.mark.parametrize("item", [b"[],", b"{},", b"1,", b'"",'])
@pytest.mark.parametrize("type_", [list, list[object], list[Order], list[Model], dict])
def test_millions_of_tiny_values_are_refused_before_they_are_built(type_: object, item: bytes) -> None:
    """In documents above the size that is always read."""
    count = 3 * UNCOUNTED_SIZE // len(item)
    data = b"[" + item * count + b"1]"
    with memory_below(MIB), pytest.raises(MessageConversionError, match="values"):
        read(type_, data)


def test_document_of_4_mib_is_always_read() -> None:
    """It may be the largest that RocketMQ accepts by default."""
    data = b"[" + b"1," * (UNCOUNTED_SIZE // 2 - 1) + b"1]"
    assert len(data) >= UNCOUNTED_SIZE
    assert len(read(list[int], data[:1] + data[3:])) == UNCOUNTED_SIZE // 2 - 1  # type: ignore[arg-type]


def test_large_document_of_few_values_is_read() -> None:
    """Values are counted; texts may be long."""
    data = b'{"text":"' + b"x" * (UNCOUNTED_SIZE * 2) + b'"}'
    assert len(read(dict, data)["text"]) == UNCOUNTED_SIZE * 2  # type: ignore[index]


def test_document_beyond_the_limit_is_refused() -> None:
    """The limit is a converter argument."""
    data = b'"' + b"x" * MAX_DOCUMENT_SIZE + b'"'
    with pytest.raises(MessageConversionError, match=f"more than the limit of {MAX_DOCUMENT_SIZE}"):
        read(Literal["a"] | int, data)
    with pytest.raises(MessageConversionError, match="more than the limit of 16777216"):
        read(dict, data)
    larger = CompositeMessageConverter([JsonConverter(max_size=2 * MAX_DOCUMENT_SIZE)])
    with pytest.raises(MessageConversionError, match="Expected `object`, got `str`"):
        read(dict, data, larger)
    smaller = CompositeMessageConverter([JsonConverter(max_size=3)])
    with pytest.raises(MessageConversionError, match="more than the limit of 3"):
        read(dict, b'{"a":1}', smaller)


def test_repeated_keys_take_no_memory() -> None:
    """The last one wins."""
    data = b'{"a":0' + b',"a":1' * 500_000 + b"}"
    with memory_below(MIB):
        assert read(dict, data) == {"a": 1}


@pytest.mark.parametrize("type_", [Model, list[Model], Model | list[Model]])
def test_thousands_of_wrong_fields_are_one_error(type_: object) -> None:
    """pydantic finds each; they are counted, not listed."""
    wrong = b"[" + b"1," * 100_000 + b"1]"
    with memory_below(4 * MIB), pytest.raises(MessageConversionError) as caught:
        read(type_, b'{"items":' + wrong + b"}" if type_ is Model else wrong)
    assert len(str(caught.value)) < 1000
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("type_", "data"),
    [
        (Literal["a", "b"], b"x" * MIB),
        (list[Literal["a", "b"]], b'["' + b"x" * MIB + b'"]'),
        (pydantic.RootModel[Literal["a"]], b'"' + b"x" * MIB + b'"'),
    ],
)
def test_error_quotes_little_of_the_payload(type_: object, data: bytes) -> None:
    """Errors are logged and sent in headers of dead letters."""
    with pytest.raises(MessageConversionError) as caught:
        read(type_, data)
    assert len(str(caught.value)) < 1000


def test_json_header_is_bounded_like_a_payload() -> None:
    """An unreadable one stays as it was."""
    wide = b"[" + b"[]," * UNCOUNTED_SIZE + b"1]"
    types = b'{"":"",' * UNCOUNTED_SIZE
    with memory_below(MIB):
        with pytest.raises(ValueError, match="values"):
            from_json(wide, "java.util.ArrayList")
        with pytest.raises(ValueError, match=r"java\.util\.ArrayList"):
            from_json(b"[" * DEEP, "java.util.ArrayList")
        assert declared_types(b'{"a":' + b"[" * DEEP) == {}
        assert declared_types(types) == {}
