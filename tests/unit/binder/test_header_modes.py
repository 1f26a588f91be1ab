"""The headers that are sent in each header mode."""

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


def test_header_mode_none_sends_only_control_headers() -> None:
    """Other headers, such as secrets, are not sent."""
    sent = written(HeaderMode.NONE, {**STEERING, "token": "secret", "contentType": "text/plain"})
    assert sent.payload == b"hi"
    assert sent.headers.user_values() == STEERING


def test_embedded_mode_omits_control_headers() -> None:
    """They would affect the receiver's own next send."""
    sent = written(HeaderMode.EMBEDDED_HEADERS, {**STEERING, "colour": "red"})
    assert extract_headers(sent.payload) == (b"hi", {"colour": "red"})
    assert sent.headers[KEY] == "k"


@pytest.mark.parametrize("headers", [{"x" * 256: 1}, {"value": object()}, {str(n): n for n in range(256)}])
def test_unembeddable_header_is_the_senders_error(headers: dict[str, object]) -> None:
    """Nothing is sent."""
    with pytest.raises(MessageConversionError, match="cannot be embedded"):
        written(HeaderMode.EMBEDDED_HEADERS, headers)
