"""RocketMQ without an event loop: plain sockets, for scripts and for processes that fork.

::

    with BlockingClient("report", ProducerSettings(name_servers="127.0.0.1:9876")) as client:
        client.send(Message("orders", b"one coffee"))
        for queue in client.queues("orders"):
            result = client.pull(queue, client.min_offset(queue))
            print([message.body for message in result.messages()])

Every call waits for its answer. Several threads may use one client; after a fork the child opens its own connections.
Nothing runs in the background: no heartbeats, no rebalancing, no group membership.
"""

from rocket_client.blocking.batch_sender import BatchSender, EncodedBatch
from rocket_client.blocking.client import BlockingClient
from rocket_client.blocking.connection import BlockingConnection
from rocket_client.blocking.pipeline import Request
from rocket_client.blocking.pulls import PullRequest, PullResult, Subscription
from rocket_client.blocking.ranges import QueueRange, RangePart
from rocket_client.blocking.retrying import BUSY_CODES, UNREACHABLE_ERRORS, Patience
from rocket_client.errors import (
    AddressFetchError,
    BrokerNotFoundError,
    ClientError,
    NameServersUnreachableError,
    NotCopiedError,
    TopicNotFoundError,
    UnreadableBodyError,
)
from rocket_client.settings import ProducerSettings
from rocket_remoting.wire.credentials import Credentials
from rocket_remoting.wire.errors import ResponseError
from rocket_remoting.wire.message import MessageQueue

__all__ = [
    "BUSY_CODES",
    "UNREACHABLE_ERRORS",
    "AddressFetchError",
    "BatchSender",
    "BlockingClient",
    "BlockingConnection",
    "BrokerNotFoundError",
    "ClientError",
    "Credentials",
    "EncodedBatch",
    "MessageQueue",
    "NameServersUnreachableError",
    "NotCopiedError",
    "Patience",
    "ProducerSettings",
    "PullRequest",
    "PullResult",
    "QueueRange",
    "RangePart",
    "Request",
    "ResponseError",
    "Subscription",
    "TopicNotFoundError",
    "UnreadableBodyError",
]
