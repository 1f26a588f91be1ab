"""Error channels: subscribers of a failure, and whether they handle it."""

import asyncio

import pytest

from streamkit.binder.error_channels import (
    ErrorChannels,
    consumer_error_channel,
    producer_error_channel,
)
from streamkit.errors import MessageConversionError, MessagingError
from streamkit.messaging.message import ErrorMessage
from streamkit.messaging.portal import LoopPortal


def failure(text: str = "broken") -> ErrorMessage:
    """Return the payload of error channels."""
    return ErrorMessage(MessagingError(text))


def test_subscriber_of_the_bindings_error_channel_handles_the_error() -> None:
    """The global channel is notified too."""
    channels = ErrorChannels()
    heard: list[str] = []
    channels.everything.subscribe(lambda message: heard.append("everything"))
    channels.channel("a.g.errors").subscribe(lambda message: heard.append("binding"))
    assert asyncio.run(channels.publish("a.g.errors", failure()))
    assert not asyncio.run(channels.publish("b.g.errors", failure()))
    assert heard == ["binding", "everything", "everything"]


def test_error_channels_are_named_as_in_spring() -> None:
    """Without a group it is the anonymous group's."""
    assert consumer_error_channel("orders", "g") == "orders.g.errors"
    assert consumer_error_channel("orders", None) == "orders.anonymous.errors"
    assert producer_error_channel("orders") == "orders.errors"


def test_failing_subscriber_does_not_handle_the_error() -> None:
    """Its exception is raised after all others were called."""
    channels = ErrorChannels()
    heard: list[object] = []
    channels.everything.subscribe(heard.append)

    def fail(message: object) -> None:
        raise ValueError("me too")

    channels.channel("a.g.errors").subscribe(fail)
    with pytest.raises(MessagingError, match="me too"):
        asyncio.run(channels.publish("a.g.errors", failure()))
    assert len(heard) == 1


def test_failing_observer_does_not_affect_the_handling(caplog: pytest.LogCaptureFixture) -> None:
    """An error of a subscriber of errorChannel is logged."""
    channels = ErrorChannels()

    def fail(message: object) -> None:
        raise ValueError("observer")

    channels.everything.subscribe(fail)
    assert not asyncio.run(channels.publish("a.g.errors", failure()))
    assert "A subscriber of errorChannel failed" in caplog.text


def test_error_of_an_error_handler_does_not_reach_the_reporter(caplog: pytest.LogCaptureFixture) -> None:
    """A sender has its send's error already; the handler's is logged."""
    channels = ErrorChannels()

    async def fail(error: ErrorMessage) -> None:
        raise ValueError("handler")

    asyncio.run(channels.report("a.errors", failure(), fail))
    assert "An error handler of a.errors failed" in caplog.text


def test_error_channels_use_the_running_applications_loop() -> None:
    """Whether created before the start or later."""
    channels = ErrorChannels()
    early = channels.channel("early")
    with asyncio.Runner() as runner:
        portal = LoopPortal(runner.get_loop())
        channels.attach(portal)
        assert [each.portal for each in (early, channels.everything, channels.channel("late"))] == [portal] * 3
    channels.attach(None)
    assert [each.portal for each in (early, channels.everything, channels.channel("later"))] == [None] * 3


def test_reported_errors_are_logged_with_their_cause(caplog: pytest.LogCaptureFixture) -> None:
    """Once, with the traceback."""
    asyncio.run(ErrorChannels().report("a.errors", failure("the reason")))
    (record,) = caplog.records
    assert (record.levelname, record.getMessage(), bool(record.exc_info)) == ("ERROR", "the reason", True)


def test_unreadable_payload_is_logged_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """Without a traceback."""
    error = MessageConversionError("Cannot read the payload as Order")
    error.__cause__ = ValueError("at byte 4")
    asyncio.run(ErrorChannels().report("a.errors", ErrorMessage(error)))
    (record,) = caplog.records
    assert (record.getMessage(), record.exc_info) == ("Cannot read the payload as Order", None)
