"""Format ``rocketmq`` for PySpark: reads RocketMQ topics as streaming and batch DataFrames, and writes DataFrames.

Spark finds it by its package's name; there is nothing to register. An import that fails here would break
every Python format of a session, so everything is imported when Spark asks for it.
"""

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> object:
    if name == "DefaultSource":
        try:
            from pyspark_rocketmq.source import RocketMQDataSource
        except ImportError:  # pyarrow or pyspark is missing or too old: other formats must go on
            raise AttributeError(name) from None
        return RocketMQDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
