"""Topics and groups at the brokers: looks up, creates and enlarges the topics of bindings, and deletes groups."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

from binders.kafka.binder_properties import PREFIX, KafkaBinderProperties
from binders.kafka.clients import Admin
from binders.kafka.connecting import Interruption
from binders.kafka.properties import TopicProperties
from kafka import TopicPartition
from kafka.admin import ConfigFilterType, ConfigResource, ConfigResourceType, OffsetSpec
from kafka.errors import KafkaError, TopicAlreadyExistsError, for_code
from streamkit.errors import BinderError

logger = logging.getLogger(__name__)

R = TypeVar("R")

_NO_ERROR: Final = 0
_UNKNOWN_TOPIC: Final = 3
_NO_LEADER: Final = -1


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic as the brokers describe it.

    Attributes:
        name: Its name.
        partitions: The number of its partitions.
        replicas: The replicas of the partition that has the fewest.
        without_leader: The numbers of the partitions that have no leader.
        error: Why the brokers do not describe it; None if they do.
    """

    name: str
    partitions: int = 0
    replicas: int = 0
    without_leader: tuple[int, ...] = ()
    error: str | None = None


class Topics:
    """The topics and groups of the brokers. The admin client blocks, so threads call it."""

    def __init__(self, admin: Admin, settings: KafkaBinderProperties) -> None:
        self._admin = admin
        self._settings = settings

    @classmethod
    async def connected(cls, connect: Callable[[Interruption], Admin], settings: KafkaBinderProperties) -> Self:
        """Return an object with a connected admin client.

        If the call is cancelled, the attempt to connect is interrupted, and the call ends after the client has been
        closed.

        Args:
            connect: Returns a connected client, unless the interruption is called before; called on a thread.
            settings: The binder's settings.

        Raises:
            KafkaError: The brokers are away, or refuse.
        """
        interruption = Interruption()
        connecting = asyncio.create_task(asyncio.to_thread(connect, interruption))
        try:
            return cls(await asyncio.shield(connecting), settings)
        except asyncio.CancelledError:
            await asyncio.wait([connecting, asyncio.create_task(asyncio.to_thread(interruption))])
            if connecting.exception() is None:
                await cls(connecting.result(), settings).close()
            raise

    async def call(self, method: Callable[..., R], *arguments: object, **named: object) -> R:
        """Call a method of the admin client on a thread, and return its result.

        Raises:
            KafkaError: The call failed.
        """
        return await asyncio.to_thread(method, *arguments, **named)

    async def ensure(
        self, topic: str, partitions: int, properties: TopicProperties, *, may_be_smaller: bool = False
    ) -> int:
        """Create or enlarge a topic if needed and allowed, and return the number of its partitions.

        Args:
            topic: The topic.
            partitions: The number of partitions that are needed; a topic that is created or enlarged gets at least
                `min-partition-count`.
            properties: The settings with which the topic is created.
            may_be_smaller: Whether fewer partitions are no error.

        Raises:
            BinderError: The topic does not exist or has too few partitions, and the settings do not allow to change it.
            KafkaError: The brokers are away, or refuse.
        """
        wanted = max(partitions, self._settings.min_partition_count)
        found = await self.partition_count(topic)
        if found is None:
            return await self._create(topic, wanted, properties)
        if self._settings.auto_add_partitions and found < wanted:
            await self.call(self._admin.create_partitions, {topic: wanted})
            await self.call(self._admin.wait_for_topics, [topic])
            return wanted
        if found < partitions and not may_be_smaller:
            raise BinderError(
                f"topic {topic!r} has {found} partition(s), but {partitions} are configured: set "
                f"{PREFIX}.auto-add-partitions=true, "
                "add them with Kafka's own tools, or ask for fewer"
            )
        return found

    async def partition_count(self, topic: str) -> int | None:
        """Return the number of a topic's partitions; None if the topic does not exist.

        Raises:
            BinderError: The brokers answer with an error code for the topic.
            KafkaError: The brokers are away, or refuse.
        """
        described = await self._described([topic])
        error = described[0]["error_code"]
        if error == _UNKNOWN_TOPIC:
            return None
        if error != _NO_ERROR:
            raise BinderError(f"topic {topic!r} could not be described: Kafka error code {error}")
        return len(described[0]["partitions"])

    async def _described(self, topics: Sequence[str]) -> list[dict[str, Any]]:
        return await self.call(self._admin.describe_topics, list(topics))

    async def without_leader(self, topics: Sequence[str]) -> list[str]:
        """Return the partitions of these topics that have no leader, as `topic-number`.

        Raises:
            KafkaError: The brokers are away, or refuse.
        """
        if not topics:
            return []
        return [
            f"{topic['name']}-{partition['partition_index']}"
            for topic in await self._described(topics)
            for partition in topic["partitions"]
            if partition["leader_id"] == _NO_LEADER
        ]

    async def _create(self, topic: str, partitions: int, properties: TopicProperties) -> int:
        if not self._settings.auto_create_topics:
            raise BinderError(
                f"topic {topic!r} does not exist and {PREFIX}.auto-create-topics=false: create it with Kafka's tools "
                f"(kafka-topics.sh --create --topic {topic})"
            )
        asked: dict[str, object] = {"configs": dict(properties.properties)}
        if properties.replicas_assignments:
            partitions = len(properties.replicas_assignments)
            asked["assignments"] = dict(properties.replicas_assignments)
        else:
            replicas = properties.replication_factor
            asked["num_partitions"] = partitions
            asked["replication_factor"] = self._settings.replication_factor if replicas is None else replicas
        try:
            await self.call(self._admin.create_topics, {topic: asked})
        except TopicAlreadyExistsError:
            logger.debug("Topic %r was created by another process just now", topic)
        await self.call(self._admin.wait_for_topics, [topic])
        return await self.partition_count(topic) or partitions

    async def forget(self, group: str) -> None:
        """Delete a group that has no members; a failure is only logged."""
        try:
            answers = await self.call(self._admin.delete_groups, [group])
            if answers.get(group) != "OK":
                logger.debug("Group %s was not removed: %s", group, answers.get(group))
        except KafkaError as error:
            logger.info("Group %s stays at the brokers until its offsets expire: %r", group, error)

    async def brokers(self) -> list[str]:
        """Return the addresses of the brokers in the cluster, as `host:port`.

        Raises:
            KafkaError: No broker answers.
        """
        cluster = await self.call(self._admin.describe_cluster)
        return sorted(f"{each['host']}:{each['port']}" for each in cluster["brokers"])

    async def names(self) -> list[str]:
        """Return the names of all topics.

        Raises:
            KafkaError: The brokers are away, or refuse.
        """
        return await self.call(self._admin.list_topics)

    async def views(self, topics: Collection[str]) -> dict[str, TopicView]:
        """Return how the brokers describe topics, by name; those that do not exist are left out.

        Raises:
            KafkaError: The brokers are away, or refuse.
        """
        described = await self._described(sorted(topics)) if topics else []
        return {each["name"]: _view(each) for each in described if each["error_code"] != _UNKNOWN_TOPIC}

    async def all_described(self, topics: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Return how the brokers describe topics, as kafka-python returns it.

        Args:
            topics: The topics; None for all.

        Raises:
            KafkaError: The brokers are away, or refuse.
        """
        return await self.call(self._admin.describe_topics, topics)

    async def all_groups(self) -> list[dict[str, Any]]:
        """Return all groups, as kafka-python returns them.

        Raises:
            KafkaError: The brokers are away, or refuse.
        """
        return await self.call(self._admin.list_groups)

    async def group(self, name: str) -> dict[str, Any]:
        """Return how the brokers describe a group, as kafka-python returns it.

        Raises:
            KafkaError: The brokers are away, or refuse.
        """
        described: dict[str, dict[str, Any]] = await self.call(self._admin.describe_groups, [name])
        return described[name]

    async def configs(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the configurations of topics, the defaults included, by the names of topics and keys.

        Raises:
            KafkaError: The brokers are away, or refuse.
        """
        resources = [ConfigResource(ConfigResourceType.TOPIC, topic) for topic in topics]
        if not resources:
            return {}
        found = await self.call(self._admin.describe_configs, resources, config_filter=ConfigFilterType.ALL)
        return {
            topic: {key: str(each["value"]) for key, each in configs.items() if each["value"] is not None}
            for topic, configs in found.get("topic", {}).items()
        }

    async def members(self, groups: Collection[str]) -> dict[str, int | None]:
        """Return the number of each group's members; None if the brokers do not tell.

        Raises:
            KafkaError: The brokers are away, or refuse.
        """
        if not groups:
            return {}
        found = await self.call(self._admin.describe_groups, sorted(groups))
        return {name: None if each["error"] else len(each["members"]) for name, each in found.items()}

    async def committed(self, groups: Iterable[str]) -> dict[str, dict[TopicPartition, int]]:
        """Return the committed offsets of groups, by the group's name and the partition.

        Raises:
            KafkaError: The brokers are away, or refuse.
        """
        offsets: dict[str, dict[TopicPartition, int]] = {}
        for group in groups:  # brokers before Kafka 3.0 answer for one group at a time
            found = await self.call(self._admin.list_group_offsets, {group: None})
            offsets[group] = {key: each.offset for key, each in found[group].items() if each.offset >= 0}
        return offsets

    async def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the ends of partitions: the offsets that their next messages will have.

        Raises:
            KafkaError: The brokers are away, or refuse.
        """
        return await self._offsets(partitions, OffsetSpec.LATEST)

    async def begins(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets of the oldest records of partitions.

        Raises:
            KafkaError: The brokers are away, or refuse.
        """
        return await self._offsets(partitions, OffsetSpec.EARLIEST)

    async def _offsets(self, partitions: Iterable[TopicPartition], which: OffsetSpec) -> dict[TopicPartition, int]:
        asked = dict.fromkeys(partitions, which)
        if not asked:
            return {}
        found = await self.call(self._admin.list_partition_offsets, asked)
        return {partition: each.offset for partition, each in found.items()}

    async def close(self) -> None:
        """Disconnect."""
        await asyncio.to_thread(self._admin.close)


def _view(described: Mapping[str, Any]) -> TopicView:
    name, partitions, error = described["name"], described["partitions"], described["error_code"]
    if error != _NO_ERROR:
        return TopicView(name, error=for_code(error).__name__)
    return TopicView(
        name,
        len(partitions),
        min((len(each["replica_nodes"]) for each in partitions), default=0),
        tuple(sorted(each["partition_index"] for each in partitions if each["leader_id"] == _NO_LEADER)),
    )
