"""Signals of an application."""

import pytest
from blinker import NamedSignal

from streamkit.events import message_sent, notify


@pytest.fixture
def heard():
    """What a receiver of `message_sent` heard."""
    calls = []

    def receiver(sender, **values):
        calls.append((sender, values))

    with message_sent.connected_to(receiver):
        yield calls


def test_receivers_hear(heard):
    """A receiver gets the sender and what there is to tell."""
    assert message_sent.receivers
    notify(message_sent, "app", binding="orders")
    assert heard == [("app", {"binding": "orders"})]


def test_one_application_only():
    """A receiver may listen to one application."""
    calls = []

    def receiver(sender, **values):
        calls.append(sender)

    app, other = object(), object()
    with message_sent.connected_to(receiver, sender=app):
        notify(message_sent, other)
        notify(message_sent, app)
    assert calls == [app]


def test_nobody_listens():
    """A signal without receivers has nothing in `receivers`, and telling it does nothing."""
    silent = NamedSignal("silent")
    assert not silent.receivers
    notify(silent, "app")


def test_a_failing_receiver_disturbs_nobody(heard, caplog):
    """An observer that raises is logged; the sender and the others go on."""

    def failing(sender, **values):
        raise ValueError("observer")

    with message_sent.connected_to(failing):
        notify(message_sent, "app")
    assert heard == [("app", {})]
    assert "of signal message_sent failed" in caplog.text


def test_a_receiver_that_would_have_to_be_awaited_is_told(heard, caplog):
    """It would never run, and nobody would know."""

    async def waiting(sender, **values):
        raise AssertionError("never")

    with message_sent.connected_to(waiting):
        notify(message_sent, "app")
    assert heard == [("app", {})]
    assert "connect a plain function" in caplog.text
