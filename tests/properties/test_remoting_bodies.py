"""fastjson's JSON: written values can be read, and others are refused."""

import string

from hypothesis import given
from hypothesis import strategies as st

from rocket_remoting.wire import fastjson
from rocket_remoting.wire.bodies import (
    ConsumerOffsetSerializeWrapper,
    TopicStatsTable,
    decode_body,
    encode_body,
)
from rocket_remoting.wire.bodies.administration import TopicOffset
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.message import MessageQueue

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
number = st.integers(-(2**63), 2**63 - 1)
queues = st.builds(MessageQueue, text, text, st.integers(0, 2**31 - 1))
scalars = st.booleans() | number | text
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text | number | queues, inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_nested_values_round_trip(value: object) -> None:
    """Lists and maps, keyed by texts, numbers or queues."""
    assert fastjson.loads(fastjson.dumps(value)) == value


@given(st.dictionaries(text, st.dictionaries(st.integers(0, 1000), number)), st.booleans())
def test_number_keys_round_trip(table: dict[str, dict[int, int]], standard: bool) -> None:
    """In both forms."""
    body = ConsumerOffsetSerializeWrapper(offset_table=table)
    assert decode_body(encode_body(body, standard_json=standard), ConsumerOffsetSerializeWrapper) == body


@given(st.dictionaries(queues, st.builds(TopicOffset, min_offset=number, max_offset=number)))
def test_queue_keys_round_trip(table: dict[MessageQueue, TopicOffset]) -> None:
    """A body keyed by queues survives."""
    body = TopicStatsTable(offset_table=table)
    assert decode_body(encode_body(body), TopicStatsTable) == body


@given(st.text('{}[],:"\\ 01aen.-' + string.ascii_letters, max_size=60) | st.binary(max_size=60))
def test_garbage_is_a_protocol_error(data: str | bytes) -> None:
    """Any text is read or refused."""
    raw = data.encode() if isinstance(data, str) else data
    try:
        fastjson.loads(raw)
    except RemoteProtocolError:
        pass
    try:
        decode_body(raw, TopicStatsTable)
    except RemoteProtocolError:
        pass
