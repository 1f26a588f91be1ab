"""The failure headers of dead letters."""

from streamkit.binder.dead_letter import (
    FAILURE_MESSAGE,
    FAILURE_PLACE,
    FAILURE_TYPE,
    Origin,
    cause_headers,
    origin_headers,
)
from streamkit.settlement import Reject


def raised() -> ValueError:
    """Return an exception with a traceback."""
    try:
        raise ValueError("why" * 1000)
    except ValueError as error:
        return error


def test_failure_headers_are_bounded() -> None:
    """The class, the text of at most 1000 characters, and the line that raised it."""
    reported = cause_headers(Reject("given up", cause=raised()))
    assert reported[FAILURE_TYPE] == "builtins.ValueError"
    assert reported[FAILURE_MESSAGE] == ("why" * 1000)[:1000]
    assert reported[FAILURE_PLACE].endswith(f"test_cause_headers.py:{raised.__code__.co_firstlineno + 3} in raised")


def test_rejection_reason_is_the_failure_without_an_exception() -> None:
    """Within the same bounds; without a reason only the type is there."""
    kind = {FAILURE_TYPE: "streamkit.settlement.Reject"}
    assert cause_headers(Reject("no" * 1000)) == {**kind, FAILURE_MESSAGE: "no" * 500}
    assert cause_headers(Reject("")) == kind


def test_unknown_facts_about_the_origin_are_left_out() -> None:
    """An anonymous group has no name, and a message of a foreign sender no id."""
    known = {"ORIGIN_DESTINATION": "orders", "ORIGIN_PARTITION": 0, "ORIGIN_OFFSET": 7}
    assert origin_headers(Origin("orders", 0, 7, None)) == known


def test_failure_headers_can_be_encoded_by_every_binder() -> None:
    """Also if exception or reason contains a lone surrogate from a payload."""
    for rejected in (
        Reject("unknown \ud800"),
        Reject("no", cause=ValueError("unknown \ud800")),
    ):
        assert cause_headers(rejected)[FAILURE_MESSAGE] == "unknown ?"


class WithoutTextError(Exception):
    """An error whose `str` raises."""

    def __str__(self) -> str:
        raise RuntimeError("broken")


def test_exception_without_text_is_reported_by_its_class() -> None:
    """Its message must still become a dead letter."""
    reported = cause_headers(Reject("given up", cause=WithoutTextError()))
    assert reported[FAILURE_TYPE].endswith("WithoutTextError")
    assert reported[FAILURE_MESSAGE] == "<its text cannot be made: RuntimeError>"
