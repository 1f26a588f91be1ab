"""The messages of an input binding as a streaming DataFrame.

::

    streamkit.spark.source(app, "orders")                              the columns of the binder's format
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
"""The properties of a message beside its payload, and their names in binders' own formats."""


def source(
    app: "StreamApplication",
    binding: str,
    *,
    schema: "StructType | str | None" = None,
    spark: "SparkSession | None" = None,
    options: "Mapping[str, str] | None" = None,
) -> "DataFrame":
    """Return the messages of an input binding as a streaming DataFrame, which Spark reads directly.

    Each queue is a partition. Spark's checkpoint keeps the offsets; the progress is committed for the binding's group.
    The binding must not have a listener.

    Args:
        app: The application whose settings name destination, group and filter; it need not run.
        binding: The input binding.
        schema: The schema of the payload, which is read by the binding's content type; a payload that does not fit
            fails the query. Without it the columns are those of the binder's format.
        spark: The session; by default the running session of this process, or a new one.
        options: Further options of the binder's format, such as `maxOffsetsPerTrigger`; options that begin with
            `starting` replace the start that the binding's settings name.

    Raises:
        ConfigurationError: There is no such binding, its binder has no Spark format, a schema cannot be applied to its
            content type, or an option is given that the binding's settings decide.
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
            f"{bound.binder.binder.type!r} has no Spark format. Use a binder that has one, such as rocketmq, or read "
            f"{destination.name!r} with Spark's own format for the system, without the binding"
        )
    session = running_session(app.name, spark)
    chosen = found.options_with(options or {}, binding)
    messages = session.readStream.format(found.name).options(**chosen).load()
    if schema is None:
        return messages
    return _typed(messages, binding, content_type_of(app, binding), schema)


def content_type_of(app: "StreamApplication", binding: str) -> str:
    """Return the content type of a binding's payloads."""
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
