"""The topics of this broker: how many queues, who may read and write, kept in Apache's ``topics.json``.

Every change is on the disk before the call returns, and reported to the listeners (the registration with the name
servers is one of them). A small table is written at each change. A change of a large one is a line in
``topics.json.log`` (`TableJournal`), and the table is written a little later, in steps.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rocket_broker.files.table_file import TableFile
from rocket_broker.files.table_journal import NO_TABLE, TableJournal
from rocket_broker.limits.refusal import Refusal
from rocket_broker.limits.shares import Shares
from rocket_broker.loop.loop_steps import collected, run_in_steps
from rocket_broker.perm import INHERIT, READ, WRITE
from rocket_broker.settings.broker_settings import BrokerSettings, FlushDiskType
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
    encode_in_pieces,
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

_MOST_LOGGED = 20
"""Topics of one request of which the log tells: a line takes as long as making the topic."""


class TopicTable:
    """All topics of a broker.

    Attributes:
        data_version: Counts the changes; name servers compare it.
        on_change: Called after each change of the table.
        journal: What has changed since the table was written.
        system: What clients may do with the broker's own topics and groups.
    """

    def __init__(self, settings: BrokerSettings, clock: Clock) -> None:
        self.on_change: list[Callable[[], None]] = []
        self.data_version = DataVersion(timestamp=clock.now_ms(), counter=0)
        self.system = SystemNames(settings)
        self._settings = settings
        self._clock = clock
        durable = settings.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._file = TableFile(settings.config_dir / "topics.json", durable=durable)
        self.journal = TableJournal(self._file.path, durable=durable)
        self._deleting: set[str] = set()
        self._configs = self._own_topics()
        self._shares = Shares("topics of this broker (maxTopics)", lambda: settings.max_topics)
        self._owners: dict[str, str] = {}

    def load(self) -> bool:
        """Read ``topics.json``; what it says of a topic wins over the defaults of the broker's own topics.

        Return whether there was one, or changes that have not been written into one yet.

        Raises:
            DamagedTable: Neither the file nor its backup can be read.
        """
        stored = self._file.load(lambda data: decode_body(data, TopicConfigSerializeWrapper))
        if stored is not None:
            self._configs.update(stored.topic_config_table)
            self.data_version = stored.data_version
        changes = self.journal.read(self.data_version if stored else NO_TABLE, TopicConfig)
        for change in changes:
            if change.entry is not None:
                self._configs[change.entry.topic_name] = change.entry
            else:
                self._configs.pop(change.removed, None)
            self.data_version = change.version
        return stored is not None or bool(changes)

    def restore(self, queues: Mapping[str, Sequence[int]]) -> None:
        """Make the topics of a store whose ``topics.json`` is missing anew, as far as their queues tell.

        They can be read and written, and have as many queues as were used. A topic that is not in the table would lose
        its messages at the next CLEAN_UNUSED_TOPIC.

        Args:
            queues: The queues of each topic that has messages.
        """
        lost = [
            _config(topic, max(ids) + 1)
            for topic, ids in queues.items()
            if ids and topic not in self._configs and not self.is_system(topic)
        ]
        if lost:
            logger.warning(
                "%s was missing: %d topics were made anew from their queues, with the permission to read and write",
                self._file.path, len(lost),
            )  # fmt: skip
            self.create_missing(lost)

    def get(self, topic: str) -> TopicConfig | None:
        """Return the topic's configuration, or None when it does not exist."""
        return self._configs.get(topic)

    def is_system(self, topic: str) -> bool:
        """Return whether the topic is the broker's: clients neither create nor delete it."""
        return self.system.is_topic(topic)

    def create_by_send(
        self, topic: str, default_topic: str, queue_count: int, sys_flag: int, sender: str, *, owner: str = ""
    ) -> TopicConfig | None:
        """Return the topic a message is sent to, created from the default topic the sender named if need be.

        The new topic has as many queues as the sender asks for, at most as many as the default topic has.
        None when the default topic does not exist (``TBW102`` does while ``autoCreateTopicEnable`` is true)
        or may not be copied.

        Raises:
            Refusal: There are ``maxTopics`` already, or the owner has its share of them.
        """
        config = self._configs.get(topic)
        if config is not None:
            return config
        self._check_room([topic], owner, ResponseCode.TOPIC_NOT_EXIST)
        default = self._configs.get(default_topic)
        closed = default_topic == AUTO_CREATE_TOPIC and not self._settings.auto_create_topic_enable
        if default is None or closed or not default.perm & INHERIT:
            logger.warning(
                "%s sends to the unknown topic %s, which %s does not create", sender, topic, default_topic,
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
        logger.info("topic %s created with %d queues because %s sent to it", topic, queues, sender,
                  extra=log_peer(sender))  # fmt: skip
        self._add([config], owner)
        return config

    def create_by_send_back(
        self, topic: str, queue_count: int, perm: int, sys_flag: int = 0, *, owner: str = ""
    ) -> TopicConfig:
        """Return a group's retry or dead letter topic, or one of the broker's own, created if need be.

        Raises:
            Refusal: There are ``maxTopics`` already, or the owner has its share of them; the broker's own topics are
                made nevertheless.
        """
        config = self._configs.get(topic)
        if config is None:
            if not self.is_system(topic):
                self._check_room([topic], owner)
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
        """Create those of the topics that do not exist; they are one change.

        Those are left out for which ``maxTopics``, or the owner's share of them, leaves no room.
        """
        missing = [
            config
            for config in configs
            if config.topic_name not in self._configs and config.topic_name not in self._deleting
        ]
        room = min(self._settings.max_topics - len(self._configs), self._shares.room(owner))
        self._add(missing[: max(0, room)], owner)

    def update(self, *configs: TopicConfig, owner: str = "") -> None:
        """Create each topic or replace its configuration; however many, they are one change.

        Raises:
            Refusal: There would be more than ``maxTopics``, or more of them the owner's than its share.
        """
        self._own(self._check_room([config.topic_name for config in configs], owner), owner)
        for config in configs[:_MOST_LOGGED]:
            logger.info(
                "topic %s %s: %d queues to write, %d to read, perm %d",
                config.topic_name,
                "changed" if config.topic_name in self._configs else "created",
                config.write_queue_nums,
                config.read_queue_nums,
                config.perm,
            )
        if len(configs) > _MOST_LOGGED:
            logger.info("and %d topics more, in the same request", len(configs) - _MOST_LOGGED)
        self._put(configs)

    def delete(self, topic: str) -> bool:
        """Forget the topic; return whether there was one."""
        if self._configs.pop(topic, None) is None:
            return False
        self._shares.count(-1, self._owners.pop(topic, ""))
        logger.info("topic %s deleted", topic)
        self._note(removed=[topic])
        return True

    @contextmanager
    def deleting(self, topic: str) -> Iterator[None]:
        """Forget the topic, and let nobody make it anew within the ``with``.

        Raises:
            Refusal: The topic is being deleted already.
        """
        self._check_not_deleting([topic])
        self._deleting.add(topic)
        try:
            self.delete(topic)
            yield
        finally:
            self._deleting.discard(topic)

    def mark_ordered(self, ordered: KVTable | None) -> None:
        """Set the order flag of exactly the topics the name server's order configuration has.

        None, which a name server without such configuration answers, changes nothing.
        """
        if ordered is None:
            return
        changed = False
        for topic, config in self._configs.items():
            if config.order != (topic in ordered.table):
                config.order = not config.order
                changed = True
        if changed:  # not a line for each topic: whoever has the table as it was is told again
            self._count_change()

    def follow_settings(self) -> None:
        """Have the topic that others are copied from at a send, as the settings are now."""
        if self._settings.auto_create_topic_enable:
            copied = _auto_create_config(self._settings)
            if self._configs.get(AUTO_CREATE_TOPIC) != copied:
                self.update(copied)

    def register_again(self) -> None:
        """Count a change although no topic has changed: they are to be registered in another way."""
        self._count_change()

    def body(self) -> LongBody:
        """Return the whole table, of now, as it goes to tools and the file."""
        return table_body(self.data_version, list(self._configs.values()))

    def configs(self) -> Mapping[str, TopicConfig]:
        """Return every topic by name; not to be changed through this."""
        return self._configs

    def _check_room(
        self, topics: Iterable[str], owner: str, code: ResponseCode = ResponseCode.SYSTEM_ERROR
    ) -> set[str]:
        """Return those of the topics that do not exist, for all of which there is room.

        Raises:
            Refusal: There is not, or one of them is being deleted.
        """
        new = {topic for topic in topics if topic not in self._configs}
        self._check_not_deleting(new)
        if new and len(self._configs) + len(new) > self._settings.max_topics:
            raise Refusal(
                code,
                f"topic[{min(new)}] not exist and is not made: this broker has {len(self._configs)} topics, "
                f"at most {self._settings.max_topics} (maxTopics)",
            )
        self._shares.check(len(new), owner, code=code)
        return new

    def _check_not_deleting(self, topics: Iterable[str]) -> None:
        for topic in topics:
            if topic in self._deleting:
                raise Refusal(ResponseCode.SYSTEM_BUSY, f"topic[{topic}] is being deleted: try again")

    def _own(self, topics: Collection[str], owner: str) -> None:
        """Note whose the new topics are."""
        self._shares.count(len(topics), owner)
        if owner:
            self._owners.update(dict.fromkeys(topics, owner))

    def _add(self, configs: Sequence[TopicConfig], owner: str) -> None:
        """Note new topics of the owner."""
        self._own([config.topic_name for config in configs], owner)
        self._put(configs)

    def _put(self, configs: Sequence[TopicConfig]) -> None:
        if configs:
            self._configs.update((config.topic_name, config) for config in configs)
            self._note(configs)

    def _note(self, configs: Sequence[TopicConfig] = (), *, removed: Sequence[str] = ()) -> None:
        self.data_version = self.data_version.next(self._clock.now_ms())
        try:
            self.journal.note(self.save, len(self._configs), self.data_version, configs, removed=removed)
        finally:  # the table has changed, whether that was noted or not
            self._tell()

    def _count_change(self) -> None:
        self.data_version = self.data_version.next(self._clock.now_ms())
        self.journal.note_change()
        self._tell()

    def _tell(self) -> None:
        for tell in self.on_change:
            tell()

    def save(self) -> None:
        """Write ``topics.json`` in one go, as long as no clients wait.

        Raises:
            OSError: The file cannot be written.
        """
        self.journal.begin_merge(self.data_version)
        self._file.write(b"".join(encode_in_pieces(self.body())))
        self.journal.end_merge()

    async def write(self) -> None:
        """Write ``topics.json``, in steps and by a thread.

        Raises:
            OSError: The file cannot be written.
        """
        self.journal.begin_merge(self.data_version)
        pieces = encode_in_pieces(self.body())
        await self._file.write_and_sync(
            await run_in_steps("the table of topics is written", collected(pieces))
        )
        self.journal.end_merge()

    def _own_topics(self) -> dict[str, TopicConfig]:
        """Return the topics every broker has, as Apache's make them at start."""
        s = self._settings
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

    def __contains__(self, topic: str) -> bool:
        return topic in self._configs

    def __iter__(self) -> Iterator[str]:
        return iter(self._configs)

    def __len__(self) -> int:
        return len(self._configs)


def table_body(version: DataVersion, configs: Iterable[TopicConfig]) -> LongBody:
    """Return a table of topics as it goes to name servers, tools and the file."""
    wrapper = TopicConfigSerializeWrapper(topic_config_table={}, data_version=version)
    pairs = ((config.topic_name, config) for config in configs)
    return LongBody(wrapper, topic_config_table=Entries(pairs))


def _auto_create_config(settings: BrokerSettings) -> TopicConfig:
    return _config(AUTO_CREATE_TOPIC, settings.default_topic_queue_nums, INHERIT | READ | WRITE)


def _config(topic: str, queues: int, perm: int = READ | WRITE) -> TopicConfig:
    return TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
