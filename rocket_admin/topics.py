"""Topics: their names, kinds, settings, queues and offsets; how they are created, changed and deleted."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from enum import StrEnum

import msgspec

from rocket_admin.broker_answers import BrokerFailure, ask_masters
from rocket_admin.subscribers import groups_of_topic
from rocket_admin.times import time_of
from rocket_client import Admin, TopicNotFoundError
from rocket_remoting.wire.bodies import ClusterInfo, TopicConfig
from rocket_remoting.wire.message import MessageQueue
from rocket_remoting.wire.sys_flag import PERM_READ, PERM_WRITE
from rocket_remoting.wire.topics import (
    REPLY_TOPIC_POSTFIX,
    is_dead_letter_topic,
    is_retry_topic,
    is_system_topic,
)

__all__ = [
    "Topic",
    "TopicDetails",
    "TopicKind",
    "TopicList",
    "TopicOnBroker",
    "TopicQueue",
    "TopicQueues",
    "create_topic",
    "kind_of",
    "list_topics",
    "own_topics",
    "permission_bits",
    "show_topic",
    "topic_queues",
    "update_topic",
]

DEFAULT_QUEUES = 4
"""Queues that a new topic has on each broker."""


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


class Topic(msgspec.Struct, frozen=True, kw_only=True):
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


class TopicList(msgspec.Struct, frozen=True, kw_only=True):
    """The topics of a cluster.

    Attributes:
        topics: The topics, sorted by name.
        failures: The brokers that did not answer. Of topics that only they have, no more than the name is known.
    """

    topics: tuple[Topic, ...]
    failures: tuple[BrokerFailure, ...]


class TopicOnBroker(msgspec.Struct, frozen=True, kw_only=True):
    """A topic's settings on one broker.

    Attributes:
        broker: The broker's name.
        read_queues: Its readable queues.
        write_queues: Its writable queues.
        permission: `rw`, `r`, `w` or `none`.
        order: Whether it is an ordered topic.
        message_type: The type of its messages, such as `FIFO`; absent if none is set.
    """

    broker: str
    read_queues: int
    write_queues: int
    permission: str
    order: bool
    message_type: str | None = None


class TopicQueue(msgspec.Struct, frozen=True, kw_only=True):
    """One queue of a topic.

    Attributes:
        topic: The topic.
        broker: The name of the broker that has the queue.
        queue: The queue's number.
        min_offset: The offset of its oldest message.
        max_offset: The offset that its next message will get.
        messages: Messages that the broker still has.
        last_stored: When the newest message was stored; absent if that is not known.
    """

    topic: str
    broker: str
    queue: int
    min_offset: int
    max_offset: int
    messages: int
    last_stored: datetime | None = None


class TopicQueues(msgspec.Struct, frozen=True, kw_only=True):
    """The queues of a topic.

    Attributes:
        queues: The queues, sorted by broker and number.
        failures: The brokers that did not answer; their queues are missing.
    """

    queues: tuple[TopicQueue, ...]
    failures: tuple[BrokerFailure, ...]


class TopicDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about one topic.

    Attributes:
        topic: The name.
        kind: `normal`, `retry`, `dead-letter` or `system`.
        messages: Messages that the brokers still have; absent if a broker did not answer.
        last_stored: When the newest message was stored; absent if that is not known.
        groups: The groups that subscribe to the topic, or have committed offsets in it, sorted.
        brokers: The settings on each broker that answered.
        failures: The brokers that did not answer.
    """

    topic: str
    kind: TopicKind
    messages: int | None
    last_stored: datetime | None
    groups: tuple[str, ...]
    brokers: tuple[TopicOnBroker, ...]
    failures: tuple[BrokerFailure, ...]


async def list_topics(admin: Admin) -> TopicList:
    """Return all topics that name servers and brokers know.

    Raises:
        NoBrokerError: No master is registered.
        NameServersUnreachableError: No name server answered.
    """
    cluster, names, found = await asyncio.gather(
        admin.cluster_info(), admin.topics(), ask_masters(admin, admin.topic_configs)
    )
    own = own_topics(cluster)
    configs: dict[str, dict[str, TopicConfig]] = {name: {} for name in names}
    for broker, table in found.answers.items():
        for name, config in table.items():
            configs.setdefault(name, {})[broker] = config
    topics = (_topic(name, kind_of(name, own), by_broker) for name, by_broker in sorted(configs.items()))
    return TopicList(topics=tuple(topics), failures=found.failures)


async def show_topic(admin: Admin, topic: str) -> TopicDetails:
    """Return the settings, groups and messages of a topic.

    Raises:
        TopicNotFoundError: The topic does not exist.
    """
    configs, failures = await _configs(admin, topic)
    own = own_topics(await admin.cluster_info())
    found = await topic_queues(admin, topic)
    groups = await ask_masters(admin, lambda address: groups_of_topic(admin, address, topic), configs)
    times = [queue.last_stored for queue in found.queues if queue.last_stored is not None]
    return TopicDetails(
        topic=topic,
        kind=kind_of(topic, own),
        messages=None if found.failures or failures else sum(queue.messages for queue in found.queues),
        last_stored=max(times, default=None),
        groups=tuple(sorted(set[str]().union(*groups.answers.values()))),
        brokers=tuple(_on_broker(name, config) for name, config in configs.items()),
        failures=tuple(dict.fromkeys((*failures, *found.failures, *groups.failures))),
    )


async def topic_queues(admin: Admin, topic: str) -> TopicQueues:
    """Return the offsets of each queue of a topic.

    Raises:
        TopicNotFoundError: The topic does not exist.
    """
    route = await admin.topic_route(topic)
    masters = {broker.broker_name for broker in route.data.broker_datas if 0 in broker.broker_addrs}
    found = await ask_masters(admin, lambda address: admin.topic_stats_at(address, topic), masters)
    stats = {queue: offsets for table in found.answers.values() for queue, offsets in table.items()}
    queues = (
        TopicQueue(
            topic=topic,
            broker=queue.broker_name,
            queue=queue.queue_id,
            min_offset=offsets.min_offset,
            max_offset=offsets.max_offset,
            messages=offsets.max_offset - offsets.min_offset,
            last_stored=time_of(offsets.last_update_timestamp),
        )
        for queue, offsets in sorted(stats.items(), key=lambda item: _place(item[0]))
    )
    return TopicQueues(queues=tuple(queues), failures=found.failures)


async def create_topic(
    admin: Admin,
    topic: str,
    *,
    queues: int = DEFAULT_QUEUES,
    read_queues: int | None = None,
    perm: int = PERM_READ | PERM_WRITE,
    order: bool = False,
    message_type: str | None = None,
    brokers: Collection[str] = (),
) -> None:
    """Create a topic, and wait until the name servers know it.

    Args:
        admin: A running admin.
        topic: The name.
        queues: Writable queues on each broker.
        read_queues: Readable queues on each broker; by default as many.
        perm: The ``PERM_*`` bits of `rocket_remoting.wire.sys_flag`.
        order: Whether it is an ordered topic.
        message_type: The type of its messages, such as ``FIFO``, that brokers of 5.x check.
        brokers: Names of brokers; by default all.

    Raises:
        ValueError: The topic exists, its name is illegal, or a broker is not registered.
        TimeoutError: The name servers did not know the topic in time.
    """
    try:
        await admin.topic_route(topic)
    except TopicNotFoundError:
        pass
    else:
        raise ValueError(f"topic {topic} exists already: change it with `streamkit topic update {topic}`")
    await admin.create_topic(
        topic,
        queues,
        read_queues=read_queues,
        perm=perm,
        order=order,
        message_type=message_type,
        brokers=brokers or None,
    )
    seconds = admin.settings.request_timeout.total_seconds()
    await admin.await_topic(topic, queues=queues if perm & PERM_WRITE else 0, timeout=seconds)


async def update_topic(
    admin: Admin,
    topic: str,
    *,
    queues: int | None = None,
    read_queues: int | None = None,
    perm: int | None = None,
    brokers: Collection[str] = (),
) -> tuple[TopicOnBroker, ...]:
    """Change settings of a topic on the brokers that have it; return the settings on each afterwards.

    Args:
        admin: A running admin.
        topic: The topic.
        queues: Writable queues on each broker; None to leave their number.
        read_queues: Readable queues on each broker; None for as many as `queues`, or to leave their number.
        perm: The ``PERM_*`` bits; None to leave them.
        brokers: Names of brokers; by default all that have the topic.

    Raises:
        TopicNotFoundError: The topic does not exist on these brokers.
        ResponseError: A broker refused, or could not be asked for the present settings.
    """
    configs, failures = await _configs(admin, topic, brokers)
    if failures:
        raise ValueError(f"topic {topic} was not changed: broker {failures[0].broker_name}: {failures[0].reason}")
    for name, config in configs.items():
        config.write_queue_nums = config.write_queue_nums if queues is None else queues
        readable = queues if read_queues is None else read_queues
        config.read_queue_nums = config.read_queue_nums if readable is None else readable
        config.perm = config.perm if perm is None else perm
        await admin.create_topic(
            topic,
            config.write_queue_nums,
            read_queues=config.read_queue_nums,
            perm=config.perm,
            order=config.order,
            brokers=[name],
        )
    return tuple(_on_broker(name, config) for name, config in configs.items())


def permission_bits(text: str) -> int:
    """Return the bits of a permission: `rw`, `r`, `w` or `none`."""
    return {"rw": PERM_READ | PERM_WRITE, "r": PERM_READ, "w": PERM_WRITE, "none": 0}[text]


def _permission(perm: int) -> str:
    return ("r" if perm & PERM_READ else "") + ("w" if perm & PERM_WRITE else "") or "none"


async def _configs(
    admin: Admin, topic: str, brokers: Collection[str] = ()
) -> tuple[dict[str, TopicConfig], tuple[BrokerFailure, ...]]:
    """Return the topic's settings by broker, and the brokers that did not answer.

    Raises:
        TopicNotFoundError: No broker that answered has the topic.
    """
    # Brokers of 4.9 have no request for the settings of one topic.
    found = await ask_masters(admin, admin.topic_configs, brokers or None)
    configs = {name: table[topic] for name, table in found.answers.items() if topic in table}
    if not configs:
        if found.failures:
            failure = found.failures[0]
            raise TopicNotFoundError(topic, f"broker {failure.broker_name} did not answer: {failure.reason}")
        where = f"brokers {', '.join(sorted(brokers))} do not have it" if brokers else "it does not exist"
        raise TopicNotFoundError(topic, where)
    return configs, found.failures


def own_topics(cluster: ClusterInfo) -> set[str]:
    """Return the topics that brokers name after themselves and their cluster."""
    clusters = cluster.cluster_addr_table.keys()
    return {*clusters, *cluster.broker_addr_table, *(f"{name}_{REPLY_TOPIC_POSTFIX}" for name in clusters)}


def kind_of(name: str, own: Iterable[str]) -> TopicKind:
    """Return whose topic it is.

    Args:
        name: The topic.
        own: The `own_topics` of the cluster.
    """
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
        permission=",".join(sorted({_permission(config.perm) for config in configs.values()})),
        order=any(config.order for config in configs.values()),
        message_type=",".join(sorted(filter(None, types))) or None,
    )


def _on_broker(name: str, config: TopicConfig) -> TopicOnBroker:
    return TopicOnBroker(
        broker=name,
        read_queues=config.read_queue_nums,
        write_queues=config.write_queue_nums,
        permission=_permission(config.perm),
        order=config.order,
        message_type=config.attributes.get("message.type"),
    )


def _place(queue: MessageQueue) -> tuple[str, int]:
    return queue.broker_name, queue.queue_id
