"""One topic's route: the queues that a client writes to and reads from.

::

    publish queues     writable queues of brokers with a master, sorted by broker; with an `orderTopicConf`
                       ("broker-a:4;broker-b:4") exactly those it lists, in its order, whichever brokers are alive
    subscribe queues   readable queues, sorted

This module does no I/O; the asyncio client and the blocking one share it.
"""

import logging
import random

from rocket_client.errors import TopicNotFoundError
from rocket_remoting.wire.bodies import QueueData, TopicRouteData
from rocket_remoting.wire.message import MessageQueue
from rocket_remoting.wire.sys_flag import PERM_READ, PERM_WRITE

logger = logging.getLogger(__name__)

MASTER_ID = 0


class TopicRoute:
    """The queues of one topic, as one name server's answer gives them."""

    __slots__ = ("_next", "data", "order_topic", "provisional", "publish_queues", "subscribe_queues", "topic")

    def __init__(self, topic: str, data: TopicRouteData, *, provisional: bool = False) -> None:
        self.topic = topic
        self.data = data
        self.provisional = provisional
        """Whether this is the default topic's route, because the topic's first message is to create the topic."""
        self.order_topic = bool(data.order_topic_conf)
        if data.order_topic_conf:
            self.publish_queues = _configured_queues(topic, data.order_topic_conf)
        else:
            self.publish_queues = _writable_queues(topic, data)
        self.subscribe_queues = () if provisional else _readable_queues(topic, data)
        self._next = random.randrange(1 << 16)

    def __repr__(self) -> str:
        kind = "provisional " if self.provisional else "ordered " if self.order_topic else ""
        return (
            f"<{kind}TopicRoute {self.topic}: {len(self.publish_queues)} queues to write, "
            f"{len(self.subscribe_queues)} to read>"
        )

    @classmethod
    def from_default(
        cls, topic: str, default: TopicRouteData | None, default_topic: str, default_queues: int
    ) -> "TopicRoute":
        """Return the provisional route of a topic that its first message is to create.

        Args:
            topic: The topic.
            default: Where the default topic's queues are; None if no name server knows the default topic.
            default_topic: The topic whose brokers create topics.
            default_queues: Maximum number of queues that the new topic gets on each broker.

        Raises:
            TopicNotFoundError: No broker creates topics.
        """
        if default is None:
            raise TopicNotFoundError(
                topic,
                f"it does not exist, and no broker creates topics by itself (no route of {default_topic})",
            )
        for queue_data in default.queue_datas:
            count = min(default_queues, queue_data.read_queue_nums)
            queue_data.read_queue_nums = queue_data.write_queue_nums = count
        return cls(topic, default, provisional=True)

    def require_writable(self) -> "TopicRoute":
        """Return this route.

        Raises:
            TopicNotFoundError: None of its queues can be written to.
        """
        if not self.publish_queues:
            raise TopicNotFoundError(self.topic, "none of its queues can be written to")
        return self

    def master_address(self, broker_name: str) -> str | None:
        """Return the address of the broker's master; None if the route has none."""
        for broker in self.data.broker_datas:
            if broker.broker_name == broker_name and MASTER_ID in broker.broker_addrs:
                return broker.broker_addrs[MASTER_ID]
        return None

    def same_as(self, other: "TopicRoute") -> bool:
        """Return whether the two routes have the same queues and are both provisional or not."""
        return (
            self.publish_queues == other.publish_queues
            and self.subscribe_queues == other.subscribe_queues
            and self.provisional == other.provisional
        )

    def next_index(self) -> int:
        """Increase the round-robin counter and return it."""
        self._next += 1
        return self._next

    def continue_from(self, other: "TopicRoute") -> None:
        """Continue the round robin of the topic's former route."""
        self._next = other._next

    def next_queue(self, last_broker: str | None = None) -> MessageQueue:
        """Return the next queue to write to, if possible not of `last_broker`, at which the last attempt failed."""
        queues = self.publish_queues
        if last_broker is not None:
            for _ in queues:
                queue = queues[self.next_index() % len(queues)]
                if queue.broker_name != last_broker:
                    return queue
        self._next = index = self._next + 1  # as `next_index`, which costs another call for each message
        return queues[index % len(queues)]

    def write_queue_count(self, broker_name: str) -> int:
        """Return the number of the broker's writable queues; 0 for an unknown broker."""
        for queue_data in self.data.queue_datas:
            if queue_data.broker_name == broker_name:
                return queue_data.write_queue_nums
        return 0


_MOST_DIGITS = 5
"""Maximum number of digits of a number of queues: a mistyped number must not fill the memory of every client."""


def _configured_queues(topic: str, order_topic_conf: str) -> tuple[MessageQueue, ...]:
    queues: list[MessageQueue] = []
    for part in order_topic_conf.split(";"):
        broker_name, colon, count = part.strip().rpartition(":")
        if colon and count.isdecimal() and len(count) <= _MOST_DIGITS:
            queues.extend(MessageQueue(topic, broker_name, number) for number in range(int(count)))
        elif part.strip():
            logger.warning("order configuration of topic %s: %r is not broker:count", topic, part)
    return tuple(queues)


def _writable_queues(topic: str, data: TopicRouteData) -> tuple[MessageQueue, ...]:
    masters = {broker.broker_name for broker in data.broker_datas if MASTER_ID in broker.broker_addrs}
    return tuple(
        MessageQueue(topic, queue_data.broker_name, number)
        for queue_data in sorted(data.queue_datas, key=_broker_name)
        if queue_data.perm & PERM_WRITE and queue_data.broker_name in masters
        for number in range(queue_data.write_queue_nums)
    )


def _readable_queues(topic: str, data: TopicRouteData) -> tuple[MessageQueue, ...]:
    return tuple(
        sorted(
            MessageQueue(topic, queue_data.broker_name, number)
            for queue_data in data.queue_datas
            if queue_data.perm & PERM_READ
            for number in range(queue_data.read_queue_nums)
        )
    )


def _broker_name(queue_data: QueueData) -> str:
    return queue_data.broker_name
