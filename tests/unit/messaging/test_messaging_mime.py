"""Content types."""

import pytest

from streamkit.messaging.mime import MimeType


@pytest.mark.parametrize(
    ("text", "essence", "parameters"),
    [
        ("application/json", "application/json", {}),
        (" Text/Plain ; charset=GBK ", "text/plain", {"charset": "GBK"}),
        ('a/b;x="c;\\"d";y=1', "a/b", {"x": 'c;"d', "y": "1"}),
        ("*/*", "*/*", {}),
    ],
)
def test_content_type_round_trip(text, essence, parameters):
    """Type, subtype and parameters, quoted or not."""
    mime = MimeType.parse(text)
    assert (mime.essence, mime.parameters) == (essence, parameters)
    assert MimeType.parse(str(mime)) == mime


@pytest.mark.parametrize("text", ["", "json", "a/b;c", "a/b/c", "a/b; =x"])
def test_invalid_content_type_is_an_error(text):
    """With an example of a valid one."""
    with pytest.raises(ValueError, match="is not a content type"):
        MimeType.parse(text)


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        ("*/*", "a/b", True),
        ("a/*", "a/b", True),
        ("application/*+json", "application/vnd.x+json", True),
        ("application/*+json", "application/json", False),
        ("a/b", "a/c", False),
        ("x/*", "a/b", False),
    ],
)
def test_wildcards(wide, narrow, expected):
    """A wildcard includes its subtypes."""
    assert MimeType.parse(wide).includes(MimeType.parse(narrow)) is expected


def test_json_and_text_are_recognised():
    """`+json` is JSON, `text/…` is text, and UTF-8 is the default."""
    assert MimeType.parse("application/vnd.order+json").is_json
    assert MimeType.parse("text/csv").is_text
    assert MimeType.parse("text/csv").charset == "utf-8"


def test_content_type_has_a_bounded_length():
    """A message cannot fill the cache with parameters."""
    assert MimeType.parse("a/b;c=" + "d" * 994).parameters == {"c": "d" * 994}
    with pytest.raises(ValueError, match="a content type of 1,001 characters is longer than 1,000"):
        MimeType.parse("a/b;c=" + "d" * 995)
