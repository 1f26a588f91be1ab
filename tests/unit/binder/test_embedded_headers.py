"""Headers embedded in payloads, in Spring Cloud Stream's byte format."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.binder.embedded_headers import embed_headers, extract_headers
from streamkit.binder.header_modes import Target, reading_in
from streamkit.config.settings import HeaderMode
from streamkit.messaging.message import Message
from tests.traced_memory import memory_below

# What Spring writes for {"contentType": "text/plain", "n": 1} and payload "hi".
SPRING = (
    b"\xff\x02"
    b"\x0bcontentType\x00\x00\x00\x0c\x22text/plain\x22"
    b"\x01n\x00\x00\x00\x011"
    b"hi"
)  # fmt: skip


def test_embedded_bytes_equal_springs() -> None:
    """A marker, a count, and per header lengths, name and JSON."""
    headers = {"contentType": "text/plain", "n": 1}
    assert embed_headers(b"hi", headers) == SPRING
    assert extract_headers(SPRING) == (b"hi", headers)


values = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text() | st.lists(st.text(), max_size=3)


@given(st.binary(), st.dictionaries(st.text(min_size=1, max_size=60), values, min_size=1, max_size=10))
def test_embedded_headers_round_trip(payload: bytes, headers: dict[str, object]) -> None:
    """Whatever the headers and the payload."""
    assert extract_headers(embed_headers(payload, headers)) == (payload, headers)


@given(st.binary(max_size=64))
def test_payload_that_only_resembles_the_format_is_unchanged(data: bytes) -> None:
    """Reading never fails; the form of Spring without headers yields none."""
    payload, headers = extract_headers(b"\xff" + data)
    says_none = data.startswith(b"\0") and len(data) >= 8
    assert headers or payload == (data[1:] if says_none else b"\xff" + data)


@pytest.mark.parametrize(("mode", "payload"), [(None, SPRING), (HeaderMode.EMBEDDED_HEADERS, b"hi")])
def test_headers_are_extracted_only_in_embedded_mode(mode: HeaderMode | None, payload: bytes) -> None:
    """Otherwise such a payload is unchanged."""
    read: list[Message[object]] = []

    async def target(message: Message[object]) -> None:
        read.append(message)

    asyncio.run(_call(reading_in(mode, target), Message(SPRING, {"n": 2})))
    assert (read[0].payload, read[0].headers["n"]) == (payload, 2)


async def _call(target: Target, message: Message[object]) -> None:
    await target(message)


@pytest.mark.parametrize("end", range(9, len(SPRING) - 2))
def test_truncated_headers_are_not_extracted(end: int) -> None:
    """The bytes are taken as a payload."""
    assert extract_headers(SPRING[:end]) == (SPRING[:end], {})


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({f"h{n}": n for n in range(256)}, "256 headers cannot be embedded: the limit is 255"),
        ({"ä" * 128: 1}, "its name has 256 bytes"),
        ({"x": object()}, "header 'x' cannot be embedded"),
    ],
)
def test_headers_beyond_the_format_are_refused(headers: dict[str, object], reason: str) -> None:
    """Counts and lengths of names have one byte; values are JSON."""
    with pytest.raises(ValueError, match=reason):
        embed_headers(b"", headers)


def embedded(*values: bytes, payload: bytes = b"hi") -> bytes:
    """Return a payload preceded by headers whose values need not be valid JSON."""
    headers = b"".join(b"\x01n" + len(value).to_bytes(4, "big") + value for value in values)
    return b"\xff" + bytes((len(values),)) + headers + payload


@pytest.mark.parametrize(
    "data",
    [
        embedded(b"[" * 100_000),
        embedded(b"[" * 100_000 + b"]" * 100_000),
        embedded(b"9" * 100_000),
        embedded(b"1e999999999"),
        embedded(*[b'"' + b"x" * 100_000 + b'"'] * 50),
        embedded(*[b"[" + b"[]," * 400_000 + b"1]"] * 10),
        b"\xff\xff\x01n\xff\xff\xff\xff1",
        b"\xff\xff" + b"\x00" * 5000,
    ],
)
def test_headers_beyond_the_limits_are_not_extracted(data: bytes) -> None:
    """Nested too deeply, too large, or with wrong lengths: the payload is unchanged."""
    with memory_below(120 << 20):
        assert extract_headers(data) == (data, {})


def test_header_value_beyond_the_payload_is_not_extracted() -> None:
    """Its prefix may be valid JSON, but the payload would be lost."""
    data = b"\xff\x01\x01n\x00\x00\x00\x0512"
    assert extract_headers(data) == (data, {})
