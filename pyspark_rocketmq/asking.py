"""Requests of the driver to name servers and brokers, repeated if there is no answer or a broker is busy."""

import time
from collections.abc import Callable
from typing import TypeVar

from pyspark_rocketmq.options import ClusterOptions
from rocket_client.blocking import BUSY_CODES, UNREACHABLE_ERRORS, ResponseError, TopicNotFoundError

T = TypeVar("T")


def ask(cluster: ClusterOptions, question: Callable[[], T]) -> T:
    """Return the answer to a request, which is repeated for a while; raise the error of the last attempt."""
    for left in range(cluster.retries, 0, -1):
        try:
            return question()
        except UNREACHABLE_ERRORS as error:
            # A topic that a name server does not know the second time either is not there.
            if isinstance(error, TopicNotFoundError) and left < cluster.retries:
                raise
        except ResponseError as error:
            if error.code not in BUSY_CODES:
                raise
        time.sleep(cluster.retry_interval)
    return question()
