"""The choice of a queue for a message whose sender does not choose one.

::

    first attempt                     the next queue in turn
    after a failed attempt            the next queue in turn of another broker, if the topic has one
    with `send_latency_fault_enable`  the next queue in turn of an available broker (see `faults`); if no broker is
                                      available, a queue of one of the better half of the brokers

This module does no I/O.
"""

from collections.abc import Callable

from rocket_client.core.faults import FaultTable
from rocket_client.core.topic_route import TopicRoute
from rocket_remoting.wire.errors import RemotingError, TooManyRequests
from rocket_remoting.wire.message import MessageQueue


class QueueChoice:
    """Chooses queues for one producer, and notes how its sends ended.

    Args:
        avoids_faults: Whether to avoid brokers that answer slowly or not at all.
        now: A monotonic clock, in seconds.
    """

    __slots__ = ("_faults", "_now")

    def __init__(self, now: Callable[[], float], *, avoids_faults: bool) -> None:
        self._now = now
        self._faults = FaultTable(lambda: now() * 1000) if avoids_faults else None

    def next_queue(self, route: TopicRoute, last_broker: str | None = None) -> MessageQueue:
        """Return the queue for the next attempt.

        Args:
            route: The topic's route.
            last_broker: The broker at which the last attempt failed; None for a first attempt.
        """
        if self._faults is None:
            return route.next_queue(last_broker)
        # The last broker needs no check: `note` has made it unavailable, unless this client itself refused the send.
        # Apache's MQFaultStrategy does the same in 4.9; in 5.3 it also leaves the last broker out.
        queues, start = route.publish_queues, route.next_index()
        for step in range(len(queues)):
            queue = queues[(start + step) % len(queues)]
            if self._faults.is_available(queue.broker_name):
                return queue
        best = self._faults.pick_one_at_least()
        if best is not None:
            count = route.write_queue_count(best)
            if count > 0:
                return MessageQueue(route.topic, best, route.next_index() % count)
            # The table has the brokers of all topics, and this one has no writable queue of this topic.
            self._faults.remove(best)
        return route.next_queue()

    def note(self, broker_name: str, begun: float, error: RemotingError | None = None) -> None:
        """Note an attempt that has ended.

        Args:
            broker_name: The broker.
            begun: When the attempt began, in seconds.
            error: The error of the attempt; None if it succeeded.
        """
        if self._faults is not None:
            # TooManyRequests is raised by this client and says nothing about the broker.
            isolation = error is not None and not isinstance(error, TooManyRequests)
            self._faults.update(broker_name, (self._now() - begun) * 1000, isolation=isolation)

    def __repr__(self) -> str:
        return f"QueueChoice({self._faults or 'avoids no broker'})"
