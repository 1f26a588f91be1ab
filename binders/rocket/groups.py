"""Subscriptions of groups, and the first offsets of groups without members: anonymous groups and `required-groups`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rocket_client import Admin, TopicNotFoundError
from rocket_remoting import ResponseError
from rocket_remoting.wire.bodies import SubscriptionGroupConfig
from rocket_remoting.wire.message import MessageQueue
from streamkit.binder.binder import ConsumerDestination
from streamkit.errors import ConfigurationError

if TYPE_CHECKING:
    from rocket_client import LitePullConsumer, PushConsumer


class Subscriptions:
    """The subscriptions of the groups in this application; the first binding of a group determines its subscription."""

    def __init__(self) -> None:
        self._first: dict[str, ConsumerDestination] = {}

    def check(self, group: str, destination: ConsumerDestination) -> None:
        """Refuse a binding whose subscription differs from that of the group's first binding.

        Args:
            group: The name of the group at the brokers, with its namespace.
            destination: The binding's destination and settings.

        Raises:
            ConfigurationError: The subscriptions differ.
        """
        first = self._first.setdefault(group, destination)
        if _subscription(first) != _subscription(destination):
            raise ConfigurationError(
                f"bindings {first.binding!r} and {destination.binding!r} are both in group {destination.group!r}, "
                f"but one subscribes to {first.name!r} with {_filter(first)}, the other to "
                f"{destination.name!r} with {_filter(destination)}. "
                "All members of a RocketMQ group must subscribe to the same, or messages get lost: "
                "give each of the bindings a group of its own, or list all topics in one binding's destination.",
                key="group",
                value=destination.group,
            )


def topics_of(destination: str) -> list[str]:
    """Return the topics in a destination, which are separated by commas."""
    return [topic.strip() for topic in destination.split(",")]


def subscribe(consumer: "PushConsumer | LitePullConsumer", destination: ConsumerDestination) -> None:
    """Subscribe a consumer to the topics of its binding, with the binding's tags or SQL expression."""
    delivery = destination.delivery
    for topic in topics_of(destination.name):
        if delivery.sql is None:
            consumer.subscribe(topic, delivery.tags or "*")
        else:
            consumer.subscribe_sql(topic, delivery.sql)


def _subscription(destination: ConsumerDestination) -> tuple[frozenset[str], frozenset[str], str | None]:
    """Return topics, tags and SQL expression in a form that compares without regard to order."""
    tags = (destination.delivery.tags or "*").split("||")
    return frozenset(topics_of(destination.name)), frozenset(map(str.strip, tags)), destination.delivery.sql


def _filter(destination: ConsumerDestination) -> str:
    """Return a destination's filter as text for errors."""
    delivery = destination.delivery
    return f"tags {delivery.tags or '*'!r}" if delivery.sql is None else f"sql {delivery.sql!r}"


async def create_group_at_end(admin: Admin, group: str, topics: Sequence[str]) -> None:
    """Create a group and commit the end of every queue, so that the group gets only messages sent from now on.

    Without a committed offset, a broker starts a new group at the beginning of a queue whose first message it has in
    memory. Brokers of 5.x accept offsets only of groups that exist.

    Raises:
        RemotingError: A broker cannot be reached, or refuses.
    """
    await admin.create_group(SubscriptionGroupConfig(group_name=group))
    for topic in topics:
        for queue in await _queues(admin, topic):
            await admin.commit_offset(queue, group, await admin.max_offset(queue))


async def commit_missing_offsets(admin: Admin, group: str, topic: str) -> None:
    """Make sure that a group gets the messages sent from now on, even if its first member joins later.

    For each queue without a committed offset of the group, commit the end of the queue. `committed_offset` is not None
    for queues on which the group has been, and for queues that a broker still has from the first message on: there the
    broker starts a new group at the first message.

    Raises:
        RemotingError: A broker cannot be reached, or refuses.
    """
    for queue in await _queues(admin, topic):
        if await admin.committed_offset(queue, group) is None:
            await _commit_end(admin, group, queue)


async def _commit_end(admin: Admin, group: str, queue: MessageQueue) -> None:
    end = await admin.max_offset(queue)
    try:
        await admin.commit_offset(queue, group, end)
    except ResponseError:
        # A 5.x broker does not know the group. It is created only now, since creating resets the settings of a group
        # that exists.
        await admin.create_group(SubscriptionGroupConfig(group_name=group))
        await admin.commit_offset(queue, group, end)


async def _queues(admin: Admin, topic: str) -> Sequence[MessageQueue]:
    try:
        return (await admin.topic_route(topic)).subscribe_queues
    except TopicNotFoundError:
        return ()  # a topic that does not exist yet has no history
