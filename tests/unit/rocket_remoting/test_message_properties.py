"""Properties on the wire."""

from collections.abc import Callable

import pytest

from rocket_remoting.wire.errors import LocalProtocolError, RemoteProtocolError
from rocket_remoting.wire.properties import decode_properties, encode_properties, encode_properties_text


def test_properties_have_apaches_wire_form() -> None:
    """Name and value are separated by 0x01, each property ends with 0x02."""
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
def test_parsing_follows_java(text: str, properties: dict[str, str]) -> None:
    """The last separator may be missing, as in 4.9; a property without name or value is dropped."""
    assert decode_properties(text) == properties
    assert decode_properties(memoryview(text.encode())) == properties


@pytest.mark.parametrize("properties", [{"a\x02b": "1"}, {"a": "1\x02TAGS\x01x"}, {"a": "\x01"}])
def test_separators_in_values_are_refused(properties: dict[str, str]) -> None:
    """They would inject properties."""
    with pytest.raises(LocalProtocolError, match="0x01"):
        encode_properties(properties)


@pytest.mark.parametrize("encode", [encode_properties, encode_properties_text])
def test_too_long_properties_are_refused(encode: Callable[[dict[str, str]], bytes | str]) -> None:
    """A record stores their length in 16 bits."""
    assert len(encode({"a": "x" * 32764})) == 32767
    with pytest.raises(LocalProtocolError, match="32767"):
        encode({"a": "x" * 32765})


@pytest.mark.parametrize("properties", [{"a": "x" * 500 + "\ud800"}, {"\ud800": "x"}])
@pytest.mark.parametrize("encode", [encode_properties, encode_properties_text])
def test_text_without_utf8_form_is_refused(
    encode: Callable[[dict[str, str]], bytes | str], properties: dict[str, str]
) -> None:
    """JSON may contain a lone surrogate."""
    with pytest.raises(LocalProtocolError, match=r"UTF-8 cannot hold.*ud800"):
        encode(properties)


def test_invalid_utf8_is_refused() -> None:
    """Properties are UTF-8."""
    with pytest.raises(RemoteProtocolError, match="UTF-8"):
        decode_properties(b"a\x01\xff\x02")
