"""Bodies written piece by piece have the same bytes as in one piece."""

from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocket_remoting.wire.bodies import (
    Body,
    ConsumerConnection,
    ConsumerOffsetSerializeWrapper,
    ConsumeStats,
    ConsumeStatsList,
    DataVersion,
    Entries,
    Items,
    Later,
    LongBody,
    OffsetWrapper,
    SubscriptionData,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
    encode_body,
    encode_in_pieces,
)
from rocket_remoting.wire.message import MessageQueue

NAMES = st.text(max_size=20)
NUMBERS = st.integers(-(2**63), 2**63 - 1)
QUEUES = st.builds(MessageQueue, NAMES, NAMES, st.integers(0, 2**31 - 1))


def with_pauses(values: Iterable[object]) -> Iterator[object]:
    """Yield the values with a pause before each and at the end."""
    for value in values:
        yield None
        yield value
    yield None


def written(body: LongBody, *, standard_json: bool = False) -> bytes:
    return b"".join(encode_in_pieces(body, standard_json=standard_json))


@given(st.dictionaries(QUEUES, st.builds(OffsetWrapper, broker_offset=NUMBERS)))
def test_map_with_queues_as_keys_is_written_equally(table: dict[MessageQueue, OffsetWrapper]) -> None:
    """With the fields before and after it."""
    pairs = with_pauses(table.items())
    body = LongBody(ConsumeStats(offset_table={}), offset_table=Entries(pairs))  # type: ignore[arg-type]
    assert written(body) == encode_body(ConsumeStats(offset_table=table))


@given(st.dictionaries(NAMES, st.lists(st.dictionaries(QUEUES, st.builds(OffsetWrapper), max_size=3), max_size=3)))
def test_nested_bodies_are_written_equally(
    groups: dict[str, list[dict[MessageQueue, OffsetWrapper]]],
) -> None:
    """Lists of maps of lists of bodies."""
    whole = [{group: [ConsumeStats(offset_table=table) for table in tables]} for group, tables in groups.items()]
    streamed = (
        Entries(
            [
                (
                    group,
                    Items(
                        LongBody(ConsumeStats(offset_table={}), offset_table=Entries(table.items())) for table in tables
                    ),
                )
            ]
        )
        for group, tables in groups.items()
    )
    body = ConsumeStatsList(consume_stats_list=[], broker_addr="127.0.0.1:10911")
    streams = LongBody(body, consume_stats_list=Items(streamed), total_diff=Later(lambda: 5))
    assert written(streams) == encode_body(
        ConsumeStatsList(consume_stats_list=whole, broker_addr="127.0.0.1:10911", total_diff=5)
    )


@pytest.mark.parametrize("standard", [False, True])
def test_numbers_as_keys_are_written_equally(standard: bool) -> None:
    """Bare as in fastjson, or quoted."""
    table = {"t@g": {0: 12, 1: 3}, "u@g": {}}
    pairs = ((key, Entries(queues.items())) for key, queues in table.items())
    body = LongBody(ConsumerOffsetSerializeWrapper(offset_table={}), offset_table=Entries(pairs))
    whole = ConsumerOffsetSerializeWrapper(offset_table=table)
    assert written(body, standard_json=standard) == encode_body(whole, standard_json=standard)


@given(st.dictionaries(NAMES, st.builds(TopicConfig, topic_name=NAMES, perm=st.integers(0, 7))))
def test_topic_table_is_written_equally(table: dict[str, TopicConfig]) -> None:
    """In standard JSON."""
    version = DataVersion(timestamp=1, counter=2)
    empty = TopicConfigSerializeWrapper(topic_config_table={}, data_version=version)
    body = LongBody(empty, topic_config_table=Entries(table.items()))
    whole = TopicConfigSerializeWrapper(topic_config_table=table, data_version=version)
    assert written(body) == encode_body(whole)


@pytest.mark.parametrize("address", [None, "127.0.0.1:1"])
def test_omitted_fields_are_omitted(address: str | None) -> None:
    """After the list or before it."""
    names = {"orders"}
    body = LongBody(TopicList(topic_list=set(), broker_addr=address), topic_list=Items(names))
    assert written(body) == encode_body(TopicList(topic_list=names, broker_addr=address))


def test_two_fields_may_be_generated_while_writing() -> None:
    """Each at its place, in whatever order they are given."""
    connections: list[Body] = []
    table = {"orders": SubscriptionData(topic="orders", tags_set={"a"})}
    body = LongBody(
        ConsumerConnection(connection_set=[]),
        subscription_table=Entries(table.items()),
        connection_set=Items(connections),
    )
    assert written(body) == encode_body(ConsumerConnection(connection_set=[], subscription_table=table))


def test_pieces_are_small_for_any_body() -> None:
    """Entries are generated when their piece is requested."""
    made: list[int] = []

    def names() -> Iterator[str]:
        for number in range(100_000):
            made.append(number)
            yield f"topic-{number}"

    pieces = encode_in_pieces(LongBody(TopicList(topic_list=set()), topic_list=Items(names())))
    first = next(pieces)
    assert 4096 <= len(first) < 4200
    assert len(made) < 400
    assert max(map(len, pieces)) < 4200
    assert len(made) == 100_000
