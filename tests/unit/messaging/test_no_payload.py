"""Messages without a payload: what listeners are given, and what is sent."""

import pytest

from streamkit.errors import MessageConversionError
from streamkit.messaging.converter import CompositeMessageConverter
from streamkit.messaging.message import NO_PAYLOAD, Message

CONVERTER = CompositeMessageConverter()


@pytest.mark.parametrize("type_", [str | None, dict[str, int] | None, bytes | None, None])
def test_whoever_allows_none_is_given_none(type_: object) -> None:
    """Whatever else the annotation names."""
    assert CONVERTER.payload_reader(type_)(Message(NO_PAYLOAD)) is None


@pytest.mark.parametrize("type_", [bytes, object])
def test_whoever_wants_bytes_is_given_empty_ones(type_: object) -> None:
    """They can be told from an empty payload by their identity."""
    given = CONVERTER.payload_reader(type_)(Message(NO_PAYLOAD))
    assert given == b""
    assert given is NO_PAYLOAD


@pytest.mark.parametrize("type_", [str, int, dict[str, int]])
def test_others_are_told_how_to_ask_for_it(type_: object) -> None:
    """The annotation has to allow None."""
    with pytest.raises(MessageConversionError, match=r"no payload: annotate it as .* \| None"):
        CONVERTER.payload_reader(type_)(Message(NO_PAYLOAD))


def test_it_is_sent_as_it_is() -> None:
    """Under any content type, so that a binder sees that there is none."""
    assert CONVERTER.payload_writer("application/json")(Message(NO_PAYLOAD)).payload is NO_PAYLOAD
