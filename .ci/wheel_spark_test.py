"""What Spark finds of an installed wheel: it looks for formats by the names of packages."""

import pytest

import pyspark_rocketmq
import pyspark_streamkit
from streamkit.spark import session


def test_spark_finds_the_formats():
    """Each tells what it misses, so its code ran, in a Python process of Spark's own."""
    for package in (pyspark_rocketmq, pyspark_streamkit):
        assert "site-packages" in package.__file__
    spark = session("wheel", master="local[1]")
    try:
        for name, told in (
            ("rocketmq", "no option names the topics to read"),
            ("streamkit", "option 'channel' is missing"),
        ):
            with pytest.raises(Exception, match=told):
                spark.read.format(name).load()
    finally:
        spark.stop()
