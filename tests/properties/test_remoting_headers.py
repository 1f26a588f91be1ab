"""Headers round-trip with both encodings and with unquoted values."""

import json
import types
import typing

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rocket_remoting.wire.headers
from rocket_remoting.wire.command import HeaderEncoding, RemotingCommand
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.ext_fields import Header, Int, Long, read_json, to_fields
from rocket_remoting.wire.frame_decoder import FrameDecoder

HEADERS = [
    type_
    for type_ in vars(rocket_remoting.wire.headers).values()
    if isinstance(type_, type) and issubclass(type_, Header)
]
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES: dict[object, st.SearchStrategy[object]] = {
    str: text | st.sampled_from(["null", "true", "1", "{}", "[]", '"', "\\", "\x01\x02", "订单"]),
    bool: st.booleans(),
    Int: st.integers(-(2**31), 2**31 - 1),
    Long: st.integers(-(2**63), 2**63 - 1),
    types.NoneType: st.none(),
}


def values(hint: object) -> st.SearchStrategy[object]:
    """Generate a value of a field's type."""
    if hint in VALUES:
        return VALUES[hint]
    return st.one_of([VALUES[member] for member in typing.get_args(hint)])


@st.composite
def headers(draw: st.DrawFn) -> Header:
    """Generate a header of any class with any values."""
    type_ = draw(st.sampled_from(HEADERS))
    hints = typing.get_type_hints(type_, include_extras=True)
    return type_(**{name: draw(values(hints[name])) for name in type_.__struct_fields__})


@given(headers(), st.sampled_from(HeaderEncoding))
def test_headers_round_trip(header: Header, encoding: HeaderEncoding) -> None:
    """A header's every field survives the wire."""
    frame = b"".join(RemotingCommand.request(1, header, encoding=encoding).encode())
    (received,) = FrameDecoder().feed(frame)
    assert received.header(type(header)) == header
    assert received.ext_fields == to_fields(header)


@given(headers())
def test_unquoted_values_are_read(header: Header) -> None:
    """Numbers and booleans without quotes, and null for absent fields."""
    unquoted = {
        name: getattr(header, field)
        for field, name in zip(header.__struct_fields__, header.__struct_encode_fields__, strict=True)
    }
    assert read_json(json.dumps(unquoted).encode(), type(header)) == header


@given(
    st.sampled_from(HEADERS),
    st.dictionaries(text, text | st.integers() | st.none() | st.booleans(), max_size=5),
)
def test_any_map_is_a_header_or_an_error(type_: type[Header], fields: dict[str, object]) -> None:
    """A map without a required field is the peer's error."""
    try:
        read_json(json.dumps(fields).encode(), type_)
    except RemoteProtocolError:
        pass


@pytest.mark.parametrize("type_", HEADERS, ids=lambda type_: type_.__name__)
def test_wire_names_are_javas(type_: type[Header]) -> None:
    """Without underscores, except three that Apache writes in capitals."""
    names = {field.encode_name for field in msgspec.structs.fields(type_) if "_" in field.encode_name}
    assert names <= {"MSG_REGION", "TRACE_ON", "_UNIQUE_KEY_QUERY"}
