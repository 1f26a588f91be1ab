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


@pytest.mark.parametrize("text", ["colour", "=red", " =red", ""])
def test_other_texts_are_no_conditions(text: str) -> None:
    """The error says how to write one."""
    with pytest.raises(ValueError, match="write NAME=VALUE"):
        conditions_of([text])
