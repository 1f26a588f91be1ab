"""Conversion round trips."""

import dataclasses
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from streamkit.errors import MessageConversionError
from streamkit.messaging import CompositeMessageConverter, Message
from streamkit.messaging.mime import MimeType

CONVERTER = CompositeMessageConverter()


@dataclasses.dataclass
class Line:
    text: str
    numbers: list[float]
    nested: "dict[str, Line | None]"


LINES = st.recursive(
    st.builds(Line, st.text(), st.lists(st.floats(allow_nan=False, allow_infinity=False)), st.just({})),
    lambda inner: st.builds(Line, st.text(), st.just([]), st.dictionaries(st.text(), st.none() | inner, max_size=3)),
    max_leaves=5,
)


@given(LINES)
def test_dataclass_json_round_trip(line):
    """A dataclass written and read is the same."""
    written = CONVERTER.payload_writer()(Message(line))
    assert CONVERTER.payload_reader(Line)(written) == line


@given(st.text(), st.sampled_from(["application/json", "text/plain", "text/plain;charset=utf-16", "a/b"]))
def test_text_round_trip_with_every_content_type(text, content_type):
    """Text written and read is the same text."""
    written = CONVERTER.payload_writer(content_type)(Message(text))
    assert CONVERTER.payload_reader(str)(written) == text


@given(st.binary())
def test_any_bytes_are_read_or_refused(data):
    """The only error is a conversion error."""
    for type_ in (Line, str, int, list[dict[str, int]]):
        with suppress(MessageConversionError):
            CONVERTER.payload_reader(type_)(Message(data))


@given(st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), st.text(max_size=5), max_size=3))
def test_content_type_round_trip(parameters):
    """With any parameters."""
    mime = MimeType("a", "b", parameters)
    assert MimeType.parse(str(mime)) == mime
