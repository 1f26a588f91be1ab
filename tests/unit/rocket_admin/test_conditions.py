"""Conditions on messages."""

import pytest

from rocket_admin.conditions import conditions_of, matches_all
from rocket_remoting import Message

MESSAGE = Message(
    "orders", '{"table": 7, "dish": "café"}'.encode(), tags="hot", keys="o-1 o-2", properties={"colour": "red"}
)


@pytest.mark.parametrize(
    ("conditions", "matches"),
    [
        ([], True),
        (["colour=red"], True),
        (["colour=re"], False),
        (["colour~re"], True),
        (["colour!=blue"], True),
        (["colour!=red"], False),
        (["colour!~blue"], True),
        (["size=1"], False),
        (["size!=1"], True),
        (["tags=hot", "keys~o-2"], True),
        (["tags=hot", "keys~o-3"], False),
        (["body~café"], True),
        (['body~"table": 7'], True),
        (["body!~coffee"], True),
        (["colour~="], False),
    ],
)
def test_all_conditions_must_be_true(conditions: list[str], matches: bool) -> None:
    """Of properties, tags, keys and the body; what is not there has no value."""
    assert matches_all(conditions_of(conditions), MESSAGE) is matches


ORDER = Message(
    "orders",
    b"""{"id": 4711, "customer": {"name": "Ann", "first name": "J", "vip": true, "note": null},
     "total": 12.50, "items": [{"sku": "a-1", "price": 5}, {"sku": "b-2", "price": 7.5}], "tags": []}""",
    properties={"$strange": "yes"},
)


@pytest.mark.parametrize(
    ("condition", "matches"),
    [
        ("$.customer.name=Ann", True),
        ("$.customer.name=ann", False),
        ("$.customer.name~nn", True),
        ("$.customer.name!=Bob", True),
        ("$.customer['first name']=J", True),
        ('$["customer"]["first name"]=J', True),
        ("$.customer.vip=true", True),
        ("$.customer.vip=True", False),
        ("$.customer.note=null", True),
        ("$.customer.absent=null", False),
        ("$.customer.absent!=null", True),
        ("$.id=4711", True),
        ("$.id~71", True),
        ("$.total=12.5", True),
        ("$.total=1.25e1", True),
        ("$.total>12", True),
        ("$.total >= 12.5", True),
        ("$.total<12.5", False),
        ("$.total<=12.5", True),
        ("$.customer.name>1", False),
        ("$.customer.vip>0", False),
        ("$.items[0].sku=a-1", True),
        ("$.items[-1].sku=b-2", True),
        ("$.items[2].sku=b-2", False),
        ("$.items[*].sku=b-2", True),
        ("$.items[*].price>7", True),
        ("$.items[*].sku!=b-2", False),
        ("$.items[*].sku!~c", True),
        ("$.items.*.price=5", True),
        ("$.*.name=Ann", True),
        ("$.tags=[]", True),
        ('$.items[0]={"sku":"a-1","price":5}', True),
        ("$.id.name=1", False),
        ("$.id[0]=1", False),
        ("$strange=yes", True),
    ],
)
def test_a_path_stands_for_values_of_a_json_body(condition: str, matches: bool) -> None:
    """Texts as they are, other values as JSON writes them; of several values one is enough."""
    assert matches_all(conditions_of([condition]), ORDER) is matches


@pytest.mark.parametrize(
    "body",
    [b"", b"coffee", b"\xff\xfe\x00", b"[" * 200_000, b'{"a":' * 100_000, b"9" * 10_000, b"NaN", b'"a"', b"[1]"],
)
def test_a_path_leads_nowhere_in_other_bodies(body: bytes) -> None:
    """Whatever the body is: nothing is raised."""
    message = Message("orders", body)
    assert not matches_all(conditions_of(["$.a=1"]), message)
    assert matches_all(conditions_of(["$.a!=1", "$.a!~1"]), message)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("$.a", r"behind the path \$\.a;"),
        ("$.a..b=1", "behind the path"),
        ("$.a[?(@.b)]=1", "behind the path"),
        ("$.a>b", "write a number behind >"),
        ("$.a<=1_000", "write a number behind <="),
        ("$" + ".a" * 33 + "=1", "at most 32 steps"),
    ],
)
def test_other_paths_are_refused(text: str, error: str) -> None:
    """The error says how to write one."""
    with pytest.raises(ValueError, match=error):
        conditions_of([text])


@pytest.mark.parametrize("text", ["colour", "=red", " =red", ""])
def test_other_texts_are_no_conditions(text: str) -> None:
    """The error says how to write one."""
    with pytest.raises(ValueError, match="write NAME=VALUE"):
        conditions_of([text])
