"""The columns that are read, with the same names for every binder, made of those of the binder's format."""

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
    """Return the columns of a schema under their names in the binder's format.

    Raises:
        ConfigurationError: A column is unknown, or has another type.
    """
    for field in schema.fields:
        if field.name not in _TYPES:
            raise ConfigurationError(
                f"column {field.name!r} is not a column of format 'streamkit', which has {', '.join(_TYPES)}: payloads "
                "come as body; from_json, or streamkit.spark.source with a schema, reads them",
                key=field.name,
            )
        if field.dataType != _TYPES[field.name]:
            raise ConfigurationError(
                f"column {field.name!r} is asked for as {field.dataType.simpleString()}, "
                f"it is {_TYPES[field.name].simpleString()}",
                key=field.name,
            )
    return StructType([StructField(MESSAGE_COLUMNS[field.name], field.dataType) for field in schema.fields])
