"""Bodies as text."""

import pytest

from rocket_admin.previews import body_text, preview


@pytest.mark.parametrize(
    ("body", "content_type", "shown"),
    [
        (b'{"a": 1}', "application/json", '{"a": 1}'),
        (b"", None, ""),
        (b"one\n  two\tthree", "text/plain", "one two three"),
        ("café".encode("latin-1"), "text/plain; charset=iso-8859-1", "café"),
        ("café".encode(), "text/plain; charset=nonsense", "café"),
        ("tea".encode("utf-16"), 'text/plain;charset="UTF-16"', "tea"),
        (b"\x00\x01\xff", None, "00 01 ff (3 bytes)"),
        (bytes(40), "application/octet-stream", "00 " * 31 + "00 … (40 bytes)"),
        (b"a\x1b[31mred", None, "61 1b 5b 33 31 6d 72 65 64 (9 bytes)"),
        ("é".encode() * 500, None, "é" * 119 + "…"),
    ],
)
def test_preview_is_one_line(body: bytes, content_type: str | None, shown: str) -> None:
    """Text in its charset, other bytes in hexadecimal; a long one is cut, also within a character."""
    assert preview(body, content_type) == shown


def test_whole_body_is_indented_json_or_text() -> None:
    """What only begins like JSON stays as it is."""
    assert body_text(b'{"dish":"caf\xc3\xa9"}') == '{\n  "dish": "café"\n}'
    assert body_text(b"[1, 2") == "[1, 2"
    assert body_text(b"[" * 100_000) == "[" * 100_000
    assert body_text(b"one\ntwo") == "one\ntwo"
    assert body_text(b"\xff\x00") == "ff 00"
