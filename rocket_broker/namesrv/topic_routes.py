"""The topics of each broker, with their queues and permissions, by topic and by broker.

A broker that is removed may have fifty thousand topics. It disappears from all routes at once; its entries in `_topics`
are removed in steps.
"""

import logging
from collections.abc import Callable, Collection, Generator, Iterator

from rocket_broker.limits.owner_quota import OwnerQuota
from rocket_broker.loop.loop_steps import BackgroundSteps
from rocket_remoting.wire.bodies import QueueData, TopicConfig

__all__ = ["MAX_ROUTES", "TopicRoutes"]

logger = logging.getLogger(__name__)

MAX_ROUTES = 1_000_000
"""Topics of all brokers, of some 400 bytes each. The brokers of one host have at most a quarter of them."""

UNIT_FLAG = 1
UNIT_SUB_FLAG = 1 << 1


class _BrokerTopics:
    """The topics of one broker, and the owner to whose quota they count."""

    __slots__ = ("owner", "topics")

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.topics: dict[str, None] = {}


class TopicRoutes:
    """The topics of all brokers."""

    def __init__(self) -> None:
        self._topics: dict[str, dict[str, QueueData]] = {}
        # An entry of _topics counts only if it is here too: other entries are of a broker that was removed.
        self._brokers: dict[str, _BrokerTopics] = {}
        self._count = 0
        self._quota = OwnerQuota("topics of brokers", lambda: MAX_ROUTES)
        self._background = BackgroundSteps()

    @property
    def count(self) -> int:
        """The number of routes: a topic counts once for each of its brokers."""
        return self._count

    @property
    def quota(self) -> int:
        """The number of topics that the brokers of one host may have."""
        return self._quota.quota

    def begin(self, broker: str, owner: str) -> None:
        """Add a broker whose topics count to the owner's quota; do nothing if the broker is known."""
        self._brokers.setdefault(broker, _BrokerTopics(owner))

    def put(self, broker: str, config: TopicConfig) -> bool:
        """Add a route to a topic of a broker; return whether there is room for it."""
        mine, topic = self._brokers[broker], config.topic_name
        if topic not in mine.topics:
            if self._count >= MAX_ROUTES or not self._quota.remaining(mine.owner):
                return False
            self._count += 1
            self._quota.count(1, mine.owner)
            mine.topics[topic] = None
        data = QueueData(
            broker_name=broker,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_sys_flag=config.topic_sys_flag,
        )
        queues = self._topics.setdefault(topic, {})
        if queues.get(broker) != data:
            logger.debug("topic %s: %s", topic, data)
            queues[broker] = data
        return True

    def queues(self, topic: str) -> list[QueueData]:
        """Return each broker's queues of the topic."""
        return [data for broker, data in self._topics.get(topic, {}).items() if self._has(broker, topic)]

    def keep_only(self, broker: str, topics: Collection[str]) -> Generator[None, None, None]:
        """Remove all topics of a broker except these, in steps."""
        for topic in list(self._brokers[broker].topics):
            if topic not in topics:
                self.drop(broker, topic)
            yield

    def drop(self, broker: str, topic: str) -> None:
        """Remove a topic of a broker, if it has the topic."""
        mine = self._brokers.get(broker)
        if mine is not None and topic in mine.topics:
            del mine.topics[topic]
            self._count -= 1
            self._quota.count(-1, mine.owner)
            self._remove(broker, topic)

    def drop_topic(self, topic: str) -> None:
        """Remove a topic of all brokers."""
        for broker in list(self._topics.get(topic, ())):
            self.drop(broker, topic)

    def forget(self, broker: str) -> None:
        """Remove all topics of a broker that is gone."""
        gone = self._brokers.pop(broker, None)
        if gone is not None:
            self._count -= len(gone.topics)
            self._quota.count(-len(gone.topics), gone.owner)
            self._background.add("removing the routes of a broker", self._clear(broker, gone))

    def change_perm(self, broker: str, change: Callable[[int], int]) -> Generator[None, None, int]:
        """Change the permission of a broker's topics, in steps; return how many it has."""
        mine = self._brokers.get(broker)
        topics = list(mine.topics) if mine is not None else []
        for topic in topics:
            data = self._topics.get(topic, {}).get(broker)
            if data is not None and self._has(broker, topic):
                data.perm = change(data.perm)
            yield
        return len(topics)

    def topics(self, brokers: Collection[str] | None = None) -> Iterator[str | None]:
        """Yield the topics of these brokers, or of all; a yielded None is a pause."""
        for topic in list(self._topics):
            found = self._topics.get(topic, ())
            wanted = any(self._has(broker, topic) and (brokers is None or broker in brokers) for broker in found)
            yield topic if wanted else None

    def topics_with_flags(self, *, unit: bool | None, unit_sub: bool | None) -> Iterator[str | None]:
        """Yield the topics with these unit flags (None: any); a yielded None is a pause."""
        for topic in self.topics():
            first = next(iter(self.queues(topic)), None) if topic is not None else None
            flags = first.topic_sys_flag if first is not None else 0
            matches = unit in (None, bool(flags & UNIT_FLAG)) and unit_sub in (
                None,
                bool(flags & UNIT_SUB_FLAG),
            )
            yield topic if first is not None and matches else None

    def stop(self) -> None:
        """Stop the work in the background."""
        self._background.stop()

    def _has(self, broker: str, topic: str) -> bool:
        mine = self._brokers.get(broker)
        return mine is not None and topic in mine.topics

    def _clear(self, broker: str, gone: _BrokerTopics) -> Generator[None, None, None]:
        for topic in gone.topics:
            if not self._has(broker, topic):  # otherwise the broker has registered it again
                self._remove(broker, topic)
            yield

    def _remove(self, broker: str, topic: str) -> None:
        queues = self._topics.get(topic, {})
        queues.pop(broker, None)
        if not queues:
            self._topics.pop(topic, None)

    def __repr__(self) -> str:
        return f"TopicRoutes({self._count} topics of {len(self._brokers)} brokers)"
