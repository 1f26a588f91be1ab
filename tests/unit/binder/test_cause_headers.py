"""The headers that tell why a message is a dead letter."""

from streamkit.binder.dead_letter import FAILURE_MESSAGE, FAILURE_PLACE, FAILURE_TYPE, cause_headers
from streamkit.settlement import Reject


def raised() -> ValueError:
    """An exception with a place."""
    try:
        raise ValueError("why" * 1000)
    except ValueError as error:
        return error


def test_the_cause_is_told_within_bounds() -> None:
    """Its class, its text of at most 1000 characters, and the line that raised it."""
    told = cause_headers(Reject("given up", cause=raised()))
    assert told[FAILURE_TYPE] == "builtins.ValueError"
    assert told[FAILURE_MESSAGE] == ("why" * 1000)[:1000]
    assert told[FAILURE_PLACE].endswith(f"test_cause_headers.py:{raised.__code__.co_firstlineno + 3} in raised")


def test_a_listener_s_reason_is_told_where_nothing_was_raised() -> None:
    """Within the same bounds; without a reason there is nothing to tell."""
    assert cause_headers(Reject("no" * 1000)) == {FAILURE_MESSAGE: "no" * 500}
    assert cause_headers(Reject("")) == {}


def test_every_binder_can_carry_them() -> None:
    """Also where an exception or a reason quotes half of a surrogate pair out of a payload."""
    for rejected in (
        Reject("unknown \ud800"),
        Reject("no", cause=ValueError("unknown \ud800")),
    ):
        assert cause_headers(rejected)[FAILURE_MESSAGE] == "unknown ?"


class WithoutTextError(Exception):
    """Fails when it is asked what happened."""

    def __str__(self) -> str:
        raise RuntimeError("broken")


def test_an_exception_whose_text_cannot_be_made_is_told_by_its_class() -> None:
    """What is wrong with it must not keep its message from the dead letters."""
    told = cause_headers(Reject("given up", cause=WithoutTextError()))
    assert told[FAILURE_TYPE].endswith("WithoutTextError")
    assert told[FAILURE_MESSAGE] == "<its text cannot be made: RuntimeError>"
