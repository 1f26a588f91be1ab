"""Format ``streamkit`` for PySpark: reads and writes any binding of an application by its name.

Spark finds the format by its package's name; it need not be registered. An import that fails here would break every
Python format of a session, so modules are imported when Spark asks for them.
"""

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> object:
    if name == "DefaultSource":
        try:
            from pyspark_streamkit.source import StreamkitDataSource
        except ImportError:  # pyarrow or pyspark is missing or too old: other formats must still work
            raise AttributeError(name) from None
        return StreamkitDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
