"""Signals of an application."""

import pytest
from blinker import NamedSignal

from streamkit.events import message_sent, notify


@pytest.fixture
def heard():
    """Return what a receiver of `message_sent` got."""
    calls = []

    def receiver(sender, **values):
        calls.append((sender, values))

    with message_sent.connected_to(receiver):
        yield calls


def test_receiver_gets_sender_and_arguments(heard):
    """A receiver gets the sender and what there is to tell."""
    assert message_sent.receivers
    notify(message_sent, "app", binding="orders")
    assert heard == [("app", {"binding": "orders"})]


def test_receiver_may_listen_to_one_application():
    """A receiver may listen to one application."""
    calls = []

    def receiver(sender, **values):
        calls.append(sender)

    app, other = object(), object()
    with message_sent.connected_to(receiver, sender=app):
        notify(message_sent, other)
        notify(message_sent, app)
    assert calls == [app]


def test_signal_without_receivers_does_nothing():
    """Its `receivers` are empty."""
    silent = NamedSignal("silent")
    assert not silent.receivers
    notify(silent, "app")


def test_failing_receiver_is_logged(heard, caplog):
    """The sender and other receivers are not affected."""

    def failing(sender, **values):
        raise ValueError("observer")

    with message_sent.connected_to(failing):
        notify(message_sent, "app")
    assert heard == [("app", {})]
    assert "of signal message_sent failed" in caplog.text


def test_async_receiver_is_refused(heard, caplog):
    """It would never run."""

    async def waiting(sender, **values):
        raise AssertionError("never")

    with message_sent.connected_to(waiting):
        notify(message_sent, "app")
    assert heard == [("app", {})]
    assert "connect a plain function" in caplog.text
