"""The columns that are read, under the same names whatever the binder; they come from those of the binder's format."""

from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from streamkit.errors import ConfigurationError
from streamkit.spark.channel_source import MESSAGE_COLUMNS

_TYPES = {
    "key": StringType(),
    "tags": StringType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "headers": MapType(StringType(), StringType()),
    "body": BinaryType(),
}
SCHEMA = StructType([StructField(name, _TYPES[name]) for name in MESSAGE_COLUMNS])


def native_schema(schema: StructType) -> StructType:
    """The columns asked for, as the binder's format calls them.

    Raises:
        ConfigurationError: One is unknown, or of another type.
    """
    for field in schema.fields:
        if field.name not in _TYPES:
            raise ConfigurationError(
                f"column {field.name!r} is none of format 'streamkit', which has {', '.join(_TYPES)}: payloads come "
                "as body; from_json, or streamkit.spark.source with a schema, reads them",
                key=field.name,
            )
        if field.dataType != _TYPES[field.name]:
            raise ConfigurationError(
                f"column {field.name!r} is asked for as {field.dataType.simpleString()}, "
                f"it is {_TYPES[field.name].simpleString()}",
                key=field.name,
            )
    return StructType([StructField(MESSAGE_COLUMNS[field.name], field.dataType) for field in schema.fields])
