"""Messages without a payload: listener arguments and sending."""

import pytest

from streamkit.errors import MessageConversionError
from streamkit.messaging.converter import CompositeMessageConverter
from streamkit.messaging.message import NO_PAYLOAD, Message

CONVERTER = CompositeMessageConverter()


@pytest.mark.parametrize("type_", [str | None, dict[str, int] | None, bytes | None, None])
def test_annotation_that_allows_none_gets_none(type_: object) -> None:
    """Whatever else it names."""
    assert CONVERTER.payload_reader(type_)(Message(NO_PAYLOAD)) is None


@pytest.mark.parametrize("type_", [bytes, object])
def test_bytes_annotation_gets_empty_bytes(type_: object) -> None:
    """A special object distinguishes them from an empty payload."""
    given = CONVERTER.payload_reader(type_)(Message(NO_PAYLOAD))
    assert given == b""
    assert given is NO_PAYLOAD


@pytest.mark.parametrize("type_", [str, int, dict[str, int]])
def test_other_annotations_are_an_error(type_: object) -> None:
    """The annotation has to allow None, says the error."""
    with pytest.raises(MessageConversionError, match=r"no payload: annotate the parameter as .* \| None"):
        CONVERTER.payload_reader(type_)(Message(NO_PAYLOAD))


def test_missing_payload_is_sent_as_missing() -> None:
    """Under any content type."""
    assert CONVERTER.payload_writer("application/json")(Message(NO_PAYLOAD)).payload is NO_PAYLOAD
