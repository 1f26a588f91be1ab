"""Expressions over messages: their values, and what they cannot access."""

import dataclasses
import enum

import pytest

from streamkit.errors import ExpressionError
from streamkit.expression import compile_expression
from streamkit.messaging import Message


class Kind(enum.Enum):
    BIG = "b"


@dataclasses.dataclass
class Order:
    amount: int = 5
    name: str | None = "Ann"
    tags: tuple[str, ...] = ("x", "y")
    kind: Kind = Kind.BIG
    nothing: None = None
    parent: "Order | None" = None

    def method(self) -> str:
        return "reached"


MESSAGE = Message(Order(), {"type": "refund", "n": 3, "flag": "true", "and": "word", "map": {"k": 1}})


def value_of(source, root=MESSAGE):
    return compile_expression(source)(root)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        # what is there
        ("payload.amount", 5),
        ("payload['amount']", 5),
        ("headers['type']", "refund"),
        ('headers["type"]', "refund"),
        ("headers.type", "refund"),
        ("headers[type]", "refund"),
        ("headers.and", "word"),
        ("headers.map.k", 1),
        ("headers.missing", None),
        ("payload.tags[1]", "y"),
        ("#root.payload.amount", 5),
        # literals
        ("'it''s'", "it's"),
        ("1.5e2", 150.0),
        ("10L", 10),
        ("2d", 2.0),
        ("TRUE", True),
        ("null", None),
        ("{1, 'a', {2}}", [1, "a", [2]]),
        # comparison
        ("1 == 1.0", True),
        ("1 == true", False),
        ("1 eq 2 or 2 NE 1", True),
        ("1 < 2 && 2 <= 2 && 3 > 2 && 3 >= 3", True),
        ("1 lt 2 and 2 le 2 and 3 gt 2 and 3 ge 3", True),
        ("null < 1 && !(1 < null)", True),
        ("payload.kind == 'BIG' && payload.kind == 'b' && 'c' != payload.kind", True),
        ("payload.amount between {5, 6}", True),
        ("payload.amount between {6, 7}", False),
        ("payload.name matches 'A.n'", True),
        ("payload.name matches 'n'", False),
        # logic
        ("!false && not false", True),
        ("true || headers.missing", True),
        ("false && headers.missing", False),
        ("headers.flag && true", True),
        ("true || false && false", True),
        # arithmetic
        ("1 + 2 * 3 - 4", 3),
        ("(1 + 2) * 3", 9),
        ("7 / 2", 3),
        ("-7 / 2", -3),
        ("-7 % 3", -1),
        ("7 div 2 + 7 mod 4", 6),
        ("7 / 2.0", 3.5),
        ("2 ^ 10", 1024),
        ("- -3", 3),
        ("'a' + 1 + null + true", "a1nulltrue"),
        # choices
        ("payload.amount > 3 ? 'big' : 'small'", "big"),
        ("false ? 1 : true ? 2 : 3", 2),
        ("headers.missing ?: 'x'", "x"),
        ("'' ?: 'x'", "x"),
        ("payload.parent?.name", None),
        ("payload.nothing?.length() ?: 0", 0),
        # methods
        ("payload.name.toUpperCase().length()", 3),
        ("' a '.trim().isEmpty()", False),
        ("'abc'.substring(1) + 'abc'.substring(0, 1)", "bca"),
        ("'abc'.startsWith('a') && 'abc'.endsWith('c') && 'abc'.contains('b')", True),
        ("'abc'.indexOf('c')", 2),
        ("'Abc'.equalsIgnoreCase('aBC') and 'a'.equals('a')", True),
        ("'a-b'.replace('-', '+')", "a+b"),
        ("payload.tags.size() + payload.tags.indexOf('y')", 3),
        ("{1, 2}.contains(2)", True),
        ("headers.containsKey('n') && !headers.containsKey('m')", True),
        ("headers.map.getOrDefault('z', 9)", 9),
        ("(2.7).intValue()", 2),
        ("headers.n.toString() + '!'", "3!"),
        ("payload.getName().length() + getPayload().getAmount()", 8),
        ("payload.getNothing()?.getName()", None),
        ("headers.getN() == 3 && headers.isFlag()", True),
        ("headers.type.getBytes()", b"refund"),
        # hash codes are Java's
        ("'order'.hashCode()", 106006350),
        ("headers.n.hashCode() + true.hashCode()", 1234),
        ("payload.name.hashCode() % 4", 1),
        # types
        ("payload.name instanceof T(String) && payload.amount instanceof T(java.lang.Integer)", True),
        ("payload instanceof T(com.acme.Order)", True),
        ("payload instanceof T(String) || null instanceof T(Object) || true instanceof T(Number)", False),
        ("headers.map instanceof T(java.util.Map) && payload.tags instanceof T(List)", True),
        ("payload.amount > 3 and not (payload.name instanceof T(byte[]))", True),
        # selections and projections
        ("{1, 2, 3, 4}.?[#this > 2]", [3, 4]),
        ("{1, 2, 3, 4}.^[#this > 2]", 3),
        ("{1, 2, 3, 4}.$[#this > 2]", 4),
        ("{1, 2}.^[#this > 2]", None),
        ("{1, 2}.![#this * 10]", [10, 20]),
        ("payload.tags.![toUpperCase()]", ["X", "Y"]),
        ("payload.tags.![#root.payload.name + #this].?[length() > 3].size()", 2),
        ("{{1, 2}, {3}}.![#this.![#this + #root.payload.amount]]", [[6, 7], [8]]),
        ("headers.map.?[value == 1]", {"k": 1}),
        ("headers.map.^[value == 2]", None),
        ("headers.map.![key + '=' + value]", ["k=1"]),
        ("headers.map.![#this] + ''", "[k=1]"),
        ("headers.missing?.?[true] ?: headers.missing?.![1] ?: 'none'", "none"),
        ("{}.?[true].size() == 0 ? 'empty' : 'full'", "empty"),
    ],
)
def test_values(source, expected):
    """As in Spring's expression language."""
    found = value_of(source)
    assert found == expected
    assert type(found) is type(expected)


def test_payload_of_bytes_is_read_as_json():
    """When a part of it is accessed."""
    message = Message(b'{"items": [{"price": 1.5}]}')
    assert value_of("payload.items[0].price * 2", message) == 3.0
    assert value_of("payload['items'].size()", message) == 1
    with pytest.raises(ExpressionError, match="the payload is not JSON"):
        value_of("payload.items", Message(b"x"))


def test_other_root_objects():
    """A selector's root is the key."""
    assert value_of("#this % 4", 7) == 3
    assert value_of("toUpperCase()", "key") == "KEY"
    assert value_of("city", {"city": "Rome"}) == "Rome"


def test_conditions():
    """Any value other than true and false is an error."""
    assert compile_expression("headers.n > 2").test(MESSAGE) is True
    assert compile_expression("headers.flag").test(MESSAGE) is True
    with pytest.raises(ExpressionError, match="expected true or false, found 3"):
        compile_expression("headers.n").test(MESSAGE)


@pytest.mark.parametrize(
    ("source", "position", "reason"),
    [
        ("payload.amount >", 16, "an operand is missing"),
        ("payload.", 8, "a property's name is missing"),
        ("(1", 2, "')' is missing"),
        ("headers['x'", 11, "']' is missing"),
        ("'open", 0, "the closing quote of this text is missing"),
        ("a b", 2, "'b' is not expected"),
        ("payload.amount = 3", 15, "assignments are not supported"),
        ("1 ~ 2", 2, "'~' is not expected here"),
        ("", 0, "an operand is missing"),
        ("1 ? 2", 5, "':' is missing"),
        ("{1 2}", 3, "',' is missing"),
        ("12abc", 0, "is not expected here"),
        ("'a' matches '('", 12, "not a regular expression"),
        ("payload.method()", 8, "there is no method method"),
        ("T(java.lang.Runtime)", 0, "types are not reachable"),
        ("new X()", 0, "types are not reachable"),
        ("payload.getClass()", 8, "types are not reachable"),
        ("payload instanceof String", 19, "a type is missing here: T(String)"),
        ("payload.getName('x')", 16, "')' is missing"),
        ("payload.tags.?[#this == 'x'", 27, "']' is missing"),
        ("payload.tags.?[]", 15, "an operand is missing"),
        ("@bean", 0, "beans are not reachable"),
        ("#env", 0, "the only variables are #root and #this"),
        ("payload.__class__", 8, "'__class__' is private"),
        ("(" * 60 + "1" + ")" * 60, 50, "nested too deeply"),
        ("1" + "+1" * 300, 500, "too long"),
    ],
)
def test_malformed_expression_has_reason_and_position(source, position, reason):
    """A malformed expression says why and points at the place."""
    with pytest.raises(ExpressionError) as caught:
        compile_expression(source)
    assert reason in caught.value.reason
    assert caught.value.position == position
    assert str(caught.value).splitlines()[1:] == [f"  {source}", f"  {' ' * position}^"]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("payload.method", "a Order has no property 'method'"),
        ("payload['__dict__']", "a Order has no property '__dict__'"),
        ("headers.type['__class__']", "'refund' has no property '__class__'"),
        ("payload.missing", "a Order has no property 'missing'"),
        ("payload.nothing.x", r"null has no 'x'; write \?\.x"),
        ("amount", "a message has payload and headers, not 'amount'"),
        ("payload.tags[9]", "there is no index 9: it has 2 items"),
        ("payload.tags[null]", "has no item null"),
        ("1 < 'a'", "1 and 'a' cannot be ordered"),
        ("1 < true", "cannot be ordered"),
        ("1 - 'a'", "1 - 'a' cannot be calculated"),
        ("true + 1", "cannot be calculated"),
        ("1 / 0", "1 / 0: "),
        ("2 ^ 99999", "exponent is too large"),
        ("headers.missing && true", "expected true or false, found null"),
        ("payload.amount.length()", r"5 has no method length\(\)"),
        ("headers.missing.isEmpty()", r"null has no method isEmpty\(\)"),
        ("'a'.substring()", r"substring\(\) of 'a'"),
        ("'a'.startsWith(1)", r"startsWith\(1\) of 'a'"),
        ("'a' matches headers.type + '('", "matches"),
        ("1 between 2", "between takes two bounds"),
        ("headers.missing.?[true]", "null has no items for a selection"),
        ("payload.name.![1]", "a projection needs a list or a map, not 'Ann'"),
        ("payload.tags.?[1]", "expected true or false, found 1"),
        ("payload.getMissing()", "a Order has no property 'missing'"),
        ("payload.getMethod()", "a Order has no property 'method'"),
        ("(1.5).hashCode()", "only texts, whole numbers and booleans have a hash code here"),
        ("payload.tags.hashCode()", r"a tuple has no method hashCode\(\)"),
    ],
)
def test_missing_value_is_an_error(source, reason):
    """It says what is missing; payloads are never shown."""
    expression = compile_expression(source)
    with pytest.raises(ExpressionError, match=reason):
        expression(MESSAGE)


def test_repr_shows_the_source():
    """An expression shows its source."""
    assert repr(compile_expression("1")) == "Expression('1')"
