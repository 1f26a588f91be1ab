"""Which headers travel in which mode."""

from typing import cast

import pytest

from streamkit.binder.embedded_headers import extract_headers
from streamkit.binder.header_modes import writing_in
from streamkit.config.settings import HeaderMode
from streamkit.errors import MessageConversionError
from streamkit.messaging.headers import DELAY, KEY, PARTITION, TAGS
from streamkit.messaging.message import Message

STEERING = {KEY: "k", TAGS: "t", DELAY: 5, PARTITION: 1}
"""What is said to the messaging system, and not to the receiver."""


def written(mode: HeaderMode | None, headers: dict[str, object]) -> Message[bytes]:
    """Return a message as it is sent in that mode."""
    write = writing_in(mode, lambda message: cast(Message[bytes], message))
    return write(Message(b"hi", headers))


def test_without_headers_only_those_that_steer_the_send_reach_the_system() -> None:
    """A secret among the others stays at home."""
    sent = written(HeaderMode.NONE, {**STEERING, "token": "secret", "contentType": "text/plain"})
    assert sent.payload == b"hi"
    assert sent.headers.user_values() == STEERING


def test_embedded_headers_are_those_for_the_receiver() -> None:
    """Not those that steer the send: they would steer the receiver's own next send."""
    sent = written(HeaderMode.EMBEDDED_HEADERS, {**STEERING, "colour": "red"})
    assert extract_headers(sent.payload) == (b"hi", {"colour": "red"})
    assert sent.headers[KEY] == "k"


@pytest.mark.parametrize("headers", [{"x" * 256: 1}, {"value": object()}, {str(n): n for n in range(256)}])
def test_headers_that_cannot_be_embedded_are_the_senders_mistake(headers: dict[str, object]) -> None:
    """Nothing is sent."""
    with pytest.raises(MessageConversionError, match="cannot be embedded"):
        written(HeaderMode.EMBEDDED_HEADERS, headers)
