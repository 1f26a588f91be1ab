"""How the driver asks name servers and brokers: again for a while, when nobody answers or a broker is busy."""

import time
from collections.abc import Callable
from typing import TypeVar

from pyspark_rocketmq.options import ClusterOptions
from rocket_client.blocking import AWAY, BUSY_CODES, ResponseError, TopicNotFoundError

T = TypeVar("T")


def ask(cluster: ClusterOptions, question: Callable[[], T]) -> T:
    """The answer to a question that may be asked several times; what is wrong with the last attempt is raised."""
    for left in range(cluster.retries, 0, -1):
        try:
            return question()
        except AWAY as error:
            # A topic that a name server does not know the second time either is not there.
            if isinstance(error, TopicNotFoundError) and left < cluster.retries:
                raise
        except ResponseError as error:
            if error.code not in BUSY_CODES:
                raise
        time.sleep(cluster.retry_interval)
    return question()
