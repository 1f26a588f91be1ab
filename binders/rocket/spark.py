"""How Spark reads and writes RocketMQ topics by itself: by format ``rocketmq``, with the options of a binding."""

from typing import Final

from streamkit.binder.binder import ConsumerDestination, ProducerDestination
from streamkit.binder.delivery import Delivery, StartPosition
from streamkit.binder.spark_format import SparkFormat

__all__ = ["spark_sink", "spark_source"]

FORMAT: Final = "rocketmq"


def spark_source(name_servers: str, destination: ConsumerDestination) -> SparkFormat:
    """Return the source of a binding's topics: with its filter, from where it begins, its group for its progress.

    Where it begins counts for a query's first start only: then its checkpoint says.
    """
    delivery = destination.delivery
    options = {"nameServer": name_servers, "subscribe": destination.name, "includeHeaders": "true"}
    if destination.group is not None:
        options["consumerGroup"] = destination.group
    if delivery.sql:
        options["sql"] = delivery.sql
    elif delivery.tags:
        options["tag"] = delivery.tags
    return SparkFormat(FORMAT, options, _starting(delivery))


def spark_sink(name_servers: str, destination: ProducerDestination, group: str) -> SparkFormat:
    """Return the sink of a binding's topic."""
    options = {"nameServer": name_servers, "topic": destination.name, "producerGroup": group}
    return SparkFormat(FORMAT, options)


def _starting(delivery: Delivery) -> dict[str, str]:
    if delivery.start is StartPosition.EARLIEST:
        return {"startingOffsets": "earliest"}
    if delivery.start is StartPosition.TIMESTAMP and delivery.start_time_ms is not None:
        return {
            "startingTimestamp": str(delivery.start_time_ms),
            "startingOffsetsByTimestampStrategy": "latest",
        }
    return {"startingOffsets": "latest"}
