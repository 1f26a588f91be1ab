"""The topics of this broker with their queues and permissions, kept in Apache's ``topics.json``."""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from rocket_broker.limits.owner_quota import OwnerQuota
from rocket_broker.limits.refusal import Refusal
from rocket_broker.perm import INHERIT, READ, WRITE
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.tables.journaled_table import JournaledTable
from rocket_broker.tables.system_names import SystemNames
from rocket_remoting.clock import Clock
from rocket_remoting.session.address import log_peer
from rocket_remoting.wire.bodies import (
    DataVersion,
    Entries,
    KVTable,
    LongBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    decode_body,
)
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.topics import (
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    OFFSET_MOVED_EVENT,
    REPLY_TOPIC_POSTFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
)

__all__ = ["TopicTable", "table_body"]

logger = logging.getLogger(__name__)

SCHEDULE_QUEUES = 18
BENCHMARK_QUEUES = 1024
CLUSTER_TOPIC_QUEUES = 16

MOST_RECENT = 256
"""Maximum number of changes that the table remembers, and of the topics of each of them."""


async def _nobody_to_tell() -> None:
    """Return at once: the broker is not registered yet."""


class _RecentChange(NamedTuple):
    """A change of the table.

    Attributes:
        before: The version of the table before it.
        topics: The topics that were added or changed; None if there are too many of them, or others were removed.
    """

    before: DataVersion
    topics: tuple[str, ...] | None


class TopicTable(JournaledTable[TopicConfig]):
    """All topics of a broker. Name servers compare the table's version, and registration listens to its changes.

    Attributes:
        system: What clients may do with the broker's own topics and groups.
        until_announced: Returns when the name servers know the present topics, or cannot be told. The registration
            sets it.
    """

    _KIND = "topic"
    _LIMIT = "maxTopics"
    _STANDARD_JSON = False
    _type = TopicConfig

    def __init__(self, settings: BrokerSettings, clock: Clock) -> None:
        super().__init__(
            settings,
            clock,
            file="topics.json",
            configs=_own_topics(settings),
            quota=OwnerQuota("topics of this broker (maxTopics)", self._limit),
        )
        self.system = SystemNames(settings)
        self._deleting: set[str] = set()
        self._recent: deque[_RecentChange] = deque(maxlen=MOST_RECENT)
        self.until_announced: Callable[[], Awaitable[None]] = _nobody_to_tell

    def restore(self, queues: Mapping[str, Sequence[int]]) -> None:
        """Recreate the topics of a store without ``topics.json`` from their queues.

        They get the permission to read and write, and as many queues as were used. Without an entry in the table,
        a topic would lose its messages at the next CLEAN_UNUSED_TOPIC.

        Args:
            queues: The numbers of the queues of each topic that has messages.
        """
        lost = [
            _config(topic, max(ids) + 1)
            for topic, ids in queues.items()
            if ids and topic not in self._configs and not self.is_system(topic)
        ]
        if lost:
            logger.warning(
                "%s was missing: recreated %d topic(s) from their queues, with the permission to read and write",
                self._file.path, len(lost),
            )  # fmt: skip
            self.create_missing(lost)

    def create_for_copied(self, topic: str, queue_id: int) -> None:
        """Create the topic of a message that a slave has copied, with permission to read and write.

        It has as many queues as a topic that a send creates, or as many as the message's queue needs, until the slave
        has the master's entry.
        """
        queues = max(queue_id + 1, self._settings.default_topic_queue_nums)
        logger.info("topic %s has messages of the master, whose entry is not known yet", topic)
        self.create_missing([_config(topic, queues)])

    def is_system(self, topic: str) -> bool:
        """Return whether the topic is the broker's own, so that clients can neither create nor delete it."""
        return self.system.is_topic(topic)

    def create_by_send(
        self, topic: str, default_topic: str, queue_count: int, sys_flag: int, sender: str, *, owner: str = ""
    ) -> TopicConfig | None:
        """Return the topic that a message is sent to; if it is missing, create it from the sender's default topic.

        A new topic has as many queues as the sender asks for, but at most as many as the default topic. Return None if
        the default topic does not exist (``TBW102`` exists while ``autoCreateTopicEnable`` is true) or may not be
        copied.

        Raises:
            Refusal: There are ``maxTopics`` already, the owner has reached its quota, or the topic is being deleted.
        """
        config = self._configs.get(topic)
        if config is not None:
            return config
        self._check_capacity([topic], owner, ResponseCode.TOPIC_NOT_EXIST)
        default = self._configs.get(default_topic)
        closed = default_topic == AUTO_CREATE_TOPIC and not self._settings.auto_create_topic_enable
        if default is None or closed or not default.perm & INHERIT:
            logger.warning(
                "%s sends to the unknown topic %s, and %s does not permit its creation", sender, topic, default_topic,
                extra=log_peer(sender),
            )  # fmt: skip
            return None
        queues = max(0, min(queue_count, default.write_queue_nums))
        config = TopicConfig(
            topic_name=topic,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=default.perm & ~INHERIT,
            topic_filter_type=default.topic_filter_type,
            topic_sys_flag=sys_flag,
        )
        logger.info("topic %s created with %d queue(s) because %s sent to it", topic, queues, sender,
                  extra=log_peer(sender))  # fmt: skip
        self._add([config], owner)
        return config

    def create_by_send_back(
        self, topic: str, queue_count: int, perm: int, sys_flag: int = 0, *, owner: str = ""
    ) -> TopicConfig:
        """Return a group's retry or dead letter topic, or one of the broker's own topics; create it if it is missing.

        Raises:
            Refusal: There are ``maxTopics`` already, the owner has reached its quota, or the topic is being deleted.
                The broker's own topics are created in any case.
        """
        config = self._configs.get(topic)
        if config is None:
            if not self.is_system(topic):
                self._check_capacity([topic], owner)
            config = TopicConfig(
                topic_name=topic,
                read_queue_nums=queue_count,
                write_queue_nums=queue_count,
                perm=perm,
                topic_sys_flag=sys_flag,
            )
            logger.info("topic %s created for the broker's own use", topic)
            self._add([config], owner)
        return config

    def create_missing(self, configs: Iterable[TopicConfig], owner: str = "") -> None:
        """Create the missing topics, in one change of the table.

        Topics beyond ``maxTopics`` or the owner's quota are not created.
        """
        missing = [
            config
            for config in configs
            if config.topic_name not in self._configs and config.topic_name not in self._deleting
        ]
        self._add(self._fitting(missing, owner), owner)

    def update(self, *configs: TopicConfig, owner: str = "") -> None:
        """Create topics or replace their configurations, in one change of the table.

        Raises:
            Refusal: There would be more topics than ``maxTopics`` or the owner's quota, or a topic is being deleted.
            OSError: The change could not be written; the topics are changed in memory, and the file is written later.
        """
        self._own(self._check_capacity([config.topic_name for config in configs], owner), owner)
        for config in self._logged(configs):
            logger.info(
                "topic %s %s: %d queue(s) to write, %d to read, perm %d",
                config.topic_name,
                "changed" if config.topic_name in self._configs else "created",
                config.write_queue_nums,
                config.read_queue_nums,
                config.perm,
            )
        self._put(configs)

    @contextmanager
    def deleting(self, *topics: str) -> Iterator[None]:
        """Delete the entries of topics, and let no client create the topics again within the ``with`` block.

        Raises:
            Refusal: A topic is being deleted already.
            OSError: The change could not be written.
        """
        self._check_not_deleting(topics)
        self._deleting.update(topics)
        try:
            for topic in topics:
                self.delete(topic)
            yield
        finally:
            self._deleting.difference_update(topics)

    def mark_ordered(self, ordered: KVTable | None) -> None:
        """Set the order flag of exactly the topics in the name server's order configuration.

        None is the answer of a name server without such a configuration, and changes nothing.
        """
        if ordered is None:
            return
        changed = False
        for topic, config in self._configs.items():
            if config.order != (topic in ordered.table):
                config.order = not config.order
                changed = True
        if changed:  # no journal line for each topic: the whole table is written and registered again
            self._count_change()

    def follow_settings(self) -> None:
        """Update the topic that new topics are copied from (``TBW102``) after the settings have changed."""
        if self._settings.auto_create_topic_enable:
            copied = _auto_create_config(self._settings)
            if self._configs.get(AUTO_CREATE_TOPIC) != copied:
                self.update(copied)

    def register_again(self) -> None:
        """Count a change although no topic has changed, so that the topics are registered with a new permission."""
        self._count_change()

    async def take_over(self, data: bytes) -> None:
        version = self.data_version
        await super().take_over(data)
        if self.data_version != version:
            self._recent.clear()  # what led to the former version says nothing about the present one

    def changed_since(self, version: DataVersion) -> list[TopicConfig] | None:
        """Return the topics that were added or changed since a version of the table.

        Returns:
            The topics; None if the table does not know all of them, or if topics were removed since.
        """
        names: dict[str, None] = {}
        if version != self.data_version:
            for change in reversed(self._recent):
                if change.topics is None:
                    return None
                names.update(dict.fromkeys(change.topics))
                if change.before == version:
                    break
            else:
                return None
        return [self._configs[name] for name in names]

    def body(self) -> LongBody:
        return table_body(self.data_version, list(self._configs.values()))

    def _decoded(self, data: bytes) -> tuple[Mapping[str, TopicConfig], DataVersion]:
        stored = decode_body(data, TopicConfigSerializeWrapper)
        return stored.topic_config_table, stored.data_version

    def _name_of(self, config: TopicConfig) -> str:
        return config.topic_name

    def _limit(self) -> int:
        return self._settings.max_topics

    def _unknown(self, name: str) -> str:
        return f"topic[{name}] not exist"

    def _check_capacity(
        self, names: Iterable[str], owner: str, code: ResponseCode = ResponseCode.SYSTEM_ERROR
    ) -> set[str]:
        names = list(names)
        self._check_not_deleting(name for name in names if name not in self._configs)
        return super()._check_capacity(names, owner, code)

    def _check_not_deleting(self, topics: Iterable[str]) -> None:
        for topic in topics:
            if topic in self._deleting:
                raise Refusal(ResponseCode.SYSTEM_BUSY, f"topic[{topic}] is being deleted: try again")

    def _add(self, configs: Sequence[TopicConfig], owner: str) -> None:
        """Add new topics, and count them for the owner."""
        self._own([config.topic_name for config in configs], owner)
        self._put(configs)

    def _note(self, configs: Sequence[TopicConfig] = (), *, removed: Sequence[str] = ()) -> None:
        can_be_named = not removed and len(configs) <= MOST_RECENT
        topics = tuple(map(self._name_of, configs)) if can_be_named else None
        self._recent.append(_RecentChange(self.data_version, topics))
        super()._note(configs, removed=removed)

    def _count_change(self) -> None:
        self._recent.append(_RecentChange(self.data_version, None))
        self.data_version = self.data_version.next(self._clock.now_ms())
        self.journal.note_change()
        self._notify()


def table_body(version: DataVersion, configs: Iterable[TopicConfig]) -> LongBody:
    """Return a table of topics in the form of the file, of registrations, and of answers to tools."""
    wrapper = TopicConfigSerializeWrapper(topic_config_table={}, data_version=version)
    pairs = ((config.topic_name, config) for config in configs)
    return LongBody(wrapper, topic_config_table=Entries(pairs))


def _own_topics(s: BrokerSettings) -> dict[str, TopicConfig]:
    """Return the topics that every broker has, as Apache's brokers create them at the start."""
    cluster_perm = INHERIT | (READ | WRITE if s.cluster_topic_enable else 0)
    broker_perm = INHERIT | (READ | WRITE if s.broker_topic_enable else 0)
    own = [
        _config(SELF_TEST_TOPIC, 1),
        _config(BENCHMARK_TOPIC, BENCHMARK_QUEUES),
        _config(s.broker_cluster_name, CLUSTER_TOPIC_QUEUES, cluster_perm),
        _config(s.broker_name, 1, broker_perm),
        _config(OFFSET_MOVED_EVENT, 1),
        _config(SCHEDULE_TOPIC, SCHEDULE_QUEUES),
        _config(f"{s.broker_cluster_name}_{REPLY_TOPIC_POSTFIX}", 1),
    ]
    if s.auto_create_topic_enable:
        own.append(_auto_create_config(s))
    if s.trace_topic_enable:
        own.append(_config(s.msg_trace_topic_name, 1))
    return {config.topic_name: config for config in own}


def _auto_create_config(settings: BrokerSettings) -> TopicConfig:
    return _config(AUTO_CREATE_TOPIC, settings.default_topic_queue_nums, INHERIT | READ | WRITE)


def _config(topic: str, queues: int, perm: int = READ | WRITE) -> TopicConfig:
    return TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
