"""Topics: their names, kinds and queues."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from rocket_admin.broker_answers import BrokerFailure, ask_masters
from rocket_client import Admin
from rocket_remoting.wire.bodies import ClusterInfo, TopicConfig
from rocket_remoting.wire.sys_flag import PERM_READ, PERM_WRITE
from rocket_remoting.wire.topics import (
    REPLY_TOPIC_POSTFIX,
    is_dead_letter_topic,
    is_retry_topic,
    is_system_topic,
)

__all__ = ["Topic", "TopicKind", "TopicList", "list_topics", "permission_text"]


class TopicKind(StrEnum):
    """Whose topic it is."""

    NORMAL = "normal"
    """An application's."""
    RETRY = "retry"
    """A group's, for messages that wait for their next delivery."""
    DEAD_LETTER = "dead-letter"
    """A group's, for messages that have failed too often."""
    SYSTEM = "system"
    """The brokers' own."""


@dataclass(frozen=True, kw_only=True)
class Topic:
    """A topic on all brokers together.

    Attributes:
        topic: The name.
        kind: `normal`, `retry`, `dead-letter` or `system`.
        brokers: The names of the brokers that have the topic, sorted; absent if none of them answered.
        read_queues: Readable queues on all brokers; absent if none of them answered.
        write_queues: Writable queues on all brokers; absent if none of them answered.
        permission: `rw`, `r`, `w` or `none`; several, separated by commas, if brokers differ; absent if none answered.
        order: Whether a broker has the topic as an ordered one; absent if none answered.
        message_type: The type of its messages, such as `FIFO`, that brokers of 5.x check; absent if none is set.
    """

    topic: str
    kind: TopicKind
    brokers: tuple[str, ...] | None = None
    read_queues: int | None = None
    write_queues: int | None = None
    permission: str | None = None
    order: bool | None = None
    message_type: str | None = None


@dataclass(frozen=True, kw_only=True)
class TopicList:
    """The topics of a cluster.

    Attributes:
        topics: The topics, sorted by name.
        failures: The brokers that did not answer. Of topics that only they have, no more than the name is known.
    """

    topics: tuple[Topic, ...]
    failures: tuple[BrokerFailure, ...]


async def list_topics(admin: Admin) -> TopicList:
    """Return all topics that name servers and brokers know.

    Raises:
        NoBrokerError: No master is registered.
        NameServersUnreachableError: No name server answered.
    """
    cluster = await admin.cluster_info()
    names = await admin.topics()
    found = await ask_masters(admin, admin.topic_configs)
    configs: dict[str, dict[str, TopicConfig]] = {name: {} for name in names}
    for broker, table in found.answers.items():
        for name, config in table.items():
            configs.setdefault(name, {})[broker] = config
    own = _own_topics(cluster)
    topics = (_topic(name, _kind(name, own), by_broker) for name, by_broker in sorted(configs.items()))
    return TopicList(topics=tuple(topics), failures=found.failures)


def permission_text(perm: int) -> str:
    """Return the name of permission bits: `rw`, `r`, `w` or `none`."""
    return ("r" if perm & PERM_READ else "") + ("w" if perm & PERM_WRITE else "") or "none"


def _own_topics(cluster: ClusterInfo) -> set[str]:
    """Return the topics that brokers name after themselves and their cluster."""
    clusters = cluster.cluster_addr_table.keys()
    return {*clusters, *cluster.broker_addr_table, *(f"{name}_{REPLY_TOPIC_POSTFIX}" for name in clusters)}


def _kind(name: str, own: Iterable[str]) -> TopicKind:
    if is_retry_topic(name):
        return TopicKind.RETRY
    if is_dead_letter_topic(name):
        return TopicKind.DEAD_LETTER
    return TopicKind.SYSTEM if is_system_topic(name) or name in own else TopicKind.NORMAL


def _topic(name: str, kind: TopicKind, configs: Mapping[str, TopicConfig]) -> Topic:
    if not configs:
        return Topic(topic=name, kind=kind)
    types = {config.attributes.get("message.type", "") for config in configs.values()}
    return Topic(
        topic=name,
        kind=kind,
        brokers=tuple(sorted(configs)),
        read_queues=sum(config.read_queue_nums for config in configs.values()),
        write_queues=sum(config.write_queue_nums for config in configs.values()),
        permission=",".join(sorted({permission_text(config.perm) for config in configs.values()})),
        order=any(config.order for config in configs.values()),
        message_type=",".join(sorted(filter(None, types))) or None,
    )
