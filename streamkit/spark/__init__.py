"""PySpark with streamkit: inputs feed queries, queries feed outputs.

::

    @spark_processor("flights", "delays", schema="carrier string, delay double")
    def delays(flights: DataFrame) -> DataFrame:
        return flights.groupBy("carrier").avg("delay")

    rows = streamkit.spark.source(app, "flights", schema=...)      an input's messages as a streaming DataFrame
    streamkit.spark.bind(app, rows, "delays")                      rows are sent to an output, of any binder
    spark.readStream.format("streamkit").option("channel", "flights")   a binding by its name, wherever Spark runs
    streamkit.spark.published(app)                                 ... those of an application that runs
    spark = streamkit.spark.session("flights", master="local[2]")  settings that make small batches fast; Java found

Needs the extra ``streamkit-messaging[spark]``. This package imports PySpark when it is first used.
"""

from streamkit.spark.binding import bind, spark_processor
from streamkit.spark.channel_query import ChannelQuery
from streamkit.spark.channel_source import source
from streamkit.spark.java import JavaNotFoundError, java_home
from streamkit.spark.publishing import published
from streamkit.spark.query_settings import QuerySettings
from streamkit.spark.session import session

__all__ = [
    "ChannelQuery",
    "JavaNotFoundError",
    "QuerySettings",
    "bind",
    "java_home",
    "published",
    "session",
    "source",
    "spark_processor",
]
