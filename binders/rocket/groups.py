"""What the members of groups subscribe to, and where groups that have no member yet begin: an anonymous member's, and
those a producer's settings require.
"""

from collections.abc import Sequence

from rocket_client import Admin, LitePullConsumer, PushConsumer, TopicNotFoundError
from rocket_remoting import ResponseError
from rocket_remoting.wire.bodies import SubscriptionGroupConfig
from rocket_remoting.wire.message import MessageQueue
from streamkit.binder.binder import ConsumerDestination
from streamkit.errors import ConfigurationError


class Subscriptions:
    """What the members of each group subscribe to here: the group's first binding decides."""

    def __init__(self) -> None:
        self._first: dict[str, ConsumerDestination] = {}

    def check(self, group: str, destination: ConsumerDestination) -> None:
        """Refuse a binding that subscribes to something else than the first of the group, as brokers know it.

        Raises:
            ConfigurationError: It does.
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
    """The topics of a destination that may list several."""
    return [topic.strip() for topic in destination.split(",")]


def subscribe(consumer: PushConsumer | LitePullConsumer, destination: ConsumerDestination) -> None:
    """Have a consumer subscribe to what its binding's settings say."""
    delivery = destination.delivery
    for topic in topics_of(destination.name):
        if delivery.sql is None:
            consumer.subscribe(topic, delivery.tags or "*")
        else:
            consumer.subscribe_sql(topic, delivery.sql)


def _subscription(destination: ConsumerDestination) -> tuple[frozenset[str], frozenset[str], str | None]:
    """Topics, tags and SQL expression; neither of the first two has an order."""
    tags = (destination.delivery.tags or "*").split("||")
    return frozenset(topics_of(destination.name)), frozenset(map(str.strip, tags)), destination.delivery.sql


def _filter(destination: ConsumerDestination) -> str:
    """What is wanted of the topics, in words."""
    delivery = destination.delivery
    return f"tags {delivery.tags or '*'!r}" if delivery.sql is None else f"sql {delivery.sql!r}"


async def begin_now(admin: Admin, group: str, topics: Sequence[str]) -> None:
    """Make the group and commit the end of every queue for it: it gets only what is sent from now on.

    Without a committed offset a broker gives a young queue from its beginning; 5.x brokers take an offset
    only of a group they know.
    """
    await admin.create_group(SubscriptionGroupConfig(group_name=group))
    for topic in topics:
        for queue in await _queues(admin, topic):
            await admin.commit_offset(queue, group, await admin.max_offset(queue))


async def keep_for(admin: Admin, group: str, topic: str) -> None:
    """What is sent to the topic from now on is there for the group when its first member comes.

    A group that has been there stays where it is. So does one that the broker would begin at the first message, as it
    does while it has the whole of a queue.
    """
    for queue in await _queues(admin, topic):
        if await admin.committed_offset(queue, group) is None:
            await _commit_end(admin, group, queue)


async def _commit_end(admin: Admin, group: str, queue: MessageQueue) -> None:
    end = await admin.max_offset(queue)
    try:
        await admin.commit_offset(queue, group, end)
    except ResponseError:
        # 5.x: the group is unknown. Made only now: it would reset the settings of one that is known.
        await admin.create_group(SubscriptionGroupConfig(group_name=group))
        await admin.commit_offset(queue, group, end)


async def _queues(admin: Admin, topic: str) -> Sequence[MessageQueue]:
    try:
        return (await admin.topic_route(topic)).subscribe_queues
    except TopicNotFoundError:
        return ()  # a topic that does not exist yet has no history
