"""The messages of an input binding as a streaming DataFrame.

::

    streamkit.spark.source(app, "orders")                              the messages as the binder's format has them
    streamkit.spark.source(app, "orders", schema="id string, n int")   id, n, message

    message    struct: key, tags, topic, partition, offset, timestamp, headers (a map), body (binary)
"""

from typing import TYPE_CHECKING

from streamkit.errors import ConfigurationError
from streamkit.messaging.converter import DEFAULT_CONTENT_TYPE
from streamkit.messaging.mime import MimeType
from streamkit.spark.session import running_session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from streamkit.application import StreamApplication

__all__ = ["MESSAGE_COLUMNS", "source"]

MESSAGE_COLUMNS = {
    "key": "keys",
    "tags": "tags",
    "topic": "topic",
    "partition": "queue_id",
    "offset": "queue_offset",
    "timestamp": "store_timestamp",
    "headers": "properties",
    "body": "body",
}
"""What is known of a message beside its payload, and what binders' own formats call it."""


def source(
    app: "StreamApplication",
    binding: str,
    *,
    schema: "StructType | str | None" = None,
    spark: "SparkSession | None" = None,
    options: "Mapping[str, str] | None" = None,
) -> "DataFrame":
    """The messages of an input binding, as a streaming DataFrame that Spark reads by itself.

    Each queue is a partition; Spark's checkpoint keeps the offsets, and the binding's group is told of the progress.
    Nothing else may listen on the binding.

    Args:
        app: The application whose settings name destination, group and filter; it may run or not.
        binding: The input binding.
        schema: The payload's, read by the binding's content type; a payload that does not fit fails the query.
            Without it the columns are those of the binder's format.
        spark: The session; the one that runs in this process, or a new one, if not given.
        options: Further options of the binder's format, such as `maxOffsetsPerTrigger`; those that begin with
            `starting` take the place of where the binding's settings begin.

    Raises:
        ConfigurationError: There is no such binding, its binder's system cannot be read by Spark itself, no schema
            can be applied to its content type, or an option is given that the binding's settings decide.
    """
    factory = app.container.binding_factory()
    if not factory.settings.is_configured(binding):
        raise factory.settings.unknown(binding, "streamkit.spark.source", ())
    bound = factory.input(binding, app.channel(binding), manual=False)
    (destination,) = bound.consumer_destinations[:1]
    found = bound.binder.binder.spark_source(destination)
    if found is None:
        raise ConfigurationError(
            f"binding {binding!r} cannot be read by Spark: binder {bound.binder.binder.name!r} of type "
            f"{bound.binder.binder.type!r} has no Spark format. Give the binding one that has, such as rocketmq, or "
            f"read {destination.name!r} by a format that Spark has for the system, past the binding"
        )
    session = running_session(app.name, spark)
    chosen = found.options_with(options or {}, binding)
    messages = session.readStream.format(found.name).options(**chosen).load()
    if schema is None:
        return messages
    return _typed(messages, binding, content_type_of(app, binding), schema)


def content_type_of(app: "StreamApplication", binding: str) -> str:
    """The content type of a binding's payloads."""
    return app.container.binding_factory().settings.properties(binding).content_type or DEFAULT_CONTENT_TYPE


def _typed(messages: "DataFrame", binding: str, content_type: str, schema: "StructType | str") -> "DataFrame":
    from pyspark.sql import functions as f

    if not MimeType.parse(content_type).is_json:
        raise ConfigurationError(
            f"binding {binding!r} has content type {content_type}: only JSON can be read by a schema. Leave the schema "
            "out and read the column body"
        )
    payload = f.from_json(f.col("body").cast("string"), schema, {"mode": "FAILFAST"})
    message = f.struct(*(f.col(column).alias(name) for name, column in MESSAGE_COLUMNS.items()))
    return messages.select(payload.alias("payload"), message.alias("message")).select("payload.*", "message")
