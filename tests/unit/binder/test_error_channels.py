"""Error channels: who hears of a failure, and whether that settles it."""

import asyncio
import logging

import pytest

from streamkit.binder.error_channels import (
    ErrorChannels,
    consumer_error_channel,
    log_error,
    producer_error_channel,
)
from streamkit.errors import MessageConversionError, MessagingError
from streamkit.messaging.message import ErrorMessage
from streamkit.messaging.portal import LoopPortal


def failure(text: str = "broken") -> ErrorMessage:
    """What error channels carry."""
    return ErrorMessage(MessagingError(text))


def test_a_subscriber_of_the_binding_s_channel_handles_the_error() -> None:
    """And the global channel hears of it all the same."""
    channels = ErrorChannels()
    heard: list[str] = []
    channels.everything.unsubscribe(log_error)
    channels.everything.subscribe(lambda message: heard.append("everything"))
    channels.channel("a.g.errors").subscribe(lambda message: heard.append("binding"))
    assert asyncio.run(channels.publish("a.g.errors", failure()))
    assert not asyncio.run(channels.publish("b.g.errors", failure()))
    assert heard == ["binding", "everything", "everything"]


def test_channels_are_named_by_what_they_are_of() -> None:
    """As Spring names them; without a group it is an anonymous one's."""
    assert consumer_error_channel("orders", "g") == "orders.g.errors"
    assert consumer_error_channel("orders", None) == "orders.anonymous.errors"
    assert producer_error_channel("orders") == "orders.errors"


def test_a_failing_subscriber_handles_nothing() -> None:
    """What it raised is raised, after everybody else was told."""
    channels = ErrorChannels()
    heard: list[object] = []
    channels.everything.subscribe(heard.append)

    def fail(message: object) -> None:
        raise ValueError("me too")

    channels.channel("a.g.errors").subscribe(fail)
    with pytest.raises(MessagingError, match="me too"):
        asyncio.run(channels.publish("a.g.errors", failure()))
    assert len(heard) == 1


def test_a_failing_observer_hides_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A subscriber of errorChannel that raises is logged."""
    channels = ErrorChannels()

    def fail(message: object) -> None:
        raise ValueError("observer")

    channels.everything.subscribe(fail)
    assert not asyncio.run(channels.publish("a.g.errors", failure()))
    assert "A subscriber of errorChannel failed" in caplog.text


def test_who_reports_an_error_hears_nothing_of_its_handling(caplog: pytest.LogCaptureFixture) -> None:
    """A sender has the error of its send already; one of the handler is logged."""
    channels = ErrorChannels()

    async def fail(error: ErrorMessage) -> None:
        raise ValueError("handler")

    asyncio.run(channels.report("a.errors", failure(), fail))
    assert "An error handler of a.errors failed" in caplog.text


def test_channels_lead_to_the_loop_of_the_application_that_runs() -> None:
    """Those that were made before it started, and those that are made later."""
    channels = ErrorChannels()
    early = channels.channel("early")
    with asyncio.Runner() as runner:
        portal = LoopPortal(runner.get_loop())
        channels.attach(portal)
        assert [each.portal for each in (early, channels.everything, channels.channel("late"))] == [portal] * 3
    channels.attach(None)
    assert [each.portal for each in (early, channels.everything, channels.channel("later"))] == [None] * 3


def test_errors_are_logged_with_their_cause(caplog: pytest.LogCaptureFixture) -> None:
    """The channel's own subscriber logs what nobody took off it."""
    with caplog.at_level(logging.ERROR):
        asyncio.run(ErrorChannels().publish("a.g.errors", failure("the reason")))
    assert "the reason" in caplog.text


def test_a_payload_nobody_can_read_is_logged_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """No traceback: the text says all there is to know."""
    error = MessageConversionError("Cannot read the payload as Order")
    error.__cause__ = ValueError("at byte 4")
    asyncio.run(ErrorChannels().publish("a.g.errors", ErrorMessage(error)))
    (record,) = caplog.records
    assert (record.getMessage(), record.exc_info) == ("Cannot read the payload as Order", None)
