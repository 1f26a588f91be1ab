"""Several listeners at one input."""

import logging
from collections.abc import Callable

import pytest

from streamkit import Acknowledgment, send_to
from streamkit.application import StreamApplication
from streamkit.errors import ConfigurationError
from streamkit.testing.harness import Harness

Start = Callable[[], Harness]


def test_every_matching_listener_is_called_in_order(app: StreamApplication, test: Start) -> None:
    """A listener without a condition always matches."""
    calls: list[str] = []
    app.stream_listener("a", condition="headers['kind'] == 'x'")(lambda: calls.append("x"))
    app.stream_listener("a")(lambda: calls.append("all"))
    harness = test()
    harness.input("a").send("1", {"kind": "x"})
    harness.input("a").send("2", {"kind": "y"})
    assert calls == ["x", "all", "all"]


def test_message_without_a_matching_listener_is_dropped_with_a_warning(
    app: StreamApplication, test: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not retried."""
    app.stream_listener("a", condition="headers['kind'] == 'x'")(lambda: None)
    harness = test()
    with caplog.at_level(logging.WARNING):
        harness.input("a").send("1")
    assert "no listener's condition matches it" in caplog.text
    assert harness.dead_letters("a").is_empty


def test_listener_with_a_condition_may_not_return_a_result(app: StreamApplication, test: Start) -> None:
    """It would be unclear which messages have an output."""

    async def answer(payload: str) -> str:
        return payload

    app.stream_listener("a", condition="payload.length() > 3")(send_to("b")(answer))
    with pytest.raises(ConfigurationError, match=r"answer .* has a condition, so it must return nothing"):
        test()


def test_one_of_several_listeners_may_settle_by_hand(app: StreamApplication, test: Start) -> None:
    """Messages of the others are settled by their return."""

    @app.stream_listener("a", condition="headers['by'] == 'hand'")
    async def by_hand(text: str, acknowledgment: Acknowledgment) -> None:
        acknowledgment.reject("by hand")

    app.stream_listener("a", condition="headers['by'] == 'return'")(lambda: None)
    harness = test()
    harness.input("a").send("1", {"by": "hand"})
    harness.input("a").send("2", {"by": "return"})
    harness.advance(hours=1)
    assert [message.payload for message in harness.dead_letters("a").receive_all()] == [b"1"]


def test_unused_result_is_warned_about(app: StreamApplication, test: Start, caplog: pytest.LogCaptureFixture) -> None:
    """A listener without send_to returns something."""

    @app.stream_listener("a")
    def forgetful(text: str) -> str:
        return text

    test()
    assert "forgetful" in caplog.text
    assert "has no @send_to" in caplog.text
