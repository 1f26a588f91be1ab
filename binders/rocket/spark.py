"""Spark's format ``rocketmq`` and its options, with which Spark itself reads and writes the topics of a binding."""

from collections.abc import Mapping
from typing import Final

from rocket_client import Credentials
from streamkit.binder.binder import ConsumerDestination, ProducerDestination
from streamkit.binder.delivery import Delivery, StartPosition
from streamkit.binder.spark_format import SparkFormat

__all__ = ["spark_sink", "spark_source"]

FORMAT: Final = "rocketmq"


def spark_source(
    name_servers: str, credentials: Credentials | None, destination: ConsumerDestination, tls: Mapping[str, str]
) -> SparkFormat:
    """Return the format and options to read a binding's topics.

    The options have the binding's filter, its start position and, for the query's progress, its group. The start
    position applies to the first start of a query only; later starts continue from the checkpoint.

    Args:
        name_servers: The addresses of the name servers, separated by `;`.
        credentials: The keys that sign requests; None for requests without a signature.
        destination: The binding's topics, group and settings.
        tls: The options of TLS.
    """
    delivery = destination.delivery
    options = _cluster(name_servers, credentials, tls) | {"subscribe": destination.name, "includeHeaders": "true"}
    if destination.group is not None:
        options["consumerGroup"] = destination.group
    if delivery.sql:
        options["sql"] = delivery.sql
    elif delivery.tags:
        options["tag"] = delivery.tags
    return SparkFormat(FORMAT, options, _starting(delivery))


def spark_sink(
    name_servers: str,
    credentials: Credentials | None,
    destination: ProducerDestination,
    group: str,
    tls: Mapping[str, str],
) -> SparkFormat:
    """Return the format and options to write to a binding's topic.

    Args:
        name_servers: The addresses of the name servers, separated by `;`.
        credentials: The keys that sign requests; None for requests without a signature.
        destination: The binding's topic.
        group: The producer group.
        tls: The options of TLS.
    """
    options = _cluster(name_servers, credentials, tls) | {"topic": destination.name, "producerGroup": group}
    return SparkFormat(FORMAT, options)


def _cluster(name_servers: str, credentials: Credentials | None, tls: Mapping[str, str]) -> dict[str, str]:
    options = {"nameServer": name_servers, **tls}
    if credentials is not None:
        options |= {"accessKey": credentials.access_key, "secretKey": credentials.secret_key}
    return options


def _starting(delivery: Delivery) -> dict[str, str]:
    if delivery.start is StartPosition.EARLIEST:
        return {"startingOffsets": "earliest"}
    if delivery.start is StartPosition.TIMESTAMP and delivery.start_time_ms is not None:
        return {
            "startingTimestamp": str(delivery.start_time_ms),
            "startingOffsetsByTimestampStrategy": "latest",
        }
    return {"startingOffsets": "latest"}
