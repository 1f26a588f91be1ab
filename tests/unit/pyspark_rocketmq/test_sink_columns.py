"""The columns of rows are checked once, when a write is planned."""

import re

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import StringType, StructType

from pyspark_rocketmq.errors import SchemaError
from pyspark_rocketmq.schema import sink_columns


@pytest.mark.parametrize(
    ("names", "order_key", "message"),
    [
        (["bodi"], None, "column 'bodi' is not a column that format 'rocketmq' writes; did you mean 'body'"),
        (["tags"], None, "no column 'body'"),
        (["body", "value"], None, "columns 'body' and 'value' have the same meaning"),
        (["body"], "usr", "option 'orderKey' names column 'usr', which does not exist"),
    ],
)
def test_wrong_columns_are_named(names: list[str], order_key: str | None, message: str) -> None:
    """With what to write instead."""
    schema = StructType()
    for name in names:
        schema = schema.add(name, StringType())
    with pytest.raises(SchemaError, match=re.escape(message)):
        sink_columns(schema, topic="t", order_key=order_key, id_column=None)
