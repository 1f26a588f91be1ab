"""Query filters that are pushed down to the broker."""

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import EqualTo, Filter, In

from pyspark_rocketmq.batch_reader import FilteringBatchReader
from pyspark_rocketmq.options import source_options
from pyspark_rocketmq.schema import source_schema

TAGS = ("tags",)


@pytest.mark.parametrize(
    ("asked", "expression"),
    [
        (EqualTo(TAGS, "a b"), "a b"),
        (In(TAGS, ("a", "b")), "a || b"),
        (EqualTo(TAGS, " a"), "*"),
        (EqualTo(TAGS, "a||b"), "*"),
        (EqualTo(TAGS, ""), "*"),
        (In(TAGS, ("a", None)), "*"),
    ],
    ids=str,
)
def test_tag_filters_are_pushed_down_if_expressible(asked: Filter, expression: str) -> None:
    """Otherwise all messages are read, and Spark filters."""
    options = {"nameServer": "a:1", "topic": "t", "filterPushdown": "true"}
    reader = FilteringBatchReader(source_options(options), source_schema(False))
    assert list(reader.pushFilters([asked])) == [asked]
    assert reader._options.expression == expression
