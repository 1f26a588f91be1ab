"""PySpark beside streamkit: a session with the settings that make small batches fast, and Java where there is none.

::

    spark = streamkit.spark.session("flights", master="local[2]")
    messages = spark.readStream.format("rocketmq").option("nameServer", "127.0.0.1:9876").option("topic", "flights")

Needs the extra ``streamkit[spark]``. Nothing here imports PySpark before it is used.
"""

from streamkit.spark.java import JavaNotFoundError, java_home
from streamkit.spark.session import session

__all__ = ["JavaNotFoundError", "java_home", "session"]
