"""From payloads to bytes and back, by content type."""

import dataclasses
import datetime as dt
import decimal
import enum
import uuid
from collections.abc import Callable
from typing import Any, Generic, Literal, NamedTuple, NewType, TypedDict, TypeVar

import msgspec
import pydantic
import pytest

from streamkit.errors import MessageConversionError
from streamkit.messaging import CompositeMessageConverter, Message

CONVERTER = CompositeMessageConverter()
T = TypeVar("T")


class Currency(enum.Enum):
    EURO = "EUR"


@dataclasses.dataclass
class Item:
    price: float


@dataclasses.dataclass
class Order:
    items: list[Item]
    at: dt.datetime | None = None
    currency: Currency = Currency.EURO
    extra: dict[str, object] = dataclasses.field(default_factory=dict)
    parent: "Order | None" = None


class Struct(msgspec.Struct):
    n: int


class Typed(TypedDict):
    n: int


class Model(pydantic.BaseModel):
    n: int = pydantic.Field(alias="number")
    items: list[Item] = []


class Pair(NamedTuple):
    n: int
    s: str


@dataclasses.dataclass
class Note:
    text: str


@dataclasses.dataclass
class Envelope(Generic[T]):
    item: T


class ModelOf(pydantic.BaseModel, Generic[T]):
    item: T


class Placed(msgspec.Struct, tag=True):
    n: int


class Paid(msgspec.Struct, tag=True):
    by: str


Name = NewType("Name", str)


@dataclasses.dataclass
class HoldsModel:
    model: Model


class Plain:
    pass


def read(type_, data, content_type=None, default=None):
    headers = {} if content_type is None else {"contentType": content_type}
    return CONVERTER.payload_reader(type_, default)(Message(data, headers))


def write(payload, content_type=None, default=None):
    headers = {} if content_type is None else {"contentType": content_type}
    return CONVERTER.payload_writer(default)(Message(payload, headers))


@pytest.mark.parametrize(
    ("type_", "payload", "data"),
    [
        (Struct, Struct(1), b'{"n":1}'),
        (Typed, {"n": 1}, b'{"n":1}'),
        (Model, Model(number=1, items=[Item(2.5)]), b'{"number":1,"items":[{"price":2.5}]}'),
        (list[Model], [Model(number=1)], b'[{"number":1,"items":[]}]'),
        (HoldsModel, HoldsModel(Model(number=1)), b'{"model":{"number":1,"items":[]}}'),
        (dict[str, int], {"a": 1}, b'{"a":1}'),
        (list[int], [1, 2], b"[1,2]"),
        (int, 5, b"5"),
        (Currency, Currency.EURO, b'"EUR"'),
        (dt.datetime, dt.datetime(2024, 1, 2, tzinfo=dt.UTC), b'"2024-01-02T00:00:00Z"'),
        (str | int, 5, b"5"),
        (Pair, Pair(1, "x"), b'[1,"x"]'),
        (Envelope[Item], Envelope(Item(1.5)), b'{"item":{"price":1.5}}'),
        (ModelOf[int], ModelOf[int](item=1), b'{"item":1}'),
        (list[Item], [Item(1.5)], b'[{"price":1.5}]'),
        (Item | None, None, b"null"),
        (Placed | Paid, Paid("card"), b'{"type":"Paid","by":"card"}'),
        (Item | Note, Note("x"), b'{"text":"x"}'),
        (list[Item | Note], [Item(1.0), Note("x")], b'[{"price":1.0},{"text":"x"}]'),
        (Model | Note, Note("x"), b'{"text":"x"}'),
        (Literal["a", "b"], "b", b"b"),
        (Name, Name("Ann"), b"Ann"),
    ],
)
def test_json_round_trip(type_, payload, data):
    """Dataclasses, structs, models and builtins keep their types."""
    assert write(payload).payload == data
    assert read(type_, data) == payload


def test_nested_dataclasses():
    """Fields of every kind have their types."""
    order = Order([Item(1.5)], dt.datetime(2024, 1, 2, tzinfo=dt.UTC), extra={"x": [1]}, parent=Order([]))
    assert read(Order, write(order).payload) == order


@pytest.mark.parametrize("type_", [str, str | None])
def test_text_under_json_has_no_quotes(type_):
    """A str is written as it is, and read as text."""
    assert write("plain words").payload == b"plain words"
    assert read(type_, b'"quoted"') == '"quoted"'


@pytest.mark.parametrize("type_", [bytes, object, Any])
@pytest.mark.parametrize("content_type", ["application/json", "text/plain", "application/octet-stream", "a/b"])
def test_bytes_are_unchanged(type_, content_type):
    """Under every content type."""
    assert read(type_, b"\xff{", content_type) == b"\xff{"
    assert write(b"\xff{", content_type).payload == b"\xff{"


def test_kinds_of_bytes():
    """bytearray and memoryview are written as bytes and can be read."""
    assert write(bytearray(b"x")).payload == write(memoryview(b"x")).payload == b"x"
    assert read(bytearray, b"x") == bytearray(b"x")
    assert read(memoryview, b"x") == memoryview(b"x")


def test_charset():
    """Text is written and read in the content type's charset."""
    sent = write("中文", "text/plain;charset=GBK")
    assert sent.payload == "中文".encode("gbk")
    assert read(str, sent.payload, "text/plain;charset=GBK") == "中文"
    assert read(str, "中文".encode()) == "中文"


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (int, b"5", 5),
        (float, b"1.5\n", 1.5),
        (bool, b"true", True),
        (decimal.Decimal, b"1.10", decimal.Decimal("1.10")),
        (
            uuid.UUID,
            b"12345678-1234-4234-8234-123456789012",
            uuid.UUID("12345678-1234-4234-8234-123456789012"),
        ),
        (Currency, b"EUR", Currency.EURO),
        (dt.date, b"2024-01-02", dt.date(2024, 1, 2)),
    ],
)
def test_values_in_plain_text(type_, text, value):
    """Under text/plain a single value is parsed."""
    assert read(type_, text, "text/plain") == value


def test_any_payload_can_be_written_as_text():
    """Under text/plain."""
    assert write(5, "text/plain").payload == b"5"


def test_precedence_of_content_types():
    """The message's header overrides the binding's content type, which overrides JSON."""
    assert write({"a": 1}).headers.content_type == "application/json"
    assert write(5, default="text/plain").headers.content_type == "text/plain"
    assert write([1], "application/json", default="text/plain").payload == b"[1]"
    assert read(int, b"5", default="text/plain") == 5
    with pytest.raises(MessageConversionError):
        read(int, b" x", "application/json", default="text/plain")


@pytest.mark.parametrize(
    ("type_", "data", "path", "reason"),
    [
        (
            Order,
            b'{"items":[{"price":1},{"price":2},{"price":"x"}]}',
            "$.items[2].price",
            "Expected `float`, got `str`",
        ),
        (Order, b'{"items":[{}]}', "$.items[0]", "missing required field `price`"),
        (Model, b'{"number":1,"items":[{"price":"x"}]}', "$.items[0].price", "valid number"),
        (list[Item | Note], b'[{"text":"x"},{"price":"x"}]', "$[1].price", "valid number"),
        (Envelope[Item], b'{"item":{"price":"x"}}', "$.item.price", "Expected `float`"),
        (Literal["a", "b"], b"c", None, "Invalid enum value"),
        (Struct, b'{"n":', None, "truncated"),
        (Model, b'{"n":', None, "Invalid JSON"),
    ],
)
def test_conversion_error_details(type_, data, path, reason):
    """The field's path, the content type, the requested type and the message."""
    with pytest.raises(MessageConversionError, match=reason) as caught:
        read(type_, data)
    error = caught.value
    assert error.path == path
    assert path is None or f"at {path}" in str(error)
    assert (error.content_type, error.target_type) == ("application/json", type_)
    assert error.failed_message.payload == data


@pytest.mark.parametrize(
    ("type_", "quoted", "path"),
    [
        (Currency, "x - at `y`", None),
        (Currency, " - at `" * 200_000, None),
        (list[Currency], "x - at `y`", "$[0]"),
        (list[Currency], " - at `" * 200_000, "$[0]"),
    ],
)
def test_quoted_payload_is_not_taken_for_a_path(type_, quoted, path):
    """The path is msgspec's suffix, which is found in constant time."""
    data = msgspec.json.encode(quoted if type_ is Currency else [quoted])
    with pytest.raises(MessageConversionError, match="Invalid enum value") as caught:
        read(type_, data)
    assert caught.value.path == path


@pytest.mark.parametrize("charset", ["iso-8859-1", "utf-16", "GBK"])
def test_json_is_utf_8_whatever_charset_is_named(charset):
    """JSON text can be read as an object, and an object as text."""
    json = f"application/json;charset={charset}"
    assert read(dict, write('{"name":"中é"}', json).payload, json) == {"name": "中é"}
    assert read(str, write({"name": "中é"}, json).payload, json) == '{"name":"中é"}'


def test_text_in_the_wrong_charset_is_an_error():
    """With the position."""
    with pytest.raises(MessageConversionError, match="not utf-8 text: byte 1 is wrong"):
        read(str, b"a\xff")


@pytest.mark.parametrize("type_", [Plain, list[Plain], dict[str, Plain | None], Callable[[], int]])
def test_unsupported_annotation_fails_at_once(type_):
    """When the reader is created."""
    with pytest.raises(MessageConversionError, match="neither a dataclass"):
        CONVERTER.payload_reader(type_)


@pytest.mark.parametrize("type_", [Struct | Item, Placed | Struct])
def test_ambiguous_union_is_refused(type_):
    """Of an untagged struct and another class, which neither msgspec nor pydantic can distinguish."""
    with pytest.raises(MessageConversionError, match="cannot be read as"):
        CONVERTER.payload_reader(type_)


def test_mixing_models_and_structs_is_refused():
    """pydantic cannot build a msgspec struct; reported when the reader is created."""

    @dataclasses.dataclass
    class Mixed:
        model: Model
        struct: Struct

    with pytest.raises(MessageConversionError, match="cannot be read as"):
        CONVERTER.payload_reader(Mixed)


@pytest.mark.parametrize(
    ("payload", "content_type", "reason"),
    [
        (Plain(), "application/json", "Cannot write Plain as JSON: Plain is neither"),
        ([Plain()], "application/json", "Cannot write list as JSON"),
        ("text", "application/octet-stream", "carries bytes, not str"),
        (Item(1), "application/xml", "No converter writes Item as application/xml"),
        ("x", "text/plain;charset=klingon", "text/plain names an unknown charset 'klingon'"),
        ("x", "nonsense", "is not a content type"),
    ],
)
def test_unwritable_payload_is_an_error(payload, content_type, reason):
    """It has the message."""
    with pytest.raises(MessageConversionError, match=reason) as caught:
        write(payload, content_type)
    assert caught.value.failed_message.payload is payload


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", "application/xml"])
def test_coroutine_as_payload_is_an_error_that_says_to_await_it(content_type):
    """Whoever forgets an `await` learns that, and not which classes can be written."""

    async def price() -> int:
        return 1

    forgotten = price()
    with pytest.raises(MessageConversionError, match=r"is the coroutine of .*\.price, which was not awaited: await it"):
        write(forgotten, content_type)
    with pytest.raises(MessageConversionError, match=r"it contains the coroutine of .*\.price, which was not awaited"):
        write({"price": forgotten}, "application/json")
    forgotten.close()


@pytest.mark.parametrize(
    ("type_", "content_type", "named"),
    [(Item, "application/xml", "Item"), (list[int], "text/plain", r"list\[int\]")],
)
def test_unsupported_content_type_is_an_error(type_, content_type, named):
    """Only for types that need a converter."""
    with pytest.raises(MessageConversionError, match=f"No converter reads {content_type} as {named}"):
        read(type_, b"<x/>", content_type)
    assert read(str, b"<x/>", "application/xml") == "<x/>"


def test_payloads_that_never_were_bytes():
    """Objects of the requested type pass, text is read like its bytes, and anything else is an error."""
    assert read(Item, Item(1)) == Item(1)
    assert read(Item, '{"price":2}') == Item(2)
    assert read(list[int], bytearray(b"[1]")) == [1]
    with pytest.raises(MessageConversionError, match="The payload is a Plain, not bytes, text or Item"):
        read(Item, Plain())


class Reversing:
    """A custom converter for one content type and one class."""

    def reader(self, type_, mime):
        return (lambda data: data[::-1]) if mime.essence == "x/reversed" else None

    def writer(self, type_, mime):
        return (lambda payload: payload[::-1]) if mime.essence == "x/reversed" else None


class Broken:
    def reader(self, type_, mime):
        return lambda data: 1 / 0

    def writer(self, type_, mime):
        return lambda payload: 1 / 0


def test_custom_converter_takes_precedence():
    """It is not used for types that it does not support."""
    converter = CompositeMessageConverter([Reversing()])
    message = Message(b"abc", {"contentType": "x/reversed"})
    assert converter.payload_reader(bytes)(message) == b"cba"
    assert converter.payload_writer()(message).payload == b"cba"
    assert converter.payload_reader(int)(Message(b"5")) == 5


def test_custom_converters_error_is_a_conversion_error():
    """With the message and the cause."""
    converter = CompositeMessageConverter([Broken()])
    for convert in (converter.payload_reader(int), converter.payload_writer()):
        with pytest.raises(MessageConversionError, match="division by zero") as caught:
            convert(Message(b"5"))
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert caught.value.failed_message == Message(b"5")


def test_converter_cache_is_bounded() -> None:
    """Senders may use any number of content types."""
    read = CompositeMessageConverter().payload_reader(int)
    for number in range(1000):
        assert read(Message(b"1", {"contentType": f"application/json;n={number}"})) == 1
    assert len(read.__self__._readers) <= 100
    write = CompositeMessageConverter().payload_writer()
    for number in range(1000):
        assert write(Message(1, {"contentType": f"application/json;n={number}"})).payload == b"1"
    assert len(write.__self__._writers) <= 100
