"""Properties on the wire."""

from collections.abc import Callable

import pytest

from rocket_remoting.wire.errors import LocalProtocolError, RemoteProtocolError
from rocket_remoting.wire.properties import decode_properties, encode_properties, encode_properties_text


def test_wire_form() -> None:
    """Name and value are split by 0x01, each property is closed by 0x02."""
    assert encode_properties({"KEYS": "1 2", "a": "订"}) == "KEYS\x011 2\x02a\x01订\x02".encode()
    assert encode_properties_text({}) == ""


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("", {}),
        ("a\x011", {"a": "1"}),
        ("a\x011\x02", {"a": "1"}),
        ("a\x011\x02b\x012", {"a": "1", "b": "2"}),
        ("a\x01\x02b\x012\x02", {"b": "2"}),
        ("\x011\x02b\x012\x02", {"b": "2"}),
        ("junk\x02\x02b\x012\x02", {"b": "2"}),
        ("a\x011\x012\x02", {"a": "1\x012"}),
    ],
)
def test_reading_is_java_s(text: str, properties: dict[str, str]) -> None:
    """4.9's form without the last separator is read; what has no name or no value is dropped."""
    assert decode_properties(text) == properties
    assert decode_properties(memoryview(text.encode())) == properties


@pytest.mark.parametrize("properties", [{"a\x02b": "1"}, {"a": "1\x02TAGS\x01x"}, {"a": "\x01"}])
def test_separators_cannot_be_smuggled_in(properties: dict[str, str]) -> None:
    """A value with a separator in it would make properties of its own: it is refused."""
    with pytest.raises(LocalProtocolError, match="0x01"):
        encode_properties(properties)


@pytest.mark.parametrize("encode", [encode_properties, encode_properties_text])
def test_too_long_properties_are_refused(encode: Callable[[dict[str, str]], bytes | str]) -> None:
    """A record counts its properties in 16 bits."""
    assert len(encode({"a": "x" * 32764})) == 32767
    with pytest.raises(LocalProtocolError, match="32767"):
        encode({"a": "x" * 32765})


@pytest.mark.parametrize("properties", [{"a": "x" * 500 + "\ud800"}, {"\ud800": "x"}])
@pytest.mark.parametrize("encode", [encode_properties, encode_properties_text])
def test_what_utf8_cannot_hold_is_refused(
    encode: Callable[[dict[str, str]], bytes | str], properties: dict[str, str]
) -> None:
    """JSON can name half of a surrogate pair, and a text that is read from it holds it."""
    with pytest.raises(LocalProtocolError, match=r"UTF-8 cannot hold.*ud800"):
        encode(properties)


def test_text_that_is_no_utf8_is_refused() -> None:
    """Properties are UTF-8."""
    with pytest.raises(RemoteProtocolError, match="UTF-8"):
        decode_properties(b"a\x01\xff\x02")
