"""The clients that Spark's workers use."""

import pytest

pytest.importorskip("pyspark")

from pyspark_rocketmq.options import ClusterOptions
from pyspark_rocketmq.pool import new_client


def test_address_with_a_namespace_is_accepted() -> None:
    """Topic options have the full names that brokers know."""
    options = ClusterOptions("MQ_INST_1_a.example:80", "MQ_INST_1_a%report", 1.0, 1.0)
    with new_client(options) as client:
        assert client.group == "MQ_INST_1_a%report"
